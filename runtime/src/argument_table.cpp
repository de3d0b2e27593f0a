#include "argument_table.hpp"

#include <algorithm>
#include <cstring>

namespace torchvk {
namespace {

constexpr uint32_t pattern_bytes = 8;

}  // namespace

AddressExpression address_of(const PlanSpec& plan, const BufferReference& buffer,
                             const Scalar& offset) {
    const uint32_t outputs = plan.input_count;
    const uint32_t arena = outputs + static_cast<uint32_t>(plan.outputs.size());
    AddressExpression address;
    switch (buffer.kind) {
        case BufferReference::Kind::input:
            address.slot = buffer.index;
            break;
        case BufferReference::Kind::output:
            address.slot = outputs + buffer.index;
            break;
        case BufferReference::Kind::arena:
            address.slot = arena;
            address.addend = buffer.arena_offset.constant;
            address.second_value = buffer.arena_offset.value_index;
            break;
        case BufferReference::Kind::errors:
            address.slot = arena + 1;
            break;
    }
    address.addend += offset.constant;
    address.first_value = offset.value_index;
    return address;
}

ArgumentTable::ArgumentTable(const PlanSpec& plan, uint32_t alignment) {
    const uint32_t unit = std::max(alignment, 16u);
    uint32_t end = 0;
    for (const Step& step : plan.steps) {
        const uint32_t size = step.kind == Step::Kind::dispatch
                                  ? plan.kernels[step.kernel].argument_bytes
                                  : pattern_bytes;
        slices_.push_back(end);
        end += (size + unit - 1) / unit * unit;
        if (step.kind == Step::Kind::dispatch) range_ = std::max(range_, size);
    }
    range_ = (range_ + 15) / 16 * 16;
    bytes_ = uint64_t{end} + range_;
    constants_.resize(end);

    for (size_t index = 0; index < plan.steps.size(); ++index) {
        const Step& step = plan.steps[index];
        for (const Argument& argument : step.arguments) {
            add_argument(plan, argument, slices_[index]);
        }
        if (step.kind == Step::Kind::fill) {
            std::memcpy(constants_.data() + slices_[index], &step.pattern, 4);
            std::memcpy(constants_.data() + slices_[index] + 4, &step.pattern, 4);
        }
    }
}

void ArgumentTable::add_argument(const PlanSpec& plan, const Argument& argument, uint32_t slice) {
    const uint32_t at = slice + argument.at;
    const bool double_word = argument.kind == Argument::Kind::double_word;
    if (argument.kind == Argument::Kind::pointer) {
        pointers_.push_back({at, address_of(plan, argument.buffer, argument.value)});
    } else if (argument.value.dynamic()) {
        values_.push_back({at, static_cast<uint32_t>(argument.value.value_index), double_word});
    } else {
        const int64_t bits = argument.value.constant;
        const uint32_t low_bits = static_cast<uint32_t>(bits);
        if (double_word) {
            std::memcpy(constants_.data() + at, &bits, 8);
        } else {
            std::memcpy(constants_.data() + at, &low_bits, 4);
        }
    }
}

void ArgumentTable::write_constants(std::byte* table) const {
    if (!constants_.empty()) std::memcpy(table, constants_.data(), constants_.size());
}

void ArgumentTable::write_patches(std::byte* table, std::span<const uint64_t> bases,
                                  std::span<const int64_t> values) const {
    for (const PointerPatch& patch : pointers_) {
        const uint64_t address = patch.address.resolve(bases, values);
        std::memcpy(table + patch.at, &address, 8);
    }
    for (const ValuePatch& patch : values_) {
        const int64_t bits = values[patch.value];
        const uint32_t low_bits = static_cast<uint32_t>(bits);
        if (patch.double_word) {
            std::memcpy(table + patch.at, &bits, 8);
        } else {
            std::memcpy(table + patch.at, &low_bits, 4);
        }
    }
}

}  // namespace torchvk
