// One opened VkDevice and the owners of everything made from it.
// In: a physical device whose profile misses nothing.
// Out: the device's function table, RAII handles, memory types, counters.
// Forbidden: policy (allocation, ordering, pipelines live in files of their own).
#pragma once

#include <atomic>
#include <cstdint>
#include <utility>

#include <volk.h>

#include "instance.hpp"
#include "process.hpp"

namespace torchvk {

// What the audit reads. Monotonic since the device was opened.
struct Counters {
    using Count = std::atomic<uint64_t>;
    Count dispatches{0};
    Count submissions{0};
    Count barriers{0};
    Count uploads{0};
    Count uploaded_bytes{0};
    Count downloads{0};
    Count downloaded_bytes{0};
    Count copies{0};
    Count fills{0};
    Count plan_runs{0};
    Count recordings{0};
    Count pipelines_created{0};
    Count pipeline_caches_dropped{0};
};

class LogicalDevice {
  public:
    // `torch_index` is the index that torch uses for this device: tensors and messages carry it.
    LogicalDevice(const PhysicalDevice& physical, int torch_index, bool validation);
    ~LogicalDevice();
    LogicalDevice(const LogicalDevice&) = delete;
    LogicalDevice& operator=(const LogicalDevice&) = delete;

    // A memory type of `allowed_bits` with all `required` flags, preferring one with the most
    // `preferred` and then the fewest `avoided` flags. UINT32_MAX when there is none.
    uint32_t memory_type(uint32_t allowed_bits, VkMemoryPropertyFlags required,
                         VkMemoryPropertyFlags preferred, VkMemoryPropertyFlags avoided) const;

    VkPhysicalDevice physical = VK_NULL_HANDLE;
    VkDevice handle = VK_NULL_HANDLE;
    VolkDeviceTable vk{};
    VkQueue queue = VK_NULL_HANDLE;
    uint32_t queue_family = 0;
    VkPhysicalDeviceMemoryProperties memory{};
    const DeviceProfile profile;
    const int torch_index;
    const bool validation;  // the validation layer is on: check what is normally trusted
    mutable Counters counters;
};

// Owns one Vulkan object. `Destroy` is the member of the function table that destroys it.
template <typename T, auto Destroy>
class Owned {
  public:
    Owned() = default;
    Owned(const LogicalDevice& device, T handle) : device_(&device), handle_(handle) {}
    Owned(Owned&& other) noexcept
        : device_(other.device_), handle_(std::exchange(other.handle_, T{VK_NULL_HANDLE})) {}
    Owned& operator=(Owned&& other) noexcept {
        std::swap(device_, other.device_);
        std::swap(handle_, other.handle_);
        return *this;
    }
    ~Owned() {
        if (handle_ != T{VK_NULL_HANDLE} && !in_forked_child()) {
            (device_->vk.*Destroy)(device_->handle, handle_, nullptr);
        }
    }

    T get() const { return handle_; }
    explicit operator bool() const { return handle_ != T{VK_NULL_HANDLE}; }

  private:
    const LogicalDevice* device_ = nullptr;
    T handle_{VK_NULL_HANDLE};
};

using OwnedBuffer = Owned<VkBuffer, &VolkDeviceTable::vkDestroyBuffer>;
using OwnedMemory = Owned<VkDeviceMemory, &VolkDeviceTable::vkFreeMemory>;
using OwnedSemaphore = Owned<VkSemaphore, &VolkDeviceTable::vkDestroySemaphore>;
using OwnedCommandPool = Owned<VkCommandPool, &VolkDeviceTable::vkDestroyCommandPool>;
using OwnedShaderModule = Owned<VkShaderModule, &VolkDeviceTable::vkDestroyShaderModule>;
using OwnedPipeline = Owned<VkPipeline, &VolkDeviceTable::vkDestroyPipeline>;
using OwnedPipelineLayout = Owned<VkPipelineLayout, &VolkDeviceTable::vkDestroyPipelineLayout>;
using OwnedPipelineCache = Owned<VkPipelineCache, &VolkDeviceTable::vkDestroyPipelineCache>;
using OwnedDescriptorSetLayout =
    Owned<VkDescriptorSetLayout, &VolkDeviceTable::vkDestroyDescriptorSetLayout>;
using OwnedDescriptorPool = Owned<VkDescriptorPool, &VolkDeviceTable::vkDestroyDescriptorPool>;
using OwnedQueryPool = Owned<VkQueryPool, &VolkDeviceTable::vkDestroyQueryPool>;

}  // namespace torchvk
