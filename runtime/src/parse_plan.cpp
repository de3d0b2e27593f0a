#include "parse_plan.hpp"

#include <cstring>
#include <string>

#include <nanobind/stl/string.h>

namespace nb = nanobind;

namespace torchvk {
namespace {

nb::object item(const nb::dict& dict, const char* key) {
    if (!dict.contains(key)) throw nb::key_error(key);
    return dict[key];
}

template <typename T>
T get(const nb::dict& dict, const char* key) {
    try {
        return nb::cast<T>(item(dict, key));
    } catch (const nb::cast_error&) {
        throw nb::type_error((std::string("wrong type for '") + key + "'").c_str());
    }
}

nb::dict as_dict(nb::handle value) {
    return nb::cast<nb::dict>(value);
}

// int | ("value", index)
Scalar parse_scalar(nb::handle value) {
    if (!PyTuple_Check(value.ptr()) && !PyList_Check(value.ptr())) {
        return {parse_bits(value), -1};
    }
    const nb::sequence pair = nb::borrow<nb::sequence>(value);
    if (nb::len(pair) != 2 || nb::cast<std::string>(pair[0]) != "value") {
        throw nb::value_error("a scalar is an int or (\"value\", index)");
    }
    const int32_t index = nb::cast<int32_t>(pair[1]);
    if (index < 0) throw nb::value_error("a value index is negative");
    return {0, index};
}

Scalar scalar(const nb::dict& dict, const char* key) {
    return parse_scalar(item(dict, key));
}

std::vector<Scalar> scalars(const nb::dict& dict, const char* key) {
    std::vector<Scalar> list;
    for (const nb::handle entry : item(dict, key))
        list.push_back(parse_scalar(entry));
    return list;
}

// ("input", i) | ("output", i) | ("arena", Scalar) | ("errors",)
BufferReference parse_buffer(nb::handle value) {
    const nb::sequence tuple = nb::borrow<nb::sequence>(value);
    const std::string kind = nb::cast<std::string>(tuple[0]);
    BufferReference reference;
    if (kind == "errors") {
        reference.kind = BufferReference::Kind::errors;
    } else if (kind == "arena") {
        reference.kind = BufferReference::Kind::arena;
        reference.arena_offset = parse_scalar(tuple[1]);
    } else if (kind == "input" || kind == "output") {
        reference.kind =
            kind == "input" ? BufferReference::Kind::input : BufferReference::Kind::output;
        reference.index = nb::cast<uint32_t>(tuple[1]);
    } else {
        throw nb::value_error(("unknown buffer kind '" + kind + "'").c_str());
    }
    return reference;
}

Argument parse_argument(const nb::dict& dict) {
    const std::string kind = get<std::string>(dict, "kind");
    Argument argument;
    argument.at = get<uint32_t>(dict, "at");
    if (kind == "pointer") {
        argument.kind = Argument::Kind::pointer;
        argument.buffer = parse_buffer(item(dict, "buffer"));
        argument.value = scalar(dict, "offset");
        return argument;
    }
    if (kind == "i32" || kind == "u32" || kind == "f32") {
        argument.kind = Argument::Kind::word;
    } else if (kind == "i64" || kind == "f64") {
        argument.kind = Argument::Kind::double_word;
    } else {
        throw nb::value_error(("unknown argument kind '" + kind + "'").c_str());
    }
    argument.value = scalar(dict, "value");
    return argument;
}

Step parse_step(const nb::dict& dict) {
    const std::string kind = get<std::string>(dict, "kind");
    Step step;
    step.label = get<std::string>(dict, "label");
    step.barrier = get<bool>(dict, "barrier");
    if (kind == "dispatch") {
        step.kind = Step::Kind::dispatch;
        step.kernel = get<uint32_t>(dict, "kernel");
        const std::vector<Scalar> groups = scalars(dict, "groups");
        if (groups.size() != 3) throw nb::value_error("a dispatch has three group counts");
        std::copy(groups.begin(), groups.end(), step.groups.begin());
        for (const nb::handle entry : item(dict, "arguments")) {
            step.arguments.push_back(parse_argument(as_dict(entry)));
        }
    } else if (kind == "fill") {
        step.kind = Step::Kind::fill;
        step.destination = parse_buffer(item(dict, "buffer"));
        step.destination_offset = scalar(dict, "offset");
        step.bytes = scalar(dict, "nbytes");
        step.pattern = static_cast<uint32_t>(parse_bits(item(dict, "pattern")));
    } else if (kind == "copy") {
        step.kind = Step::Kind::copy;
        step.destination = parse_buffer(item(dict, "dst"));
        step.destination_offset = scalar(dict, "dst_offset");
        step.source = parse_buffer(item(dict, "src"));
        step.source_offset = scalar(dict, "src_offset");
        step.bytes = scalar(dict, "nbytes");
    } else {
        throw nb::value_error(("unknown step kind '" + kind + "'").c_str());
    }
    return step;
}

KernelSpec parse_kernel(const nb::dict& dict) {
    return {get<uint32_t>(dict, "module"), get<std::string>(dict, "entry"),
            get<uint32_t>(dict, "subgroup_size"), get<bool>(dict, "full_subgroups"),
            get<uint32_t>(dict, "argument_bytes")};
}

OutputSpec parse_output(const nb::dict& dict) {
    return {scalar(dict, "nbytes"), scalars(dict, "shape"), scalars(dict, "strides"),
            get<uint8_t>(dict, "dl_code"), get<uint8_t>(dict, "dl_bits")};
}

void parse_into(PlanSpec& plan, const nb::dict& spec) {
    plan.input_count = get<uint32_t>(spec, "input_count");
    plan.value_count = get<uint32_t>(spec, "value_count");
    plan.arena_bytes = scalar(spec, "arena_bytes");
    for (const nb::handle entry : item(spec, "outputs")) {
        plan.outputs.push_back(parse_output(as_dict(entry)));
    }
    for (const nb::handle entry : item(spec, "modules")) {
        plan.modules.push_back(parse_spirv(nb::cast<nb::bytes>(entry)));
    }
    for (const nb::handle entry : item(spec, "kernels")) {
        plan.kernels.push_back(parse_kernel(as_dict(entry)));
    }
    for (const nb::handle entry : item(spec, "steps")) {
        plan.steps.push_back(parse_step(as_dict(entry)));
    }
    if (spec.contains("replay")) plan.replay = get<bool>(spec, "replay");
    if (spec.contains("argument_table")) plan.argument_table = get<bool>(spec, "argument_table");
}

}  // namespace

int64_t parse_bits(nb::handle value) {
    int overflow = 0;
    const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
    if (overflow == 0) {
        if (number == -1 && PyErr_Occurred()) throw nb::python_error();
        return number;
    }
    const unsigned long long bits = PyLong_AsUnsignedLongLong(value.ptr());
    if (PyErr_Occurred()) throw nb::python_error();
    return static_cast<int64_t>(bits);
}

std::vector<uint32_t> parse_spirv(const nb::bytes& spirv) {
    if (spirv.size() % 4 != 0) throw nb::value_error("SPIR-V is a sequence of 4-byte words");
    std::vector<uint32_t> words(spirv.size() / 4);
    std::memcpy(words.data(), spirv.c_str(), spirv.size());
    return words;
}

PlanSpec parse_plan(const nb::dict& spec) {
    PlanSpec plan;
    plan.name = get<std::string>(spec, "name");
    try {
        parse_into(plan, spec);
    } catch (const std::exception& error) {
        throw nb::value_error(("plan '" + plan.name + "': " + error.what()).c_str());
    }
    plan.validate();
    return plan;
}

}  // namespace torchvk
