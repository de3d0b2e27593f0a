#include "plan.hpp"

#include <algorithm>
#include <stdexcept>

#include "error.hpp"
#include "transfer.hpp"

namespace torchvk {
namespace {

// Recordings of a plan: enough to keep the GPU fed while the host prepares the next run. A long
// plan needs fewer, and every step of every recording holds a descriptor set.
constexpr size_t most_recordings = 8;
constexpr size_t fewest_recordings = 2;
constexpr size_t most_recorded_steps = 2048;

uint64_t byte_count(const Scalar& scalar, std::span<const int64_t> values) {
    const int64_t bytes = scalar.resolve(values);
    if (bytes < 0) throw std::invalid_argument("a size is negative");
    return static_cast<uint64_t>(bytes);
}

bool is_errors(const BufferReference& buffer) {
    return buffer.kind == BufferReference::Kind::errors;
}

bool fits_launches(const PlanSpec& spec) {
    return spec.replay && spec.argument_table && spec.steps.size() <= Launches::most_steps &&
           std::all_of(spec.steps.begin(), spec.steps.end(), [&](const Step& step) {
               return step.kind == Step::Kind::dispatch &&
                      spec.kernels[step.kernel].argument_bytes <= Launches::slot_bytes;
           });
}

bool is_empty(const std::array<uint32_t, 3>& groups) {
    return groups[0] == 0 || groups[1] == 0 || groups[2] == 0;
}

std::shared_ptr<TimedPlan> timed_plan(const PlanSpec& spec) {
    const auto plan = std::make_shared<TimedPlan>();
    plan->name = spec.name;
    for (const Step& step : spec.steps)
        plan->steps.push_back(step.label);
    return plan;
}

PlanSpec validated(PlanSpec spec) {
    spec.validate();
    return spec;
}

}  // namespace

CompiledPlan::CompiledPlan(const PlanContext& context, PlanSpec spec)
    : context_(context),
      spec_(validated(std::move(spec))),
      launchable_(fits_launches(spec_)),
      table_(spec_,
             launchable_ ? Launches::slot_bytes : context.device.profile.uniform_offset_alignment),
      pipelines_(context.pipelines.create(spec_)),
      timed_(timed_plan(spec_)),
      recording_limit_(std::clamp(most_recorded_steps / std::max<size_t>(spec_.steps.size(), 1),
                                  fewest_recordings, most_recordings)) {
    if (table_.range() > context.device.profile.max_uniform_bytes) {
        throw VulkanError("plan '" + spec_.name + "': a kernel has " +
                          std::to_string(table_.range()) +
                          " bytes of arguments; this device allows " +
                          std::to_string(context.device.profile.max_uniform_bytes) + ".");
    }
    spec_.modules.clear();
    spec_.modules.shrink_to_fit();
    for (const Step& step : spec_.steps) {
        dispatch_count_ += step.kind == Step::Kind::dispatch;
        barrier_count_ += step.barrier;
        uses_errors_ |=
            std::any_of(step.arguments.begin(), step.arguments.end(), [](const Argument& argument) {
                return argument.kind == Argument::Kind::pointer && is_errors(argument.buffer);
            });
    }
}

std::vector<Block> CompiledPlan::allocate_outputs(std::span<const int64_t> values) const {
    std::vector<Block> blocks;
    blocks.reserve(spec_.outputs.size());
    for (const OutputSpec& output : spec_.outputs) {
        const uint64_t bytes = byte_count(output.bytes, values);
        blocks.push_back(bytes == 0 ? Block() : context_.memory.allocate(bytes));
    }
    return blocks;
}

std::vector<TensorPointer> CompiledPlan::make_outputs(std::vector<Block> blocks,
                                                      std::span<const int64_t> values) const {
    const auto resolve = [&](const std::vector<Scalar>& scalars) {
        std::vector<int64_t> numbers;
        numbers.reserve(scalars.size());
        for (const Scalar& scalar : scalars)
            numbers.push_back(scalar.resolve(values));
        return numbers;
    };
    std::vector<TensorPointer> tensors;
    tensors.reserve(blocks.size());
    for (size_t index = 0; index < blocks.size(); ++index) {
        const OutputSpec& output = spec_.outputs[index];
        tensors.push_back(make_tensor(
            std::move(blocks[index]),
            {resolve(output.shape), resolve(output.strides), output.dtype_code, output.dtype_bits},
            context_.device.torch_index));
    }
    return tensors;
}

std::vector<TensorPointer> CompiledPlan::run(std::span<const uint64_t> inputs,
                                             std::span<const int64_t> values) {
    if (inputs.size() != spec_.input_count || values.size() != spec_.value_count) {
        throw std::invalid_argument(
            "plan '" + spec_.name + "' takes " + std::to_string(spec_.input_count) +
            " inputs and " + std::to_string(spec_.value_count) + " values, not " +
            std::to_string(inputs.size()) + " and " + std::to_string(values.size()));
    }
    if (context_.device.validation) {
        for (const uint64_t address : inputs) {
            if (address != 0) static_cast<void>(context_.memory.resolve(address, 1));
        }
    }
    std::vector<Block> outputs = allocate_outputs(values);
    const uint64_t arena_bytes = byte_count(spec_.arena_bytes, values);
    // Given back when this function returns: whoever gets it next runs later on the same queue.
    const Block arena = arena_bytes == 0 ? Block() : context_.memory.allocate(arena_bytes);

    Arguments arguments{{}, values};
    arguments.bases.reserve(inputs.size() + outputs.size() + 2);
    arguments.bases.assign(inputs.begin(), inputs.end());
    for (const Block& block : outputs)
        arguments.bases.push_back(block.address());
    arguments.bases.push_back(arena.address());
    arguments.bases.push_back(uses_errors_ ? context_.assertions.address() : 0);

    submit(arguments);
    return make_outputs(std::move(outputs), values);
}

void CompiledPlan::submit(const Arguments& arguments) {
    context_.device.counters.plan_runs.fetch_add(1, std::memory_order_relaxed);
    if (context_.device.profile.null_hardware) return;

    const bool profiled = context_.profiler.enabled();
    if (launchable_) {
        launch(arguments, profiled);
    } else {
        replay(arguments, profiled);
    }
}

void CompiledPlan::launch(const Arguments& arguments, bool profiled) {
    const bool apart = profiled && spec_.steps.size() > 1 && steps_apart();
    std::array<Launches::Kernel, Launches::most_steps> kernels;
    size_t count = 0;
    uint64_t barriers = 0;
    bool barrier_due = false;
    for (size_t index = 0; index < spec_.steps.size(); ++index) {
        const Step& step = spec_.steps[index];
        barrier_due |= step.barrier || apart;  // as in record()
        const std::array<uint32_t, 3> groups = group_counts(step, arguments.values);
        if (is_empty(groups)) continue;
        const bool barrier = barrier_due && count != 0;
        kernels[count++] = {pipelines_[step.kernel].get(), groups, barrier, index};
        barriers += barrier;
        barrier_due = false;
    }
    if (count == 0) return;
    const uint64_t value =
        context_.launches.launch({kernels.data(), count}, spec_.steps.size(), uses_errors_,
                                 profiled ? timed_ : nullptr, [&](std::byte* table) {
                                     table_.write_constants(table);
                                     table_.write_patches(table, arguments.bases, arguments.values);
                                 });
    {
        const std::lock_guard lock(mutex_);
        last_launch_ = std::max(last_launch_, value);
    }
    context_.device.counters.dispatches.fetch_add(count, std::memory_order_relaxed);
    context_.device.counters.barriers.fetch_add(barriers, std::memory_order_relaxed);
}

void CompiledPlan::replay(const Arguments& arguments, bool profiled) {
    Counters& counters = context_.device.counters;
    const std::vector<uint64_t> key = recording_key(arguments);
    const std::lock_guard lock(mutex_);
    Recording& recording = take_recording(key, profiled);
    if (!spec_.replay || !recording.recorded() || recording.key != key ||
        recording.profiled() != profiled) {
        recording.key = key;
        try {
            record(recording, arguments, profiled);
        } catch (...) {
            discard(recording);
            throw;
        }
    }
    table_.write_patches(recording.table().host(), arguments.bases, arguments.values);
    recording.value = context_.stream.submit(recording.batches());
    recording.timestamps_unread = profiled;
    counters.dispatches.fetch_add(recording.dispatches(), std::memory_order_relaxed);
    counters.barriers.fetch_add(recording.barriers(), std::memory_order_relaxed);
}

std::vector<uint64_t> CompiledPlan::recording_key(const Arguments& arguments) const {
    std::vector<uint64_t> key;
    if (!spec_.argument_table) {
        key.assign(arguments.bases.begin(), arguments.bases.end());
        key.insert(key.end(), arguments.values.begin(), arguments.values.end());
    }
    for (const Step& step : spec_.steps) {
        if (step.kind == Step::Kind::dispatch) {
            for (const Scalar& count : step.groups) {
                if (count.dynamic()) {
                    key.push_back(static_cast<uint64_t>(count.resolve(arguments.values)));
                }
            }
            continue;
        }
        key.push_back(byte_count(step.bytes, arguments.values));
        key.push_back(address_of(spec_, step.destination, step.destination_offset)
                          .resolve(arguments.bases, arguments.values));
        if (step.kind == Step::Kind::copy) {
            key.push_back(address_of(spec_, step.source, step.source_offset)
                              .resolve(arguments.bases, arguments.values));
        }
    }
    return key;
}

Recording& CompiledPlan::take_recording(const std::vector<uint64_t>& key, bool profiled) {
    Recording* match = nullptr;   // the oldest with this key
    Recording* oldest = nullptr;  // the oldest of all
    for (const std::unique_ptr<Recording>& recording : recordings_) {
        const bool fits =
            recording->recorded() && recording->profiled() == profiled && recording->key == key;
        if (fits && (match == nullptr || recording->value < match->value)) match = recording.get();
        if (oldest == nullptr || recording->value < oldest->value) oldest = recording.get();
    }
    if (match != nullptr && context_.stream.finished(match->value)) {
        read_timestamps(*match);
        return *match;
    }
    if (recordings_.size() < recording_limit_) return add_recording();
    Recording& chosen =
        match != nullptr && !context_.stream.finished(oldest->value) ? *match : *oldest;
    context_.stream.wait(chosen.value);
    read_timestamps(chosen);
    return chosen;
}

Recording& CompiledPlan::add_recording() {
    Block table = context_.tables.allocate(std::max<uint64_t>(table_.bytes(), 1));
    table_.write_constants(table.host());
    recordings_.push_back(std::make_unique<Recording>(context_.recordings, std::move(table),
                                                      table_.slices(), table_.range()));
    return *recordings_.back();
}

void CompiledPlan::discard(const Recording& recording) {
    std::erase_if(recordings_, [&](const std::unique_ptr<Recording>& candidate) {
        return candidate.get() == &recording;
    });
}

void CompiledPlan::record(Recording& recording, const Arguments& arguments, bool profiled) {
    const std::lock_guard lock(context_.recordings.recording_mutex());
    recording.begin(profiled, spec_.steps.size());
    recording.steps_apart = profiled && steps_apart();
    bool first = true;
    bool barrier_due = false;
    for (size_t index = 0; index < spec_.steps.size(); ++index) {
        const Step& step = spec_.steps[index];
        // A step without work may carry the barrier that a later step relies on.
        barrier_due |= step.barrier || recording.steps_apart;
        const bool is_dispatch = step.kind == Step::Kind::dispatch;
        const std::array<uint32_t, 3> groups =
            is_dispatch ? group_counts(step, arguments.values) : std::array<uint32_t, 3>{};
        const bool empty =
            is_dispatch ? is_empty(groups) : byte_count(step.bytes, arguments.values) == 0;
        if (empty) continue;
        if (barrier_due && !first) recording.barrier();
        barrier_due = false;
        first = false;
        if (is_dispatch) {
            record_dispatch(recording, index, groups);
        } else if (step.kind == Step::Kind::fill) {
            record_fill_step(recording, index, arguments);
        } else {
            record_copy_step(recording, index, arguments);
        }
        recording.step_done(index, is_dispatch);
    }
    recording.end(uses_errors_);
}

void CompiledPlan::record_dispatch(const Recording& recording, size_t index,
                                   const std::array<uint32_t, 3>& groups) {
    const LogicalDevice& device = context_.device;
    const VkCommandBuffer commands = recording.commands();
    const uint32_t kernel = spec_.steps[index].kernel;
    device.vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines_[kernel].get());
    if (const VkDescriptorSet set = recording.set(index); set != VK_NULL_HANDLE) {
        device.vk.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                          context_.pipelines.layout(), 0, 1, &set, 0, nullptr);
    }
    device.vk.vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
}

void CompiledPlan::record_fill_step(const Recording& recording, size_t index,
                                    const Arguments& arguments) {
    const Step& step = spec_.steps[index];
    const uint64_t bytes = byte_count(step.bytes, arguments.values);
    const BufferRange range =
        transfer_range(step.destination, step.destination_offset, bytes, arguments);
    record_fill(context_.device, recording.commands(), range.buffer, range.offset, bytes,
                step.pattern, recording.table().buffer(),
                recording.table().buffer_offset() + table_.slice(index));
}

void CompiledPlan::record_copy_step(const Recording& recording, size_t index,
                                    const Arguments& arguments) {
    const Step& step = spec_.steps[index];
    const uint64_t bytes = byte_count(step.bytes, arguments.values);
    const BufferRange source = transfer_range(step.source, step.source_offset, bytes, arguments);
    const BufferRange destination =
        transfer_range(step.destination, step.destination_offset, bytes, arguments);
    const VkBufferCopy region{source.offset, destination.offset, bytes};
    context_.device.vk.vkCmdCopyBuffer(recording.commands(), source.buffer, destination.buffer, 1,
                                       &region);
}

std::array<uint32_t, 3> CompiledPlan::group_counts(const Step& step,
                                                   std::span<const int64_t> values) const {
    std::array<uint32_t, 3> counts{};
    for (size_t axis = 0; axis < 3; ++axis) {
        const int64_t count = step.groups[axis].resolve(values);
        const uint32_t most = context_.device.profile.max_workgroup_count[axis];
        if (count < 0 || count > static_cast<int64_t>(most)) {
            throw std::invalid_argument("plan '" + spec_.name + "', step '" + step.label +
                                        "': " + std::to_string(count) + " workgroups on axis " +
                                        std::to_string(axis) + "; this device allows " +
                                        std::to_string(most));
        }
        counts[axis] = static_cast<uint32_t>(count);
    }
    return counts;
}

BufferRange CompiledPlan::transfer_range(const BufferReference& buffer, const Scalar& offset,
                                         uint64_t bytes, const Arguments& arguments) const {
    const uint64_t address =
        address_of(spec_, buffer, offset).resolve(arguments.bases, arguments.values);
    const Allocator& owner = is_errors(buffer) ? context_.tables : context_.memory;
    return owner.resolve(address, bytes);
}

void CompiledPlan::read_timestamps(Recording& recording) {
    if (!recording.timestamps_unread) return;
    recording.timestamps_unread = false;
    context_.profiler.read(recording.timestamps(), 0, recording.timed_steps(), timed_);
    if (recording.steps_apart) recording.invalidate();
}

bool CompiledPlan::steps_apart() {
    if (context_.profiler.knows_alone(*timed_)) return false;
    if (launchable_) context_.launches.read_timestamps();
    return !context_.profiler.knows_alone(*timed_);
}

void CompiledPlan::read_timestamps() {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Recording>& recording : recordings_) {
        if (context_.stream.finished(recording->value)) read_timestamps(*recording);
    }
}

uint64_t CompiledPlan::last_value() {
    const std::lock_guard lock(mutex_);
    uint64_t latest = last_launch_;
    for (const std::unique_ptr<Recording>& recording : recordings_) {
        latest = std::max(latest, recording->value);
    }
    return latest;
}

void CompiledPlan::close() {
    const std::lock_guard lock(mutex_);
    recordings_.clear();
    pipelines_.clear();
}

}  // namespace torchvk
