#include "pipeline.hpp"

#include <algorithm>
#include <atomic>
#include <exception>
#include <future>
#include <mutex>
#include <thread>

#include "error.hpp"
#include "single_kernel.hpp"

namespace torchvk {
namespace {

constexpr uint32_t most_threads = 16;

// Calls work(index) for every index below `count`, on several threads. The first exception is
// thrown here once all threads have stopped.
template <typename Work>
void parallel_for(size_t count, Work&& work) {
    std::atomic<size_t> next{0};
    std::exception_ptr failure;
    std::mutex failure_mutex;
    const auto run = [&] {
        for (size_t index = next++; index < count; index = next++) {
            try {
                work(index);
            } catch (...) {
                const std::lock_guard lock(failure_mutex);
                if (!failure) failure = std::current_exception();
                next = count;
            }
        }
    };
    const size_t threads =
        std::min<size_t>({count, std::max(1u, std::thread::hardware_concurrency()), most_threads});
    std::vector<std::future<void>> others;
    for (size_t thread = 1; thread < threads; ++thread) {
        others.push_back(std::async(std::launch::async, run));
    }
    run();
    for (const std::future<void>& other : others)
        other.wait();
    if (failure) std::rethrow_exception(failure);
}

VkPipelineExecutableInfoKHR executable_info(VkPipeline pipeline, uint32_t index) {
    VkPipelineExecutableInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INFO_KHR};
    info.pipeline = pipeline;
    info.executableIndex = index;
    return info;
}

ExecutableStatistics executable_statistics(const LogicalDevice& device, VkPipeline pipeline,
                                           uint32_t index) {
    const VkPipelineExecutableInfoKHR info = executable_info(pipeline, index);
    uint32_t count = 0;
    VK_CALL(device.vk.vkGetPipelineExecutableStatisticsKHR(device.handle, &info, &count, nullptr));
    std::vector<VkPipelineExecutableStatisticKHR> raw(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_STATISTIC_KHR});
    VK_CALL(
        device.vk.vkGetPipelineExecutableStatisticsKHR(device.handle, &info, &count, raw.data()));
    ExecutableStatistics statistics;
    for (const VkPipelineExecutableStatisticKHR& entry : raw) {
        switch (entry.format) {
            case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_BOOL32_KHR:
                statistics[entry.name] = entry.value.b32 != VK_FALSE;
                break;
            case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_INT64_KHR:
                statistics[entry.name] = entry.value.i64;
                break;
            case VK_PIPELINE_EXECUTABLE_STATISTIC_FORMAT_UINT64_KHR:
                statistics[entry.name] = entry.value.u64;
                break;
            default:
                statistics[entry.name] = entry.value.f64;
        }
    }
    return statistics;
}

std::map<std::string, std::string> executable_representations(const LogicalDevice& device,
                                                              VkPipeline pipeline, uint32_t index) {
    const VkPipelineExecutableInfoKHR info = executable_info(pipeline, index);
    uint32_t count = 0;
    VK_CALL(device.vk.vkGetPipelineExecutableInternalRepresentationsKHR(device.handle, &info,
                                                                        &count, nullptr));
    std::vector<VkPipelineExecutableInternalRepresentationKHR> raw(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_INTERNAL_REPRESENTATION_KHR});
    VK_CALL(device.vk.vkGetPipelineExecutableInternalRepresentationsKHR(device.handle, &info,
                                                                        &count, raw.data()));
    // The first answer told the sizes.
    std::vector<std::string> texts(count);
    for (uint32_t entry = 0; entry < count; ++entry) {
        texts[entry].resize(raw[entry].dataSize);
        raw[entry].pData = texts[entry].data();
    }
    VK_CALL(device.vk.vkGetPipelineExecutableInternalRepresentationsKHR(device.handle, &info,
                                                                        &count, raw.data()));
    std::map<std::string, std::string> representations;
    for (uint32_t entry = 0; entry < count; ++entry) {
        if (raw[entry].isText) representations[raw[entry].name] = texts[entry].c_str();
    }
    return representations;
}

}  // namespace

PipelineFactory::PipelineFactory(const LogicalDevice& device, PipelineCache& cache)
    : device_(device), cache_(cache) {
    VkDescriptorSetLayoutBinding binding{};
    binding.descriptorType = VK_DESCRIPTOR_TYPE_UNIFORM_BUFFER;
    binding.descriptorCount = 1;
    binding.stageFlags = VK_SHADER_STAGE_COMPUTE_BIT;
    VkDescriptorSetLayoutCreateInfo set_info{VK_STRUCTURE_TYPE_DESCRIPTOR_SET_LAYOUT_CREATE_INFO};
    set_info.bindingCount = 1;
    set_info.pBindings = &binding;
    VkDescriptorSetLayout set_layout = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreateDescriptorSetLayout(device.handle, &set_info, nullptr, &set_layout));
    set_layout_ = OwnedDescriptorSetLayout(device, set_layout);

    VkPipelineLayoutCreateInfo layout_info{VK_STRUCTURE_TYPE_PIPELINE_LAYOUT_CREATE_INFO};
    layout_info.setLayoutCount = 1;
    layout_info.pSetLayouts = &set_layout;
    VkPipelineLayout layout = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreatePipelineLayout(device.handle, &layout_info, nullptr, &layout));
    layout_ = OwnedPipelineLayout(device, layout);
}

OwnedShaderModule PipelineFactory::create_module(std::span<const uint32_t> module_of_kernels,
                                                 const std::string& entry) const {
    const std::vector<uint32_t> spirv = only_kernel(module_of_kernels, entry);
    VkShaderModuleCreateInfo info{VK_STRUCTURE_TYPE_SHADER_MODULE_CREATE_INFO};
    info.codeSize = spirv.size() * sizeof(uint32_t);
    info.pCode = spirv.data();
    VkShaderModule module = VK_NULL_HANDLE;
    VK_CALL(device_.vk.vkCreateShaderModule(device_.handle, &info, nullptr, &module));
    return {device_, module};
}

OwnedPipeline PipelineFactory::create_pipeline(VkShaderModule module, const KernelSpec& kernel,
                                               VkPipelineCreateFlags flags,
                                               VkPipelineCache cache) const {
    const DeviceProfile& profile = device_.profile;
    const bool is_only_size = profile.min_subgroup_size == profile.max_subgroup_size &&
                              kernel.subgroup_size == profile.subgroup_size;
    VkPipelineShaderStageRequiredSubgroupSizeCreateInfo subgroup{
        VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_REQUIRED_SUBGROUP_SIZE_CREATE_INFO};
    VkComputePipelineCreateInfo info{VK_STRUCTURE_TYPE_COMPUTE_PIPELINE_CREATE_INFO};
    info.flags = flags;
    info.layout = layout_.get();
    info.stage.sType = VK_STRUCTURE_TYPE_PIPELINE_SHADER_STAGE_CREATE_INFO;
    info.stage.stage = VK_SHADER_STAGE_COMPUTE_BIT;
    info.stage.module = module;
    info.stage.pName = kernel.entry.c_str();
    if (kernel.subgroup_size != 0 && !is_only_size) {
        if (!profile.subgroup_size_control || kernel.subgroup_size < profile.min_subgroup_size ||
            kernel.subgroup_size > profile.max_subgroup_size) {
            throw VulkanError("Kernel '" + kernel.entry + "' asks for subgroups of " +
                              std::to_string(kernel.subgroup_size) + "; " + profile.name +
                              " offers " + std::to_string(profile.min_subgroup_size) + " to " +
                              std::to_string(profile.max_subgroup_size) + ".");
        }
        subgroup.requiredSubgroupSize = kernel.subgroup_size;
        info.stage.pNext = &subgroup;
    }
    if (kernel.full_subgroups && profile.full_subgroups) {
        info.stage.flags |= VK_PIPELINE_SHADER_STAGE_CREATE_REQUIRE_FULL_SUBGROUPS_BIT;
    }
    VkPipeline pipeline = VK_NULL_HANDLE;
    const VkResult result =
        device_.vk.vkCreateComputePipelines(device_.handle, cache, 1, &info, nullptr, &pipeline);
    if (result < 0 && result != VK_ERROR_DEVICE_LOST) {
        throw VulkanError(
            "vkCreateComputePipelines failed for kernel '" + kernel.entry +
            "': " + describe(result) +
            ". The driver's compiler does not take it: update the driver, and check it "
            "with `torchvk doctor`.");
    }
    check(result, "vkCreateComputePipelines(");
    ++device_.counters.pipelines_created;
    return {device_, pipeline};
}

std::vector<OwnedPipeline> PipelineFactory::create(const PlanSpec& plan) const {
    std::vector<OwnedPipeline> pipelines(plan.kernels.size());
    parallel_for(plan.kernels.size(), [&](size_t index) {
        const KernelSpec& kernel = plan.kernels[index];
        const OwnedShaderModule module = create_module(plan.modules[kernel.module], kernel.entry);
        pipelines[index] = create_pipeline(module.get(), kernel, 0, cache_.handle());
    });
    return pipelines;
}

std::vector<ExecutableReport> PipelineFactory::report(std::span<const uint32_t> spirv,
                                                      const std::string& entry,
                                                      uint32_t subgroup_size) const {
    if (!device_.profile.pipeline_executable_properties) {
        throw VulkanError(device_.profile.name +
                          " does not offer VK_KHR_pipeline_executable_properties.");
    }
    const OwnedShaderModule module = create_module(spirv, entry);
    // Not from the cache: a cached pipeline may lack what is captured here.
    const OwnedPipeline pipeline =
        create_pipeline(module.get(), {0, entry, subgroup_size, false, 0},
                        VK_PIPELINE_CREATE_CAPTURE_STATISTICS_BIT_KHR |
                            VK_PIPELINE_CREATE_CAPTURE_INTERNAL_REPRESENTATIONS_BIT_KHR,
                        VK_NULL_HANDLE);

    VkPipelineInfoKHR info{VK_STRUCTURE_TYPE_PIPELINE_INFO_KHR};
    info.pipeline = pipeline.get();
    uint32_t count = 0;
    VK_CALL(
        device_.vk.vkGetPipelineExecutablePropertiesKHR(device_.handle, &info, &count, nullptr));
    std::vector<VkPipelineExecutablePropertiesKHR> executables(
        count, {VK_STRUCTURE_TYPE_PIPELINE_EXECUTABLE_PROPERTIES_KHR});
    VK_CALL(device_.vk.vkGetPipelineExecutablePropertiesKHR(device_.handle, &info, &count,
                                                            executables.data()));
    std::vector<ExecutableReport> reports;
    for (uint32_t index = 0; index < count; ++index) {
        reports.push_back({executables[index].name, executables[index].subgroupSize,
                           executable_statistics(device_, pipeline.get(), index),
                           executable_representations(device_, pipeline.get(), index)});
    }
    return reports;
}

}  // namespace torchvk
