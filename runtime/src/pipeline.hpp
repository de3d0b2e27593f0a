// Compute pipelines.
// In: SPIR-V and entry points. Out: pipelines that share one layout: set 0, binding 0 is a uniform
// buffer, the kernel's slice of an argument table. Its offset is not dynamic: Mesa's software
// device makes a descriptor set of its own, with memory to map and unmap, for every dynamic offset
// bound. Forbidden: any other binding; tensors are reached through device addresses.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "logical_device.hpp"
#include "pipeline_cache.hpp"
#include "plan_spec.hpp"

namespace torchvk {

using ExecutableStatistics = std::map<std::string, std::variant<bool, int64_t, uint64_t, double>>;

// What a driver tells about one executable of a pipeline.
struct ExecutableReport {
    std::string name;
    uint32_t subgroup_size = 0;
    ExecutableStatistics statistics;
    std::map<std::string, std::string> representations;  // for instance the ISA, as text
};

class PipelineFactory {
  public:
    PipelineFactory(const LogicalDevice& device, PipelineCache& cache);

    // One pipeline per kernel, in order; compiled by several threads.
    std::vector<OwnedPipeline> create(const PlanSpec& plan) const;

    // Compiles one kernel and asks the driver about the result.
    std::vector<ExecutableReport> report(std::span<const uint32_t> spirv, const std::string& entry,
                                         uint32_t subgroup_size) const;

    VkPipelineLayout layout() const { return layout_.get(); }
    VkDescriptorSetLayout set_layout() const { return set_layout_.get(); }

  private:
    OwnedShaderModule create_module(std::span<const uint32_t> module_of_kernels,
                                    const std::string& entry) const;
    OwnedPipeline create_pipeline(VkShaderModule module, const KernelSpec& kernel,
                                  VkPipelineCreateFlags flags, VkPipelineCache cache) const;

    const LogicalDevice& device_;
    PipelineCache& cache_;
    OwnedDescriptorSetLayout set_layout_;
    OwnedPipelineLayout layout_;
};

}  // namespace torchvk
