// Declarations of extensions that are younger than the oldest supported headers (1.3.239).
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

// One combination of sizes and types that cooperative matrices are multiplied in: A (m x k) times
// B (k x n) plus C gives the result, both m x n.
struct CooperativeMatrixProperties {
    VkStructureType sType = static_cast<VkStructureType>(1000506001);
    void* pNext = nullptr;
    uint32_t m = 0;
    uint32_t n = 0;
    uint32_t k = 0;
    int32_t a = 0;  // VkComponentTypeKHR, like the three that follow
    int32_t b = 0;
    int32_t c = 0;
    int32_t result = 0;
    VkBool32 saturates = VK_FALSE;
    int32_t scope = 0;  // VkScopeKHR
};

inline constexpr int32_t subgroup_scope = 3;  // VK_SCOPE_SUBGROUP_KHR

using GetCooperativeMatrixProperties = VkResult(VKAPI_PTR*)(VkPhysicalDevice, uint32_t* count,
                                                            CooperativeMatrixProperties*);

// The name of a VkComponentTypeKHR as torch calls the dtype; empty for others.
constexpr const char* component_name(int32_t type) {
    switch (type) {
        case 0:
            return "float16";
        case 1:
            return "float32";
        case 2:
            return "float64";
        case 3:
            return "int8";
        case 4:
            return "int16";
        case 5:
            return "int32";
        case 6:
            return "int64";
        case 7:
            return "uint8";
        case 8:
            return "uint16";
        case 9:
            return "uint32";
        case 10:
            return "uint64";
        case 1000141000:
            return "bfloat16";
        default:
            return "";
    }
}

#ifdef VK_KHR_cooperative_matrix
static_assert(sizeof(CooperativeMatrixProperties) == sizeof(VkCooperativeMatrixPropertiesKHR));
static_assert(VK_STRUCTURE_TYPE_COOPERATIVE_MATRIX_PROPERTIES_KHR == 1000506001);
static_assert(VK_SCOPE_SUBGROUP_KHR == subgroup_scope);
static_assert(sizeof(CooperativeMatrixFeatures) ==
              sizeof(VkPhysicalDeviceCooperativeMatrixFeaturesKHR));
static_assert(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_COOPERATIVE_MATRIX_FEATURES_KHR == 1000506000);
#endif
#ifdef VK_KHR_shader_bfloat16
static_assert(sizeof(Bfloat16Features) == sizeof(VkPhysicalDeviceShaderBfloat16FeaturesKHR));
static_assert(VK_STRUCTURE_TYPE_PHYSICAL_DEVICE_SHADER_BFLOAT16_FEATURES_KHR == 1000141000);
#endif

}  // namespace torchvk::newer
