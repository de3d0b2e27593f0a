// Host-visible memory that transfers pass through.
// In: the number of bytes to stage.
// Out: a place in a ring (mapped pointer, buffer, offset) that is reused once the GPU is past it.
// Forbidden: growing; large transfers are cut into chunks by the caller.
#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>

#include "segment.hpp"
#include "stream.hpp"

namespace torchvk {

// A ring over one segment. Not thread safe: its owner holds a lock around reserve() ...
// used_until().
class StagingRing {
  public:
    StagingRing(const LogicalDevice& device, Stream& stream, MemoryKind kind, uint64_t capacity)
        : device_(device), stream_(stream), kind_(kind), capacity_(capacity) {}

    struct Place {
        std::byte* host = nullptr;
        VkBuffer buffer = VK_NULL_HANDLE;
        uint64_t offset = 0;  // in `buffer`
        uint64_t address = 0;
    };

    // At most `largest_chunk()` bytes; waits for the GPU when the ring is full.
    Place reserve(uint64_t bytes);
    // The place reserved last is in use until the work with `value` is done.
    void used_until(uint64_t value);

    uint64_t largest_chunk() const { return capacity_ / 4; }
    void invalidate() const { segment_->invalidate(device_); }

  private:
    struct Used {
        uint64_t end = 0;  // position in the endless tape of which the ring shows a window
        uint64_t value = 0;
    };

    const LogicalDevice& device_;
    Stream& stream_;
    const MemoryKind kind_;
    const uint64_t capacity_;
    std::unique_ptr<Segment> segment_;
    uint64_t head_ = 0;
    uint64_t tail_ = 0;
    std::deque<Used> used_;
};

}  // namespace torchvk
