// GPU times of plan steps.
// In: timestamps read from finished recordings.
// Out: one Timing per executed step, in order of submission.
// Forbidden: touching recordings; plans hand their timestamps over.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
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

class Profiler {
  public:
    explicit Profiler(const LogicalDevice& device) : device_(device) {}

    // Throws VulkanError when the queue has no timestamps.
    void set_enabled(bool enabled);
    bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

    // Reads the `steps.size() + 1` timestamps of a finished submission; step i ran between the
    // timestamps i and i + 1.
    void read(VkQueryPool timestamps, const std::string& plan,
              const std::vector<std::string>& steps);

    // All timings since the last call.
    std::vector<Timing> take();

  private:
    const LogicalDevice& device_;
    std::atomic<bool> enabled_{false};
    std::mutex mutex_;
    std::vector<Timing> timings_;
};

}  // namespace torchvk
