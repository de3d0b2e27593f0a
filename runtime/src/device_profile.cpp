#include "device_profile.hpp"

#include <algorithm>
#include <span>
#include <thread>

#include "error.hpp"
#include "features.hpp"

namespace torchvk {
namespace {

std::string hex(std::span<const uint8_t> bytes) {
    static constexpr char digits[] = "0123456789abcdef";
    std::string text;
    text.reserve(bytes.size() * 2);
    for (const uint8_t byte : bytes) {
        text += digits[byte >> 4];
        text += digits[byte & 15];
    }
    return text;
}

std::string version_text(uint32_t version) {
    return std::to_string(VK_API_VERSION_MAJOR(version)) + "." +
           std::to_string(VK_API_VERSION_MINOR(version)) + "." +
           std::to_string(VK_API_VERSION_PATCH(version));
}

const char* type_text(VkPhysicalDeviceType type) {
    switch (type) {
        case VK_PHYSICAL_DEVICE_TYPE_DISCRETE_GPU:
            return "discrete";
        case VK_PHYSICAL_DEVICE_TYPE_INTEGRATED_GPU:
            return "integrated";
        case VK_PHYSICAL_DEVICE_TYPE_VIRTUAL_GPU:
            return "virtual";
        case VK_PHYSICAL_DEVICE_TYPE_CPU:
            return "cpu";
        default:
            return "other";
    }
}

// Property structures that a device may or may not answer, chained like FeatureSet.
struct Properties {
    VkPhysicalDeviceProperties2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_PROPERTIES_2, nullptr, {}};
    VkPhysicalDeviceVulkan11Properties vulkan11{};
    VkPhysicalDeviceVulkan12Properties vulkan12{};
    VkPhysicalDeviceSubgroupSizeControlProperties subgroup_size_control{};
    VkPhysicalDeviceMaintenance4Properties maintenance4{};
    VkPhysicalDeviceShaderCorePropertiesAMD amd_cores{};
    VkPhysicalDeviceShaderCoreProperties2AMD amd_cores2{};
    VkPhysicalDeviceShaderSMBuiltinsPropertiesNV nvidia_cores{};

    template <typename Structure>
    void link(Structure& structure, VkStructureType type) {
        structure.sType = type;
        structure.pNext = core.pNext;
        core.pNext = &structure;
    }

    Properties(VkPhysicalDevice physical_device, const FeatureSet& features) {
        if (features.api_version < VK_API_VERSION_1_2) {
            vkGetPhysicalDeviceProperties(physical_device, &core.properties);
            return;
        }
        link(vulkan11, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_1_PROPERTIES);
        link(vulkan12, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_VULKAN_1_2_PROPERTIES);
        if (features.subgroup_size_control.sType != 0) {
            link(subgroup_size_control,
                 VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SUBGROUP_SIZE_CONTROL_PROPERTIES);
        }
        if (features.maintenance4.sType != 0) {
            link(maintenance4, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_MAINTENANCE_4_PROPERTIES);
        }
        if (features.has_extension(VK_AMD_SHADER_CORE_PROPERTIES_EXTENSION_NAME)) {
            link(amd_cores, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_AMD);
        }
        if (features.has_extension(VK_AMD_SHADER_CORE_PROPERTIES_2_EXTENSION_NAME)) {
            link(amd_cores2, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_CORE_PROPERTIES_2_AMD);
        }
        if (features.has_extension(VK_NV_SHADER_SM_BUILTINS_EXTENSION_NAME)) {
            link(nvidia_cores, VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_SM_BUILTINS_PROPERTIES_NV);
        }
        vkGetPhysicalDeviceProperties2(physical_device, &core);
    }

    uint32_t compute_units() const {
        if (amd_cores2.activeComputeUnitCount != 0) return amd_cores2.activeComputeUnitCount;
        const uint32_t amd = amd_cores.shaderEngineCount * amd_cores.shaderArraysPerEngineCount *
                             amd_cores.computeUnitsPerShaderArray;
        if (amd != 0) return amd;
        if (nvidia_cores.shaderSMCount != 0) return nvidia_cores.shaderSMCount;
        if (core.properties.deviceType == VK_PHYSICAL_DEVICE_TYPE_CPU) {
            return std::thread::hardware_concurrency();
        }
        return 0;
    }
};

std::vector<VkQueueFamilyProperties> queue_families(VkPhysicalDevice physical_device) {
    uint32_t count = 0;
    vkGetPhysicalDeviceQueueFamilyProperties(physical_device, &count, nullptr);
    std::vector<VkQueueFamilyProperties> families(count);
    vkGetPhysicalDeviceQueueFamilyProperties(physical_device, &count, families.data());
    return families;
}

void read_limits(DeviceProfile& profile, const Properties& properties) {
    const VkPhysicalDeviceLimits& limits = properties.core.properties.limits;
    std::copy_n(limits.maxComputeWorkGroupSize, 3, profile.max_workgroup_size.begin());
    std::copy_n(limits.maxComputeWorkGroupCount, 3, profile.max_workgroup_count.begin());
    profile.max_workgroup_invocations = limits.maxComputeWorkGroupInvocations;
    profile.shared_memory_bytes = limits.maxComputeSharedMemorySize;
    profile.uniform_offset_alignment =
        static_cast<uint32_t>(limits.minUniformBufferOffsetAlignment);
    profile.max_uniform_bytes = limits.maxUniformBufferRange;
    profile.timestamp_period_ns = limits.timestampPeriod;

    // Vulkan 1.2 promises no buffer of more than 2^30 bytes; drivers with maintenance4 say more.
    profile.max_allocation_bytes = properties.vulkan11.maxMemoryAllocationSize;
    profile.max_buffer_bytes = properties.maintenance4.maxBufferSize != 0
                                   ? properties.maintenance4.maxBufferSize
                                   : profile.max_allocation_bytes;

    profile.subgroup_size = properties.vulkan11.subgroupSize;
    profile.min_subgroup_size = profile.subgroup_size;
    profile.max_subgroup_size = profile.subgroup_size;
    profile.compute_units = properties.compute_units();
}

void read_float_controls(DeviceProfile& profile, const VkPhysicalDeviceVulkan12Properties& can) {
    if (can.shaderSignedZeroInfNanPreserveFloat16) profile.nan_preserve.push_back(16);
    if (can.shaderSignedZeroInfNanPreserveFloat32) profile.nan_preserve.push_back(32);
    if (can.shaderSignedZeroInfNanPreserveFloat64) profile.nan_preserve.push_back(64);

    // Where widths cannot be set apart, one may be set only if all of them are.
    const bool others = can.shaderDenormPreserveFloat16 && can.shaderDenormPreserveFloat64;
    const bool all = others && can.shaderDenormPreserveFloat32;
    switch (can.denormBehaviorIndependence) {
        case VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_ALL:
            if (can.shaderDenormPreserveFloat16) profile.denorm_preserve.push_back(16);
            if (can.shaderDenormPreserveFloat32) profile.denorm_preserve.push_back(32);
            if (can.shaderDenormPreserveFloat64) profile.denorm_preserve.push_back(64);
            break;
        case VK_SHADER_FLOAT_CONTROLS_INDEPENDENCE_32_BIT_ONLY:
            if (can.shaderDenormPreserveFloat32) profile.denorm_preserve.push_back(32);
            if (others) profile.denorm_preserve.insert(profile.denorm_preserve.end(), {16, 64});
            break;
        default:
            if (all) profile.denorm_preserve = {16, 32, 64};
    }
}

// Shapes at subgroup scope, without saturation, whose result is of C's type.
std::vector<CooperativeMatrixShape> cooperative_matrix_shapes(VkPhysicalDevice physical_device) {
    const auto get = reinterpret_cast<newer::GetCooperativeMatrixProperties>(vkGetInstanceProcAddr(
        volkGetLoadedInstance(), "vkGetPhysicalDeviceCooperativeMatrixPropertiesKHR"));
    if (get == nullptr) return {};
    uint32_t count = 0;
    VK_CALL(get(physical_device, &count, nullptr));
    std::vector<newer::CooperativeMatrixProperties> offered(count);
    VK_CALL(get(physical_device, &count, offered.data()));
    std::vector<CooperativeMatrixShape> shapes;
    for (const newer::CooperativeMatrixProperties& shape : offered) {
        if (shape.scope != newer::subgroup_scope || shape.saturates || shape.result != shape.c) {
            continue;
        }
        shapes.push_back({shape.m, shape.n, shape.k, newer::component_name(shape.a),
                          newer::component_name(shape.b), newer::component_name(shape.c)});
    }
    return shapes;
}

void read_features(DeviceProfile& profile, const FeatureSet& features,
                   const Properties& properties) {
    const VkPhysicalDeviceSubgroupSizeControlProperties& sizes = properties.subgroup_size_control;
    profile.subgroup_size_control =
        features.subgroup_size_control.subgroupSizeControl &&
        (sizes.requiredSubgroupSizeStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0;
    profile.full_subgroups = features.subgroup_size_control.computeFullSubgroups;
    if (sizes.maxSubgroupSize != 0) {
        profile.min_subgroup_size = sizes.minSubgroupSize;
        profile.max_subgroup_size = sizes.maxSubgroupSize;
    }
    profile.subgroup_extended_types = features.vulkan12.shaderSubgroupExtendedTypes;
    profile.subgroup_shuffle =
        (properties.vulkan11.subgroupSupportedStages & VK_SHADER_STAGE_COMPUTE_BIT) != 0 &&
        (properties.vulkan11.subgroupSupportedOperations & VK_SUBGROUP_FEATURE_SHUFFLE_BIT) != 0;
    profile.float16 = features.vulkan12.shaderFloat16;
    profile.float64 = features.core.features.shaderFloat64;
    profile.int8 = features.vulkan12.shaderInt8;
    profile.int16 = features.core.features.shaderInt16;
    profile.int64 = features.core.features.shaderInt64;
    profile.storage8 = features.vulkan12.storageBuffer8BitAccess;
    profile.storage16 = features.vulkan11.storageBuffer16BitAccess;
    profile.int64_atomics = features.vulkan12.shaderBufferInt64Atomics;
    profile.float_atomic_add = features.atomic_float.shaderBufferFloat32AtomicAdd;
    profile.float_atomic_add_shared = features.atomic_float.shaderSharedFloat32AtomicAdd;
    profile.memory_model =
        features.vulkan12.vulkanMemoryModel && features.vulkan12.vulkanMemoryModelDeviceScope;
    profile.cooperative_matrix = features.cooperative_matrix.cooperativeMatrix;
    profile.bfloat16 = features.bfloat16.shaderBFloat16Type;
    read_float_controls(profile, properties.vulkan12);
    profile.pipeline_executable_properties =
        features.pipeline_executable.pipelineExecutableInfo != VK_FALSE;
    profile.memory_budget = features.has_extension(VK_EXT_MEMORY_BUDGET_EXTENSION_NAME);
}

}  // namespace

uint32_t compute_queue_family(VkPhysicalDevice physical_device) {
    const std::vector<VkQueueFamilyProperties> families = queue_families(physical_device);
    for (uint32_t index = 0; index < families.size(); ++index) {
        if (families[index].queueFlags & VK_QUEUE_COMPUTE_BIT) return index;
    }
    return UINT32_MAX;
}

DeviceProfile read_profile(VkPhysicalDevice physical_device) {
    const FeatureSet features(physical_device);
    const Properties properties(physical_device, features);
    const VkPhysicalDeviceProperties& core = properties.core.properties;

    DeviceProfile profile;
    profile.name = core.deviceName;
    profile.vendor_id = core.vendorID;
    profile.device_id = core.deviceID;
    profile.device_type = type_text(core.deviceType);
    profile.driver_name = properties.vulkan12.driverName;
    profile.driver_info = properties.vulkan12.driverInfo;
    profile.driver_id = static_cast<int>(properties.vulkan12.driverID);
    profile.api_version = version_text(core.apiVersion);
    profile.device_uuid = hex(properties.vulkan11.deviceUUID);
    profile.driver_uuid = hex(properties.vulkan11.driverUUID);
    profile.pipeline_cache_uuid = hex(core.pipelineCacheUUID);
    profile.null_hardware = profile.name.find("Null hardware") != std::string::npos;
    read_limits(profile, properties);
    read_features(profile, features, properties);
    if (profile.cooperative_matrix) {
        profile.cooperative_matrix_shapes = cooperative_matrix_shapes(physical_device);
    }

    VkPhysicalDeviceMemoryProperties memory;
    vkGetPhysicalDeviceMemoryProperties(physical_device, &memory);
    for (uint32_t heap = 0; heap < memory.memoryHeapCount; ++heap) {
        profile.heaps.push_back(
            {memory.memoryHeaps[heap].size,
             (memory.memoryHeaps[heap].flags & VK_MEMORY_HEAP_DEVICE_LOCAL_BIT) != 0});
    }

    profile.missing = features.missing();
    const uint32_t family = compute_queue_family(physical_device);
    if (family == UINT32_MAX) {
        profile.missing.emplace_back("a queue that runs compute work");
    } else {
        profile.timestamp_valid_bits = queue_families(physical_device)[family].timestampValidBits;
    }
    return profile;
}

}  // namespace torchvk
