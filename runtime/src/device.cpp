#include "device.hpp"

#include <mutex>
#include <utility>

#include "process.hpp"

namespace torchvk {

Plan::Plan(std::shared_ptr<Device> device, std::shared_ptr<CompiledPlan> compiled)
    : device_(std::move(device)), compiled_(std::move(compiled)) {}

Plan::~Plan() {
    device_->retire(std::move(compiled_));
}

std::vector<TensorPointer> Plan::run(std::span<const uint64_t> inputs,
                                     std::span<const int64_t> values) {
    return device_->run(*compiled_, inputs, values);
}

Device::Parts::Parts(const Instance& instance, const PhysicalDevice& physical,
                     const std::string& pipeline_cache_path, int torch_index)
    : device(physical, torch_index, instance.validation()),
      stream(device),
      memory(
          std::make_shared<Allocator>(device, MemoryKind::device, [this] { stream.wait_all(); })),
      tables(std::make_shared<Allocator>(device, MemoryKind::table, [this] { stream.wait_all(); })),
      transfers(device, stream, *memory),
      assertions(*tables),
      pipeline_cache(device, pipeline_cache_path),
      pipelines(device, pipeline_cache),
      recordings(device, pipelines.set_layout()),
      profiler(device),
      launches(device, stream, recordings, *tables, pipelines.layout(), profiler) {}

Device::Parts::~Parts() {
    for (const std::shared_ptr<CompiledPlan>& plan : live_plans())
        plan->close();
    stream.drop_retired();
    // Tensors may outlive the device; their blocks then refer to a closed allocator.
    memory->close();
    tables->close();
}

PlanContext Device::Parts::plan_context() {
    return {device,    stream,     *memory,  *tables, assertions,
            pipelines, recordings, launches, profiler};
}

std::vector<std::shared_ptr<CompiledPlan>> Device::Parts::live_plans() {
    const std::lock_guard lock(plans_mutex);
    std::vector<std::shared_ptr<CompiledPlan>> live;
    std::erase_if(plans, [&](const std::weak_ptr<CompiledPlan>& plan) {
        std::shared_ptr<CompiledPlan> strong = plan.lock();
        const bool gone = !strong;
        if (strong) live.push_back(std::move(strong));
        return gone;
    });
    return live;
}

Device::Device(std::shared_ptr<Instance> instance, const PhysicalDevice& physical,
               const std::string& pipeline_cache_path, int torch_index)
    : instance_(std::move(instance)),
      profile_(physical.profile),
      torch_index_(torch_index),
      parts_(std::make_unique<Parts>(*instance_, physical, pipeline_cache_path, torch_index)) {}

Device::~Device() {
    close();
}

template <typename Function>
auto Device::guarded(Function&& function) {
    require_own_process();
    const std::shared_lock lock(lifetime_);
    if (!parts_) {
        throw VulkanError("vk:" + std::to_string(torch_index_) + " was shut down.");
    }
    if (lost_) {
        throw DeviceLost("vk:" + std::to_string(torch_index_) + " (" + profile_.name +
                         ") was lost earlier (VK_ERROR_DEVICE_LOST); restart the process to use it "
                         "again.");
    }
    try {
        return function(*parts_);
    } catch (const DeviceLost&) {
        lost_ = true;
        throw;
    }
}

TensorPointer Device::empty(TensorLayout layout, uint64_t bytes) {
    return guarded([&](Parts& parts) {
        Block block = bytes == 0 ? Block() : parts.memory->allocate(bytes);
        return make_tensor(std::move(block), std::move(layout), torch_index_);
    });
}

void Device::upload(uint64_t destination, const std::byte* source, uint64_t bytes) {
    guarded([&](Parts& parts) { parts.transfers.upload(destination, source, bytes); });
}

void Device::download(uint64_t source, std::byte* destination, uint64_t bytes) {
    guarded([&](Parts& parts) {
        parts.transfers.download(destination, source, bytes);
        parts.assertions.raise_pending();
    });
}

void Device::copy(uint64_t destination, uint64_t source, uint64_t bytes) {
    guarded([&](Parts& parts) { parts.transfers.copy(destination, source, bytes); });
}

void Device::fill(uint64_t destination, uint64_t bytes, std::span<const std::byte> pattern) {
    guarded([&](Parts& parts) { parts.transfers.fill(destination, bytes, pattern); });
}

void Device::synchronize() {
    guarded([&](Parts& parts) {
        parts.stream.wait_all();
        parts.assertions.raise_pending();
    });
}

bool Device::query() {
    return guarded([&](Parts& parts) { return parts.stream.finished(parts.stream.flush()); });
}

std::shared_ptr<Plan> Device::build_plan(PlanSpec spec) {
    return guarded([&](Parts& parts) {
        auto compiled = std::make_shared<CompiledPlan>(parts.plan_context(), std::move(spec));
        {
            const std::lock_guard lock(parts.plans_mutex);
            std::erase_if(parts.plans, [](const auto& plan) { return plan.expired(); });
            parts.plans.push_back(compiled);
        }
        return std::make_shared<Plan>(shared_from_this(), std::move(compiled));
    });
}

std::vector<TensorPointer> Device::run(CompiledPlan& plan, std::span<const uint64_t> inputs,
                                       std::span<const int64_t> values) {
    return guarded([&](Parts&) { return plan.run(inputs, values); });
}

void Device::retire(std::shared_ptr<CompiledPlan> plan) noexcept {
    if (in_forked_child()) return;
    const std::shared_lock lock(lifetime_);
    if (!parts_ || lost_) return;
    try {
        const uint64_t value = plan->last_value();
        parts_->stream.retire(value, std::move(plan));
    } catch (const std::exception&) {
        // The device was lost meanwhile: destroying the plan now is as good as later.
    }
}

std::vector<ExecutableReport> Device::pipeline_statistics(std::span<const uint32_t> spirv,
                                                          const std::string& entry,
                                                          uint32_t subgroup_size) {
    return guarded(
        [&](Parts& parts) { return parts.pipelines.report(spirv, entry, subgroup_size); });
}

void Device::save_pipeline_cache() {
    guarded([&](Parts& parts) { parts.pipeline_cache.save(); });
}

void Device::set_profiling(bool enabled) {
    guarded([&](Parts& parts) { parts.profiler.set_enabled(enabled); });
}

std::vector<Timing> Device::take_timings() {
    return guarded([&](Parts& parts) {
        parts.stream.wait_all();
        for (const std::shared_ptr<CompiledPlan>& plan : parts.live_plans()) {
            plan->read_timestamps();
        }
        parts.launches.read_timestamps();
        return parts.profiler.take();
    });
}

uint32_t Device::register_assert(const std::string& message) {
    return guarded([&](Parts& parts) { return parts.assertions.register_message(message); });
}

std::map<std::string, uint64_t> Device::memory_statistics() {
    return guarded([&](Parts& parts) { return parts.memory->statistics(); });
}

void Device::reset_peak_memory_statistics() {
    guarded([&](Parts& parts) { parts.memory->reset_peaks(); });
}

void Device::reset_accumulated_memory_statistics() {
    guarded([&](Parts& parts) { parts.memory->reset_accumulated(); });
}

void Device::empty_cache() {
    guarded([&](Parts& parts) { parts.memory->empty_cache(); });
}

void Device::set_memory_limit(uint64_t bytes) {
    guarded([&](Parts& parts) { parts.memory->set_limit(bytes); });
}

uint64_t Device::memory_limit() {
    return guarded([&](Parts& parts) { return parts.memory->limit(); });
}

std::pair<uint64_t, uint64_t> Device::memory_info() {
    return guarded([&](Parts& parts) { return parts.memory->memory_info(); });
}

std::map<std::string, uint64_t> Device::counters() {
    return guarded([&](Parts& parts) {
        parts.stream.flush();  // else what is pending would count as kernels without a submission
        const Counters& counters = parts.device.counters;
        return std::map<std::string, uint64_t>{
            {"dispatches", counters.dispatches},
            {"submissions", counters.submissions},
            {"barriers", counters.barriers},
            {"uploads", counters.uploads},
            {"uploaded_bytes", counters.uploaded_bytes},
            {"downloads", counters.downloads},
            {"downloaded_bytes", counters.downloaded_bytes},
            {"copies", counters.copies},
            {"fills", counters.fills},
            {"plan_runs", counters.plan_runs},
            {"recordings", counters.recordings},
            {"pipelines_created", counters.pipelines_created},
            {"pipeline_caches_dropped", counters.pipeline_caches_dropped},
        };
    });
}

void Device::close() noexcept {
    if (in_forked_child()) {
        // The parent owns these objects. Leaving them alone is the only safe thing.
        static_cast<void>(parts_.release());
        return;
    }
    const std::unique_lock lock(lifetime_);
    if (!parts_) return;
    try {
        if (!lost_) {
            parts_->stream.wait_all();
            if (parts_->device.counters.pipelines_created != 0) parts_->pipeline_cache.save();
        }
    } catch (const std::exception&) {
        // A device that fails now is being given up anyway.
    }
    parts_.reset();
    instance_.reset();
}

}  // namespace torchvk
