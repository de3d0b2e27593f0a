// What one physical device can do.
// In: a physical device.
// Out: DeviceProfile, plain data that code generation and `torchvk doctor` read.
// Forbidden: Vulkan types in DeviceProfile; decisions about kernels.
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include <volk.h>

namespace torchvk {

struct MemoryHeap {
    uint64_t size = 0;  // bytes
    bool device_local = false;
};

// Matrices that a subgroup multiplies together: A (m x k) times B (k x n) plus C, both m x n. Types
// are named like torch's dtypes; the result's is C's.
struct CooperativeMatrixShape {
    uint32_t m = 0;
    uint32_t n = 0;
    uint32_t k = 0;
    std::string a;
    std::string b;
    std::string c;
};

// Sizes in bytes, times in nanoseconds. Features are those a kernel may use on this device.
struct DeviceProfile {
    int index = 0;  // position in physical_devices()
    std::string name;
    uint32_t vendor_id = 0;
    uint32_t device_id = 0;
    std::string device_type;  // "discrete", "integrated", "virtual", "cpu" or "other"
    std::string driver_name;
    std::string driver_info;
    int driver_id = 0;  // VkDriverId
    std::string api_version;
    std::string device_uuid;
    std::string driver_uuid;
    std::string pipeline_cache_uuid;

    uint32_t subgroup_size = 1;
    uint32_t min_subgroup_size = 1;
    uint32_t max_subgroup_size = 1;
    bool subgroup_size_control = false;
    bool full_subgroups = false;
    bool subgroup_extended_types = false;  // subgroup operations on 8, 16 and 64 bits
    bool subgroup_shuffle = false;

    std::array<uint32_t, 3> max_workgroup_size{};
    uint32_t max_workgroup_invocations = 0;
    std::array<uint32_t, 3> max_workgroup_count{};
    uint32_t shared_memory_bytes = 0;

    uint64_t max_allocation_bytes = 0;
    uint64_t max_buffer_bytes = 0;
    uint32_t uniform_offset_alignment = 256;
    uint32_t max_uniform_bytes = 16384;
    double timestamp_period_ns = 0;
    uint32_t timestamp_valid_bits = 0;

    bool float16 = false;
    bool float64 = false;
    bool int8 = false;
    bool int16 = false;
    bool int64 = false;
    bool storage8 = false;
    bool storage16 = false;
    bool int64_atomics = false;
    bool float_atomic_add = false;         // float32 in buffers
    bool float_atomic_add_shared = false;  // float32 in shared memory
    bool memory_model = false;             // with device scope
    bool cooperative_matrix = false;
    std::vector<CooperativeMatrixShape> cooperative_matrix_shapes;
    bool bfloat16 = false;
    // Float widths whose signed zeros, infinities and NaNs survive the driver's compiler.
    std::vector<uint32_t> nan_preserve;
    // Float widths whose subnormals it can be asked to keep, all of them together.
    std::vector<uint32_t> denorm_preserve;
    bool pipeline_executable_properties = false;
    bool memory_budget = false;

    uint32_t compute_units = 0;  // 0: the driver does not say
    std::vector<MemoryHeap> heaps;
    std::vector<std::string> missing;  // required but absent; empty means usable
    bool null_hardware = false;        // compiles pipelines, executes nothing
};

// The queue family that compute work goes to, or UINT32_MAX when there is none.
uint32_t compute_queue_family(VkPhysicalDevice physical_device);

// Reads everything but `index`.
DeviceProfile read_profile(VkPhysicalDevice physical_device);

}  // namespace torchvk
