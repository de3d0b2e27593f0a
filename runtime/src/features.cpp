#include "features.hpp"

#include "error.hpp"

namespace torchvk {
namespace {

std::set<std::string> device_extensions(VkPhysicalDevice physical_device) {
    uint32_t count = 0;
    VK_CALL(vkEnumerateDeviceExtensionProperties(physical_device, nullptr, &count, nullptr));
    std::vector<VkExtensionProperties> properties(count);
    VK_CALL(
        vkEnumerateDeviceExtensionProperties(physical_device, nullptr, &count, properties.data()));
    std::set<std::string> names;
    for (const VkExtensionProperties& property : properties) {
        names.insert(property.extensionName);
    }
    return names;
}

}  // namespace

template <typename Structure>
void FeatureSet::link(Structure& structure, VkStructureType type) {
    structure.sType = type;
    structure.pNext = core.pNext;
    core.pNext = &structure;
}

FeatureSet::FeatureSet(VkPhysicalDevice physical_device)
    : extensions_(device_extensions(physical_device)) {
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(physical_device, &properties);
    api_version = properties.apiVersion;
    if (api_version < VK_API_VERSION_1_2) {
        vkGetPhysicalDeviceFeatures(physical_device, &core.features);
        return;
    }
    const bool is_13 = api_version >= VK_API_VERSION_1_3;
    link(vulkan11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES);
    link(vulkan12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES);
    if (is_13 || has_extension(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME)) {
        link(subgroup_size_control,
             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_FEATURES);
    }
    if (is_13 || has_extension(VK_KHR_MAINTENANCE_4_EXTENSION_NAME)) {
        link(maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_FEATURES);
    }
    if (has_extension(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME)) {
        link(atomic_float, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_ATOMIC_FLOAT_FEATURES_EXT);
    }
    if (has_extension(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME)) {
        link(pipeline_executable,
             VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PIPELINE_EXECUTABLE_PROPERTIES_FEATURES_KHR);
    }
    if (has_extension(newer::cooperative_matrix_extension)) {
        link(cooperative_matrix, cooperative_matrix.sType);
    }
    if (has_extension(newer::bfloat16_extension)) {
        link(bfloat16, bfloat16.sType);
    }
    vkGetPhysicalDeviceFeatures2(physical_device, &core);
}

void FeatureSet::keep_used() {
    const VkPhysicalDeviceFeatures offered = core.features;
    core.features = {};
    core.features.shaderInt16 = offered.shaderInt16;
    core.features.shaderInt64 = offered.shaderInt64;
    core.features.shaderFloat64 = offered.shaderFloat64;

    const VkPhysicalDeviceVulkan11Features offered11 = vulkan11;
    vulkan11 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_FEATURES, offered11.pNext};
    vulkan11.storageBuffer16BitAccess = offered11.storageBuffer16BitAccess;
    vulkan11.uniformAndStorageBuffer16BitAccess = offered11.uniformAndStorageBuffer16BitAccess;
    vulkan11.variablePointersStorageBuffer = offered11.variablePointersStorageBuffer;
    vulkan11.variablePointers = offered11.variablePointers;

    const VkPhysicalDeviceVulkan12Features offered12 = vulkan12;
    vulkan12 = {VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_FEATURES, offered12.pNext};
    vulkan12.storageBuffer8BitAccess = offered12.storageBuffer8BitAccess;
    vulkan12.uniformAndStorageBuffer8BitAccess = offered12.uniformAndStorageBuffer8BitAccess;
    vulkan12.shaderBufferInt64Atomics = offered12.shaderBufferInt64Atomics;
    vulkan12.shaderSharedInt64Atomics = offered12.shaderSharedInt64Atomics;
    vulkan12.shaderFloat16 = offered12.shaderFloat16;
    vulkan12.shaderInt8 = offered12.shaderInt8;
    vulkan12.scalarBlockLayout = offered12.scalarBlockLayout;
    vulkan12.uniformBufferStandardLayout = offered12.uniformBufferStandardLayout;
    vulkan12.shaderSubgroupExtendedTypes = offered12.shaderSubgroupExtendedTypes;
    vulkan12.timelineSemaphore = offered12.timelineSemaphore;
    vulkan12.bufferDeviceAddress = offered12.bufferDeviceAddress;
    vulkan12.vulkanMemoryModel = offered12.vulkanMemoryModel;
    vulkan12.vulkanMemoryModelDeviceScope = offered12.vulkanMemoryModelDeviceScope;

    atomic_float.shaderImageFloat32Atomics = VK_FALSE;
    atomic_float.shaderImageFloat32AtomicAdd = VK_FALSE;
    atomic_float.sparseImageFloat32Atomics = VK_FALSE;
    atomic_float.sparseImageFloat32AtomicAdd = VK_FALSE;
    cooperative_matrix.cooperativeMatrixRobustBufferAccess = VK_FALSE;
}

std::vector<const char*> FeatureSet::extensions_to_enable() const {
    std::vector<const char*> names;
    const auto enable = [&](const char* name) {
        if (has_extension(name)) names.push_back(name);
    };
    enable("VK_KHR_portability_subset");
    enable(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
    enable(VK_EXT_SHADER_ATOMIC_FLOAT_EXTENSION_NAME);
    enable(VK_KHR_PIPELINE_EXECUTABLE_PROPERTIES_EXTENSION_NAME);
    enable(newer::cooperative_matrix_extension);
    enable(newer::bfloat16_extension);
    if (api_version < VK_API_VERSION_1_3) {
        enable(VK_EXT_SUBGROUP_SIZE_CONTROL_EXTENSION_NAME);
        enable(VK_KHR_MAINTENANCE_4_EXTENSION_NAME);
    }
    return names;
}

std::vector<FeatureSet::Requirement> FeatureSet::requirements() const {
    return {
        {"buffer device addresses (bufferDeviceAddress)", vulkan12.bufferDeviceAddress},
        {"timeline semaphores (timelineSemaphore)", vulkan12.timelineSemaphore},
        {"scalar block layout (scalarBlockLayout)", vulkan12.scalarBlockLayout},
        {"8-bit storage (storageBuffer8BitAccess)", vulkan12.storageBuffer8BitAccess},
        {"16-bit storage (storageBuffer16BitAccess)", vulkan11.storageBuffer16BitAccess},
        {"64-bit integers in shaders (shaderInt64)", core.features.shaderInt64},
    };
}

std::vector<std::string> FeatureSet::missing() const {
    if (api_version < VK_API_VERSION_1_2) {
        return {"Vulkan 1.2 (the driver offers " +
                std::to_string(VK_API_VERSION_MAJOR(api_version)) + "." +
                std::to_string(VK_API_VERSION_MINOR(api_version)) + "; a newer driver may help)"};
    }
    std::vector<std::string> absent;
    for (const Requirement& requirement : requirements()) {
        if (!requirement.present) absent.emplace_back(requirement.name);
    }
    return absent;
}

std::vector<std::string> FeatureSet::required() {
    std::vector<std::string> names;
    for (const Requirement& requirement : FeatureSet().requirements()) {
        names.emplace_back(requirement.name);
    }
    return names;
}

}  // namespace torchvk
