// Which process are we in: Vulkan objects do not survive fork().
// In: nothing; a fork handler is installed once.
// Out: a flag that every entry point and every destructor asks first.
// Forbidden: touching a Vulkan handle in a forked child, even to destroy it.
#pragma once

namespace torchvk {

// Call once, before the first Vulkan call.
void install_fork_guard();

// True in a child of fork() whose parent had loaded the runtime.
bool in_forked_child() noexcept;

// Throws VulkanError with advice in a forked child.
void require_own_process();

}  // namespace torchvk
