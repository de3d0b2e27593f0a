#include "assertions.hpp"

#include <array>
#include <cstring>

#include "error.hpp"

namespace torchvk {

uint32_t Assertions::register_message(const std::string& message) {
    const std::lock_guard lock(mutex_);
    const auto [entry, added] =
        ids_.try_emplace(message, static_cast<uint32_t>(messages_.size() + 1));
    if (added) messages_.push_back(message);
    return entry->second;
}

uint64_t Assertions::address() {
    const std::lock_guard lock(mutex_);
    if (!buffer_) {
        buffer_ = tables_.allocate(buffer_bytes);
        std::memset(buffer_.host(), 0, buffer_bytes);
    }
    return buffer_.address();
}

void Assertions::raise_pending() {
    const std::lock_guard lock(mutex_);
    if (!buffer_) return;
    uint32_t id = 0;
    std::memcpy(&id, buffer_.host(), sizeof id);
    if (id == 0) return;

    std::array<int32_t, 3> details{};
    std::memcpy(details.data(), buffer_.host() + sizeof id, sizeof details);
    std::memset(buffer_.host(), 0, buffer_bytes);
    std::string message =
        id <= messages_.size() ? messages_[id - 1] : "unknown assertion " + std::to_string(id);
    // {0}, {1} and {2} in a message stand for the words that the kernel left beside its code.
    for (size_t i = 0; i < details.size(); ++i) {
        const std::string placeholder = "{" + std::to_string(i) + "}";
        if (const size_t at = message.find(placeholder); at != std::string::npos) {
            message.replace(at, placeholder.size(), std::to_string(details[i]));
        }
    }
    throw DeviceAssert(message);
}

}  // namespace torchvk
