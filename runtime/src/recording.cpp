#include "recording.hpp"

#include "error.hpp"
#include "stream.hpp"

namespace torchvk {
namespace {

constexpr uint32_t sets_per_pool = 256;

// A long plan is submitted in several batches (with one call): operating systems reset a GPU when
// one batch runs too long, Windows after 2 seconds, Linux after 10.
#if defined(_WIN32)
constexpr size_t steps_per_batch = 32;
#else
constexpr size_t steps_per_batch = 256;
#endif

}  // namespace

RecordingPool::RecordingPool(const LogicalDevice& device, VkDescriptorSetLayout set_layout)
    : device_(device), set_layout_(set_layout) {
    VkCommandPoolCreateInfo info{VK_STRUCTURE_TYPE_COMMAND_POOL_CREATE_INFO};
    info.flags = VK_COMMAND_POOL_CREATE_RESET_COMMAND_BUFFER_BIT;
    info.queueFamilyIndex = device.queue_family;
    VkCommandPool pool = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreateCommandPool(device.handle, &info, nullptr, &pool));
    command_pool_ = OwnedCommandPool(device, pool);
}

VkCommandBuffer RecordingPool::allocate_commands() {
    VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = command_pool_.get();
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VK_CALL(device_.vk.vkAllocateCommandBuffers(device_.handle, &info, &commands));
    return commands;
}

void RecordingPool::free_commands(const std::vector<VkCommandBuffer>& commands) {
    device_.vk.vkFreeCommandBuffers(device_.handle, command_pool_.get(),
                                    static_cast<uint32_t>(commands.size()), commands.data());
}

RecordingPool::Set RecordingPool::allocate_set(VkBuffer buffer, uint64_t offset, uint32_t range) {
    const std::lock_guard lock(set_mutex_);
    const Set set = allocate_set();
    const VkDescriptorBufferInfo shown{buffer, offset, range};
    VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
    write.dstSet = set.handle;
    write.descriptorCount = 1;
    write.descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    write.pBufferInfo = &shown;
    device_.vk.vkUpdateDescriptorSets(device_.handle, 1, &write, 0, nullptr);
    return set;
}

RecordingPool::Set RecordingPool::allocate_set() {
    VkDescriptorSetAllocateInfo info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_ALLOCATE_INFO};
    info.descriptorSetCount = 1;
    info.pSetLayouts = &set_layout_;
    // Newer pools have more room; older ones may have got sets back.
    for (auto pool = descriptor_pools_.rbegin(); pool != descriptor_pools_.rend(); ++pool) {
        info.descriptorPool = pool->get();
        VkDescriptorSet set = VK_NULL_HANDLE;
        const VkResult result = device_.vk.vkAllocateDescriptorSets(device_.handle, &info, &set);
        if (result == VK_SUCCESS) return {set, info.descriptorPool};
        if (result != VK_ERROR_OUT_OF_POOL_MEMORY && result != VK_ERROR_FRAGMENTED_POOL) {
            check(result, "vkAllocateDescriptorSets(");
        }
    }
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER, sets_per_pool};
    VkDescriptorPoolCreateInfo pool_info{VK_STRUCTURE_TYPE_DESCRIPTOR_POOL_CREATE_INFO};
    pool_info.flags = VK_DESCRIPTOR_POOL_CREATE_FREE_DESCRIPTOR_SET_BIT;
    pool_info.maxSets = sets_per_pool;
    pool_info.poolSizeCount = 1;
    pool_info.pPoolSizes = &size;
    VkDescriptorPool pool = VK_NULL_HANDLE;
    VK_CALL(device_.vk.vkCreateDescriptorPool(device_.handle, &pool_info, nullptr, &pool));
    descriptor_pools_.emplace_back(device_, pool);
    info.descriptorPool = pool;
    VkDescriptorSet set = VK_NULL_HANDLE;
    VK_CALL(device_.vk.vkAllocateDescriptorSets(device_.handle, &info, &set));
    return {set, pool};
}

void RecordingPool::free_set(const Set& set) {
    const std::lock_guard lock(set_mutex_);
    device_.vk.vkFreeDescriptorSets(device_.handle, set.pool, 1, &set.handle);
}

Recording::Recording(RecordingPool& pool, Block table, std::span<const uint32_t> slices,
                     uint32_t range)
    : pool_(pool), table_(std::move(table)) {
    if (range == 0 || pool.device().profile.null_hardware) return;
    sets_.reserve(slices.size());
    for (const uint32_t slice : slices) {
        sets_.push_back(pool.allocate_set(table_.buffer(), table_.buffer_offset() + slice, range));
    }
}

Recording::~Recording() {
    if (in_forked_child()) return;
    if (!batches_.empty()) {
        const std::lock_guard lock(pool_.recording_mutex());
        pool_.free_commands(batches_);
    }
    for (const RecordingPool::Set& set : sets_)
        pool_.free_set(set);
}

void Recording::begin(bool profiled, size_t most_steps) {
    const LogicalDevice& device = pool_.device();
    recorded_ = false;
    profiled_ = profiled;
    dispatches_ = 0;
    barriers_ = 0;
    batch_ = 0;
    timestamp_count_ = 0;
    timed_steps_.clear();
    begin_batch();
    if (profiled) {
        const uint32_t count = static_cast<uint32_t>(most_steps + 1);
        if (!timestamps_) timestamps_ = create_timestamps(device, count);
        device.vk.vkCmdResetQueryPool(commands(), timestamps_.get(), 0, count);
    }
    barrier();
}

void Recording::begin_batch() {
    if (batch_ == batches_.size()) batches_.push_back(pool_.allocate_commands());
    const VkCommandBufferBeginInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    const LogicalDevice& device = pool_.device();
    VK_CALL(device.vk.vkBeginCommandBuffer(commands(), &info));
    steps_in_batch_ = 0;
}

void Recording::barrier() {
    record_full_barrier(pool_.device(), commands());
    ++barriers_;
    // Behind the barrier the device has nothing left to wait for.
    if (profiled_) write_timestamp();
}

void Recording::write_timestamp() {
    record_timestamp(pool_.device(), commands(), timestamps_.get(), timestamp_count_++);
}

void Recording::step_done(size_t step, bool dispatch) {
    dispatches_ += dispatch;
    if (profiled_) timed_steps_.push_back({static_cast<uint32_t>(step), timestamp_count_ - 1});
    if (++steps_in_batch_ < steps_per_batch) return;
    // Barriers reach across command buffers of one queue, so nothing else is needed at the seam.
    const LogicalDevice& device = pool_.device();
    VK_CALL(device.vk.vkEndCommandBuffer(commands()));
    ++batch_;
    begin_batch();
}

void Recording::end(bool visible_to_host) {
    const LogicalDevice& device = pool_.device();
    if (profiled_) write_timestamp();
    if (visible_to_host) record_host_barrier(device, commands());
    VK_CALL(device.vk.vkEndCommandBuffer(commands()));
    recorded_ = true;
    device.counters.recordings.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace torchvk
