// Recorded command buffers of plans, and the pools they come from.
// In: a table block and a layout. Out: a command buffer, descriptor sets and a table that belong
// together and are replayed together.
// Forbidden: touching a recording that the GPU may still execute; plans look at `value` first.
#pragma once

#include <cstdint>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "allocator.hpp"
#include "logical_device.hpp"
#include "profiler.hpp"

namespace torchvk {

// Command buffers and descriptor sets for all plans of a device.
class RecordingPool {
  public:
    RecordingPool(const LogicalDevice& device, VkDescriptorSetLayout set_layout);

    const LogicalDevice& device() const { return device_; }

    // Command buffers of one pool must not be recorded at the same time: hold this while recording,
    // and for the next two functions.
    std::mutex& recording_mutex() { return recording_mutex_; }
    VkCommandBuffer allocate_commands();
    void free_commands(const std::vector<VkCommandBuffer>& commands);

    struct Set {
        VkDescriptorSet handle = VK_NULL_HANDLE;
        VkDescriptorPool pool = VK_NULL_HANDLE;
    };
    // A set that shows `range` bytes of `buffer` from `offset` on.
    Set allocate_set(VkBuffer buffer, uint64_t offset, uint32_t range);
    void free_set(const Set& set);

  private:
    Set allocate_set();

    const LogicalDevice& device_;
    const VkDescriptorSetLayout set_layout_;
    std::mutex recording_mutex_;
    OwnedCommandPool command_pool_;
    std::mutex set_mutex_;
    std::vector<OwnedDescriptorPool> descriptor_pools_;
};

class Recording {
  public:
    // Step i is shown `range` bytes of `table` from `slices[i]` on; 0 when no kernel has arguments.
    Recording(RecordingPool& pool, Block table, std::span<const uint32_t> slices, uint32_t range);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    // The arguments of a step; null when no kernel has any.
    VkDescriptorSet set(size_t step) const {
        return sets_.empty() ? VK_NULL_HANDLE : sets_[step].handle;
    }
    const Block& table() const { return table_; }

    // Recording: begin(), then per step barrier() if needed, commands in commands(), step_done();
    // then end(). The caller holds the pool's recording_mutex() all along. A profiled recording
    // takes the time at every barrier().
    void begin(bool profiled, size_t most_steps);
    VkCommandBuffer commands() const { return batches_[batch_]; }
    void barrier();
    void step_done(size_t step, bool dispatch);
    void end(bool visible_to_host);

    // What end() completed: command buffers to submit one by one.
    std::span<const VkCommandBuffer> batches() const { return {batches_.data(), batch_ + 1}; }
    bool recorded() const { return recorded_; }
    void invalidate() { recorded_ = false; }  // the next run records anew
    bool profiled() const { return profiled_; }
    uint64_t dispatches() const { return dispatches_; }
    uint64_t barriers() const { return barriers_; }
    VkQueryPool timestamps() const { return timestamps_.get(); }
    std::span<const TimedStep> timed_steps() const { return timed_steps_; }

    std::vector<uint64_t> key;       // what the recorded commands depend on
    uint64_t value = 0;              // timeline value of the latest submission
    bool timestamps_unread = false;  // since the latest submission
    bool steps_apart = false;        // a barrier before every step, needed or not

  private:
    void begin_batch();
    void write_timestamp();

    RecordingPool& pool_;
    const Block table_;
    std::vector<RecordingPool::Set> sets_;  // one per step
    std::vector<VkCommandBuffer> batches_;
    size_t batch_ = 0;
    size_t steps_in_batch_ = 0;
    bool recorded_ = false;
    bool profiled_ = false;
    uint64_t dispatches_ = 0;
    uint64_t barriers_ = 0;
    OwnedQueryPool timestamps_;
    uint32_t timestamp_count_ = 0;
    std::vector<TimedStep> timed_steps_;
};

}  // namespace torchvk
