// A compiled graph that can be run.
// In: a plan specification once, then input addresses and values per run.
// Out: at most one submission per run and one tensor per output.
//
// A recording is replayed as long as nothing changed but what the argument table holds. Group
// counts, sizes, and the addresses of fills and copies are part of the recorded commands: they form
// a key, and a few recordings with different keys are kept. A recording that the GPU still executes
// is left alone.
//
// A plan of a few kernels, such as an eager operator, has no recording: every run records its
// kernels into the stream's pending command buffer, which costs the host less than a submission.
//
// Forbidden: reading device memory; waiting, unless all recordings are in flight.
#pragma once

#include <cstdint>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "argument_table.hpp"
#include "assertions.hpp"
#include "dlpack.hpp"
#include "launches.hpp"
#include "pipeline.hpp"
#include "plan_spec.hpp"
#include "profiler.hpp"
#include "recording.hpp"
#include "stream.hpp"

namespace torchvk {

// The parts of a device that plans use.
struct PlanContext {
    const LogicalDevice& device;
    Stream& stream;
    Allocator& memory;
    Allocator& tables;
    Assertions& assertions;
    PipelineFactory& pipelines;
    RecordingPool& recordings;
    Launches& launches;
    Profiler& profiler;
};

class CompiledPlan {
  public:
    // Compiles all pipelines. Throws std::invalid_argument for an inconsistent specification.
    CompiledPlan(const PlanContext& context, PlanSpec spec);

    // May be called from several threads. Throws std::invalid_argument when the number of inputs or
    // values is wrong, OutOfMemory with nothing submitted.
    std::vector<TensorPointer> run(std::span<const uint64_t> inputs,
                                   std::span<const int64_t> values);

    // Hands timestamps of finished recordings to the profiler.
    void read_timestamps();

    // Timeline value of the latest run.
    uint64_t last_value();

    // Frees everything on the device, which must be idle.
    void close();

    const std::string& name() const { return spec_.name; }
    size_t dispatch_count() const { return dispatch_count_; }
    size_t barrier_count() const { return barrier_count_; }

  private:
    // Addresses and values of one run.
    struct Arguments {
        std::vector<uint64_t> bases;
        std::span<const int64_t> values;
    };

    std::vector<Block> allocate_outputs(std::span<const int64_t> values) const;
    std::vector<TensorPointer> make_outputs(std::vector<Block> blocks,
                                            std::span<const int64_t> values) const;
    std::vector<uint64_t> recording_key(const Arguments& arguments) const;

    void submit(const Arguments& arguments);
    void launch(const Arguments& arguments, bool profiled);
    void replay(const Arguments& arguments, bool profiled);
    // A recording that the GPU has finished, if possible one that can be replayed as it is.
    Recording& take_recording(const std::vector<uint64_t>& key, bool profiled);
    Recording& add_recording();
    void discard(const Recording& recording);
    void read_timestamps(Recording& recording);
    // Whether a profiled run needs a barrier before every step: steps that run beside each other
    // have one time, to be shared as their times alone are.
    bool steps_apart();

    void record(Recording& recording, const Arguments& arguments, bool profiled);
    void record_dispatch(const Recording& recording, size_t step,
                         const std::array<uint32_t, 3>& groups);
    void record_fill_step(const Recording& recording, size_t step, const Arguments& arguments);
    void record_copy_step(const Recording& recording, size_t step, const Arguments& arguments);
    std::array<uint32_t, 3> group_counts(const Step& step, std::span<const int64_t> values) const;
    BufferRange transfer_range(const BufferReference& buffer, const Scalar& offset, uint64_t bytes,
                               const Arguments& arguments) const;

    PlanContext context_;
    PlanSpec spec_;
    const bool launchable_;  // its kernels are recorded anew at every run
    ArgumentTable table_;
    std::vector<OwnedPipeline> pipelines_;
    const std::shared_ptr<TimedPlan> timed_;
    const size_t recording_limit_;
    bool uses_errors_ = false;
    size_t dispatch_count_ = 0;
    size_t barrier_count_ = 0;

    std::mutex mutex_;
    std::vector<std::unique_ptr<Recording>> recordings_;
    uint64_t last_launch_ = 0;  // timeline value
};

}  // namespace torchvk
