// The pieces of the Python module.
// In: C++ objects. Out: Python classes.
// Forbidden: logic; a binding converts arguments, releases the GIL and calls.
#pragma once

#include <exception>

#include <nanobind/nanobind.h>

#include "dlpack.hpp"

namespace torchvk {

void bind_exceptions(nanobind::module_& module);
void bind_profile(nanobind::module_& module);
void bind_device(nanobind::module_& module);
void bind_operators(nanobind::module_& module);

// Sets the Python error that a C++ exception becomes where bound functions throw it.
void set_python_error(const std::exception_ptr& failure) noexcept;

// A "dltensor" capsule that owns the tensor until a consumer takes it.
nanobind::object make_capsule(TensorPointer tensor);

}  // namespace torchvk
