// Errors of the runtime.
// In: VkResult codes and the text of the call that returned them.
// Out: one C++ exception type per Python exception class (module.cpp translates them).
// Forbidden: swallowing a VkResult; every Vulkan call that can fail goes through VK_CALL.
#pragma once

#include <stdexcept>
#include <string>

#include <volk.h>

namespace torchvk {

// A Vulkan call failed, or the runtime was used in a way it cannot serve.
class VulkanError : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// VK_ERROR_DEVICE_LOST: nothing on this device can be used any more.
class DeviceLost : public VulkanError {
  public:
    using VulkanError::VulkanError;
};

// Device memory does not suffice; everything allocated before stays usable.
class OutOfMemory : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// A kernel reported a failed assertion, for instance an index out of range.
class DeviceAssert : public std::runtime_error {
  public:
    using std::runtime_error::runtime_error;
};

// "VK_ERROR_DEVICE_LOST (what it means)".
std::string describe(VkResult result);

// Throws DeviceLost for VK_ERROR_DEVICE_LOST, else VulkanError. `call` is the source text of the
// call.
[[noreturn]] void raise_result(VkResult result, const char* call);

inline void check(VkResult result, const char* call) {
    if (result < 0) [[unlikely]] {
        raise_result(result, call);
    }
}

}  // namespace torchvk

// Runs one Vulkan call; a failure becomes an exception that names it.
#define VK_CALL(expression) ::torchvk::check((expression), #expression)
