#include "pipeline_cache.hpp"

#include <array>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <optional>
#include <random>
#include <span>
#include <system_error>
#include <vector>

#include "error.hpp"

namespace torchvk {
namespace {

constexpr std::array<char, 8> magic{'T', 'V', 'K', 'P', 'C', '0', '0', '1'};

struct FileHeader {
    std::array<char, 8> magic;
    uint64_t payload_bytes;
    uint64_t checksum;
};

// FNV-1a over 64 bits: guards against damage, not against intent.
uint64_t checksum_of(std::span<const char> data) {
    uint64_t hash = 14695981039346656037ull;
    for (const char byte : data) {
        hash = (hash ^ static_cast<unsigned char>(byte)) * 1099511628211ull;
    }
    return hash;
}

std::filesystem::path utf8_path(const std::string& path) {
    return std::filesystem::path(std::u8string(path.begin(), path.end()));
}

// Does the driver's own header name this device and driver?
bool written_by(VkPhysicalDevice physical, std::span<const char> payload) {
    VkPipelineCacheHeaderVersionOne header;
    if (payload.size() < sizeof header) return false;
    std::memcpy(&header, payload.data(), sizeof header);
    VkPhysicalDeviceProperties properties;
    vkGetPhysicalDeviceProperties(physical, &properties);
    return header.headerVersion == VK_PIPELINE_CACHE_HEADER_VERSION_ONE &&
           header.vendorID == properties.vendorID && header.deviceID == properties.deviceID &&
           std::memcmp(header.pipelineCacheUUID, properties.pipelineCacheUUID, VK_UUID_SIZE) == 0;
}

// The payload of a trustworthy file, else nothing.
std::optional<std::vector<char>> read_payload(std::ifstream& file) {
    FileHeader header;
    if (!file.read(reinterpret_cast<char*>(&header), sizeof header)) return std::nullopt;
    if (header.magic != magic || header.payload_bytes > (uint64_t{1} << 32)) return std::nullopt;
    std::vector<char> payload(header.payload_bytes);
    if (!file.read(payload.data(), static_cast<std::streamsize>(payload.size()))) {
        return std::nullopt;
    }
    if (checksum_of(payload) != header.checksum) return std::nullopt;
    return payload;
}

}  // namespace

PipelineCache::PipelineCache(const LogicalDevice& device, std::string path)
    : device_(device), path_(std::move(path)) {
    std::vector<char> initial;
    if (!path_.empty()) {
        if (std::ifstream file(utf8_path(path_), std::ios::binary); file) {
            std::optional<std::vector<char>> payload = read_payload(file);
            if (payload && written_by(device.physical, *payload)) {
                initial = std::move(*payload);
            } else {
                ++device.counters.pipeline_caches_dropped;
            }
        }
    }
    VkPipelineCacheCreateInfo info{VK_STRUCTURE_TYPE_PIPELINE_CACHE_CREATE_INFO};
    info.initialDataSize = initial.size();
    info.pInitialData = initial.data();
    VkPipelineCache cache = VK_NULL_HANDLE;
    VK_CALL(device.vk.vkCreatePipelineCache(device.handle, &info, nullptr, &cache));
    cache_ = OwnedPipelineCache(device, cache);
}

void PipelineCache::save() {
    if (path_.empty()) return;
    const std::lock_guard lock(mutex_);
    std::vector<char> payload;
    VkResult result = VK_INCOMPLETE;
    // Other threads may add pipelines between the two calls.
    while (result == VK_INCOMPLETE) {
        size_t size = 0;
        VK_CALL(device_.vk.vkGetPipelineCacheData(device_.handle, cache_.get(), &size, nullptr));
        payload.resize(size);
        result =
            device_.vk.vkGetPipelineCacheData(device_.handle, cache_.get(), &size, payload.data());
        payload.resize(size);
    }
    check(result, "vkGetPipelineCacheData(");

    const FileHeader header{magic, payload.size(), checksum_of(payload)};
    const std::filesystem::path target = utf8_path(path_);
    std::filesystem::path temporary = target;
    temporary += "." + std::to_string(std::random_device{}()) + ".tmp";
    std::error_code error;
    std::filesystem::create_directories(target.parent_path(), error);
    {
        std::ofstream file(temporary, std::ios::binary);
        file.write(reinterpret_cast<const char*>(&header), sizeof header);
        file.write(payload.data(), static_cast<std::streamsize>(payload.size()));
        if (!file.flush()) error = std::make_error_code(std::errc::io_error);
    }
    if (!error) std::filesystem::rename(temporary, target, error);
    if (error) {
        std::error_code ignored;
        std::filesystem::remove(temporary, ignored);
        throw VulkanError("The pipeline cache could not be written to " + path_ + ": " +
                          error.message());
    }
}

}  // namespace torchvk
