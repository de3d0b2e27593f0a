// A compiled graph as plain data: what the compiler hands over.
// In: parse_plan.cpp builds it from Python data.
// Out: plan.cpp turns it into pipelines, an argument table and recordings.
// Forbidden: Vulkan and Python types; values that are only known at run time.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

namespace torchvk {

// A constant, or one of the values given to run().
struct Scalar {
    int64_t constant = 0;
    int32_t value_index = -1;  // -1: constant

    bool dynamic() const { return value_index >= 0; }
    int64_t resolve(std::span<const int64_t> values) const {
        return dynamic() ? values[static_cast<size_t>(value_index)] : constant;
    }
};

struct BufferReference {
    enum class Kind : uint8_t { input, output, arena, errors };
    Kind kind = Kind::arena;
    uint32_t index = 0;   // of the input or output
    Scalar arena_offset;  // bytes
};

// One member of a kernel's argument structure.
struct Argument {
    enum class Kind : uint8_t { pointer, word, double_word };  // 8, 4 and 8 bytes
    Kind kind = Kind::word;
    uint32_t at = 0;         // byte position in the structure
    BufferReference buffer;  // pointers only
    Scalar value;            // pointers: byte offset in the buffer; else the bits
};

struct Step {
    enum class Kind : uint8_t { dispatch, fill, copy };
    Kind kind = Kind::dispatch;
    std::string label;
    bool barrier = false;

    uint32_t kernel = 0;
    std::array<Scalar, 3> groups;
    std::vector<Argument> arguments;

    BufferReference destination;  // fill and copy
    Scalar destination_offset;
    BufferReference source;  // copy
    Scalar source_offset;
    Scalar bytes;
    uint32_t pattern = 0;  // fill
};

struct KernelSpec {
    uint32_t module = 0;
    std::string entry;
    uint32_t subgroup_size = 0;  // 0: the driver chooses
    bool full_subgroups = false;
    uint32_t argument_bytes = 0;
};

// Shape and strides in elements.
struct OutputSpec {
    Scalar bytes;
    std::vector<Scalar> shape;
    std::vector<Scalar> strides;
    uint8_t dtype_code = 0;
    uint8_t dtype_bits = 0;
};

struct PlanSpec {
    std::string name;
    uint32_t input_count = 0;
    uint32_t value_count = 0;
    Scalar arena_bytes;
    std::vector<OutputSpec> outputs;
    std::vector<std::vector<uint32_t>> modules;  // SPIR-V words
    std::vector<KernelSpec> kernels;
    std::vector<Step> steps;

    // For measuring what they are worth: false records every run anew, or has addresses and values
    // belong to a recording as if they were push constants.
    bool replay = true;
    bool argument_table = true;

    // Throws std::invalid_argument naming the first inconsistent part.
    void validate() const;
};

}  // namespace torchvk
