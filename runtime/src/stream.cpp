#include "stream.hpp"

#include <algorithm>
#include <array>
#include <chrono>
#include <thread>

#include "error.hpp"

namespace torchvk {
namespace {

// Pending work is submitted when it moves this much, or launches so many kernels.
constexpr uint64_t largest_pending_bytes = uint64_t{1} << 20;
constexpr size_t most_pending_steps = 32;
// A busy device stands still for some microseconds between two submissions, so large work is
// gathered, too, while it has others to go on with; not so much that Windows' timeout is near.
#if defined(_WIN32)
constexpr size_t most_held_steps = 4;
#else
constexpr size_t most_held_steps = 16;
#endif
constexpr uint64_t submissions_of_a_busy_device = 2;
// An idle device is given so many kernels at a time: a few short ones cost less than a submission.
constexpr size_t steps_worth_starting = 8;
// Transfers that may run side by side without a barrier between them.
constexpr size_t most_unordered_ranges = 64;
// Submissions of pending work in flight: a host that runs further ahead has to wait.
constexpr size_t most_command_buffers = 64;
// Short waits poll: waking a sleeping thread costs more than a small kernel takes.
constexpr std::chrono::microseconds polling_time{30};

void record_barrier(const LogicalDevice& device, VkCommandBuffer commands,
                    VkPipelineStageFlags destination_stages, VkAccessFlags destination_access) {
    VkMemoryBarrier barrier{VK_STRUCTURE_TYPE_MEMORY_BARRIER};
    barrier.srcAccessMask = VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_TRANSFER_WRITE_BIT;
    barrier.dstAccessMask = destination_access;
    device.vk.vkCmdPipelineBarrier(
        commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        destination_stages, 0, 1, &barrier, 0, nullptr, 0, nullptr);
}

}  // namespace

void record_full_barrier(const LogicalDevice& device, VkCommandBuffer commands) {
    record_barrier(
        device, commands, VK_PIPELINE_STAGE_COMPUTE_SHADER_BIT | VK_PIPELINE_STAGE_TRANSFER_BIT,
        VK_ACCESS_SHADER_READ_BIT | VK_ACCESS_SHADER_WRITE_BIT | VK_ACCESS_UNIFORM_READ_BIT |
            VK_ACCESS_TRANSFER_READ_BIT | VK_ACCESS_TRANSFER_WRITE_BIT);
}

void record_host_barrier(const LogicalDevice& device, VkCommandBuffer commands) {
    record_barrier(device, commands, VK_PIPELINE_STAGE_HOST_BIT, VK_ACCESS_HOST_READ_BIT);
}

Stream::Stream(const LogicalDevice& device) : device_(device) {
    if (device.profile.null_hardware) return;  // offers no timeline semaphores, and submits nothing
    VkSemaphoreTypeCreateInfo type{VK_STRUCTURE_TYPE_SEMAPHORE_TYPE_CREATE_INFO};
    type.semaphoreType = VK_SEMAPHORE_TYPE_TIMELINE;
    VkSemaphoreCreateInfo semaphore_info{VK_STRUCTURE_TYPE_SEMAPHORE_CREATE_INFO, &type};
    VkSemaphore semaphore = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreateSemaphore(device.handle, &semaphore_info, nullptr, &semaphore));
    timeline_ = OwnedSemaphore(device, semaphore);

    VkCommandPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    pool_info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    pool_info.queueFamilyIndex = device.queue_family;
    VkCommandPool pool = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreateCommandPool(device.handle, &pool_info, nullptr, &pool));
    pool_ = OwnedCommandPool(device, pool);
}

Stream::~Stream() = default;

Stream::CommandBuffer Stream::take_command_buffer() {
    if (used_.size() >= most_command_buffers) wait_submitted(used_.front().value);
    if (!used_.empty() && finished(used_.front().value)) {
        const CommandBuffer reused = used_.front();
        used_.pop_front();
        return reused;
    }
    CommandBuffer fresh;
    VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = pool_.get();
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VK_CALL(device_.vk.vkAllocateCommandBuffers(device_.handle, &info, &fresh.handle));
    return fresh;
}

bool Stream::open_pending() {
    if (pending_.commands.handle != VK_NULL_HANDLE) return false;
    const CommandBuffer taken = take_command_buffer();
    VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    begin.flags = VK_COMMAND_BUFFER_USAGE_ONE_TIME_SUBMIT_BIT;
    VK_CALL(device_.vk.vkBeginCommandBuffer(taken.handle, &begin));
    pending_.commands = taken;
    pending_.steps_to_start = steps_worth_starting;
    pending_barrier();
    return true;
}

void Stream::pending_barrier() {
    record_full_barrier(device_, pending_.commands.handle);
    device_.counters.barriers.fetch_add(1, std::memory_order_relaxed);
    pending_.barrier_due = false;
    pending_.unordered.clear();
}

VkCommandBuffer Stream::commands_for_transfer(std::span<const AddressRange> ranges) {
    if (!open_pending()) {
        const auto overlaps = [&](const AddressRange& range) {
            return std::any_of(pending_.unordered.begin(), pending_.unordered.end(),
                               [&](const AddressRange& other) {
                                   return range.begin < other.end && other.begin < range.end;
                               });
        };
        if (pending_.barrier_due || pending_.unordered.size() >= most_unordered_ranges ||
            std::any_of(ranges.begin(), ranges.end(), overlaps)) {
            pending_barrier();
        }
    }
    pending_.unordered.insert(pending_.unordered.end(), ranges.begin(), ranges.end());
    return pending_.commands.handle;
}

uint64_t Stream::finish_transfer(uint64_t bytes) {
    pending_.bytes += bytes;
    if (pending_.bytes >= largest_pending_bytes) return submit_locked({});
    return submitted_ + 1;
}

VkCommandBuffer Stream::commands_for_launch() {
    if (!open_pending()) pending_barrier();
    pending_.barrier_due = true;
    return pending_.commands.handle;
}

uint64_t Stream::finish_launch(size_t steps, uint64_t work, bool visible_to_host) {
    pending_.bytes += work;
    pending_.steps += steps;
    pending_.visible_to_host |= visible_to_host;
    bool due = pending_.steps >= most_pending_steps;
    if (pending_.bytes >= largest_pending_bytes) {
        due |= pending_.steps >= most_held_steps || !busy();
    } else if (!due && pending_.steps >= pending_.steps_to_start) {
        due = finished(submitted_);
        pending_.steps_to_start = pending_.steps + steps_worth_starting;
    }
    return due ? submit_locked({}) : submitted_ + 1;
}

bool Stream::busy() {
    return submitted_ >= submissions_of_a_busy_device &&
           !finished(submitted_ - submissions_of_a_busy_device + 1);
}

uint64_t Stream::submit_locked(std::span<const VkCommandBuffer> batches) {
    std::vector<VkCommandBuffer> buffers;
    buffers.reserve(batches.size() + 1);
    const bool with_pending = pending_.commands.handle != VK_NULL_HANDLE;
    if (with_pending) {
        const VkCommandBuffer commands = pending_.commands.handle;
        if (pending_.visible_to_host) record_host_barrier(device_, commands);
        VK_CALL(device_.vk.vkEndCommandBuffer(commands));
        buffers.push_back(commands);
    }
    buffers.insert(buffers.end(), batches.begin(), batches.end());
    if (buffers.empty()) return submitted_;

    // Pending work shares the first batch.
    std::vector<VkSubmitInfo> infos;
    infos.reserve(buffers.size());
    for (size_t begin = 0; begin < buffers.size();) {
        const size_t count = begin == 0 && with_pending && !batches.empty() ? 2 : 1;
        VkSubmitInfo info{VK_STRUCTURE_TYPE_SUBMIT_INFO};
        info.commandBufferCount = static_cast<uint32_t>(count);
        info.pCommandBuffers = &buffers[begin];
        infos.push_back(info);
        begin += count;
    }

    const uint64_t value = submitted_ + 1;
    const VkSemaphore semaphore = timeline_.get();
    VkTimelineSemaphoreSubmitInfo timeline{VK_STRUCTURE_TYPE_TIMELINE_SEMAPHORE_SUBMIT_INFO};
    timeline.signalSemaphoreValueCount = 1;
    timeline.pSignalSemaphoreValues = &value;
    infos.back().pNext = &timeline;
    infos.back().signalSemaphoreCount = 1;
    infos.back().pSignalSemaphores = &semaphore;
    VK_CALL(device_.vk.vkQueueSubmit(device_.queue, static_cast<uint32_t>(infos.size()),
                                     infos.data(), VK_NULL_HANDLE));
    submitted_ = value;
    device_.counters.submissions.fetch_add(1, std::memory_order_relaxed);
    if (with_pending) {
        used_.push_back({pending_.commands.handle, value});
        pending_ = {};
    }
    return value;
}

uint64_t Stream::submit(std::span<const VkCommandBuffer> batches) {
    std::vector<std::shared_ptr<const void>> released;  // destroyed after the lock is dropped
    const std::lock_guard lock(mutex_);
    released = take_finished_objects();
    return submit_locked(batches);
}

uint64_t Stream::flush() {
    const std::lock_guard lock(mutex_);
    if (pending_.commands.handle != VK_NULL_HANDLE) return submit_locked({});
    return submitted_;
}

bool Stream::finished(uint64_t value) {
    if (device_.profile.null_hardware || value <= completed_.load(std::memory_order_acquire)) {
        return true;
    }
    uint64_t reached = 0;
    VK_CALL(device_.vk.vkGetSemaphoreCounterValue(device_.handle, timeline_.get(), &reached));
    uint64_t known = completed_.load(std::memory_order_relaxed);
    while (known < reached && !completed_.compare_exchange_weak(known, reached)) {
    }
    return value <= reached;
}

void Stream::wait(uint64_t value) {
    if (finished(value)) return;
    {
        const std::lock_guard lock(mutex_);
        if (value > submitted_) submit_locked({});
    }
    wait_submitted(value);
}

void Stream::wait_submitted(uint64_t value) {
    const auto give_up = std::chrono::steady_clock::now() + polling_time;
    while (std::chrono::steady_clock::now() < give_up) {
        if (finished(value)) return;
        std::this_thread::yield();
    }
    const VkSemaphore semaphore = timeline_.get();
    VkSemaphoreWaitInfo info{VK_STRUCTURE_TYPE_SEMAPHORE_WAIT_INFO};
    info.semaphoreCount = 1;
    info.pSemaphores = &semaphore;
    info.pValues = &value;
    VK_CALL(device_.vk.vkWaitSemaphores(device_.handle, &info, UINT64_MAX));
    finished(value);
}

void Stream::retire(uint64_t value, std::shared_ptr<const void> object) {
    if (finished(value)) return;
    const std::lock_guard lock(mutex_);
    retired_.push_back({value, std::move(object)});
}

void Stream::drop_retired() {
    std::deque<Retired> dropped;
    const std::lock_guard lock(mutex_);
    dropped.swap(retired_);
}

std::vector<std::shared_ptr<const void>> Stream::take_finished_objects() {
    std::vector<std::shared_ptr<const void>> objects;
    while (!retired_.empty() && finished(retired_.front().value)) {
        objects.push_back(std::move(retired_.front().object));
        retired_.pop_front();
    }
    return objects;
}

}  // namespace torchvk
