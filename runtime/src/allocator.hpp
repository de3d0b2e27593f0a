// Caching allocator, one per device and memory kind.
//
// Requests are rounded to 512 bytes. Up to 1 MiB they are cut from segments of 2 MiB, up to 10 MiB
// from segments of 20 MiB, above that from a segment of their own (rounded to 2 MiB). A freed block
// joins free neighbours and stays cached. Best fit: the smallest free block that is large enough.
//
// In: sizes. Out: address ranges that no other live block shares.
// Reuse is stream-ordered: a freed block may be handed out at once, because everything runs on one
// queue and every command buffer starts with a full barrier. Only memory that goes back to the
// driver has to wait for the GPU (`drain`). Forbidden: waiting for the GPU or calling out while the
// lock is held.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "segment.hpp"

namespace torchvk {

class Allocator;

// A live block. Movable owner; gives the block back when destroyed.
class Block {
  public:
    Block() = default;
    Block(std::shared_ptr<Allocator> allocator, uint64_t address, uint64_t size,
          const Segment* segment)
        : allocator_(std::move(allocator)), address_(address), size_(size), segment_(segment) {}
    Block(Block&& other) noexcept { swap(other); }
    Block& operator=(Block&& other) noexcept {
        swap(other);
        return *this;
    }
    ~Block();

    uint64_t address() const { return address_; }
    uint64_t size() const { return size_; }
    VkBuffer buffer() const { return segment_->buffer(); }
    uint64_t buffer_offset() const { return segment_->buffer_offset(address_); }
    std::byte* host() const { return segment_->host(address_); }
    explicit operator bool() const { return address_ != 0; }

  private:
    void swap(Block& other) noexcept {
        std::swap(allocator_, other.allocator_);
        std::swap(address_, other.address_);
        std::swap(size_, other.size_);
        std::swap(segment_, other.segment_);
    }

    std::shared_ptr<Allocator> allocator_;
    uint64_t address_ = 0;
    uint64_t size_ = 0;
    const Segment* segment_ = nullptr;
};

// Where a transfer finds an address.
struct BufferRange {
    VkBuffer buffer = VK_NULL_HANDLE;
    uint64_t offset = 0;
};

class Allocator : public std::enable_shared_from_this<Allocator> {
  public:
    // `drain` returns when the GPU has finished everything that was handed to the device before.
    Allocator(const LogicalDevice& device, MemoryKind kind, std::function<void()> drain);

    // Throws OutOfMemory after cached segments were freed in vain. `bytes` must not be 0.
    Block allocate(uint64_t bytes);

    // Called by ~Block; safe after close() and in a forked child.
    void release(uint64_t address) noexcept;

    // Finds the buffer behind [address, address + bytes); throws VulkanError unless the range lies
    // in one live block.
    BufferRange resolve(uint64_t address, uint64_t bytes) const;

    // Returns cached segments to the driver.
    void empty_cache();

    void set_limit(uint64_t bytes);  // 0: no limit
    uint64_t limit() const;
    // Free and total bytes of the heap, the limit and other programs' use considered.
    std::pair<uint64_t, uint64_t> memory_info() const;

    std::map<std::string, uint64_t> statistics() const;
    void reset_peaks();
    void reset_accumulated();

    // Frees all memory; the GPU must be idle. Live blocks become dangling, their release a no-op.
    void close();

  private:
    struct Node {
        uint64_t size = 0;
        uint64_t requested = 0;
        const Segment* segment = nullptr;
        bool small = false;
        bool live = false;
    };
    using Nodes = std::map<uint64_t, Node>;                    // by address
    using FreeList = std::set<std::pair<uint64_t, uint64_t>>;  // (size, address)

    struct Statistic {
        uint64_t current = 0, peak = 0, allocated = 0, freed = 0;
        void add(uint64_t amount) {
            current += amount;
            allocated += amount;
            if (current > peak) peak = current;
        }
        void remove(uint64_t amount) {
            current -= amount;
            freed += amount;
        }
    };

    FreeList& free_list(bool small) { return small ? free_small_ : free_large_; }
    bool try_allocate(uint64_t bytes, uint64_t size, std::string& reason, uint64_t& address);
    bool add_segment(uint64_t size, bool small, std::string& reason);
    bool fits_budget(uint64_t bytes, std::string& reason) const;
    void take(Nodes::iterator node, uint64_t bytes, uint64_t size);
    std::vector<std::unique_ptr<Segment>> detach_free_segments();
    uint32_t heap_index() const;
    uint64_t free_in_budget(uint32_t heap) const;
    std::string out_of_memory_text(uint64_t bytes, const std::string& reason) const;

    const LogicalDevice& device_;
    const MemoryKind kind_;
    const std::function<void()> drain_;

    mutable std::mutex mutex_;
    bool closed_ = false;
    std::map<uint64_t, std::unique_ptr<Segment>> segments_;  // by address
    Nodes nodes_;
    FreeList free_small_, free_large_;
    uint64_t limit_ = 0;
    Statistic allocated_bytes_, requested_bytes_, reserved_bytes_, allocations_, segment_count_;
    uint64_t retries_ = 0, failures_ = 0;
};

}  // namespace torchvk
