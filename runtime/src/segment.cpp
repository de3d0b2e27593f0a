#include "segment.hpp"

#include <algorithm>
#include <array>
#include <cstdio>

#include "error.hpp"

namespace torchvk {
namespace {

struct MemoryWish {
    VkMemoryPropertyFlags required;
    VkMemoryPropertyFlags preferred;
    VkMemoryPropertyFlags avoided;
};

MemoryWish wish_of(MemoryKind kind) {
    constexpr VkMemoryPropertyFlags local = VK_MEMORY_PROPERTY_DEVICE_LOCAL_BIT;
    constexpr VkMemoryPropertyFlags visible = VK_MEMORY_PROPERTY_HOST_VISIBLE_BIT;
    constexpr VkMemoryPropertyFlags coherent = VK_MEMORY_PROPERTY_HOST_COHERENT_BIT;
    constexpr VkMemoryPropertyFlags cached = VK_MEMORY_PROPERTY_HOST_CACHED_BIT;
    switch (kind) {
        case MemoryKind::table:
            return {visible | coherent, local, cached};
        case MemoryKind::upload:
            return {visible | coherent, 0, local | cached};
        case MemoryKind::readback:
            return {visible, cached, local};
        case MemoryKind::device:
            break;
    }
    return {0, local, visible};
}

constexpr VkBufferUsageFlags buffer_usage =
    VK_BUFFER_USAGE_STORAGE_BUFFER_BIT | VK_BUFFER_USAGE_UNIFORM_BUFFER_BIT |
    VK_BUFFER_USAGE_TRANSFER_SRC_BIT | VK_BUFFER_USAGE_TRANSFER_DST_BIT |
    VK_BUFFER_USAGE_SHADER_DEVICE_ADDRESS_BIT;

bool is_out_of_memory(VkResult result) {
    return result == VK_ERROR_OUT_OF_DEVICE_MEMORY || result == VK_ERROR_OUT_OF_HOST_MEMORY ||
           result == VK_ERROR_TOO_MANY_OBJECTS || result == VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS;
}

}  // namespace

std::string readable_bytes(uint64_t bytes) {
    static constexpr std::array units{"KiB", "MiB", "GiB", "TiB"};
    if (bytes < 1024) return std::to_string(bytes) + " bytes";
    double value = static_cast<double>(bytes) / 1024.0;
    size_t unit = 0;
    while (value >= 1024.0 && unit + 1 < units.size()) {
        value /= 1024.0;
        ++unit;
    }
    char text[32];
    std::snprintf(text, sizeof text, "%.2f %s", value, units[unit]);
    return text;
}

// A device that executes nothing gets addresses that nothing is behind.
std::unique_ptr<Segment> Segment::create_virtual(uint64_t size) {
    static std::atomic<uint64_t> next_address{uint64_t{1} << 40};
    std::unique_ptr<Segment> segment(new Segment);
    segment->address_ = next_address.fetch_add((size + slack + 4095) & ~uint64_t{4095});
    segment->buffer_address_ = segment->address_;
    segment->size_ = size;
    return segment;
}

std::unique_ptr<Segment> Segment::create(const LogicalDevice& device, MemoryKind kind,
                                         uint64_t size, std::string& reason) {
    if (device.profile.null_hardware) {
        std::unique_ptr<Segment> segment = create_virtual(size);
        if (kind != MemoryKind::device) {
            segment->virtual_memory_ = std::make_unique<std::byte[]>(size + slack);
            segment->mapped_ = segment->virtual_memory_.get();
        }
        return segment;
    }
    const uint64_t most =
        std::min(device.profile.max_buffer_bytes, device.profile.max_allocation_bytes);
    if (size > most - address_alignment - slack) {
        reason = "this driver allows at most " + readable_bytes(most) +
                 " in one allocation, so a single tensor cannot be larger; split it";
        return nullptr;
    }
    std::unique_ptr<Segment> segment(new Segment);
    segment->size_ = size;
    if (!segment->create_buffer(device, reason) || !segment->allocate(device, kind, reason)) {
        return nullptr;
    }
    return segment;
}

bool Segment::create_buffer(const LogicalDevice& device, std::string& reason) {
    VkBufferCreateInfo info{VK_STRUCTURE_TYPE_BUFFER_CREATE_INFO};
    info.size = size_ + address_alignment + slack;
    info.usage = buffer_usage;
    VkBuffer buffer = VK_NULL_HANDLE;
    const VkResult result = device.vk.vkCreateBuffer(device.handle, &info, nullptr, &buffer);
    if (is_out_of_memory(result)) {
        reason = "vkCreateBuffer returned " + describe(result);
        return false;
    }
    check(result, "vkCreateBuffer(");
    buffer_ = OwnedBuffer(device, buffer);
    return true;
}

bool Segment::allocate(const LogicalDevice& device, MemoryKind kind, std::string& reason) {
    VkMemoryRequirements requirements;
    device.vk.vkGetBufferMemoryRequirements(device.handle, buffer_.get(), &requirements);
    const MemoryWish wish = wish_of(kind);
    const auto best_type = [&](uint32_t allowed) {
        return device.memory_type(allowed, wish.required, wish.preferred, wish.avoided);
    };
    uint32_t allowed = requirements.memoryTypeBits;
    uint32_t type = best_type(allowed);
    if (type == UINT32_MAX) {
        throw VulkanError("The driver has no memory type for " +
                          std::string(kind == MemoryKind::device ? "tensors." : "host access."));
    }

    VkMemoryAllocateFlagsInfo flags{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_FLAGS_INFO};
    flags.flags = VK_MEMORY_ALLOCATE_DEVICE_ADDRESS_BIT;
    VkMemoryAllocateInfo info{VK_STRUCTURE_TYPE_MEMORY_ALLOCATE_INFO};
    info.pNext = &flags;
    info.allocationSize = requirements.size;
    VkDeviceMemory memory = VK_NULL_HANDLE;
    while (memory == VK_NULL_HANDLE) {
        info.memoryTypeIndex = type;
        const VkResult result = device.vk.vkAllocateMemory(device.handle, &info, nullptr, &memory);
        if (!is_out_of_memory(result)) {
            check(result, "vkAllocateMemory(");
            break;
        }
        reason = "vkAllocateMemory returned " + describe(result);
        // Tables and staging also work from the second best memory: the host-visible part of a
        // GPU's own memory may be small. Tensors must not move to the host unnoticed.
        allowed &= ~(1u << type);
        type = best_type(allowed);
        if (kind == MemoryKind::device || type == UINT32_MAX) return false;
    }
    memory_ = OwnedMemory(device, memory);
    VK_CALL(device.vk.vkBindBufferMemory(device.handle, buffer_.get(), memory, 0));

    VkBufferDeviceAddressInfo address_info{VK_STRUCTURE_TYPE_BUFFER_DEVICE_ADDRESS_INFO};
    address_info.buffer = buffer_.get();
    buffer_address_ = device.vk.vkGetBufferDeviceAddress(device.handle, &address_info);
    address_ = (buffer_address_ + address_alignment - 1) & ~(address_alignment - 1);
    const VkMemoryPropertyFlags properties = device.memory.memoryTypes[type].propertyFlags;
    coherent_ = (properties & VK_MEMORY_PROPERTY_HOST_COHERENT_BIT) != 0;
    if (kind != MemoryKind::device) {
        void* mapped = nullptr;
        VK_CALL(device.vk.vkMapMemory(device.handle, memory, 0, VK_WHOLE_SIZE, 0, &mapped));
        mapped_ = static_cast<std::byte*>(mapped);
    }
    return true;
}

void Segment::invalidate(const LogicalDevice& device) const {
    if (coherent_) return;
    VkMappedMemoryRange range{VK_STRUCTURE_TYPE_MAPPED_MEMORY_RANGE};
    range.memory = memory_.get();
    range.size = VK_WHOLE_SIZE;
    VK_CALL(device.vk.vkInvalidateMappedMemoryRanges(device.handle, 1, &range));
}

}  // namespace torchvk
