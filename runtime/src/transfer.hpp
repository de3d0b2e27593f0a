// Copies between host and device, and fills.
// In: device addresses, host memory, sizes in bytes.
// Out: transfers on the stream, in the order of the calls.
// Forbidden: keeping a pointer into host memory after a call returned.
#pragma once

#include <cstddef>
#include <cstdint>
#include <mutex>
#include <span>

#include "allocator.hpp"
#include "staging.hpp"
#include "stream.hpp"

namespace torchvk {

// Records a fill of [offset, offset + bytes) with a 4-byte pattern whose first byte lands on
// `offset`. `pattern_buffer` holds the pattern twice at `pattern_offset`; it serves the ends that
// vkCmdFillBuffer cannot reach.
void record_fill(const LogicalDevice& device, VkCommandBuffer commands, VkBuffer buffer,
                 uint64_t offset, uint64_t bytes, uint32_t pattern, VkBuffer pattern_buffer,
                 uint64_t pattern_offset);

class Transfers {
  public:
    Transfers(const LogicalDevice& device, Stream& stream, Allocator& allocator);

    // `source` may be reused when the call returns; the device sees the data in stream order.
    void upload(uint64_t destination, const std::byte* source, uint64_t bytes);

    // Waits for all work before it, then for the copy.
    void download(std::byte* destination, uint64_t source, uint64_t bytes);

    // Overlapping ranges behave like memmove.
    void copy(uint64_t destination, uint64_t source, uint64_t bytes);

    // `pattern` has 1, 2, 4, 8 or 16 bytes; `bytes` is a multiple of its size.
    void fill(uint64_t destination, uint64_t bytes, std::span<const std::byte> pattern);

  private:
    const LogicalDevice& device_;
    Stream& stream_;
    Allocator& allocator_;
    std::mutex upload_mutex_;
    StagingRing upload_ring_;
    std::mutex readback_mutex_;
    StagingRing readback_ring_;
};

}  // namespace torchvk
