#include <array>
#include <exception>
#include <new>
#include <stdexcept>

#include "bindings.hpp"
#include "error.hpp"

namespace nb = nanobind;

namespace torchvk {
namespace {

// Python's classes for the four C++ exception types. References are kept until the process ends: an
// exception may be raised while the interpreter shuts down.
struct ExceptionClasses {
    PyObject* vulkan_error = nullptr;
    PyObject* device_lost = nullptr;
    PyObject* out_of_memory = nullptr;
    PyObject* device_assert = nullptr;
};

ExceptionClasses classes;

void raise(PyObject* registered, PyObject* otherwise, const std::exception& error) {
    PyErr_SetString(registered != nullptr ? registered : otherwise, error.what());
}

void translate(const std::exception_ptr& pointer, void*) {
    try {
        std::rethrow_exception(pointer);
    } catch (const DeviceLost& error) {
        raise(classes.device_lost, PyExc_RuntimeError, error);
    } catch (const VulkanError& error) {
        raise(classes.vulkan_error, PyExc_RuntimeError, error);
    } catch (const OutOfMemory& error) {
        raise(classes.out_of_memory, PyExc_MemoryError, error);
    } catch (const DeviceAssert& error) {
        raise(classes.device_assert, PyExc_RuntimeError, error);
    }
}

}  // namespace

void set_python_error(const std::exception_ptr& failure) noexcept {
    try {
        translate(failure, nullptr);
    } catch (nb::python_error& error) {
        error.restore();
    } catch (const std::invalid_argument& error) {
        PyErr_SetString(PyExc_ValueError, error.what());
    } catch (const std::bad_alloc&) {
        PyErr_NoMemory();
    } catch (const std::exception& error) {
        PyErr_SetString(PyExc_RuntimeError, error.what());
    }
}

void bind_exceptions(nb::module_& module) {
    nb::register_exception_translator(translate);
    module.def(
        "register_exceptions",
        [](nb::type_object vulkan_error, nb::type_object device_lost, nb::type_object out_of_memory,
           nb::type_object device_assert) {
            classes = {vulkan_error.release().ptr(), device_lost.release().ptr(),
                       out_of_memory.release().ptr(), device_assert.release().ptr()};
        },
        nb::arg("vulkan_error"), nb::arg("device_lost"), nb::arg("out_of_memory"),
        nb::arg("device_assert"));
}

}  // namespace torchvk
