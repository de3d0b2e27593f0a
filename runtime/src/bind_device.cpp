#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/variant.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "parse_plan.hpp"
#include "registry.hpp"

namespace nb = nanobind;
using namespace nb::literals;

namespace torchvk {
namespace {

// The runtime's locks are held across waits for the GPU, and a thread that waits must not keep the
// interpreter from others: everything that may wait runs without the GIL.
using WithoutGil = nb::call_guard<nb::gil_scoped_release>;

constexpr const char* capsule_name = "dltensor";

void destroy_capsule(PyObject* capsule) {
    // A consumer renames the capsule when it takes the tensor over.
    if (!PyCapsule_IsValid(capsule, capsule_name)) return;
    auto* managed =
        static_cast<dlpack::ManagedTensor*>(PyCapsule_GetPointer(capsule, capsule_name));
    managed->deleter(managed);
}

std::byte* host_pointer(uint64_t address) {
    return reinterpret_cast<std::byte*>(static_cast<uintptr_t>(address));
}

nb::object empty(Device& device, std::vector<int64_t> shape, std::vector<int64_t> strides,
                 uint8_t dl_code, uint8_t dl_bits, uint64_t nbytes) {
    if (shape.size() != strides.size()) {
        throw nb::value_error("empty: shape and strides differ in length");
    }
    return make_capsule(
        device.empty({std::move(shape), std::move(strides), dl_code, dl_bits}, nbytes));
}

void fill(Device& device, uint64_t address, uint64_t nbytes, nb::bytes pattern) {
    const auto* data = reinterpret_cast<const std::byte*>(pattern.c_str());
    const nb::gil_scoped_release released;
    device.fill(address, nbytes, {data, pattern.size()});
}

std::shared_ptr<Plan> build_plan(Device& device, const nb::dict& spec) {
    PlanSpec plan = parse_plan(spec);
    const nb::gil_scoped_release released;
    return device.build_plan(std::move(plan));
}

nb::list pipeline_statistics(Device& device, const nb::bytes& spirv, const std::string& entry,
                             uint32_t subgroup_size) {
    const std::vector<uint32_t> words = parse_spirv(spirv);
    std::vector<ExecutableReport> reports;
    {
        const nb::gil_scoped_release released;
        reports = device.pipeline_statistics(words, entry, subgroup_size);
    }
    nb::list list;
    for (const ExecutableReport& report : reports) {
        nb::dict dict;
        dict["name"] = report.name;
        dict["subgroup_size"] = report.subgroup_size;
        dict["statistics"] = report.statistics;
        dict["representations"] = report.representations;
        list.append(dict);
    }
    return list;
}

nb::list take_timings(Device& device) {
    std::vector<Timing> timings;
    {
        const nb::gil_scoped_release released;
        timings = device.take_timings();
    }
    nb::list list;
    for (const Timing& timing : timings) {
        list.append(nb::make_tuple(timing.plan->name, timing.plan->steps[timing.step],
                                   timing.start_ns, timing.duration_ns));
    }
    return list;
}

nb::list run_plan(Plan& plan, const std::vector<uint64_t>& inputs, const nb::list& scalars) {
    std::vector<int64_t> values;
    values.reserve(scalars.size());
    for (const nb::handle scalar : scalars)
        values.push_back(parse_bits(scalar));
    std::vector<TensorPointer> outputs;
    {
        const nb::gil_scoped_release released;
        outputs = plan.run(inputs, values);
    }
    nb::list capsules;
    for (TensorPointer& output : outputs)
        capsules.append(make_capsule(std::move(output)));
    return capsules;
}

}  // namespace

nb::object make_capsule(TensorPointer tensor) {
    PyObject* capsule = PyCapsule_New(tensor.get(), capsule_name, destroy_capsule);
    if (capsule == nullptr) throw nb::python_error();
    static_cast<void>(tensor.release());  // now the capsule's
    return nb::steal(capsule);
}

void bind_device(nb::module_& module) {
    module.def("physical_devices", [] { return Registry::get().physical_devices(); });
    module.def("validation_messages", &validation_messages);
    module.def("shutdown", [] { Registry::get().shutdown(); }, WithoutGil());
    module.def(
        "device",
        [](int index, const std::optional<std::string>& pipeline_cache_path,
           std::optional<int> torch_index) {
            return Registry::get().device(index, pipeline_cache_path.value_or(""),
                                          torch_index.value_or(index));
        },
        "index"_a, "pipeline_cache_path"_a = nb::none(), "torch_index"_a = nb::none(),
        WithoutGil());

    nb::class_<Plan>(module, "Plan")
        .def_prop_ro("name", [](const Plan& self) { return self.compiled().name(); })
        .def_prop_ro("dispatch_count",
                     [](const Plan& self) { return self.compiled().dispatch_count(); })
        .def_prop_ro("barrier_count",
                     [](const Plan& self) { return self.compiled().barrier_count(); })
        .def("run", &run_plan, "inputs"_a, "values"_a);

    nb::class_<Device>(module, "Device")
        .def_prop_ro("profile", [](const Device& self) { return self.profile(); })
        .def_prop_ro("index", &Device::torch_index)
        .def_prop_ro("lost", &Device::lost)
        .def("empty", &empty, "shape"_a, "strides"_a, "dl_code"_a, "dl_bits"_a, "nbytes"_a)
        .def(
            "upload",
            [](Device& self, uint64_t destination, uint64_t host, uint64_t nbytes) {
                self.upload(destination, host_pointer(host), nbytes);
            },
            "dst_address"_a, "host_address"_a, "nbytes"_a, WithoutGil())
        .def(
            "download",
            [](Device& self, uint64_t source, uint64_t host, uint64_t nbytes) {
                self.download(source, host_pointer(host), nbytes);
            },
            "src_address"_a, "host_address"_a, "nbytes"_a, WithoutGil())
        .def("copy", &Device::copy, "dst_address"_a, "src_address"_a, "nbytes"_a, WithoutGil())
        .def("fill", &fill, "address"_a, "nbytes"_a, "pattern_bytes"_a)
        .def("synchronize", &Device::synchronize, WithoutGil())
        .def("query", &Device::query, WithoutGil())
        .def("build_plan", &build_plan, "spec"_a)
        .def("pipeline_statistics", &pipeline_statistics, "spirv"_a, "entry"_a,
             "subgroup_size"_a = 0)
        .def("save_pipeline_cache", &Device::save_pipeline_cache, WithoutGil())
        .def("set_profiling", &Device::set_profiling, "enabled"_a)
        .def("take_timings", &take_timings)
        .def("register_assert", &Device::register_assert, "message"_a)
        .def("memory_stats", &Device::memory_statistics)
        .def("reset_peak_memory_stats", &Device::reset_peak_memory_statistics)
        .def("reset_accumulated_memory_stats", &Device::reset_accumulated_memory_statistics)
        .def("empty_cache", &Device::empty_cache, WithoutGil())
        .def("set_memory_limit", &Device::set_memory_limit, "nbytes"_a)
        .def("memory_limit", &Device::memory_limit)
        .def("mem_get_info", &Device::memory_info)
        .def("counters", &Device::counters);
}

}  // namespace torchvk
