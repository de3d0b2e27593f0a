// GPU times of plan steps.
// In: timestamps of finished work, and which steps ran between them.
// Out: one Timing per executed step, in order of submission.
// Forbidden: deciding where timestamps are written; recordings and launches do.
#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "logical_device.hpp"

namespace torchvk {

// What timings call a plan and its steps.
struct TimedPlan {
    std::string name;
    std::vector<std::string> steps;
    // What each step takes when no other runs beside it, in nanoseconds; empty until one is known,
    // negative for those that are not. The profiler's.
    std::vector<double> alone;
};

// `start_ns` counts from an arbitrary moment that is the same for all timings of a device.
struct Timing {
    std::shared_ptr<const TimedPlan> plan;
    uint32_t step = 0;  // of `plan->steps`
    double start_ns = 0;
    double duration_ns = 0;
};

// A step and the group that it ran in: group i lies between the timestamps i and i + 1 and has one
// step, or several that need no barrier between them.
struct TimedStep {
    uint32_t step = 0;
    uint32_t group = 0;
};

OwnedQueryPool create_timestamps(const LogicalDevice& device, uint32_t count);

// Has the device note the time at which all commands before have ended.
void record_timestamp(const LogicalDevice& device, VkCommandBuffer commands, VkQueryPool timestamps,
                      uint32_t index);

class Profiler {
  public:
    explicit Profiler(const LogicalDevice& device) : device_(device) {}

    // Throws VulkanError when the queue has no timestamps.
    void set_enabled(bool enabled);
    bool enabled() const { return enabled_.load(std::memory_order_relaxed); }

    // Reads the timestamps of a finished run, from `first` on. The steps of a group share its time
    // as their times alone are, which are learnt from groups of one step.
    void read(VkQueryPool timestamps, uint32_t first, std::span<const TimedStep> steps,
              const std::shared_ptr<TimedPlan>& plan);

    // Whether any step's time alone is known.
    bool knows_alone(const TimedPlan& plan);

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
