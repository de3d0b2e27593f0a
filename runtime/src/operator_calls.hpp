// Calls of eager operators that were compiled before: found by their arguments and launched without
// running Python code.
// In: calls as torch's dispatcher makes them; for each signature, once, the plan that computes it.
// Out: new tensors, or the arguments that were written. A call that is not known, that somebody
// listens to, or that needs more than one plan and aligned tensors goes to a Python function.
// Forbidden: compiling; deciding what a signature is computed by.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include <nanobind/nanobind.h>

#include "call_key.hpp"
#include "device.hpp"

namespace torchvk {

// How a signature is computed.
struct KnownCall {
    enum class Returns { nothing, argument, one, tuple, list };

    std::shared_ptr<Plan> plan;
    nanobind::object label;            // what `OperatorEnvironment::launched` is told
    nanobind::object call;             // what `WatchedCall` calls it
    std::vector<size_t> inputs;        // for every input of the plan, which of the call's tensors
    std::vector<int64_t> values;       // the plan's
    std::vector<uint64_t> item_bytes;  // of the call's tensors, if it writes any; else empty
    Returns returns = Returns::nothing;
    std::vector<size_t>
        results;  // outputs of the plan; for `argument`, which of the call's tensors
};

// What the Python package lends to `OperatorCalls`.
struct OperatorEnvironment {
    nanobind::object tensor_from_capsule;
    nanobind::tuple settings;           // functions whose results are part of every signature
    nanobind::list listeners;           // calls are left to Python code while it is not empty
    nanobind::object is_logged;         // as is, while this function returns True
    nanobind::object launched;          // called with a known call's label before it runs
    nanobind::list watchers;            // calls are kept as `WatchedCall` while it is not empty
    nanobind::object in_backward_pass;  // says True to calls that autograd makes
};

// A known call that ran; times in nanoseconds of std::chrono::steady_clock, which is also Python's
// time.perf_counter_ns.
struct WatchedCall {
    nanobind::object call;
    int64_t begin_ns = 0;
    int64_t end_ns = 0;
    unsigned long thread = 0;  // the operating system's number
    bool backward = false;
};

// Everything below holds the GIL, which also guards the table of calls.
class OperatorCalls {
  public:
    explicit OperatorCalls(OperatorEnvironment environment)
        : environment_(std::move(environment)) {}

    // Remembers how a signature is computed; false if its arguments cannot be told apart, or if too
    // many signatures are known.
    bool add(PyObject* operation, PyObject* positional, PyObject* keywords, KnownCall call);
    void clear() { known_.clear(); }
    size_t size() const { return known_.size(); }

    // Runs a known call. Empty if it has to be left to Python code; null with a Python error set if
    // it failed. Positional arguments count from `first` on.
    std::optional<nanobind::object> run(PyObject* operation, PyObject* positional, Py_ssize_t first,
                                        PyObject* keywords);

    // Watched calls since the last time.
    std::vector<WatchedCall> take_watched() { return std::exchange(watched_, {}); }

  private:
    bool is_listened_to() const;
    bool in_backward_pass() const;
    bool add_signature(CallKey& key, PyObject* operation, PyObject* positional, Py_ssize_t first,
                       PyObject* keywords) const;
    // False if an address cannot be told, is not aligned, or if tensors of a writing call overlap.
    bool find_addresses(const CallKey& key, const KnownCall& call,
                        std::vector<uint64_t>& addresses) const;
    nanobind::object results(const CallKey& key, const KnownCall& call,
                             std::vector<TensorPointer> outputs) const;

    const OperatorEnvironment environment_;
    const TorchNames names_;
    // Shared, since a call goes on without the GIL while another thread may empty the table.
    std::unordered_map<std::vector<uint64_t>, std::shared_ptr<const KnownCall>, CallKeyHash> known_;
    std::vector<WatchedCall> watched_;
};

}  // namespace torchvk
