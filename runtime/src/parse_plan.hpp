// Plan specifications in Python's words.
// In: the dict that torchvk_compile/plan/ builds.
// Out: a validated PlanSpec; Python's ValueError that names the plan and the key otherwise.
// Forbidden: defaults for keys that the contract requires.
#pragma once

#include <nanobind/nanobind.h>

#include "plan_spec.hpp"

namespace torchvk {

PlanSpec parse_plan(const nanobind::dict& spec);

// The 64 bits of an int: signed, or unsigned up to 2^64 - 1 (bit patterns of doubles).
int64_t parse_bits(nanobind::handle value);

// SPIR-V words from a bytes object.
std::vector<uint32_t> parse_spirv(const nanobind::bytes& spirv);

}  // namespace torchvk
