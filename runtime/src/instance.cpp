#include "instance.hpp"

#include <algorithm>
#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "error.hpp"
#include "process.hpp"

namespace torchvk {
namespace {

constexpr const char* validation_layer = "VK_LAYER_KHRONOS_validation";

// Messages outlive the instance: destroying the instance may itself report leaks.
struct MessageLog {
    std::mutex mutex;
    std::vector<std::string> messages;
};

MessageLog& message_log() {
    static MessageLog log;
    return log;
}

VKAPI_ATTR VkBool32 VKAPI_CALL receive_message(VkDebugUtilsMessageSeverityFlagBitsEXT,
                                               VkDebugUtilsMessageTypeFlagsEXT,
                                               const VkDebugUtilsMessengerCallbackDataEXT* data,
                                               void*) {
    const std::string text = data->pMessage != nullptr ? data->pMessage : "";
    std::fprintf(stderr, "[torchvk validation] %s\n", text.c_str());
    MessageLog& log = message_log();
    const std::lock_guard lock(log.mutex);
    log.messages.push_back(text);
    return VK_FALSE;
}

bool validation_requested() {
    const char* value = std::getenv("TORCHVK_VALIDATION");
    return value != nullptr && std::strcmp(value, "") != 0 && std::strcmp(value, "0") != 0;
}

bool layer_present(const char* name) {
    uint32_t count = 0;
    VK_CALL(vkEnumerateInstanceLayerProperties(&count, nullptr));
    std::vector<VkLayerProperties> layers(count);
    VK_CALL(vkEnumerateInstanceLayerProperties(&count, layers.data()));
    return std::any_of(layers.begin(), layers.end(), [&](const VkLayerProperties& layer) {
        return std::strcmp(layer.layerName, name) == 0;
    });
}

bool extension_present(const char* name) {
    uint32_t count = 0;
    VK_CALL(vkEnumerateInstanceExtensionProperties(nullptr, &count, nullptr));
    std::vector<VkExtensionProperties> extensions(count);
    VK_CALL(vkEnumerateInstanceExtensionProperties(nullptr, &count, extensions.data()));
    return std::any_of(extensions.begin(), extensions.end(), [&](const auto& extension) {
        return std::strcmp(extension.extensionName, name) == 0;
    });
}

int rank(const DeviceProfile& profile) {
    static constexpr std::array order{"discrete", "integrated", "virtual", "other", "cpu"};
    const auto found = std::find(order.begin(), order.end(), profile.device_type);
    const int place = static_cast<int>(found - order.begin());
    return profile.null_hardware ? place + static_cast<int>(order.size()) : place;
}

}  // namespace

Instance::Instance() {
    require_own_process();
    install_fork_guard();
    if (volkInitialize() != VK_SUCCESS) {
        throw VulkanError(
            "The Vulkan loader was not found. Install your GPU's driver; on Linux also the loader "
            "(Debian/Ubuntu: libvulkan1), and mesa-vulkan-drivers for Mesa's drivers.");
    }
    create(volkGetInstanceVersion());
    try {
        list_physical_devices();
    } catch (...) {
        vkDestroyInstance(handle_, nullptr);
        throw;
    }
}

Instance::~Instance() {
    if (in_forked_child()) return;
    if (messenger_ != VK_NULL_HANDLE) {
        vkDestroyDebugUtilsMessengerEXT(handle_, messenger_, nullptr);
    }
    vkDestroyInstance(handle_, nullptr);
}

void Instance::create(uint32_t loader_version) {
    if (loader_version < VK_API_VERSION_1_2) {
        throw VulkanError(
            "The Vulkan loader is older than Vulkan 1.2; update it or the GPU driver.");
    }
    VkApplicationInfo application{VK_STRUCTURE_TYPE_APPLICATION_INFO};
    application.pApplicationName = "torchvk";
    application.pEngineName = "torchvk";
    // Core 1.3 entry points are never called, but some 1.3 features need no extension then.
    application.apiVersion = std::min<uint32_t>(loader_version, VK_API_VERSION_1_3);

    std::vector<const char*> layers;
    std::vector<const char*> extensions;
    VkInstanceCreateInfo info{VK_STRUCTURE_TYPE_INSTANCE_CREATE_INFO};
    info.pApplicationInfo = &application;

    if (extension_present(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME)) {
        extensions.push_back(VK_KHR_PORTABILITY_ENUMERATION_EXTENSION_NAME);
        info.flags |= VK_INSTANCE_CREATE_ENUMERATE_PORTABILITY_BIT_KHR;
    }

    VkDebugUtilsMessengerCreateInfoEXT messenger{
        VK_STRUCTURE_TYPE_DEBUG_UTILS_MESSENGER_CREATE_INFO_EXT};
    messenger.messageSeverity = VK_DEBUG_UTILS_MESSAGE_SEVERITY_WARNING_BIT_EXT |
                                VK_DEBUG_UTILS_MESSAGE_SEVERITY_ERROR_BIT_EXT;
    messenger.messageType = VK_DEBUG_UTILS_MESSAGE_TYPE_VALIDATION_BIT_EXT;
    messenger.pfnUserCallback = receive_message;
    const VkValidationFeatureEnableEXT enabled[] = {
        VK_VALIDATION_FEATURE_ENABLE_SYNCHRONIZATION_VALIDATION_EXT};
    VkValidationFeaturesEXT validation{VK_STRUCTURE_TYPE_VALIDATION_FEATURES_EXT};
    validation.enabledValidationFeatureCount = 1;
    validation.pEnabledValidationFeatures = enabled;
    validation.pNext = &messenger;

    validation_ = validation_requested();
    if (validation_) {
        if (!layer_present(validation_layer)) {
            throw VulkanError(
                "TORCHVK_VALIDATION is set but the Khronos validation layer is not installed "
                "(Debian/Ubuntu: vulkan-validationlayers; elsewhere: the Vulkan SDK).");
        }
        layers.push_back(validation_layer);
        extensions.push_back(VK_EXT_DEBUG_UTILS_EXTENSION_NAME);
        info.pNext = &validation;
    }

    info.enabledLayerCount = static_cast<uint32_t>(layers.size());
    info.ppEnabledLayerNames = layers.data();
    info.enabledExtensionCount = static_cast<uint32_t>(extensions.size());
    info.ppEnabledExtensionNames = extensions.data();
    const VkResult result = vkCreateInstance(&info, nullptr, &handle_);
    if (result == VK_ERROR_INCOMPATIBLE_DRIVER) {
        throw VulkanError(
            "The Vulkan loader found no driver. Install your GPU's driver (Linux, AMD or Intel: "
            "mesa-vulkan-drivers), and check VK_DRIVER_FILES if it is set.");
    }
    check(result, "vkCreateInstance(");
    volkLoadInstanceOnly(handle_);
    if (validation_) {
        VK_CALL(vkCreateDebugUtilsMessengerEXT(handle_, &messenger, nullptr, &messenger_));
    }
}

void Instance::list_physical_devices() {
    uint32_t count = 0;
    VK_CALL(vkEnumeratePhysicalDevices(handle_, &count, nullptr));
    std::vector<VkPhysicalDevice> handles(count);
    VK_CALL(vkEnumeratePhysicalDevices(handle_, &count, handles.data()));
    for (const VkPhysicalDevice handle : handles) {
        physical_devices_.push_back({handle, read_profile(handle)});
    }
    std::stable_sort(physical_devices_.begin(), physical_devices_.end(),
                     [](const PhysicalDevice& left, const PhysicalDevice& right) {
                         return rank(left.profile) < rank(right.profile);
                     });
    for (size_t index = 0; index < physical_devices_.size(); ++index) {
        physical_devices_[index].profile.index = static_cast<int>(index);
    }
}

std::vector<std::string> validation_messages() {
    MessageLog& log = message_log();
    const std::lock_guard lock(log.mutex);
    return log.messages;
}

}  // namespace torchvk
