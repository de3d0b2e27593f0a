#include "call_key.hpp"

#include <algorithm>
#include <cstring>

namespace nb = nanobind;

namespace torchvk {
namespace {

// The first word of an argument says of what kind it is: 1, True and 1.0 are different calls.
enum Tag : uint64_t {
    none,
    boolean,
    integer,
    real,
    complex_number,
    constant,
    sequence,
    keyword,
    tensor
};

uint64_t pointer_word(const void* pointer) {
    return static_cast<uint64_t>(reinterpret_cast<uintptr_t>(pointer));
}

uint64_t bits_of(double number) {
    uint64_t bits = 0;  // tells -0.0 from 0.0 and finds NaN again
    std::memcpy(&bits, &number, sizeof bits);
    return bits;
}

// Calls that failed leave the arguments to Python code, which will raise the error anew.
bool failed() {
    PyErr_Clear();
    return false;
}

PyObject* interned(const char* name) {
    PyObject* text = PyUnicode_InternFromString(name);
    if (text == nullptr) throw nb::python_error();
    return text;
}

}  // namespace

TorchNames::TorchNames()
    : dtype(interned("dtype")),
      shape(interned("shape")),
      stride(interned("stride")),
      get_device(interned("get_device")),
      data_ptr(interned("data_ptr")) {
    nb::object torch = nb::module_::import_("torch");
    tensor = nb::object(torch.attr("Tensor")).release().ptr();
    constants = {nb::object(torch.attr("dtype")).release().ptr(),
                 nb::object(torch.attr("layout")).release().ptr(),
                 nb::object(torch.attr("memory_format")).release().ptr()};
}

bool CallKey::add_arguments(PyObject* positional, Py_ssize_t first, PyObject* keywords) {
    if (!add_sequence(positional, first)) return false;
    if (keywords == nullptr) return true;
    PyObject* name = nullptr;
    PyObject* value = nullptr;
    for (Py_ssize_t position = 0; PyDict_Next(keywords, &position, &name, &value) != 0;) {
        const Py_hash_t hash = PyObject_Hash(name);
        if (hash == -1) return failed();
        // An operator's few keywords differ in their hashes.
        words_.push_back(keyword);
        words_.push_back(static_cast<uint64_t>(hash));
        if (!add_value(value)) return false;
    }
    return true;
}

bool CallKey::add_sequence(PyObject* arguments, Py_ssize_t first) {
    const bool is_tuple = PyTuple_Check(arguments) != 0;
    const Py_ssize_t count = is_tuple ? PyTuple_GET_SIZE(arguments) : PyList_GET_SIZE(arguments);
    words_.push_back(sequence);
    words_.push_back(static_cast<uint64_t>(count - first));
    for (Py_ssize_t index = first; index < count; ++index) {
        PyObject* value =
            is_tuple ? PyTuple_GET_ITEM(arguments, index) : PyList_GET_ITEM(arguments, index);
        if (!add_value(value)) return false;
    }
    return true;
}

bool CallKey::add_value(PyObject* value) {
    if (value == Py_None) {
        words_.push_back(none);
        return true;
    }
    PyTypeObject* type = Py_TYPE(value);
    if (PyType_IsSubtype(type, reinterpret_cast<PyTypeObject*>(names_.tensor)) != 0) {
        return add_tensor(value);
    }
    if (PyBool_Check(value)) {
        words_.push_back(boolean);
        words_.push_back(value == Py_True);
        return true;
    }
    if (PyLong_CheckExact(value)) {
        int overflow = 0;
        const long long number = PyLong_AsLongLongAndOverflow(value, &overflow);
        if (overflow != 0) return false;
        words_.push_back(integer);
        words_.push_back(static_cast<uint64_t>(number));
        return true;
    }
    if (PyFloat_CheckExact(value)) {
        words_.push_back(real);
        words_.push_back(bits_of(PyFloat_AS_DOUBLE(value)));
        return true;
    }
    if (PyComplex_CheckExact(value)) {
        words_.push_back(complex_number);
        words_.push_back(bits_of(PyComplex_RealAsDouble(value)));
        words_.push_back(bits_of(PyComplex_ImagAsDouble(value)));
        return true;
    }
    if (PyList_Check(value) || PyTuple_Check(value)) return add_sequence(value, 0);
    const bool is_constant = std::any_of(
        names_.constants.begin(), names_.constants.end(),
        [&](PyObject* known) { return type == reinterpret_cast<PyTypeObject*>(known); });
    if (!is_constant) return false;
    words_.push_back(constant);
    words_.push_back(pointer_word(value));
    return true;
}

bool CallKey::add_tensor(PyObject* value) {
    CallTensor found{value, 0, 0, 0};
    const nb::object dtype = nb::steal(PyObject_GetAttr(value, names_.dtype));
    const nb::object shape = nb::steal(PyObject_GetAttr(value, names_.shape));
    const nb::object stride = nb::steal(PyObject_CallMethodNoArgs(value, names_.stride));
    const nb::object device = nb::steal(PyObject_CallMethodNoArgs(value, names_.get_device));
    if (!dtype.is_valid() || !shape.is_valid() || !stride.is_valid() || !device.is_valid()) {
        return failed();
    }
    if (!PyTuple_Check(shape.ptr()) || !PyTuple_Check(stride.ptr())) return false;
    found.device = PyLong_AsLongLong(device.ptr());
    found.dimensions = static_cast<size_t>(PyTuple_GET_SIZE(shape.ptr()));
    words_.push_back(tensor);
    words_.push_back(pointer_word(dtype.ptr()));  // dtypes live for ever
    words_.push_back(static_cast<uint64_t>(found.device));
    words_.push_back(found.dimensions);
    found.geometry = words_.size();
    if (!add_integers(shape.ptr()) || !add_integers(stride.ptr())) return false;
    tensors_.push_back(found);
    return true;
}

bool CallKey::add_integers(PyObject* tuple) {
    for (Py_ssize_t index = 0; index < PyTuple_GET_SIZE(tuple); ++index) {
        PyObject* number = PyTuple_GET_ITEM(tuple, index);
        if (!PyLong_Check(number)) return false;  // a symbol
        words_.push_back(static_cast<uint64_t>(PyLong_AsLongLong(number)));
    }
    return true;
}

uint64_t CallKey::span_bytes(const CallTensor& tensor, uint64_t item_bytes) const {
    uint64_t last = 0;
    for (size_t dimension = 0; dimension < tensor.dimensions; ++dimension) {
        const uint64_t extent = words_[tensor.geometry + dimension];
        if (extent == 0) return 0;
        last += (extent - 1) * words_[tensor.geometry + tensor.dimensions + dimension];
    }
    return (last + 1) * item_bytes;
}

size_t CallKeyHash::operator()(const std::vector<uint64_t>& words) const {
    uint64_t hash = 0xCBF29CE484222325u;
    for (const uint64_t word : words) {
        hash = (hash ^ word) * 0x100000001B3u;
        hash ^= hash >> 32;  // multiplication alone carries nothing downwards
    }
    return static_cast<size_t>(hash);
}

}  // namespace torchvk
