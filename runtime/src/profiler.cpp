#include "profiler.hpp"

#include <algorithm>
#include <utility>

#include "error.hpp"

namespace torchvk {
namespace {

constexpr double unknown = -1;

// What each step of a group has of the group's time. A time that is not known counts as the mean.
std::vector<double> shares_of(std::span<const TimedStep> group, const std::vector<double>& alone) {
    if (group.size() == 1) return {1.0};
    double sum = 0;
    size_t known = 0;
    std::vector<double> shares;
    for (const TimedStep& timed : group) {
        shares.push_back(alone.empty() ? unknown : alone[timed.step]);
        if (shares.back() == unknown) continue;
        sum += shares.back();
        ++known;
    }
    if (sum <= 0) return std::vector<double>(group.size(), 1.0 / group.size());
    const double mean = sum / known;
    const double total = sum + mean * (group.size() - known);
    for (double& share : shares)
        share = (share == unknown ? mean : share) / total;
    return shares;
}

}  // namespace

OwnedQueryPool create_timestamps(const LogicalDevice& device, uint32_t count) {
    VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
    info.queryType = VK_QUERY_TYPE_TIMESTAMP;
    info.queryCount = count;
    VkQueryPool pool = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreateQueryPool(device.handle, &info, nullptr, &pool));
    return {device, pool};
}

void record_timestamp(const LogicalDevice& device, VkCommandBuffer commands, VkQueryPool timestamps,
                      uint32_t index) {
    device.vk.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT, timestamps,
                                  index);
}

void Profiler::set_enabled(bool enabled) {
    if (enabled && (device_.profile.timestamp_valid_bits == 0 || device_.profile.null_hardware)) {
        throw VulkanError(device_.profile.name + " has no timestamps on its compute queue.");
    }
    enabled_ = enabled;
}

bool Profiler::knows_alone(const TimedPlan& plan) {
    const std::lock_guard lock(mutex_);
    return !plan.alone.empty();
}

void Profiler::read(VkQueryPool timestamps, uint32_t first, std::span<const TimedStep> steps,
                    const std::shared_ptr<TimedPlan>& plan) {
    if (steps.empty()) return;
    std::vector<uint64_t> ticks(steps.back().group + 2);
    VK_CALL(device_.vk.vkGetQueryPoolResults(
        device_.handle, timestamps, first, static_cast<uint32_t>(ticks.size()),
        ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t),
        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    const uint32_t unused_bits = 64 - std::min(device_.profile.timestamp_valid_bits, 64u);
    const double period = device_.profile.timestamp_period_ns;
    const std::lock_guard lock(mutex_);
    if (!origin_) origin_ = ticks.front();
    // Counters begin anywhere and wrap; a double holds differences to the nanosecond.
    const auto elapsed_ns = [&](uint64_t from, uint64_t to) {
        const auto difference = static_cast<int64_t>((to - from) << unused_bits) >> unused_bits;
        return static_cast<double>(difference) * period;
    };
    for (size_t begin = 0; begin < steps.size();) {
        size_t end = begin + 1;
        while (end < steps.size() && steps[end].group == steps[begin].group)
            ++end;
        const std::span<const TimedStep> group = steps.subspan(begin, end - begin);
        const uint64_t tick = ticks[group.front().group];
        const double elapsed = elapsed_ns(tick, ticks[group.front().group + 1]);
        if (group.size() == 1) {
            plan->alone.resize(plan->steps.size(), unknown);
            plan->alone[group.front().step] = elapsed;
        }
        double start = elapsed_ns(*origin_, tick);
        const std::vector<double> shares = shares_of(group, plan->alone);
        for (size_t index = 0; index < group.size(); ++index) {
            const double duration = elapsed * shares[index];
            timings_.push_back({plan, group[index].step, start, duration});
            start += duration;
        }
        begin = end;
    }
}

std::vector<Timing> Profiler::take() {
    std::vector<Timing> taken;
    {
        const std::lock_guard lock(mutex_);
        taken = std::exchange(timings_, {});
    }
    std::stable_sort(taken.begin(), taken.end(), [](const Timing& left, const Timing& right) {
        return left.start_ns < right.start_ns;
    });
    return taken;
}

}  // namespace torchvk
