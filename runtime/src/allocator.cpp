#include "allocator.hpp"

#include <algorithm>
#include <cstdio>

#include "error.hpp"
#include "process.hpp"

namespace torchvk {
namespace {

constexpr uint64_t KiB = 1024;
constexpr uint64_t MiB = 1024 * KiB;

constexpr uint64_t granularity = 512;
constexpr uint64_t largest_small_request = 1 * MiB;
constexpr uint64_t small_segment = 2 * MiB;
constexpr uint64_t largest_shared_request = 10 * MiB;
constexpr uint64_t large_segment = 20 * MiB;
constexpr uint64_t own_segment_granularity = 2 * MiB;
// A rest of at most this size in a large segment stays with the block.
constexpr uint64_t largest_unsplit_rest = 1 * MiB;

constexpr uint64_t round_up(uint64_t value, uint64_t unit) {
    return (value + unit - 1) / unit * unit;
}

std::string hexadecimal(uint64_t value) {
    char text[24];
    std::snprintf(text, sizeof text, "0x%llx", static_cast<unsigned long long>(value));
    return text;
}

}  // namespace

Block::~Block() {
    if (allocator_) allocator_->release(address_);
}

Allocator::Allocator(const LogicalDevice& device, MemoryKind kind, std::function<void()> drain)
    : device_(device), kind_(kind), drain_(std::move(drain)) {}

Block Allocator::allocate(uint64_t bytes) {
    // Checked before rounding, so that absurd sizes cannot wrap around.
    const uint64_t size =
        bytes > device_.profile.max_allocation_bytes ? bytes : round_up(bytes, granularity);
    std::string reason;
    uint64_t address = 0;
    for (int attempt = 0; attempt < 2; ++attempt) {
        {
            const std::lock_guard lock(mutex_);
            if (closed_) throw VulkanError("The device was shut down.");
            if (try_allocate(bytes, size, reason, address)) {
                return Block(shared_from_this(), address, size, nodes_.at(address).segment);
            }
            if (attempt == 0) ++retries_;
        }
        if (attempt == 0) empty_cache();
    }
    const std::lock_guard lock(mutex_);
    ++failures_;
    throw OutOfMemory(out_of_memory_text(bytes, reason));
}

bool Allocator::try_allocate(uint64_t bytes, uint64_t size, std::string& reason,
                             uint64_t& address) {
    const bool small = size <= largest_small_request;
    FreeList& list = free_list(small);
    auto fit = list.lower_bound({size, 0});
    if (fit == list.end()) {
        if (!add_segment(size, small, reason)) return false;
        fit = list.lower_bound({size, 0});
    }
    const auto node = nodes_.find(fit->second);
    list.erase(fit);
    address = node->first;
    take(node, bytes, size);
    return true;
}

void Allocator::take(Nodes::iterator node, uint64_t bytes, uint64_t size) {
    const uint64_t rest = node->second.size - size;
    const bool split = node->second.small ? rest >= granularity : rest > largest_unsplit_rest;
    if (split) {
        Node tail = node->second;
        tail.size = rest;
        nodes_.emplace_hint(std::next(node), node->first + size, tail);
        free_list(tail.small).insert({rest, node->first + size});
        node->second.size = size;
    }
    node->second.live = true;
    node->second.requested = bytes;
    allocated_bytes_.add(node->second.size);
    requested_bytes_.add(bytes);
    allocations_.add(1);
}

bool Allocator::add_segment(uint64_t size, bool small, std::string& reason) {
    const uint64_t segment_size = small                            ? small_segment
                                  : size <= largest_shared_request ? large_segment
                                  : size > device_.profile.max_allocation_bytes
                                      ? size
                                      : round_up(size, own_segment_granularity);
    if (!fits_budget(segment_size, reason)) return false;
    std::unique_ptr<Segment> segment = Segment::create(device_, kind_, segment_size, reason);
    if (!segment) return false;
    reserved_bytes_.add(segment_size);
    segment_count_.add(1);
    const uint64_t address = segment->address();
    nodes_[address] = {segment_size, 0, segment.get(), small, false};
    free_list(small).insert({segment_size, address});
    segments_[address] = std::move(segment);
    return true;
}

bool Allocator::fits_budget(uint64_t bytes, std::string& reason) const {
    if (limit_ != 0 && (bytes > limit_ || reserved_bytes_.current > limit_ - bytes)) {
        reason = "the limit set with set_memory_limit() is " + readable_bytes(limit_);
        return false;
    }
    // Beyond the budget a discrete GPU would not fail but page over the bus. Where the GPU shares
    // the host's memory the budget is only a hint.
    if (kind_ == MemoryKind::device && device_.profile.device_type == "discrete" &&
        device_.profile.memory_budget && !device_.profile.null_hardware) {
        const uint64_t free = free_in_budget(heap_index());
        if (bytes > free) {
            reason = "the operating system leaves this process " + readable_bytes(free) + " more";
            return false;
        }
    }
    return true;
}

void Allocator::release(uint64_t address) noexcept {
    if (address == 0 || in_forked_child()) return;
    const std::lock_guard lock(mutex_);
    if (closed_) return;
    auto node = nodes_.find(address);
    if (node == nodes_.end() || !node->second.live) return;
    node->second.live = false;
    allocated_bytes_.remove(node->second.size);
    requested_bytes_.remove(node->second.requested);
    allocations_.remove(1);

    const auto joins = [](const Nodes::value_type& left, const Nodes::value_type& right) {
        return !left.second.live && !right.second.live &&
               left.second.segment == right.second.segment;
    };
    FreeList& list = free_list(node->second.small);
    if (const auto next = std::next(node); next != nodes_.end() && joins(*node, *next)) {
        list.erase({next->second.size, next->first});
        node->second.size += next->second.size;
        nodes_.erase(next);
    }
    if (node != nodes_.begin()) {
        if (const auto previous = std::prev(node); joins(*previous, *node)) {
            list.erase({previous->second.size, previous->first});
            previous->second.size += node->second.size;
            nodes_.erase(node);
            node = previous;
        }
    }
    list.insert({node->second.size, node->first});
}

BufferRange Allocator::resolve(uint64_t address, uint64_t bytes) const {
    const std::lock_guard lock(mutex_);
    auto node = nodes_.upper_bound(address);
    if (node == nodes_.begin()) {
        throw VulkanError("Address " + hexadecimal(address) + " is not memory of this device.");
    }
    --node;
    const uint64_t end = node->first + node->second.size;
    if (address >= end) {
        throw VulkanError("Address " + hexadecimal(address) + " is not memory of this device.");
    }
    if (!node->second.live) {
        throw VulkanError("Address " + hexadecimal(address) +
                          " belongs to memory that was already freed.");
    }
    if (bytes > end - address) {
        throw VulkanError("A transfer of " + std::to_string(bytes) + " bytes at " +
                          hexadecimal(address) + " runs past the end of its allocation (" +
                          std::to_string(end - address) + " bytes are left).");
    }
    return {node->second.segment->buffer(), node->second.segment->buffer_offset(address)};
}

std::vector<std::unique_ptr<Segment>> Allocator::detach_free_segments() {
    std::vector<std::unique_ptr<Segment>> detached;
    const std::lock_guard lock(mutex_);
    for (auto entry = segments_.begin(); entry != segments_.end();) {
        const auto node = nodes_.find(entry->first);
        if (node->second.live || node->second.size != entry->second->size()) {
            ++entry;
            continue;
        }
        free_list(node->second.small).erase({node->second.size, node->first});
        nodes_.erase(node);
        reserved_bytes_.remove(entry->second->size());
        segment_count_.remove(1);
        detached.push_back(std::move(entry->second));
        entry = segments_.erase(entry);
    }
    return detached;
}

void Allocator::empty_cache() {
    // Once detached, nobody can be handed these segments; work submitted before may still use them.
    const std::vector<std::unique_ptr<Segment>> detached = detach_free_segments();
    if (!detached.empty()) drain_();
}

void Allocator::set_limit(uint64_t bytes) {
    const std::lock_guard lock(mutex_);
    limit_ = bytes;
}

uint64_t Allocator::limit() const {
    const std::lock_guard lock(mutex_);
    return limit_;
}

std::map<std::string, uint64_t> Allocator::statistics() const {
    const std::lock_guard lock(mutex_);
    std::map<std::string, uint64_t> values;
    const auto put = [&](const std::string& name, const Statistic& statistic) {
        values[name + ".all.current"] = statistic.current;
        values[name + ".all.peak"] = statistic.peak;
        values[name + ".all.allocated"] = statistic.allocated;
        values[name + ".all.freed"] = statistic.freed;
    };
    put("allocated_bytes", allocated_bytes_);
    put("active_bytes", allocated_bytes_);
    put("requested_bytes", requested_bytes_);
    put("reserved_bytes", reserved_bytes_);
    put("allocation", allocations_);
    put("active", allocations_);
    put("segment", segment_count_);
    values["num_alloc_retries"] = retries_;
    values["num_ooms"] = failures_;
    values["num_device_alloc"] = segment_count_.allocated;
    values["num_device_free"] = segment_count_.freed;
    return values;
}

void Allocator::reset_peaks() {
    const std::lock_guard lock(mutex_);
    for (Statistic* statistic :
         {&allocated_bytes_, &requested_bytes_, &reserved_bytes_, &allocations_, &segment_count_}) {
        statistic->peak = statistic->current;
    }
}

void Allocator::reset_accumulated() {
    const std::lock_guard lock(mutex_);
    for (Statistic* statistic :
         {&allocated_bytes_, &requested_bytes_, &reserved_bytes_, &allocations_, &segment_count_}) {
        statistic->allocated = 0;
        statistic->freed = 0;
    }
    retries_ = 0;
    failures_ = 0;
}

void Allocator::close() {
    const std::lock_guard lock(mutex_);
    closed_ = true;
    nodes_.clear();
    free_small_.clear();
    free_large_.clear();
    segments_.clear();
}

uint32_t Allocator::heap_index() const {
    uint32_t best = 0;
    for (uint32_t heap = 0; heap < device_.memory.memoryHeapCount; ++heap) {
        const VkMemoryHeap& candidate = device_.memory.memoryHeaps[heap];
        const VkMemoryHeap& chosen = device_.memory.memoryHeaps[best];
        const bool local = (candidate.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
        const bool chosen_local = (chosen.flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0;
        if (local > chosen_local || (local == chosen_local && candidate.size > chosen.size)) {
            best = heap;
        }
    }
    return best;
}

uint64_t Allocator::free_in_budget(uint32_t heap) const {
    VkPhysicalDeviceMemoryBudgetPropertiesEXT budget{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_BUDGET_PROPERTIES_EXT};
    VkPhysicalDeviceMemoryProperties2 properties{
        VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MEMORY_PROPERTIES_2, &budget, {}};
    vkGetPhysicalDeviceMemoryProperties2(device_.physical, &properties);
    return budget.heapBudget[heap] - std::min(budget.heapBudget[heap], budget.heapUsage[heap]);
}

std::pair<uint64_t, uint64_t> Allocator::memory_info() const {
    const std::lock_guard lock(mutex_);
    const uint32_t heap = heap_index();
    const uint64_t total = device_.memory.memoryHeaps[heap].size;
    uint64_t free = total - std::min(total, reserved_bytes_.current);
    if (device_.profile.memory_budget) free = free_in_budget(heap);
    if (limit_ == 0) return {free, total};
    return {std::min(free, limit_ - std::min(limit_, reserved_bytes_.current)),
            std::min(total, limit_)};
}

std::string Allocator::out_of_memory_text(uint64_t bytes, const std::string& reason) const {
    const std::string limit =
        limit_ == 0 ? "no limit is set" : "the limit is " + readable_bytes(limit_);
    return "Out of device memory on vk:" + std::to_string(device_.torch_index) + " (" +
           device_.profile.name + "): " + readable_bytes(bytes) + " were asked for; " + reason +
           ". " + readable_bytes(allocated_bytes_.current) + " are allocated to tensors, " +
           readable_bytes(reserved_bytes_.current) + " are reserved from the driver, " + limit +
           ". Everything allocated before stays usable. Use a smaller batch, activation "
           "checkpointing or a smaller dtype, or drop references to tensors that are not needed.";
}

}  // namespace torchvk
