// What tells one call of a torch operator from another, read from its Python arguments.
// In: the positional and keyword arguments of a call. Out: a row of words, equal for calls that one
// compiled graph serves, and the call's tensors.
// Forbidden: torch headers, since one build serves all torch versions: tensors are asked as Python
// objects; running Python code.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include <nanobind/nanobind.h>

namespace torchvk {

// The parts of torch that reading arguments needs, looked up once.
struct TorchNames {
    TorchNames();

    // References are kept until the process ends: kernels may be called while the interpreter shuts
    // down.
    PyObject* tensor;                    // torch.Tensor
    std::array<PyObject*, 3> constants;  // types whose instances stand for themselves
    PyObject* dtype;
    PyObject* shape;
    PyObject* stride;
    PyObject* get_device;
    PyObject* data_ptr;
};

// A tensor argument; extents and strides in elements are in the key's words from `geometry` on.
struct CallTensor {
    PyObject* object = nullptr;  // borrowed from the arguments
    int64_t device = 0;          // -1: not on vk
    size_t geometry = 0;
    size_t dimensions = 0;
};

class CallKey {
  public:
    explicit CallKey(const TorchNames& names) : names_(names) {}

    // Appends a word that is no argument, such as the operator.
    void add(uint64_t word) { words_.push_back(word); }
    // Appends arguments; `keywords` may be null. False when there is one of a kind that the key
    // cannot tell apart, or that failed to answer; no Python error is left set.
    bool add_arguments(PyObject* positional, Py_ssize_t first, PyObject* keywords);

    const std::vector<uint64_t>& words() const { return words_; }
    const std::vector<CallTensor>& tensors() const { return tensors_; }

    // Bytes from a tensor's first element to the end of its last one; 0 without elements.
    uint64_t span_bytes(const CallTensor& tensor, uint64_t item_bytes) const;

  private:
    bool add_value(PyObject* value);
    bool add_sequence(PyObject* sequence, Py_ssize_t first);
    bool add_tensor(PyObject* tensor);
    bool add_integers(PyObject* tuple);

    const TorchNames& names_;
    std::vector<uint64_t> words_;
    std::vector<CallTensor> tensors_;
};

// Of the words of a key, FNV-1a over whole words (Fowler, Noll, Vo) with a final mix.
struct CallKeyHash {
    size_t operator()(const std::vector<uint64_t>& words) const;
};

}  // namespace torchvk
