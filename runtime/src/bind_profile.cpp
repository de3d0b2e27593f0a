#include <tuple>

#include <nanobind/stl/array.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
#include "device_profile.hpp"
#include "features.hpp"

namespace nb = nanobind;

namespace torchvk {
namespace {

template <typename T>
nb::object to_python(const T& value) {
    return nb::cast(value);
}

nb::object to_python(const std::array<uint32_t, 3>& value) {
    return nb::make_tuple(value[0], value[1], value[2]);
}

nb::object to_python(const std::vector<MemoryHeap>& heaps) {
    nb::list list;
    for (const MemoryHeap& heap : heaps) {
        nb::dict entry;
        entry["size"] = heap.size;
        entry["device_local"] = heap.device_local;
        list.append(entry);
    }
    return list;
}

nb::object to_python(const std::vector<CooperativeMatrixShape>& shapes) {
    nb::list list;
    for (const CooperativeMatrixShape& shape : shapes) {
        nb::dict entry;
        entry["m"] = shape.m;
        entry["n"] = shape.n;
        entry["k"] = shape.k;
        entry["a"] = shape.a;
        entry["b"] = shape.b;
        entry["c"] = shape.c;
        list.append(entry);
    }
    return list;
}

// Calls visit(name, member) for every attribute.
template <typename Visitor>
void visit_fields(Visitor&& visit) {
    using P = DeviceProfile;
    visit("index", &P::index);
    visit("name", &P::name);
    visit("vendor_id", &P::vendor_id);
    visit("device_id", &P::device_id);
    visit("device_type", &P::device_type);
    visit("driver_name", &P::driver_name);
    visit("driver_info", &P::driver_info);
    visit("driver_id", &P::driver_id);
    visit("api_version", &P::api_version);
    visit("device_uuid", &P::device_uuid);
    visit("driver_uuid", &P::driver_uuid);
    visit("pipeline_cache_uuid", &P::pipeline_cache_uuid);
    visit("subgroup_size", &P::subgroup_size);
    visit("min_subgroup_size", &P::min_subgroup_size);
    visit("max_subgroup_size", &P::max_subgroup_size);
    visit("subgroup_size_control", &P::subgroup_size_control);
    visit("full_subgroups", &P::full_subgroups);
    visit("subgroup_extended_types", &P::subgroup_extended_types);
    visit("subgroup_shuffle", &P::subgroup_shuffle);
    visit("max_workgroup_size", &P::max_workgroup_size);
    visit("max_workgroup_invocations", &P::max_workgroup_invocations);
    visit("max_workgroup_count", &P::max_workgroup_count);
    visit("shared_memory_bytes", &P::shared_memory_bytes);
    visit("max_allocation_bytes", &P::max_allocation_bytes);
    visit("max_buffer_bytes", &P::max_buffer_bytes);
    visit("uniform_offset_alignment", &P::uniform_offset_alignment);
    visit("max_uniform_bytes", &P::max_uniform_bytes);
    visit("timestamp_period_ns", &P::timestamp_period_ns);
    visit("timestamp_valid_bits", &P::timestamp_valid_bits);
    visit("float16", &P::float16);
    visit("float64", &P::float64);
    visit("int8", &P::int8);
    visit("int16", &P::int16);
    visit("int64", &P::int64);
    visit("storage8", &P::storage8);
    visit("storage16", &P::storage16);
    visit("int64_atomics", &P::int64_atomics);
    visit("float_atomic_add", &P::float_atomic_add);
    visit("float_atomic_add_shared", &P::float_atomic_add_shared);
    visit("memory_model", &P::memory_model);
    visit("cooperative_matrix", &P::cooperative_matrix);
    visit("cooperative_matrix_shapes", &P::cooperative_matrix_shapes);
    visit("bfloat16", &P::bfloat16);
    visit("nan_preserve", &P::nan_preserve);
    visit("denorm_preserve", &P::denorm_preserve);
    visit("pipeline_executable_properties", &P::pipeline_executable_properties);
    visit("memory_budget", &P::memory_budget);
    visit("compute_units", &P::compute_units);
    visit("heaps", &P::heaps);
    visit("missing", &P::missing);
    visit("null_hardware", &P::null_hardware);
}

}  // namespace

void bind_profile(nb::module_& module) {
    module.def("required_features", &FeatureSet::required);
    auto profile = nb::class_<DeviceProfile>(module, "DeviceProfile");
    visit_fields([&](const char* name, auto member) {
        profile.def_prop_ro(
            name, [member](const DeviceProfile& self) { return to_python(self.*member); });
    });
    profile.def("to_dict", [](const DeviceProfile& self) {
        nb::dict dict;
        visit_fields([&](const char* name, auto member) { dict[name] = to_python(self.*member); });
        return dict;
    });
    profile.def("__repr__", [](const DeviceProfile& self) {
        return "DeviceProfile(vk:" + std::to_string(self.index) + ", " + self.name + ", " +
               self.driver_name + " " + self.driver_info + ")";
    });
}

}  // namespace torchvk
