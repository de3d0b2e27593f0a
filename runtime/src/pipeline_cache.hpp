// The driver's compiled pipelines, kept on disk.
// In: a path. Out: a VkPipelineCache filled from the file, and the file written anew on save().
// The file is a header (magic, size, checksum) and the driver's data. A file that is damaged, or
// that another device or driver version wrote, is dropped and counted, never trusted. Forbidden:
// failing because of the file; without it everything is only slower.
#pragma once

#include <mutex>
#include <string>

#include "logical_device.hpp"

namespace torchvk {

class PipelineCache {
  public:
    // An empty path keeps the cache in memory only.
    PipelineCache(const LogicalDevice& device, std::string path);

    VkPipelineCache handle() const { return cache_.get(); }

    // Writes a temporary file and renames it. Throws VulkanError when it cannot be written.
    void save();

  private:
    const LogicalDevice& device_;
    const std::string path_;  // UTF-8
    std::mutex mutex_;
    OwnedPipelineCache cache_;
};

}  // namespace torchvk
