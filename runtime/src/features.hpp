// The features and extensions that the runtime knows.
// In: a physical device.
// Out: what it offers, as one chain that vkCreateDevice accepts once `keep_used` was called.
// Forbidden: enabling anything here that no kernel or runtime file uses.
#pragma once

#include <set>
#include <string>
#include <vector>

#include <volk.h>

#include "newer_vulkan.hpp"

namespace torchvk {

// Offered features of one physical device. Structures of absent extensions stay zero and unlinked.
class FeatureSet {
  public:
    explicit FeatureSet(VkPhysicalDevice physical_device);
    FeatureSet(const FeatureSet&) = delete;
    FeatureSet& operator=(const FeatureSet&) = delete;

    bool has_extension(const std::string& name) const { return extensions_.count(name) != 0; }

    // Clears every feature that TorchVK does not use, so that the chain can be given to
    // vkCreateDevice.
    void keep_used();

    // Extensions to enable together with `chain()`.
    std::vector<const char*> extensions_to_enable() const;

    const VkPhysicalDeviceFeatures2* chain() const { return &core; }

    // Names of required features that are absent; empty means that the device can be used.
    std::vector<std::string> missing() const;

    // Names of all required features, as `missing()` would report them.
    static std::vector<std::string> required();

    uint32_t api_version = 0;
    VkPhysicalDeviceFeatures2 core{VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_FEATURES_2, nullptr, {}};
    VkPhysicalDeviceVulkan11Features vulkan11{};
    VkPhysicalDeviceVulkan12Features vulkan12{};
    VkPhysicalDeviceSubgroupSizeControlFeatures subgroup_size_control{};
    VkPhysicalDeviceMaintenance4Features maintenance4{};
    VkPhysicalDeviceShaderAtomicFloatFeaturesEXT atomic_float{};
    VkPhysicalDevicePipelineExecutablePropertiesFeaturesKHR pipeline_executable{};
    newer::CooperativeMatrixFeatures cooperative_matrix{};
    newer::Bfloat16Features bfloat16{};

  private:
    struct Requirement {
        const char* name;
        VkBool32 present;
    };

    FeatureSet() = default;

    std::vector<Requirement> requirements() const;

    template <typename Structure>
    void link(Structure& structure, VkStructureType type);

    std::set<std::string> extensions_;
};

}  // namespace torchvk
