// Recorded command buffers of plans, and the pools they come from.
// In: a table block and a layout. Out: one command buffer, descriptor set and table that belong
// together and are replayed together.
// Forbidden: touching a recording that the GPU may still execute; plans look at `value` first.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <vector>

#include "allocator.hpp"
#include "logical_device.hpp"

namespace torchvk {

// Command buffers and descriptor sets for all plans of a device.
class RecordingPool {
  public:
    RecordingPool(const LogicalDevice& device, VkDescriptorSetLayout set_layout);

    const LogicalDevice& device() const { return device_; }
    VkCommandBuffer allocate_commands();
    void free_commands(VkCommandBuffer commands);

    struct Set {
        VkDescriptorSet handle = VK_NULL_HANDLE;
        VkDescriptorPool pool = VK_NULL_HANDLE;
    };
    Set allocate_set();
    void free_set(const Set& set);

    // Command buffers of one pool must not be recorded at the same time.
    std::mutex& mutex() { return mutex_; }

  private:
    const LogicalDevice& device_;
    const VkDescriptorSetLayout set_layout_;
    std::mutex mutex_;
    OwnedCommandPool command_pool_;
    std::vector<OwnedDescriptorPool> descriptor_pools_;
};

class Recording {
  public:
    // `range` bytes of `table` are shown to a kernel at a time; 0 when no kernel has arguments.
    Recording(RecordingPool& pool, Block table, uint32_t range);
    ~Recording();
    Recording(const Recording&) = delete;
    Recording& operator=(const Recording&) = delete;

    VkCommandBuffer commands() const { return commands_; }
    VkDescriptorSet set() const { return set_.handle; }
    const Block& table() const { return table_; }

    std::vector<uint64_t> key;  // what the recorded commands depend on
    bool profiled = false;
    bool recorded = false;
    uint64_t value = 0;  // timeline value of the latest submission
    uint64_t dispatches = 0;
    uint64_t barriers = 0;
    OwnedQueryPool timestamps;
    std::vector<std::string> timed_steps;
    bool timestamps_unread = false;

  private:
    RecordingPool& pool_;
    Block table_;
    VkCommandBuffer commands_ = VK_NULL_HANDLE;
    RecordingPool::Set set_;
};

}  // namespace torchvk
