#include "logical_device.hpp"

#include <bit>
#include <vector>

#include "error.hpp"
#include "features.hpp"

namespace torchvk {
namespace {

// Types that need features the runtime does not enable, or that buffers cannot use.
constexpr VkMemoryPropertyFlags unusable_memory =
    VK_MEMORY_PROPERTY_PROTECTED_BIT | VK_MEMORY_PROPERTY_LAZILY_ALLOCATED_BIT |
    VK_MEMORY_PROPERTY_DEVICE_COHERENT_BIT_AMD | VK_MEMORY_PROPERTY_DEVICE_UNCACHED_BIT_AMD |
    VK_MEMORY_PROPERTY_RDMA_CAPABLE_BIT_NV;

}  // namespace

LogicalDevice::LogicalDevice(const PhysicalDevice& source, int index, bool validate)
    : physical(source.handle),
      queue_family(compute_queue_family(source.handle)),
      profile(source.profile),
      torch_index(index),
      validation(validate) {
    FeatureSet features(physical);
    features.keep_used();
    const std::vector<const char*> extensions = features.extensions_to_enable();

    const float priority = 1.0f;
    VkDeviceQueueCreateInfo queue_info{VK_STRUCTURE_TYPE_DEVICE_QUEUE_CREATE_INFO};
    queue_info.queueFamilyIndex = queue_family;
    queue_info.queueCount = 1;
    queue_info.pQueuePriorities = &priority;

    VkDeviceCreateInfo info{VK_STRUCTURE_TYPE_DEVICE_CREATE_INFO};
    info.pNext = features.chain();
    info.queueCreateInfoCount = 1;
    info.pQueueCreateInfos = &queue_info;
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    VK_CALL(vkCreateDevice(physical, &info, nullptr, &handle));

    volkLoadDeviceTable(&vk, handle);
    vk.vkGetDeviceQueue(handle, queue_family, 0, &queue);
    vkGetPhysicalDeviceMemoryProperties(physical, &memory);
}

LogicalDevice::~LogicalDevice() {
    if (!in_forked_child()) {
        vk.vkDestroyDevice(handle, nullptr);
    }
}

uint32_t LogicalDevice::memory_type(uint32_t allowed_bits, VkMemoryPropertyFlags required,
                                    VkMemoryPropertyFlags preferred,
                                    VkMemoryPropertyFlags avoided) const {
    uint32_t best = UINT32_MAX;
    int best_score = 0;
    for (uint32_t type = 0; type < memory.memoryTypeCount; ++type) {
        const VkMemoryPropertyFlags flags = memory.memoryTypes[type].propertyFlags;
        const bool usable = (allowed_bits & (1u << type)) != 0 && (flags & unusable_memory) == 0 &&
                            (flags & required) == required;
        if (!usable) continue;
        const int score = 64 * std::popcount(flags & preferred) - std::popcount(flags & avoided);
        if (best == UINT32_MAX || score > best_score) {
            best = type;
            best_score = score;
        }
    }
    return best;
}

}  // namespace torchvk
