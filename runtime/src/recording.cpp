#include "recording.hpp"

#include "error.hpp"

namespace torchvk {
namespace {

constexpr uint32_t sets_per_pool = 256;

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
    const std::lock_guard lock(mutex_);
    VkCommandBufferAllocateInfo info{VK_STRUCTURE_TYPE_COMMAND_BUFFER_ALLOCATE_INFO};
    info.commandPool = command_pool_.get();
    info.level = VK_COMMAND_BUFFER_LEVEL_PRIMARY;
    info.commandBufferCount = 1;
    VkCommandBuffer commands = VK_NULL_HANDLE;
    VK_CALL(device_.vk.vkAllocateCommandBuffers(device_.handle, &info, &commands));
    return commands;
}

void RecordingPool::free_commands(VkCommandBuffer commands) {
    const std::lock_guard lock(mutex_);
    device_.vk.vkFreeCommandBuffers(device_.handle, command_pool_.get(), 1, &commands);
}

RecordingPool::Set RecordingPool::allocate_set() {
    const std::lock_guard lock(mutex_);
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
    const VkDescriptorPoolSize size{VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC, sets_per_pool};
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
    const std::lock_guard lock(mutex_);
    device_.vk.vkFreeDescriptorSets(device_.handle, set.pool, 1, &set.handle);
}

Recording::Recording(RecordingPool& pool, Block table, uint32_t range)
    : pool_(pool), table_(std::move(table)) {
    const LogicalDevice& device = pool.device();
    if (device.profile.null_hardware) return;  // has no command buffers worth the name
    commands_ = pool.allocate_commands();
    if (range == 0) return;
    set_ = pool.allocate_set();
    const VkDescriptorBufferInfo buffer{table_.buffer(), table_.buffer_offset(), range};
    VkWriteDescriptorSet write{VK_STRUCTURE_TYPE_WRITE_DESCRIPTOR_SET};
    write.dstSet = set_.handle;
    write.descriptorCount = 1;
    write.descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER_DYNAMIC;
    write.pBufferInfo = &buffer;
    device.vk.vkUpdateDescriptorSets(device.handle, 1, &write, 0, nullptr);
}

Recording::~Recording() {
    if (in_forked_child() || commands_ == VK_NULL_HANDLE) return;
    pool_.free_commands(commands_);
    if (set_.handle != VK_NULL_HANDLE) pool_.free_set(set_);
}

}  // namespace torchvk
