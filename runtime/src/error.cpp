#include "error.hpp"

namespace torchvk {
namespace {

struct ResultText {
    VkResult result;
    const char* name;
    const char* meaning;
};

constexpr ResultText result_texts[] = {
    {VK_ERROR_OUT_OF_HOST_MEMORY, "VK_ERROR_OUT_OF_HOST_MEMORY", "the host has no memory left"},
    {VK_ERROR_OUT_OF_DEVICE_MEMORY, "VK_ERROR_OUT_OF_DEVICE_MEMORY",
     "the device has no memory left"},
    {VK_ERROR_INITIALIZATION_FAILED, "VK_ERROR_INITIALIZATION_FAILED",
     "the driver could not be initialised"},
    {VK_ERROR_DEVICE_LOST, "VK_ERROR_DEVICE_LOST",
     "the GPU was reset or stopped answering, for instance after a hang, a crash in a kernel or "
     "the "
     "operating system's watchdog"},
    {VK_ERROR_MEMORY_MAP_FAILED, "VK_ERROR_MEMORY_MAP_FAILED", "memory could not be mapped"},
    {VK_ERROR_LAYER_NOT_PRESENT, "VK_ERROR_LAYER_NOT_PRESENT",
     "a requested layer is not installed"},
    {VK_ERROR_EXTENSION_NOT_PRESENT, "VK_ERROR_EXTENSION_NOT_PRESENT",
     "a requested extension is not supported"},
    {VK_ERROR_FEATURE_NOT_PRESENT, "VK_ERROR_FEATURE_NOT_PRESENT",
     "a requested feature is not supported"},
    {VK_ERROR_INCOMPATIBLE_DRIVER, "VK_ERROR_INCOMPATIBLE_DRIVER",
     "no installed driver supports the requested Vulkan version"},
    {VK_ERROR_TOO_MANY_OBJECTS, "VK_ERROR_TOO_MANY_OBJECTS",
     "the driver's limit on objects of this type is reached"},
    {VK_ERROR_FRAGMENTED_POOL, "VK_ERROR_FRAGMENTED_POOL", "a descriptor pool is fragmented"},
    {VK_ERROR_OUT_OF_POOL_MEMORY, "VK_ERROR_OUT_OF_POOL_MEMORY", "a descriptor pool is exhausted"},
    {VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS, "VK_ERROR_INVALID_OPAQUE_CAPTURE_ADDRESS",
     "no device address range is left"},
    {VK_ERROR_UNKNOWN, "VK_ERROR_UNKNOWN", "the driver failed for a reason it does not name"},
};

// "queue.vk.vkQueueSubmit(queue, 1, ...)" -> "vkQueueSubmit".
std::string function_name(const std::string& call) {
    const size_t open = call.find('(');
    const std::string head = call.substr(0, open);
    const size_t start = head.rfind("vk");
    return start == std::string::npos ? head : head.substr(start);
}

}  // namespace

std::string describe(VkResult result) {
    for (const ResultText& text : result_texts) {
        if (text.result == result) {
            return std::string(text.name) + " (" + text.meaning + ")";
        }
    }
    return "VkResult " + std::to_string(static_cast<int>(result));
}

void raise_result(VkResult result, const char* call) {
    const std::string text = function_name(call) + " failed: " + describe(result);
    if (result == VK_ERROR_DEVICE_LOST) {
        throw DeviceLost(
            text +
            ". Tensors on this device are gone; restart the process to use it again. If it "
            "happens again, make each step smaller (batch size), since operating systems "
            "reset a GPU that works for seconds on end, and check the driver with `torchvk "
            "doctor`.");
    }
    throw VulkanError(text + ". `torchvk doctor` checks the device and its driver.");
}

}  // namespace torchvk
