// Feature structures of extensions that are younger than the oldest supported headers (1.3.239).
// In: the system's Vulkan headers.
// Out: the same declarations whether or not those headers have them; a wheel built against old
//      headers can then use cooperative matrices and bfloat16 of a new driver.
// Forbidden: anything that no specification has published.
#pragma once

#include <volk.h>

namespace torchvk::newer {

inline constexpr const char* cooperative_matrix_extension = "VK_KHR_cooperative_matrix";
inline constexpr const char* bfloat16_extension = "VK_KHR_shader_bfloat16";

// The layout of every feature structure is the header (sType, pNext) and one VkBool32 per feature.
struct CooperativeMatrixFeatures {
    VkStructureType sType = static_cast<VkStructureType>(1000506000);
    void* pNext = nullptr;
    VkBool32 cooperativeMatrix = VK_FALSE;
    VkBool32 cooperativeMatrixRobustBufferAccess = VK_FALSE;
};

struct Bfloat16Features {
    VkStructureType sType = static_cast<VkStructureType>(1000141000);
    void* pNext = nullptr;
    VkBool32 shaderBFloat16Type = VK_FALSE;
    VkBool32 shaderBFloat16DotProduct = VK_FALSE;
    VkBool32 shaderBFloat16CooperativeMatrix = VK_FALSE;
};

#ifdef VK_KHR_cooperative_matrix
static_assert(sizeof(CooperativeMatrixFeatures) ==
              sizeof(VkPhysicalDeviceCooperativeMatrixFeaturesKHR));
static_assert(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR == 1000506000);
#endif
#ifdef VK_KHR_shader_bfloat16
static_assert(sizeof(Bfloat16Features) == sizeof(VkPhysicalDeviceShaderBfloat16FeaturesKHR));
static_assert(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR == 1000141000);
#endif

}  // namespace torchvk::newer
