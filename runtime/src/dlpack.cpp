#include "dlpack.hpp"

#include <memory>

namespace torchvk {
namespace {

struct Owner {
    dlpack::ManagedTensor managed{};
    Block block;
    TensorLayout layout;
};

void delete_owner(dlpack::ManagedTensor* managed) {
    const std::unique_ptr<Owner> owner(static_cast<Owner*>(managed->manager_ctx));
}

}  // namespace

TensorPointer make_tensor(Block block, TensorLayout layout, int device_index) {
    auto owner = std::make_unique<Owner>();
    owner->block = std::move(block);
    owner->layout = std::move(layout);
    dlpack::Tensor& tensor = owner->managed.tensor;
    tensor.data = reinterpret_cast<void*>(static_cast<uintptr_t>(owner->block.address()));
    tensor.device = {dlpack::ext_device, device_index};
    tensor.ndim = static_cast<int32_t>(owner->layout.shape.size());
    tensor.dtype = {owner->layout.dtype_code, owner->layout.dtype_bits, 1};
    tensor.shape = owner->layout.shape.data();
    tensor.strides = owner->layout.strides.data();
    owner->managed.manager_ctx = owner.get();
    owner->managed.deleter = delete_owner;
    return TensorPointer(&owner.release()->managed);
}

}  // namespace torchvk
