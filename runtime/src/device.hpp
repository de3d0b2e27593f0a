// One opened device: what Python sees as `Device`, without Python.
// In: calls from any thread.
// Out: the parts below, tied together and guarded: every entry checks that the process is not a
//      forked child, the device not lost and not shut down.
// Forbidden: Python objects; work that belongs to one of the parts.
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <string>

#include "allocator.hpp"
#include "assertions.hpp"
#include "dlpack.hpp"
#include "error.hpp"
#include "logical_device.hpp"
#include "pipeline.hpp"
#include "pipeline_cache.hpp"
#include "plan.hpp"
#include "profiler.hpp"
#include "recording.hpp"
#include "stream.hpp"
#include "transfer.hpp"

namespace torchvk {

class Device;

// What Python sees as `Plan`: a compiled plan and the device that it belongs to.
class Plan {
  public:
    Plan(std::shared_ptr<Device> device, std::shared_ptr<CompiledPlan> compiled);
    ~Plan();
    Plan(const Plan&) = delete;
    Plan& operator=(const Plan&) = delete;

    std::vector<TensorPointer> run(std::span<const uint64_t> inputs,
                                   std::span<const int64_t> values);
    const CompiledPlan& compiled() const { return *compiled_; }

  private:
    const std::shared_ptr<Device> device_;
    std::shared_ptr<CompiledPlan> compiled_;
};

class Device : public std::enable_shared_from_this<Device> {
  public:
    // `pipeline_cache_path` may be empty: pipelines are then compiled anew in every process.
    // `torch_index` is the device index that tensors carry.
    Device(std::shared_ptr<Instance> instance, const PhysicalDevice& physical,
           const std::string& pipeline_cache_path, int torch_index);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const DeviceProfile& profile() const { return profile_; }
    int torch_index() const { return torch_index_; }
    bool lost() const { return lost_; }

    TensorPointer empty(TensorLayout layout, uint64_t bytes);
    void upload(uint64_t destination, const std::byte* source, uint64_t bytes);
    void download(uint64_t source, std::byte* destination, uint64_t bytes);
    void copy(uint64_t destination, uint64_t source, uint64_t bytes);
    void fill(uint64_t destination, uint64_t bytes, std::span<const std::byte> pattern);
    void synchronize();
    bool query();

    std::shared_ptr<Plan> build_plan(PlanSpec spec);
    std::vector<ExecutableReport> pipeline_statistics(std::span<const uint32_t> spirv,
                                                      const std::string& entry,
                                                      uint32_t subgroup_size);
    void save_pipeline_cache();
    void set_profiling(bool enabled);
    std::vector<Timing> take_timings();

    uint32_t register_assert(const std::string& message);
    std::map<std::string, uint64_t> memory_statistics();
    void reset_peak_memory_statistics();
    void reset_accumulated_memory_statistics();
    void empty_cache();
    void set_memory_limit(uint64_t bytes);
    uint64_t memory_limit();
    std::pair<uint64_t, uint64_t> memory_info();
    std::map<std::string, uint64_t> counters();

    // Waits for the GPU and frees everything. Later calls throw; releasing tensors stays safe.
    void close() noexcept;

  private:
    // What lives between opening and close(). Declaration order is construction order.
    struct Parts {
        Parts(const Instance& instance, const PhysicalDevice& physical,
              const std::string& pipeline_cache_path, int torch_index);
        ~Parts();

        PlanContext plan_context();
        // Plans that are still alive; forgets the others.
        std::vector<std::shared_ptr<CompiledPlan>> live_plans();

        LogicalDevice device;
        Stream stream;
        std::shared_ptr<Allocator> memory;
        std::shared_ptr<Allocator> tables;
        Transfers transfers;
        Assertions assertions;
        PipelineCache pipeline_cache;
        PipelineFactory pipelines;
        RecordingPool recordings;
        Profiler profiler;
        Launches launches;
        std::mutex plans_mutex;
        std::vector<std::weak_ptr<CompiledPlan>> plans;
    };

    friend class Plan;
    std::vector<TensorPointer> run(CompiledPlan& plan, std::span<const uint64_t> inputs,
                                   std::span<const int64_t> values);
    // Keeps a plan that nobody needs any more until the GPU has finished it.
    void retire(std::shared_ptr<CompiledPlan> plan) noexcept;

    // Runs `function(Parts&)`; notices a lost device.
    template <typename Function>
    auto guarded(Function&& function);

    std::shared_ptr<Instance> instance_;
    const DeviceProfile profile_;
    const int torch_index_;
    std::atomic<bool> lost_{false};
    std::shared_mutex lifetime_;  // shared: parts in use; exclusive: close()
    std::unique_ptr<Parts> parts_;
};

}  // namespace torchvk
