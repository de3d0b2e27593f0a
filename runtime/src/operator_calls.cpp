#include "operator_calls.hpp"

#include <algorithm>
#include <chrono>
#include <exception>
#include <stdexcept>

#include "bindings.hpp"

namespace nb = nanobind;

namespace torchvk {
namespace {

constexpr size_t most_known_calls = 8192;
// What plans take for granted of their inputs, unless they were compiled a second time.
constexpr uint64_t input_alignment = 16;

struct Range {
    uint64_t begin = 0;
    uint64_t end = 0;
};

int64_t now_ns() {
    const auto now = std::chrono::steady_clock::now().time_since_epoch();
    return std::chrono::duration_cast<std::chrono::nanoseconds>(now).count();
}

unsigned long thread_number() {
    thread_local const unsigned long number = PyThread_get_thread_native_id();
    return number;
}

bool overlap(std::vector<Range>& ranges) {
    std::sort(ranges.begin(), ranges.end(),
              [](const Range& left, const Range& right) { return left.begin < right.begin; });
    return std::adjacent_find(ranges.begin(), ranges.end(),
                              [](const Range& left, const Range& right) {
                                  return left.end > right.begin;
                              }) != ranges.end();
}

}  // namespace

bool OperatorCalls::is_listened_to() const {
    if (environment_.listeners.size() != 0) return true;
    const nb::object logged = nb::steal(PyObject_CallNoArgs(environment_.is_logged.ptr()));
    if (!logged.is_valid()) PyErr_Clear();
    return logged.ptr() != Py_False;
}

bool OperatorCalls::in_backward_pass() const {
    const nb::object said = nb::steal(PyObject_CallNoArgs(environment_.in_backward_pass.ptr()));
    if (!said.is_valid()) PyErr_Clear();
    return said.ptr() == Py_True;
}

bool OperatorCalls::add_signature(CallKey& key, PyObject* operation, PyObject* positional,
                                  Py_ssize_t first, PyObject* keywords) const {
    key.add(reinterpret_cast<uintptr_t>(operation));
    for (const nb::handle setting : environment_.settings) {
        // True, False or a dtype: objects that live for ever.
        const nb::object value = nb::steal(PyObject_CallNoArgs(setting.ptr()));
        if (!value.is_valid()) {
            PyErr_Clear();
            return false;
        }
        key.add(reinterpret_cast<uintptr_t>(value.ptr()));
    }
    return key.add_arguments(positional, first, keywords);
}

bool OperatorCalls::add(PyObject* operation, PyObject* positional, PyObject* keywords,
                        KnownCall call) {
    CallKey key(names_);
    if (known_.size() >= most_known_calls) return false;
    if (!add_signature(key, operation, positional, 0, keywords)) return false;
    const size_t tensors = key.tensors().size();
    const bool known_inputs = std::all_of(call.inputs.begin(), call.inputs.end(),
                                          [&](size_t input) { return input < tensors; });
    if (!known_inputs || (!call.item_bytes.empty() && call.item_bytes.size() != tensors)) {
        throw std::invalid_argument("a known call names tensors that its arguments do not have");
    }
    known_[key.words()] = std::make_shared<const KnownCall>(std::move(call));
    return true;
}

std::optional<nb::object> OperatorCalls::run(PyObject* operation, PyObject* positional,
                                             Py_ssize_t first, PyObject* keywords) {
    if (known_.empty() || is_listened_to()) return std::nullopt;
    CallKey key(names_);
    if (!add_signature(key, operation, positional, first, keywords)) return std::nullopt;
    const auto entry = known_.find(key.words());
    if (entry == known_.end()) return std::nullopt;
    const std::shared_ptr<const KnownCall> call = entry->second;
    std::vector<uint64_t> addresses;
    if (!find_addresses(key, *call, addresses)) return std::nullopt;

    const nb::object told =
        nb::steal(PyObject_CallOneArg(environment_.launched.ptr(), call->label.ptr()));
    if (!told.is_valid()) return nb::object();
    const bool watched = environment_.watchers.size() != 0;
    const int64_t begin = watched ? now_ns() : 0;
    std::vector<TensorPointer> outputs;
    std::exception_ptr failure;
    {
        const nb::gil_scoped_release released;
        try {
            outputs = call->plan->run(addresses, call->values);
        } catch (...) {
            failure = std::current_exception();
        }
    }
    if (failure) {
        set_python_error(failure);
        return nb::object();
    }
    if (watched) {
        watched_.push_back({call->call, begin, now_ns(), thread_number(), in_backward_pass()});
    }
    return results(key, *call, std::move(outputs));
}

bool OperatorCalls::find_addresses(const CallKey& key, const KnownCall& call,
                                   std::vector<uint64_t>& addresses) const {
    std::vector<uint64_t> all;
    all.reserve(key.tensors().size());
    for (const CallTensor& tensor : key.tensors()) {
        const nb::object address =
            nb::steal(PyObject_CallMethodNoArgs(tensor.object, names_.data_ptr));
        all.push_back(address.is_valid() ? PyLong_AsUnsignedLongLong(address.ptr()) : 0);
        if (PyErr_Occurred() != nullptr) {
            PyErr_Clear();
            return false;
        }
    }
    addresses.reserve(call.inputs.size());
    for (const size_t input : call.inputs) {
        if (all[input] % input_alignment != 0) return false;
        addresses.push_back(all[input]);
    }
    if (call.item_bytes.empty()) return true;
    std::vector<Range> ranges;
    ranges.reserve(all.size());
    for (size_t index = 0; index < all.size(); ++index) {
        const uint64_t bytes = key.span_bytes(key.tensors()[index], call.item_bytes[index]);
        if (bytes != 0) ranges.push_back({all[index], all[index] + bytes});
    }
    return !overlap(ranges);
}

nb::object OperatorCalls::results(const CallKey& key, const KnownCall& call,
                                  std::vector<TensorPointer> outputs) const {
    const auto tensor = [&](size_t output) {
        const nb::object capsule = make_capsule(std::move(outputs.at(output)));
        return PyObject_CallOneArg(environment_.tensor_from_capsule.ptr(), capsule.ptr());
    };
    switch (call.returns) {
        case KnownCall::Returns::nothing:
            return nb::none();
        case KnownCall::Returns::argument:
            return nb::borrow(key.tensors().at(call.results.at(0)).object);
        case KnownCall::Returns::one:
            return nb::steal(tensor(call.results.at(0)));
        default:
            break;
    }
    const Py_ssize_t count = static_cast<Py_ssize_t>(call.results.size());
    const bool is_tuple = call.returns == KnownCall::Returns::tuple;
    nb::object sequence = nb::steal(is_tuple ? PyTuple_New(count) : PyList_New(count));
    for (Py_ssize_t index = 0; sequence.is_valid() && index < count; ++index) {
        PyObject* item = tensor(call.results[static_cast<size_t>(index)]);
        if (item == nullptr) return nb::object();
        if (is_tuple) {
            PyTuple_SET_ITEM(sequence.ptr(), index, item);
        } else {
            PyList_SET_ITEM(sequence.ptr(), index, item);
        }
    }
    return sequence;
}

}  // namespace torchvk
