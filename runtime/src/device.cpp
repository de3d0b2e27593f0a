#include "device.hpp"

#include <mutex>
#include <utility>

#include "process.hpp"

namespace torchvk {

Device::Parts::Parts(const PhysicalDevice& physical)
    : device(physical),
      stream(device),
      memory(
          std::make_shared<Allocator>(device, MemoryKind::device, [this] { stream.wait_all(); })),
      tables(std::make_shared<Allocator>(device, MemoryKind::table, [this] { stream.wait_all(); })),
      transfers(device, stream, *memory),
      assertions(*tables) {}

Device::Parts::~Parts() {
    // Tensors may outlive the device; their blocks then refer to a closed allocator.
    memory->close();
    tables->close();
}

Device::Device(std::shared_ptr<Instance> instance, const PhysicalDevice& physical)
    : instance_(std::move(instance)),
      profile_(physical.profile),
      parts_(std::make_unique<Parts>(physical)) {}

Device::~Device() {
    close();
}

template <typename Function>
auto Device::guarded(Function&& function) {
    require_own_process();
    const std::shared_lock lock(lifetime_);
    if (!parts_) {
        throw VulkanError("vk:" + std::to_string(profile_.index) + " was shut down.");
    }
    if (lost_) {
        throw DeviceLost("vk:" + std::to_string(profile_.index) + " (" + profile_.name +
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

dlpack::ManagedTensor* Device::empty(TensorLayout layout, uint64_t bytes) {
    return guarded([&](Parts& parts) {
        Block block = bytes == 0 ? Block() : parts.memory->allocate(bytes);
        return make_managed_tensor(std::move(block), std::move(layout), profile_.index);
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
        if (!lost_) parts_->stream.wait_all();
    } catch (const std::exception&) {
        // A device that fails now is being given up anyway.
    }
    parts_.reset();
    instance_.reset();
}

}  // namespace torchvk
