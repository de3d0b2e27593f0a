#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bindings.hpp"
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

}  // namespace

nb::object make_capsule(dlpack::ManagedTensor* managed) {
    PyObject* capsule = PyCapsule_New(managed, capsule_name, destroy_capsule);
    if (capsule == nullptr) {
        managed->deleter(managed);
        throw nb::python_error();
    }
    return nb::steal(capsule);
}

void bind_device(nb::module_& module) {
    module.def("physical_devices", [] { return Registry::get().physical_devices(); });
    module.def("validation_messages", &validation_messages);
    module.def("shutdown", [] { Registry::get().shutdown(); }, WithoutGil());
    module.def(
        "device",
        [](int index, const std::optional<std::string>& pipeline_cache_path) {
            return Registry::get().device(index, pipeline_cache_path.value_or(""));
        },
        "index"_a, "pipeline_cache_path"_a = nb::none(), WithoutGil());

    nb::class_<Device>(module, "Device")
        .def_prop_ro("profile", [](const Device& self) { return self.profile(); })
        .def_prop_ro("index", [](const Device& self) { return self.profile().index; })
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
