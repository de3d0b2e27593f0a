// GPU times of plan steps.
// In: timestamps read from finished recordings.
// Out: one Timing per executed step, in order of submission.
// Forbidden: touching recordings; plans hand their timestamps over.
#pragma once

#include <atomic>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "logical_device.hpp"

namespace torchvk {

// `start_ns` counts from an arbitrary moment that is the same for all timings of a device.
struct Timing {
    std::string plan;
    std::string step;
    double start_ns = 0;
    double duration_ns = 0;
};

// Steps between two timestamps: one, or several that need no barrier between them.
using TimedGroup = std::vector<std::string>;

// What a step takes when no other runs beside it, in nanoseconds.
using TimesAlone = std::unordered_map<std::string, double>;

class Profiler {
  public:
    explicit Profiler(const LogicalDevice& device) : device_(device) {}

    // Throws VulkanError when the queue has no timestamps.
    void set_enabled(bool enabled);
    bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

    // Reads the `groups.size() + 1` timestamps of a finished submission; group i ran between the
    // timestamps i and i + 1. Adds a step that is a group of its own to `alone`; the steps of a
    // larger group share its time as they do there.
    void read(VkQueryPool timestamps, const std::string& plan, std::span<const TimedGroup> groups,
              TimesAlone& alone);

    // All timings since the last call.
    std::vector<Timing> take();

  private:
    const LogicalDevice& device_;
    std::atomic<bool> enabled_{false};
    std::mutex mutex_;
    std::vector<Timing> timings_;
    std::optional<uint64_t> origin_;  // the first timestamp read
};

}  // namespace torchvk
