// The process-wide state: one instance, one Device per physical device.
// In: device indices.
// Out: shared devices, opened on first use.
// Forbidden: opening anything at import.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "device.hpp"
#include "instance.hpp"

namespace torchvk {

class Registry {
  public:
    static Registry& get();

    std::vector<DeviceProfile> physical_devices();

    // Opens the device on the first call; later calls return the same one, whatever else they say.
    std::shared_ptr<Device> device(int index, const std::string& pipeline_cache_path,
                                   int torch_index);

    // Closes all devices and the instance. Nothing can be opened afterwards.
    void shutdown() noexcept;

  private:
    Instance& instance();

    std::mutex mutex_;
    bool shut_down_ = false;
    std::shared_ptr<Instance> instance_;
    std::vector<std::shared_ptr<Device>> devices_;
};

}  // namespace torchvk
