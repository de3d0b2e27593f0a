#include "registry.hpp"

#include "error.hpp"
#include "process.hpp"

namespace torchvk {

Registry& Registry::get() {
    static Registry registry;
    return registry;
}

Instance& Registry::instance() {
    if (shut_down_) throw VulkanError("The Vulkan runtime was shut down.");
    if (!instance_) {
        instance_ = std::make_shared<Instance>();
        devices_.resize(instance_->physical_devices().size());
    }
    return *instance_;
}

std::vector<DeviceProfile> Registry::physical_devices() {
    require_own_process();
    const std::lock_guard lock(mutex_);
    std::vector<DeviceProfile> profiles;
    for (const PhysicalDevice& physical : instance().physical_devices()) {
        profiles.push_back(physical.profile);
    }
    return profiles;
}

std::shared_ptr<Device> Registry::device(int index, const std::string& pipeline_cache_path,
                                         int torch_index) {
    require_own_process();
    const std::lock_guard lock(mutex_);
    const std::vector<PhysicalDevice>& physical = instance().physical_devices();
    if (index < 0 || static_cast<size_t>(index) >= physical.size()) {
        throw VulkanError("There is no device vk:" + std::to_string(index) + "; " +
                          std::to_string(physical.size()) +
                          " Vulkan devices were found in this system.");
    }
    std::shared_ptr<Device>& device = devices_[static_cast<size_t>(index)];
    if (device) return device;
    const DeviceProfile& profile = physical[static_cast<size_t>(index)].profile;
    if (!profile.missing.empty()) {
        std::string text = profile.name + " cannot be used: its driver lacks ";
        for (size_t item = 0; item < profile.missing.size(); ++item) {
            text += (item == 0 ? "" : ", ") + profile.missing[item];
        }
        throw VulkanError(text + ". A newer driver may offer it.");
    }
    device = std::make_shared<Device>(instance_, physical[static_cast<size_t>(index)],
                                      pipeline_cache_path, torch_index);
    return device;
}

void Registry::shutdown() noexcept {
    if (in_forked_child()) return;
    const std::lock_guard lock(mutex_);
    shut_down_ = true;
    for (const std::shared_ptr<Device>& device : devices_) {
        if (device) device->close();
    }
    devices_.clear();
    instance_.reset();
}

}  // namespace torchvk
