#include <memory>
#include <stdexcept>

#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "operator_calls.hpp"
#include "parse_plan.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace torchvk {
namespace {

constexpr const char* kernel_name = "torchvk.operator_kernel";

// A function that torch's dispatcher calls. It is a plain C function of CPython's with this as its
// data: a bound C++ function would first copy its arguments into new objects.
struct Kernel {
    std::shared_ptr<OperatorCalls> calls;
    nb::object operation;  // null for a kernel that is given the operator as its first argument
    nb::object otherwise;  // a Python function for calls that are not known
};

PyObject* call_kernel(PyObject* self, PyObject* positional, PyObject* keywords) {
    const auto& kernel = *static_cast<Kernel*>(PyCapsule_GetPointer(self, kernel_name));
    const bool given = !kernel.operation.is_valid();
    if (given && PyTuple_GET_SIZE(positional) == 0) {
        PyErr_SetString(PyExc_TypeError, "this kernel takes an operator and its arguments");
        return nullptr;
    }
    PyObject* operation = given ? PyTuple_GET_ITEM(positional, 0) : kernel.operation.ptr();
    try {
        std::optional<nb::object> result =
            kernel.calls->run(operation, positional, given ? 1 : 0, keywords);
        if (result) return result->release().ptr();
    } catch (...) {
        set_python_error(std::current_exception());
        return nullptr;
    }
    return PyObject_Call(kernel.otherwise.ptr(), positional, keywords);
}

void destroy_kernel(PyObject* capsule) {
    delete static_cast<Kernel*>(PyCapsule_GetPointer(capsule, kernel_name));
}

PyMethodDef kernel_method{"operator_kernel",
                          reinterpret_cast<PyCFunction>(reinterpret_cast<void (*)()>(call_kernel)),
                          METH_VARARGS | METH_KEYWORDS, "Runs a torch operator."};

nb::object make_kernel(std::shared_ptr<OperatorCalls> calls, nb::object operation,
                       nb::object otherwise) {
    auto kernel = std::make_unique<Kernel>(
        Kernel{std::move(calls), std::move(operation), std::move(otherwise)});
    const nb::object capsule = nb::steal(PyCapsule_New(kernel.get(), kernel_name, destroy_kernel));
    if (!capsule.is_valid()) throw nb::python_error();
    static_cast<void>(kernel.release());  // now the capsule's
    nb::object function = nb::steal(PyCFunction_New(&kernel_method, capsule.ptr()));
    if (!function.is_valid()) throw nb::python_error();
    return function;
}

KnownCall::Returns parse_returns(const std::string& name) {
    if (name == "nothing") return KnownCall::Returns::nothing;
    if (name == "argument") return KnownCall::Returns::argument;
    if (name == "one") return KnownCall::Returns::one;
    if (name == "tuple") return KnownCall::Returns::tuple;
    if (name == "list") return KnownCall::Returns::list;
    throw nb::value_error(("an operator does not return '" + name + "'").c_str());
}

}  // namespace

void bind_operators(nb::module_& module) {
    nb::class_<OperatorCalls>(module, "OperatorCalls")
        .def(
            "__init__",
            [](OperatorCalls* self, nb::object tensor_from_capsule, nb::tuple settings,
               nb::list listeners, nb::object is_logged, nb::object launched, nb::list watchers,
               nb::object in_backward_pass) {
                new (self)
                    OperatorCalls({std::move(tensor_from_capsule), std::move(settings),
                                   std::move(listeners), std::move(is_logged), std::move(launched),
                                   std::move(watchers), std::move(in_backward_pass)});
            },
            "tensor_from_capsule"_a, "settings"_a, "listeners"_a, "is_logged"_a, "launched"_a,
            "watchers"_a, "in_backward_pass"_a)
        .def(
            "kernel",
            [](std::shared_ptr<OperatorCalls> self, nb::object operation, nb::object otherwise) {
                return make_kernel(std::move(self), std::move(operation), std::move(otherwise));
            },
            "operation"_a, "otherwise"_a)
        .def(
            "fallback",
            [](std::shared_ptr<OperatorCalls> self, nb::object otherwise) {
                return make_kernel(std::move(self), {}, std::move(otherwise));
            },
            "otherwise"_a)
        .def(
            "add",
            [](OperatorCalls& self, nb::object operation, nb::tuple args, nb::dict kwargs,
               std::shared_ptr<Plan> plan, nb::object label, nb::object call,
               std::vector<size_t> inputs, nb::list values, std::vector<uint64_t> item_bytes,
               const std::string& returns, std::vector<size_t> results) {
                std::vector<int64_t> bits;
                for (const nb::handle value : values)
                    bits.push_back(parse_bits(value));
                return self.add(operation.ptr(), args.ptr(), kwargs.ptr(),
                                {std::move(plan), std::move(label), std::move(call),
                                 std::move(inputs), std::move(bits), std::move(item_bytes),
                                 parse_returns(returns), std::move(results)});
            },
            "operation"_a, "args"_a, "kwargs"_a, "plan"_a, "label"_a, "call"_a, "inputs"_a,
            "values"_a, "item_bytes"_a, "returns"_a, "results"_a)
        .def("take_watched",
             [](OperatorCalls& self) {
                 nb::list calls;
                 for (const WatchedCall& call : self.take_watched()) {
                     calls.append(nb::make_tuple(call.call, call.begin_ns, call.end_ns, call.thread,
                                                 call.backward));
                 }
                 return calls;
             })
        .def("clear", &OperatorCalls::clear)
        .def("__len__", &OperatorCalls::size);
}

}  // namespace torchvk
