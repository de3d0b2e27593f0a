#include "plan.hpp"

#include <algorithm>
#include <stdexcept>

#include "error.hpp"
#include "transfer.hpp"

namespace torchvk {
namespace {

// Enough to keep the GPU fed while the host prepares the next run.
constexpr size_t most_recordings = 8;

uint64_t byte_count(const Scalar& scalar, std::span<const int64_t> values) {
    const int64_t bytes = scalar.resolve(values);
    if (bytes < 0) throw std::invalid_argument("a size is negative");
    return static_cast<uint64_t>(bytes);
}

bool is_errors(const BufferReference& buffer) {
    return buffer.kind == BufferReference::Kind::errors;
}

PlanSpec validated(PlanSpec spec) {
    spec.validate();
    return spec;
}

}  // namespace

CompiledPlan::CompiledPlan(const PlanContext& context, PlanSpec spec)
    : context_(context),
      spec_(validated(std::move(spec))),
      table_(spec_, context.device.profile.uniform_offset_alignment),
      pipelines_(context.pipelines.create(spec_)) {
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

    const std::vector<uint64_t> key = recording_key(arguments);
    {
        const std::lock_guard lock(mutex_);
        Recording& recording = take_recording(key, context_.profiler.enabled());
        if (!recording.recorded) {
            recording.key = key;
            try {
                record(recording, arguments);
            } catch (...) {
                discard(recording);
                throw;
            }
        }
        table_.write_patches(recording.table().host(), arguments.bases, values);
        recording.value = context_.stream.submit(recording.commands());
        recording.timestamps_unread = recording.profiled;
        Counters& counters = context_.device.counters;
        counters.plan_runs.fetch_add(1, std::memory_order_relaxed);
        counters.dispatches.fetch_add(recording.dispatches, std::memory_order_relaxed);
        counters.barriers.fetch_add(recording.barriers, std::memory_order_relaxed);
    }
    return make_outputs(std::move(outputs), values);
}

std::vector<uint64_t> CompiledPlan::recording_key(const Arguments& arguments) const {
    std::vector<uint64_t> key;
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
            recording->recorded && recording->profiled == profiled && recording->key == key;
        if (fits && (match == nullptr || recording->value < match->value)) match = recording.get();
        if (oldest == nullptr || recording->value < oldest->value) oldest = recording.get();
    }
    if (match != nullptr && context_.stream.finished(match->value)) {
        read_timestamps(*match);
        return *match;
    }
    if (recordings_.size() < most_recordings) {
        Recording& added = add_recording();
        added.profiled = profiled;
        return added;
    }
    Recording& chosen =
        match != nullptr && !context_.stream.finished(oldest->value) ? *match : *oldest;
    context_.stream.wait(chosen.value);
    read_timestamps(chosen);
    if (&chosen != match) {
        chosen.recorded = false;
        chosen.profiled = profiled;
    }
    return chosen;
}

Recording& CompiledPlan::add_recording() {
    Block table = context_.tables.allocate(std::max<uint64_t>(table_.bytes(), 1));
    table_.write_constants(table.host());
    recordings_.push_back(
        std::make_unique<Recording>(context_.recordings, std::move(table), table_.range()));
    return *recordings_.back();
}

void CompiledPlan::discard(const Recording& recording) {
    std::erase_if(recordings_, [&](const std::unique_ptr<Recording>& candidate) {
        return candidate.get() == &recording;
    });
}

void CompiledPlan::record(Recording& recording, const Arguments& arguments) {
    const LogicalDevice& device = context_.device;
    if (device.profile.null_hardware) {
        recording.recorded = true;
        return;
    }
    const std::lock_guard lock(context_.recordings.mutex());
    const VkCommandBuffer commands = recording.commands();
    VkCommandBufferBeginInfo begin{VK_STRUCTURE_TYPE_COMMAND_BUFFER_BEGIN_INFO};
    VK_CALL(device.vk.vkBeginCommandBuffer(commands, &begin));
    recording.dispatches = 0;
    recording.barriers = 0;
    recording.timed_steps.clear();
    const auto barrier = [&] {
        record_full_barrier(device, commands);
        ++recording.barriers;
    };
    const auto timestamp = [&] {
        device.vk.vkCmdWriteTimestamp(commands, VK_PIPELINE_STAGE_BOTTOM_OF_PIPE_BIT,
                                      recording.timestamps.get(),
                                      static_cast<uint32_t>(recording.timed_steps.size()));
    };

    if (recording.profiled) {
        const uint32_t count = static_cast<uint32_t>(spec_.steps.size() + 1);
        if (!recording.timestamps) {
            VkQueryPoolCreateInfo info{VK_STRUCTURE_TYPE_QUERY_POOL_CREATE_INFO};
            info.queryType = VK_QUERY_TYPE_TIMESTAMP;
            info.queryCount = count;
            VkQueryPool pool = VK_NULL_HANDLE;
            VK_CALL(device.vk.vkCreateQueryPool(device.handle, &info, nullptr, &pool));
            recording.timestamps = OwnedQueryPool(device, pool);
        }
        device.vk.vkCmdResetQueryPool(commands, recording.timestamps.get(), 0, count);
    }
    barrier();
    if (recording.profiled) timestamp();

    bool first = true;
    bool barrier_due = false;
    for (size_t index = 0; index < spec_.steps.size(); ++index) {
        const Step& step = spec_.steps[index];
        // A step without work may carry the barrier that a later step relies on. Profiling
        // separates all steps, else their times would overlap.
        barrier_due |= step.barrier || recording.profiled;
        const bool is_dispatch = step.kind == Step::Kind::dispatch;
        const std::array<uint32_t, 3> groups =
            is_dispatch ? group_counts(step, arguments.values) : std::array<uint32_t, 3>{};
        const bool empty = is_dispatch ? groups[0] == 0 || groups[1] == 0 || groups[2] == 0
                                       : byte_count(step.bytes, arguments.values) == 0;
        if (empty) continue;
        if (barrier_due && !first) barrier();
        barrier_due = false;
        first = false;
        if (is_dispatch) {
            record_dispatch(recording, index, groups);
        } else if (step.kind == Step::Kind::fill) {
            record_fill_step(recording, index, arguments);
        } else {
            record_copy_step(recording, index, arguments);
        }
        if (recording.profiled) {
            recording.timed_steps.push_back(step.label);
            timestamp();
        }
    }
    if (uses_errors_) record_host_barrier(device, commands);
    VK_CALL(device.vk.vkEndCommandBuffer(commands));
    recording.recorded = true;
    device.counters.recordings.fetch_add(1, std::memory_order_relaxed);
}

void CompiledPlan::record_dispatch(Recording& recording, size_t index,
                                   const std::array<uint32_t, 3>& groups) {
    const LogicalDevice& device = context_.device;
    const VkCommandBuffer commands = recording.commands();
    const uint32_t kernel = spec_.steps[index].kernel;
    device.vk.vkCmdBindPipeline(commands, VK_PIPELINE_BIND_POINT_COMPUTE, pipelines_[kernel].get());
    if (recording.set() != VK_NULL_HANDLE) {
        const VkDescriptorSet set = recording.set();
        const uint32_t offset = table_.slice(index);
        device.vk.vkCmdBindDescriptorSets(commands, VK_PIPELINE_BIND_POINT_COMPUTE,
                                          context_.pipelines.layout(), 0, 1, &set, 1, &offset);
    }
    device.vk.vkCmdDispatch(commands, groups[0], groups[1], groups[2]);
    ++recording.dispatches;
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
    context_.profiler.read(recording.timestamps.get(), spec_.name, recording.timed_steps);
}

void CompiledPlan::read_timestamps() {
    const std::lock_guard lock(mutex_);
    for (const std::unique_ptr<Recording>& recording : recordings_) {
        if (context_.stream.finished(recording->value)) read_timestamps(*recording);
    }
}

uint64_t CompiledPlan::last_value() {
    const std::lock_guard lock(mutex_);
    uint64_t latest = 0;
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
