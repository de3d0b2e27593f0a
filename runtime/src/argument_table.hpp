// The argument table of a plan: one slice per dispatch, read by kernels as a uniform buffer.
// In: a plan specification.
// Out: where each slice lies, the bytes that never change, and the patches that every run writes.
// Forbidden: Vulkan objects; the table's memory belongs to a recording.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan_spec.hpp"

namespace torchvk {

// A device address that is known when a plan runs: bases[slot] + addend + up to two values.
struct AddressExpression {
    uint32_t slot = 0;
    int64_t addend = 0;
    int32_t first_value = -1;
    int32_t second_value = -1;

    uint64_t resolve(std::span<const uint64_t> bases, std::span<const int64_t> values) const {
        int64_t offset = addend;
        if (first_value >= 0) offset += values[static_cast<size_t>(first_value)];
        if (second_value >= 0) offset += values[static_cast<size_t>(second_value)];
        return bases[slot] + static_cast<uint64_t>(offset);
    }
};

// The order of base addresses: inputs, outputs, arena, errors.
AddressExpression address_of(const PlanSpec& plan, const BufferReference& buffer,
                             const Scalar& offset);

class ArgumentTable {
  public:
    // `alignment` is the device's alignment of uniform buffer offsets.
    ArgumentTable(const PlanSpec& plan, uint32_t alignment);

    // Bytes to allocate: all slices, and room for the descriptor's range behind the last one.
    uint64_t bytes() const { return bytes_; }
    // What the descriptor shows of the table: the largest argument structure.
    uint32_t range() const { return range_; }
    // Offset of a step's slice; for fills, of the pattern stored twice.
    uint32_t slice(size_t step) const { return slices_[step]; }
    std::span<const uint32_t> slices() const { return slices_; }

    // Writes everything that does not depend on a run.
    void write_constants(std::byte* table) const;
    // Writes pointers and dynamic values.
    void write_patches(std::byte* table, std::span<const uint64_t> bases,
                       std::span<const int64_t> values) const;

  private:
    struct PointerPatch {
        uint32_t at = 0;
        AddressExpression address;
    };
    struct ValuePatch {
        uint32_t at = 0;
        uint32_t value = 0;
        bool double_word = false;
    };

    void add_argument(const PlanSpec& plan, const Argument& argument, uint32_t slice);

    uint64_t bytes_ = 0;
    uint32_t range_ = 0;
    std::vector<uint32_t> slices_;
    std::vector<std::byte> constants_;
    std::vector<PointerPatch> pointers_;
    std::vector<ValuePatch> values_;
};

}  // namespace torchvk
