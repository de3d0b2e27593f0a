#include "process.hpp"

#include <atomic>

#include "error.hpp"

#if !defined(_WIN32)
#include <pthread.h>
#endif

namespace torchvk {
namespace {

std::atomic<bool> forked{false};

}  // namespace

void install_fork_guard() {
#if !defined(_WIN32)
    static const int installed =
        pthread_atfork(nullptr, nullptr, [] { forked.store(true, std::memory_order_relaxed); });
    if (installed != 0) {
        throw VulkanError("pthread_atfork failed: the runtime cannot protect forked processes.");
    }
#endif
}

bool in_forked_child() noexcept {
    return forked.load(std::memory_order_relaxed);
}

void require_own_process() {
    if (in_forked_child()) {
        throw VulkanError(
            "Vulkan cannot be used in a forked process; use the spawn start method, or keep "
            "tensors "
            "on the CPU in DataLoader workers.");
    }
}

}  // namespace torchvk
