// The Vulkan instance of the process.
// In: the system's loader and drivers; TORCHVK_VALIDATION=1 adds the Khronos validation layer.
// Out: physical devices in TorchVK's order, and what the validation layer said.
// Forbidden: choosing a device (Python does that).
#pragma once

#include <mutex>
#include <string>
#include <vector>

#include <volk.h>

#include "device_profile.hpp"

namespace torchvk {

struct PhysicalDevice {
    VkPhysicalDevice handle = VK_NULL_HANDLE;
    DeviceProfile profile;
};

class Instance {
  public:
    // Throws VulkanError with advice when there is no loader or no driver.
    Instance();
    ~Instance();
    Instance(const Instance&) = delete;
    Instance& operator=(const Instance&) = delete;

    // Discrete, integrated, virtual, other, cpu; devices that execute nothing come last.
    const std::vector<PhysicalDevice>& physical_devices() const { return physical_devices_; }

    bool validation() const { return validation_; }

  private:
    void create(uint32_t loader_version);
    void list_physical_devices();

    VkInstance handle_ = VK_NULL_HANDLE;
    VkDebugUtilsMessengerEXT messenger_ = VK_NULL_HANDLE;
    bool validation_ = false;
    std::vector<PhysicalDevice> physical_devices_;
};

// Every warning and error of the validation layer since the process started, oldest first.
std::vector<std::string> validation_messages();

}  // namespace torchvk
