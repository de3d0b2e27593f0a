// One opened device: what Python sees as `Device`, without Python.
// In: calls from any thread.
// Out: the parts below, tied together and guarded: every entry checks that the process is not a
//      forked child, the device not lost and not shut down.
// Forbidden: Python objects; work that belongs to one of the parts.
#pragma once

#include <atomic>
#include <memory>
#include <shared_mutex>
#include <string>

#include "allocator.hpp"
#include "assertions.hpp"
#include "dlpack.hpp"
#include "error.hpp"
#include "logical_device.hpp"
#include "stream.hpp"
#include "transfer.hpp"

namespace torchvk {

class Device {
  public:
    Device(std::shared_ptr<Instance> instance, const PhysicalDevice& physical);
    ~Device();
    Device(const Device&) = delete;
    Device& operator=(const Device&) = delete;

    const DeviceProfile& profile() const { return profile_; }
    bool lost() const { return lost_; }

    dlpack::ManagedTensor* empty(TensorLayout layout, uint64_t bytes);
    void upload(uint64_t destination, const std::byte* source, uint64_t bytes);
    void download(uint64_t source, std::byte* destination, uint64_t bytes);
    void copy(uint64_t destination, uint64_t source, uint64_t bytes);
    void fill(uint64_t destination, uint64_t bytes, std::span<const std::byte> pattern);
    void synchronize();
    bool query();

    uint32_t register_assert(const std::string& message);
    std::map<std::string, uint64_t> memory_statistics();
    void reset_peak_memory_statistics();
    void reset_accumulated_memory_statistics();
    void empty_cache();
    void set_memory_limit(uint64_t bytes);
    uint64_t memory_limit();
    std::pair<uint64_t, uint64_t> memory_info();
    std::map<std::string, uint64_t> counters();

    // Waits for the GPU and frees everything. Later calls throw; releasing tensors stays safe.
    void close() noexcept;

  private:
    // What lives between opening and close(). Declaration order is construction order.
    struct Parts {
        Parts(const PhysicalDevice& physical);
        ~Parts();

        LogicalDevice device;
        Stream stream;
        std::shared_ptr<Allocator> memory;
        std::shared_ptr<Allocator> tables;
        Transfers transfers;
        Assertions assertions;
    };

    // Runs `function(Parts&)`; notices a lost device.
    template <typename Function>
    auto guarded(Function&& function);

    std::shared_ptr<Instance> instance_;
    const DeviceProfile profile_;
    std::atomic<bool> lost_{false};
    std::shared_mutex lifetime_;  // shared: parts in use; exclusive: close()
    std::unique_ptr<Parts> parts_;
};

}  // namespace torchvk
