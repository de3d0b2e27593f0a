#include "profiler.hpp"

#include <algorithm>
#include <utility>

#include "error.hpp"

namespace torchvk {

void Profiler::set_enabled(bool enabled) {
    if (enabled && (device_.profile.timestamp_valid_bits == 0 || device_.profile.null_hardware)) {
        throw VulkanError(device_.profile.name + " has no timestamps on its compute queue.");
    }
    enabled_ = enabled;
}

void Profiler::read(VkQueryPool timestamps, const std::string& plan,
                    const std::vector<std::string>& steps) {
    std::vector<uint64_t> ticks(steps.size() + 1);
    VK_CALL(device_.vk.vkGetQueryPoolResults(
        device_.handle, timestamps, 0, static_cast<uint32_t>(ticks.size()),
        ticks.size() * sizeof(uint64_t), ticks.data(), sizeof(uint64_t),
        VK_QUERY_RESULT_64_BIT | VK_QUERY_RESULT_WAIT_BIT));
    const uint32_t bits = device_.profile.timestamp_valid_bits;
    const uint64_t mask = bits >= 64 ? ~uint64_t{0} : (uint64_t{1} << bits) - 1;
    const double period = device_.profile.timestamp_period_ns;
    const std::lock_guard lock(mutex_);
    for (size_t step = 0; step < steps.size(); ++step) {
        const uint64_t start = ticks[step] & mask;
        const uint64_t elapsed = (ticks[step + 1] - ticks[step]) & mask;
        timings_.push_back({plan, steps[step], static_cast<double>(start) * period,
                            static_cast<double>(elapsed) * period});
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
