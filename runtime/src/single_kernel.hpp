// One kernel's part of a SPIR-V module.
// In: a module with many kernels, the name of one. Out: a module with that kernel alone.
// Forbidden: changing what the kernel does.
//
// A driver reads a whole module for every pipeline it makes from it, so that n kernels of one
// module cost n * n without this; and shared memory of other kernels does not count towards this
// one's limit.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace torchvk {

// The module without other entry points, without functions that `entry` does not reach, and
// without module variables that are not in its interface. Returned as it is if it holds no such
// entry point, or if it is older than SPIR-V 1.4, where interfaces need not name all variables.
std::vector<uint32_t> only_kernel(std::span<const uint32_t> spirv, std::string_view entry);

}  // namespace torchvk
