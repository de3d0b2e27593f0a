// The device's one ordered stream of work.
// In: transfers and launches of short plans (gathered in a pending command buffer), recorded plans.
// Out: timeline values; work with a value is done when the timeline semaphore reaches it.
// Everything is submitted to one queue in the order in which it arrived; every command buffer and
// every launch starts with a full barrier, so later work always sees what earlier work wrote.
//
// A submission costs the host more than recording a kernel does. The pending command buffer is
// submitted when somebody waits or asks, when a recorded plan follows, when it holds enough work to
// be worth it and the device has little else to do, and a little at a time while it has nothing.
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
        write_commands(commands_for_transfer(ranges));
        return finish_transfer(bytes);
    }

    // Appends the `steps` kernels of a plan, ordered behind everything before them;
    // `write_commands(VkCommandBuffer)` records them. `work` is an estimate in bytes moved. With
    // `visible_to_host`, what they write can be read by the host once they are done. Returns their
    // timeline value. Not necessarily submitted on return.
    template <typename Function>
    uint64_t launch(size_t steps, uint64_t work, bool visible_to_host, Function&& write_commands) {
        std::vector<std::shared_ptr<const void>> released;  // destroyed after the lock is dropped
        const std::lock_guard lock(mutex_);
        write_commands(commands_for_launch());
        const uint64_t value = finish_launch(steps, work, visible_to_host);
        if (value == submitted_) released = take_finished_objects();
        return value;
    }

    // Submits pending work and then `batches`, each as a batch of its own, with one
    // vkQueueSubmit. Returns their value.
    uint64_t submit(std::span<const VkCommandBuffer> batches);

    // Submits pending work. Returns the value of the latest submission.
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

    // What the pending command buffer holds.
    struct Pending {
        CommandBuffer commands;
        uint64_t bytes = 0;
        size_t steps = 0;
        size_t steps_to_start = 0;            // submitted with so many if the device is idle
        bool barrier_due = false;             // a launch was the last thing recorded
        bool visible_to_host = false;         // needs a barrier at its end
        std::vector<AddressRange> unordered;  // touched by transfers since the last barrier
    };

    // Returns whether the command buffer is fresh; its barrier is recorded then.
    bool open_pending();
    void pending_barrier();
    VkCommandBuffer commands_for_transfer(std::span<const AddressRange> ranges);
    uint64_t finish_transfer(uint64_t bytes);
    VkCommandBuffer commands_for_launch();
    uint64_t finish_launch(size_t steps, uint64_t work, bool visible_to_host);
    // Has the device several submissions that it did not finish?
    bool busy();
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
    Pending pending_;
    std::deque<CommandBuffer> used_;  // in submission order
    std::deque<Retired> retired_;
};

}  // namespace torchvk
