// Kernels of short plans, recorded into the stream's pending command buffer at every run.
// In: pipelines, workgroup counts, a function that writes the plan's argument table; for profiled
// runs, what the profiler calls the plan.
// Out: the timeline value of the work, which is submitted together with what else is pending.
// Forbidden: plans that do not fit (see the constants); waiting, unless all slots are in flight.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <utility>
#include <vector>

#include "allocator.hpp"
#include "profiler.hpp"
#include "recording.hpp"
#include "stream.hpp"
#include "timestamp_ring.hpp"

namespace torchvk {

class Launches {
  public:
    // Longer plans are replayed from a recording of their own.
    static constexpr size_t most_steps = 8;
    // One kernel's arguments. Vulkan allows no device to align uniform buffers to more.
    static constexpr uint32_t slot_bytes = 256;

    struct Kernel {
        VkPipeline pipeline = VK_NULL_HANDLE;
        std::array<uint32_t, 3> groups{};
        bool barrier = false;  // waits for the kernels before it
        size_t slot = 0;       // of the plan's argument table: the number of the step
    };

    Launches(const LogicalDevice& device, Stream& stream, RecordingPool& pool, Allocator& tables,
             VkPipelineLayout layout, Profiler& profiler)
        : device_(device),
          stream_(stream),
          pool_(pool),
          tables_(tables),
          layout_(layout),
          timestamps_(device, stream, profiler) {}
    Launches(const Launches&) = delete;
    Launches& operator=(const Launches&) = delete;

    // `write_table(std::byte*)` fills `slots` slots with the arguments of the kernels. `timed` is
    // null for runs that nobody profiles; kernels between two barriers are one group of times.
    template <typename Function>
    uint64_t launch(std::span<const Kernel> kernels, size_t slots, bool visible_to_host,
                    const std::shared_ptr<TimedPlan>& timed, Function&& write_table) {
        const std::lock_guard lock(mutex_);
        const uint64_t begin = reserve(slots);
        const size_t first = static_cast<size_t>(begin % slot_count);
        write_table(table_.host() + first * slot_bytes);
        uint64_t work = 0;
        for (const Kernel& kernel : kernels)
            work += work_of(kernel);
        std::vector<TimedStep> steps;
        if (timed) steps = timed_steps(kernels);
        const uint32_t timestamp = timed ? timestamps_.reserve(steps.back().group + 2) : 0;
        const uint64_t value = stream_.launch(
            kernels.size(), work, visible_to_host,
            [&](VkCommandBuffer commands) { record(commands, kernels, first, steps, timestamp); });
        if (timed) timestamps_.written(timed, std::move(steps), value);
        used_until(value);
        return value;
    }

    // Hands the timestamps of finished launches to the profiler.
    void read_timestamps() {
        const std::lock_guard lock(mutex_);
        timestamps_.read_finished();
    }

  private:
    static constexpr size_t slot_count = 512;

    struct Used {
        uint64_t end = 0;  // position in the endless tape of which the slots show a window
        uint64_t value = 0;
    };

    static uint64_t work_of(const Kernel& kernel);
    uint64_t reserve(size_t slots);
    void used_until(uint64_t value);
    static std::vector<TimedStep> timed_steps(std::span<const Kernel> kernels);
    void record(VkCommandBuffer commands, std::span<const Kernel> kernels, size_t first,
                std::span<const TimedStep> timed, uint32_t timestamp) const;

    const LogicalDevice& device_;
    Stream& stream_;
    RecordingPool& pool_;
    Allocator& tables_;
    const VkPipelineLayout layout_;

    std::mutex mutex_;
    Block table_;
    std::vector<RecordingPool::Set> sets_;  // of the slots used so far
    uint64_t head_ = 0;
    uint64_t tail_ = 0;
    std::deque<Used> used_;
    TimestampRing timestamps_;
};

}  // namespace torchvk
