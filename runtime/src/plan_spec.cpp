#include "plan_spec.hpp"

#include <stdexcept>

namespace torchvk {
namespace {

// Checks one plan; `where` follows the walk so that messages name the place.
class Checker {
  public:
    explicit Checker(const PlanSpec& plan) : plan_(plan), where_("plan '" + plan.name + "'") {}

    void run() {
        scalar(plan_.arena_bytes, "arena_bytes");
        for (const OutputSpec& output : plan_.outputs) {
            scalar(output.bytes, "output size");
            for (const Scalar& extent : output.shape)
                scalar(extent, "output shape");
            for (const Scalar& stride : output.strides)
                scalar(stride, "output stride");
            require(output.shape.size() == output.strides.size(),
                    "output shape and strides differ in length");
        }
        for (const std::vector<uint32_t>& module : plan_.modules) {
            require(module.size() > 5 && module[0] == 0x07230203, "a module is not SPIR-V");
        }
        for (const KernelSpec& kernel : plan_.kernels) {
            require(kernel.module < plan_.modules.size(), "a kernel names a module out of range");
        }
        for (const Step& step : plan_.steps) {
            where_ = "plan '" + plan_.name + "', step '" + step.label + "'";
            check(step);
        }
    }

  private:
    void require(bool condition, const char* problem) const {
        if (!condition) throw std::invalid_argument(where_ + ": " + problem);
    }

    void scalar(const Scalar& scalar, const char* what) const {
        if (scalar.value_index >= static_cast<int64_t>(plan_.value_count)) {
            throw std::invalid_argument(where_ + ": " + what + " names value " +
                                        std::to_string(scalar.value_index) + " of " +
                                        std::to_string(plan_.value_count));
        }
    }

    void buffer(const BufferReference& reference) const {
        using Kind = BufferReference::Kind;
        scalar(reference.arena_offset, "arena offset");
        require(reference.kind != Kind::input || reference.index < plan_.input_count,
                "an input is out of range");
        require(reference.kind != Kind::output || reference.index < plan_.outputs.size(),
                "an output is out of range");
    }

    void check(const Step& step) const {
        if (step.kind == Step::Kind::dispatch) {
            require(step.kernel < plan_.kernels.size(), "the kernel is out of range");
            for (const Scalar& count : step.groups)
                scalar(count, "group count");
            for (const Argument& argument : step.arguments)
                check(argument, step);
            return;
        }
        buffer(step.destination);
        scalar(step.destination_offset, "destination offset");
        scalar(step.bytes, "size");
        if (step.kind == Step::Kind::copy) {
            buffer(step.source);
            scalar(step.source_offset, "source offset");
        }
    }

    void check(const Argument& argument, const Step& step) const {
        const uint32_t size = argument.kind == Argument::Kind::word ? 4 : 8;
        require(argument.at % size == 0, "an argument is not aligned to its size");
        require(uint64_t{argument.at} + size <= plan_.kernels[step.kernel].argument_bytes,
                "an argument lies outside of the kernel's argument_bytes");
        scalar(argument.value, "argument");
        if (argument.kind == Argument::Kind::pointer) buffer(argument.buffer);
    }

    const PlanSpec& plan_;
    std::string where_;
};

}  // namespace

void PlanSpec::validate() const {
    Checker(*this).run();
}

}  // namespace torchvk
