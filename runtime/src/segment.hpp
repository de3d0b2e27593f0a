// One VkDeviceMemory with one VkBuffer over all of it.
// In: a size and the kind of memory wanted.
// Out: a device address range and, for host-visible kinds, a mapped pointer.
// Forbidden: dividing a segment (allocator.cpp does that).
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>

#include "logical_device.hpp"

namespace torchvk {

// Which memory a segment comes from.
enum class MemoryKind {
    device,    // tensors: device-local
    table,     // written by the host, read by kernels: host-visible, device-local when possible
    upload,    // written once by the host, read by transfers
    readback,  // written by transfers, read by the host: cached when possible
};

class Segment {
  public:
    // Every block address is a multiple of this.
    static constexpr uint64_t address_alignment = 256;
    // Bytes behind the last block that may be read: a 16-byte load at the end of a block is safe.
    static constexpr uint64_t slack = 256;

    // Returns null and explains in `reason` when the device cannot give `size` bytes.
    static std::unique_ptr<Segment> create(const LogicalDevice& device, MemoryKind kind,
                                           uint64_t size, std::string& reason);

    uint64_t address() const { return address_; }
    uint64_t size() const { return size_; }
    VkBuffer buffer() const { return buffer_.get(); }
    // Offset of an address of this segment in buffer().
    uint64_t buffer_offset(uint64_t address) const { return address - buffer_address_; }
    // Host pointer to an address of this segment; null for MemoryKind::device.
    std::byte* host(uint64_t address) const {
        return mapped_ == nullptr ? nullptr : mapped_ + buffer_offset(address);
    }
    // Makes device writes visible to the host where the memory is not coherent.
    void invalidate(const LogicalDevice& device) const;

  private:
    Segment() = default;
    static std::unique_ptr<Segment> create_virtual(uint64_t size);
    bool create_buffer(const LogicalDevice& device, std::string& reason);
    bool allocate(const LogicalDevice& device, MemoryKind kind, std::string& reason);

    OwnedMemory memory_;  // destroyed after buffer_
    OwnedBuffer buffer_;
    uint64_t buffer_address_ = 0;
    uint64_t address_ = 0;
    uint64_t size_ = 0;
    bool coherent_ = true;
    std::byte* mapped_ = nullptr;
    std::unique_ptr<std::byte[]> virtual_memory_;
};

// "12.5 MiB".
std::string readable_bytes(uint64_t bytes);

}  // namespace torchvk
