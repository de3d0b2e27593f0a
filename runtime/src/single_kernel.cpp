#include "single_kernel.hpp"

#include <algorithm>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

namespace torchvk {
namespace {

// Opcodes and layout: SPIR-V Specification 1.5, sections 2.3 (physical layout), 2.4 (logical
// layout) and 3.32 (instructions).
constexpr size_t header_words = 5;
constexpr uint32_t oldest_version = 0x00010400;

enum Opcode : uint16_t {
    op_name = 5,
    op_member_name = 6,
    op_line = 8,
    op_entry_point = 15,
    op_execution_mode = 16,
    op_function = 54,
    op_function_end = 56,
    op_function_call = 57,
    op_variable = 59,
    op_store = 62,
    op_copy_memory = 63,
    op_copy_memory_sized = 64,
    op_decorate = 71,
    op_member_decorate = 72,
    op_control_barrier = 224,
    op_memory_barrier = 225,
    op_atomic_store = 228,
    op_loop_merge = 246,
    op_selection_merge = 247,
    op_label = 248,
    op_branch = 249,
    op_unreachable = 255,
    op_no_line = 317,
    op_execution_mode_id = 331,
    op_decorate_id = 332,
    op_cooperative_matrix_store = 4458,
};

using Instruction = std::span<const uint32_t>;
using Ids = std::unordered_set<uint32_t>;

uint16_t opcode(Instruction instruction) {
    return static_cast<uint16_t>(instruction[0]);
}

std::vector<Instruction> instructions(std::span<const uint32_t> spirv) {
    std::vector<Instruction> all;
    for (size_t at = header_words; at < spirv.size();) {
        const size_t words = spirv[at] >> 16;
        if (words == 0 || at + words > spirv.size()) return {};
        all.push_back(spirv.subspan(at, words));
        at += words;
    }
    return all;
}

// OpEntryPoint: execution model, function, name as zero-terminated bytes, interface variables.
std::string_view entry_name(Instruction instruction) {
    const char* text = reinterpret_cast<const char*>(&instruction[3]);
    return {text, strnlen(text, (instruction.size() - 3) * sizeof(uint32_t))};
}

Instruction interface_of(Instruction instruction) {
    return instruction.subspan(3 + entry_name(instruction).size() / sizeof(uint32_t) + 1);
}

// The id that an instruction of a function body defines; 0 for none.
uint32_t result_in_function(Instruction instruction) {
    switch (const uint16_t code = opcode(instruction)) {
        case op_label:
            return instruction[1];
        case op_line:
        case op_no_line:
        case op_function_end:
        case op_store:
        case op_copy_memory:
        case op_copy_memory_sized:
        case op_control_barrier:
        case op_memory_barrier:
        case op_atomic_store:
        case op_loop_merge:
        case op_selection_merge:
        case op_cooperative_matrix_store:
            return 0;
        default:
            if (code >= op_branch && code <= op_unreachable) return 0;
            return instruction.size() > 2 ? instruction[2] : 0;
    }
}

// The functions that `start` reaches, by their ids.
Ids reachable(uint32_t start, const std::unordered_map<uint32_t, std::vector<uint32_t>>& calls) {
    Ids found{start};
    std::vector<uint32_t> open{start};
    while (!open.empty()) {
        const auto callees = calls.find(open.back());
        open.pop_back();
        if (callees == calls.end()) continue;
        for (const uint32_t callee : callees->second) {
            if (found.insert(callee).second) open.push_back(callee);
        }
    }
    return found;
}

std::unordered_map<uint32_t, std::vector<uint32_t>> calls_of(const std::vector<Instruction>& all) {
    std::unordered_map<uint32_t, std::vector<uint32_t>> calls;
    uint32_t function = 0;
    for (const Instruction instruction : all) {
        if (opcode(instruction) == op_function) function = instruction[2];
        if (opcode(instruction) == op_function_call) calls[function].push_back(instruction[3]);
    }
    return calls;
}

}  // namespace

std::vector<uint32_t> only_kernel(std::span<const uint32_t> spirv, std::string_view entry) {
    const std::vector<uint32_t> whole(spirv.begin(), spirv.end());
    if (spirv.size() < header_words || spirv[1] < oldest_version) return whole;
    const std::vector<Instruction> all = instructions(spirv);
    const auto kernel = std::find_if(all.begin(), all.end(), [&](Instruction instruction) {
        return opcode(instruction) == op_entry_point && entry_name(instruction) == entry;
    });
    if (kernel == all.end()) return whole;

    const uint32_t main = (*kernel)[2];
    const Ids functions = reachable(main, calls_of(all));
    const Instruction interface = interface_of(*kernel);
    const Ids variables(interface.begin(), interface.end());

    // Names and decorations come before what they are about, so the ids that go are found first.
    std::vector<bool> kept(all.size(), true);
    Ids gone;
    bool in_function = false;
    bool is_reached = false;
    for (size_t index = 0; index < all.size(); ++index) {
        const Instruction instruction = all[index];
        const uint16_t code = opcode(instruction);
        if (code == op_function) {
            in_function = true;
            is_reached = functions.contains(instruction[2]);
        }
        if (in_function) {
            kept[index] = is_reached;
            if (!is_reached) gone.insert(result_in_function(instruction));
            if (code == op_function_end) in_function = false;
        } else if (code == op_variable && !variables.contains(instruction[2])) {
            kept[index] = false;
            gone.insert(instruction[2]);
        } else if (code == op_entry_point) {
            kept[index] = instruction[2] == main;
        } else if (code == op_execution_mode || code == op_execution_mode_id) {
            kept[index] = instruction[1] == main;
        }
    }

    std::vector<uint32_t> module(spirv.begin(), spirv.begin() + header_words);
    for (size_t index = 0; index < all.size(); ++index) {
        const uint16_t code = opcode(all[index]);
        const bool is_annotation = code == op_name || code == op_member_name ||
                                   code == op_decorate || code == op_member_decorate ||
                                   code == op_decorate_id;
        if (!kept[index] || (is_annotation && gone.contains(all[index][1]))) continue;
        module.insert(module.end(), all[index].begin(), all[index].end());
    }
    return module;
}

}  // namespace torchvk
