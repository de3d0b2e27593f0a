#include "profiler.hpp"

#include <algorithm>
#include <numeric>
#include <utility>

#include "error.hpp"

namespace torchvk {
namespace {

// What each step of a group has of the group's time. A time that is not known counts as the mean.
std::vector<double> shares_of(const TimedGroup& group, const TimesAlone& alone) {
    if (group.size() == 1) return {1.0};
    std::vector<double> known;
    for (const std::string& step : group) {
        if (const auto time = alone.find(step); time != alone.end()) known.push_back(time->second);
    }
    const double sum = std::accumulate(known.begin(), known.end(), 0.0);
    if (sum <= 0) return std::vector<double>(group.size(), 1.0 / group.size());
    const double mean = sum / known.size();
    const double total = sum + mean * (group.size() - known.size());
    std::vector<double> shares;
    for (const std::string& step : group) {
        const auto time = alone.find(step);
        shares.push_back((time != alone.end() ? time->second : mean) / total);
    }
    return shares;
}

}  // namespace

void Profiler::set_enabled(bool enabled) {
    if (enabled && (device_.profile.timestamp_valid_bits == 0 || device_.profile.null_hardware)) {
        throw VulkanError(device_.profile.name + " has no timestamps on its compute queue.");
    }
    enabled_ = enabled;
}

void Profiler::read(VkQueryPool timestamps, const std::string& plan,
                    std::span<const TimedGroup> groups, TimesAlone& alone) {
    std::vector<uint64_t> ticks(groups.size() + 1);
    VK_CALL(device_.vk.vkGetQueryPoolResults(
        device_.handle, timestamps, 0, static_cast<uint32_t>(ticks.size()),
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
    for (size_t group = 0; group < groups.size(); ++group) {
        const double elapsed = elapsed_ns(ticks[group], ticks[group + 1]);
        double start = elapsed_ns(*origin_, ticks[group]);
        if (groups[group].size() == 1) alone[groups[group].front()] = elapsed;
        const std::vector<double> shares = shares_of(groups[group], alone);
        for (size_t step = 0; step < shares.size(); ++step) {
            const double duration = elapsed * shares[step];
            timings_.push_back({plan, groups[group][step], start, duration});
            start += duration;
        }
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
