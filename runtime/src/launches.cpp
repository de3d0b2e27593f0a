#include "launches.hpp"

namespace torchvk {
namespace {

// What a workgroup of 256 invocations moves that reads and writes four floats each.
constexpr uint64_t bytes_per_workgroup = 8192;

}  // namespace

uint64_t Launches::work_of(const Kernel& kernel) {
    uint64_t groups = 1;
    for (const uint32_t count : kernel.groups)
        groups *= std::min(count, uint32_t{1} << 20);  // the product cannot wrap around
    return std::min(groups, uint64_t{1} << 40) * bytes_per_workgroup;
}

uint64_t Launches::reserve(size_t slots) {
    if (!table_) table_ = tables_.allocate(uint64_t{slot_count} * slot_bytes);
    uint64_t begin = head_;
    if (begin % slot_count + slots > slot_count) {
        begin += slot_count - begin % slot_count;  // a plan's slots do not wrap around
    }
    const uint64_t end = begin + slots;
    while (end - tail_ > slot_count) {
        stream_.wait(used_.front().value);
        tail_ = used_.front().end;
        used_.pop_front();
    }
    for (size_t slot = sets_.size(); slot < std::min<uint64_t>(end, slot_count); ++slot) {
        sets_.push_back(pool_.allocate_set(table_.buffer(),
                                           table_.buffer_offset() + slot * slot_bytes, slot_bytes));
    }
    head_ = end;
    return begin;
}

void Launches::used_until(uint64_t value) {
    if (!used_.empty() && used_.back().value == value) {
        used_.back().end = head_;
    } else {
        used_.push_back({head_, value});
    }
}

std::vector<TimedStep> Launches::timed_steps(std::span<const Kernel> kernels) {
    std::vector<TimedStep> steps;
    steps.reserve(kernels.size());
    uint32_t group = 0;
    for (const Kernel& kernel : kernels) {
        group += kernel.barrier;
        steps.push_back({static_cast<uint32_t>(kernel.slot), group});
    }
    return steps;
}

void Launches::record(VkCommandBuffer commands, std::span<const Kernel> kernels, size_t first,
                      std::span<const TimedStep> timed, uint32_t timestamp) const {
    const VkQueryPool timestamps = timestamps_.pool();
    if (!timed.empty()) {
        device_.vk.vkCmdResetQueryPool(commands, timestamps, timestamp, timed.back().group + 2);
        record_timestamp(device_, commands, timestamps, timestamp++);
    }
    for (const Kernel& kernel : kernels) {
        if (kernel.barrier) {
            record_full_barrier(device_, commands);
            if (!timed.empty()) record_timestamp(device_, commands, timestamps, timestamp++);
        }
        const VkDescriptorSet set = sets_[first + kernel.slot].handle;
        device_.vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, kernel.pipeline);
        device_.vk.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE, layout_, 0, 1,
                                           &set, 0, nullptr);
        device_.vk.vkCmdDispatch(commands, kernel.groups[0], kernel.groups[1], kernel.groups[2]);
    }
    if (!timed.empty()) record_timestamp(device_, commands, timestamps, timestamp);
}

}  // namespace torchvk
