// The device's one ordered stream of work.
// In: transfers (gathered in a pending command buffer) and recorded plans.
// Out: timeline values; work with a value is done when the timeline semaphore reaches it.
// Everything is submitted to one queue in the order in which it arrived, and every command buffer
// starts with a full barrier, so later work always sees what earlier work wrote.
// Forbidden: allocating tensor memory while the lock is held.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <span>
#include <vector>

#include "logical_device.hpp"

namespace torchvk {

// Makes all compute and transfer writes recorded before visible to all that follows.
void record_full_barrier(const LogicalDevice& device, VkCommandBuffer commands);

// Makes them visible to the host once the command buffer has completed.
void record_host_barrier(const LogicalDevice& device, VkCommandBuffer commands);

// Device addresses [begin, end).
struct AddressRange {
    uint64_t begin = 0;
    uint64_t end = 0;
};

class Stream {
  public:
    explicit Stream(const LogicalDevice& device);
    ~Stream();
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;

    // Appends a transfer that touches `ranges`; `write_commands(VkCommandBuffer)` records it.
    // Returns the timeline value that it will complete with. Not necessarily submitted on return.
    // Nothing is recorded on hardware that executes nothing.
    template <typename Function>
    uint64_t transfer(std::span<const AddressRange> ranges, uint64_t bytes,
                      Function&& write_commands) {
        const std::lock_guard lock(mutex_);
        if (device_.profile.null_hardware) return submitted_ + 1;
        write_commands(pending_commands(ranges));
        return finish_transfer(bytes);
    }

    // Submits pending transfers and then `batches`, each as a batch of its own, with one
    // vkQueueSubmit. Returns their value.
    uint64_t submit(std::span<const VkCommandBuffer> batches);

    // Submits pending transfers. Returns the value of the latest submission.
    uint64_t flush();

    // Has the GPU finished the work with this value? Never true for unsubmitted work.
    bool finished(uint64_t value);

    // Waits for a value, submitting it first if needed.
    void wait(uint64_t value);
    void wait_all() { wait(flush()); }

    // Keeps `object` alive until the work with `value` is done.
    void retire(uint64_t value, std::shared_ptr<const void> object);
    // Gives up everything retired; the GPU must be idle.
    void drop_retired();

  private:
    struct CommandBuffer {
        VkCommandBuffer handle = VK_NULL_HANDLE;
        uint64_t value = 0;  // free once the timeline has reached it
    };
    struct Retired {
        uint64_t value = 0;
        std::shared_ptr<const void> object;
    };

    VkCommandBuffer pending_commands(std::span<const AddressRange> ranges);
    uint64_t finish_transfer(uint64_t bytes);
    uint64_t submit_locked(std::span<const VkCommandBuffer> batches);
    CommandBuffer take_command_buffer();
    void wait_submitted(uint64_t value);
    std::vector<std::shared_ptr<const void>> take_finished_objects();

    const LogicalDevice& device_;
    OwnedSemaphore timeline_;
    OwnedCommandPool pool_;
    std::atomic<uint64_t> completed_{0};

    std::mutex mutex_;
    uint64_t submitted_ = 0;
    CommandBuffer pending_;
    uint64_t pending_bytes_ = 0;
    std::vector<AddressRange> unordered_;  // touched since the last barrier of `pending_`
    std::deque<CommandBuffer> used_;       // in submission order
    std::deque<Retired> retired_;
};

}  // namespace torchvk
