// Tensors as DLPack structures.
// In: a block and a shape.
// Out: a DLManagedTensor whose deleter gives the block back; the device address is the data
// pointer. Forbidden: Python (module.cpp wraps the structure into a capsule).
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "allocator.hpp"

namespace torchvk {

// The C structures of DLPack before version 1.0 ("dltensor" capsules), as its specification has
// them.
namespace dlpack {

inline constexpr int32_t ext_device = 12;  // kDLExtDev: torch's PrivateUse1

struct Device {
    int32_t device_type;
    int32_t device_id;
};

struct DataType {
    uint8_t code;
    uint8_t bits;
    uint16_t lanes;
};

struct Tensor {
    void* data;
    Device device;
    int32_t ndim;
    DataType dtype;
    int64_t* shape;
    int64_t* strides;
    uint64_t byte_offset;
};

struct ManagedTensor {
    Tensor tensor;
    void* manager_ctx;
    void (*deleter)(ManagedTensor*);
};

}  // namespace dlpack

// Shape and strides count elements.
struct TensorLayout {
    std::vector<int64_t> shape;
    std::vector<int64_t> strides;
    uint8_t dtype_code = 0;
    uint8_t dtype_bits = 0;
};

struct TensorDeleter {
    void operator()(dlpack::ManagedTensor* managed) const { managed->deleter(managed); }
};
using TensorPointer = std::unique_ptr<dlpack::ManagedTensor, TensorDeleter>;

// `block` may be empty (a tensor without elements).
TensorPointer make_tensor(Block block, TensorLayout layout, int device_index);

}  // namespace torchvk
