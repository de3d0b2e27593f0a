#include "transfer.hpp"

#include <algorithm>
#include <array>
#include <cstring>

#include "error.hpp"

namespace torchvk {
namespace {

constexpr uint64_t upload_ring_bytes = uint64_t{16} << 20;
constexpr uint64_t readback_ring_bytes = uint64_t{16} << 20;
// A fill that vkCmdFillBuffer cannot do starts from a stamp of this size and doubles it.
constexpr uint64_t stamp_bytes = uint64_t{64} << 10;

void record_copy(const LogicalDevice& device, VkCommandBuffer commands, VkBuffer source,
                 uint64_t source_offset, VkBuffer destination, uint64_t destination_offset,
                 uint64_t bytes) {
    const VkBufferCopy region{source_offset, destination_offset, bytes};
    device.vk.vkCmdCopyBuffer(commands, source, destination, 1, &region);
}

}  // namespace

void record_fill(const LogicalDevice& device, VkCommandBuffer commands, VkBuffer buffer,
                 uint64_t offset, uint64_t bytes, uint32_t pattern, VkBuffer pattern_buffer,
                 uint64_t pattern_offset) {
    const uint64_t head = std::min<uint64_t>((4 - offset % 4) % 4, bytes);
    const uint64_t body = (bytes - head) / 4 * 4;
    const uint64_t tail = bytes - head - body;
    if (head != 0) {
        record_copy(device, commands, pattern_buffer, pattern_offset, buffer, offset, head);
    }
    if (body != 0) {
        std::array<std::byte, 8> twice;
        std::memcpy(twice.data(), &pattern, 4);
        std::memcpy(twice.data() + 4, &pattern, 4);
        uint32_t rotated = 0;
        std::memcpy(&rotated, twice.data() + head, 4);
        device.vk.vkCmdFillBuffer(commands, buffer, offset + head, body, rotated);
    }
    if (tail != 0) {
        // The body is a multiple of the pattern, so the tail goes on where the head stopped.
        record_copy(device, commands, pattern_buffer, pattern_offset + head, buffer,
                    offset + head + body, tail);
    }
}

Transfers::Transfers(const LogicalDevice& device, Stream& stream, Allocator& allocator)
    : device_(device),
      stream_(stream),
      allocator_(allocator),
      upload_ring_(device, stream, MemoryKind::upload, upload_ring_bytes),
      readback_ring_(device, stream, MemoryKind::readback, readback_ring_bytes) {}

void Transfers::upload(uint64_t destination, const std::byte* source, uint64_t bytes) {
    if (bytes == 0) return;
    const BufferRange target = allocator_.resolve(destination, bytes);
    const std::lock_guard lock(upload_mutex_);
    for (uint64_t done = 0; done < bytes;) {
        const uint64_t chunk = std::min(bytes - done, upload_ring_.largest_chunk());
        const StagingRing::Place place = upload_ring_.reserve(chunk);
        std::memcpy(place.host, source + done, chunk);
        const AddressRange written{destination + done, destination + done + chunk};
        upload_ring_.used_until(
            stream_.transfer({&written, 1}, chunk, [&](VkCommandBuffer commands) {
                record_copy(device_, commands, place.buffer, place.offset, target.buffer,
                            target.offset + done, chunk);
            }));
        done += chunk;
    }
    device_.counters.uploads.fetch_add(1, std::memory_order_relaxed);
    device_.counters.uploaded_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Transfers::download(std::byte* destination, uint64_t source, uint64_t bytes) {
    if (device_.profile.null_hardware && bytes != 0) {
        throw VulkanError(device_.profile.name +
                          " compiles kernels but executes nothing, so there is nothing to read.");
    }
    if (bytes == 0) {
        stream_.wait_all();
        return;
    }
    const BufferRange origin = allocator_.resolve(source, bytes);
    const std::lock_guard lock(readback_mutex_);

    struct Chunk {
        StagingRing::Place place;
        uint64_t begin = 0, bytes = 0, value = 0;
    };
    const auto start = [&](uint64_t begin) {
        Chunk chunk{{}, begin, std::min(bytes - begin, readback_ring_.largest_chunk()), 0};
        if (chunk.bytes == 0) return chunk;
        chunk.place = readback_ring_.reserve(chunk.bytes);
        const std::array<AddressRange, 2> ranges{
            AddressRange{source + begin, source + begin + chunk.bytes},
            AddressRange{chunk.place.address, chunk.place.address + chunk.bytes}};
        stream_.transfer(ranges, chunk.bytes, [&](VkCommandBuffer commands) {
            record_copy(device_, commands, origin.buffer, origin.offset + begin, chunk.place.buffer,
                        chunk.place.offset, chunk.bytes);
            record_host_barrier(device_, commands);
        });
        chunk.value = stream_.flush();
        readback_ring_.used_until(chunk.value);
        return chunk;
    };

    // The next chunk is on its way while the host copies this one.
    for (Chunk current = start(0); current.bytes != 0;) {
        const Chunk next = start(current.begin + current.bytes);
        stream_.wait(current.value);
        readback_ring_.invalidate();
        std::memcpy(destination + current.begin, current.place.host, current.bytes);
        current = next;
    }
    device_.counters.downloads.fetch_add(1, std::memory_order_relaxed);
    device_.counters.downloaded_bytes.fetch_add(bytes, std::memory_order_relaxed);
}

void Transfers::copy(uint64_t destination, uint64_t source, uint64_t bytes) {
    if (bytes == 0 || destination == source) return;
    const BufferRange target = allocator_.resolve(destination, bytes);
    const BufferRange origin = allocator_.resolve(source, bytes);
    const bool overlap = destination < source + bytes && source < destination + bytes;
    std::array<AddressRange, 2> ranges{AddressRange{destination, destination + bytes},
                                       AddressRange{source, source + bytes}};
    if (overlap) {
        const Block between = allocator_.allocate(bytes);
        stream_.transfer(ranges, bytes, [&](VkCommandBuffer commands) {
            // The block may have been in use by transfers that this command buffer holds already.
            record_full_barrier(device_, commands);
            record_copy(device_, commands, origin.buffer, origin.offset, between.buffer(),
                        between.buffer_offset(), bytes);
            record_full_barrier(device_, commands);
            record_copy(device_, commands, between.buffer(), between.buffer_offset(), target.buffer,
                        target.offset, bytes);
            record_full_barrier(device_, commands);
        });
    } else {
        stream_.transfer(ranges, bytes, [&](VkCommandBuffer commands) {
            record_copy(device_, commands, origin.buffer, origin.offset, target.buffer,
                        target.offset, bytes);
        });
    }
    device_.counters.copies.fetch_add(1, std::memory_order_relaxed);
}

void Transfers::fill(uint64_t destination, uint64_t bytes, std::span<const std::byte> pattern) {
    const uint64_t width = pattern.size();
    if (width == 0 || width > 16 || (width & (width - 1)) != 0) {
        throw VulkanError("A fill pattern has 1, 2, 4, 8 or 16 bytes, not " +
                          std::to_string(width) + ".");
    }
    if (bytes % width != 0) {
        throw VulkanError("A fill of " + std::to_string(bytes) +
                          " bytes is not a multiple of its " + std::to_string(width) +
                          "-byte pattern.");
    }
    if (bytes == 0) return;
    const BufferRange target = allocator_.resolve(destination, bytes);

    std::array<std::byte, 16> repeated;
    for (size_t index = 0; index < repeated.size(); ++index)
        repeated[index] = pattern[index % width];
    const bool is_word = std::memcmp(repeated.data(), repeated.data() + 4, 12) == 0;
    const AddressRange written{destination, destination + bytes};

    const std::lock_guard lock(upload_mutex_);
    const uint64_t staged = is_word ? 16 : std::min(bytes, stamp_bytes);
    const StagingRing::Place place = upload_ring_.reserve(std::max<uint64_t>(staged, 16));
    for (uint64_t done = 0; done < staged; done += 16) {
        std::memcpy(place.host + done, repeated.data(), 16);
    }
    upload_ring_.used_until(stream_.transfer({&written, 1}, bytes, [&](VkCommandBuffer commands) {
        if (is_word) {
            uint32_t word = 0;
            std::memcpy(&word, repeated.data(), 4);
            record_fill(device_, commands, target.buffer, target.offset, bytes, word, place.buffer,
                        place.offset);
            return;
        }
        record_copy(device_, commands, place.buffer, place.offset, target.buffer, target.offset,
                    staged);
        for (uint64_t done = staged; done < bytes;) {
            const uint64_t chunk = std::min(done, bytes - done);
            record_full_barrier(device_, commands);
            record_copy(device_, commands, target.buffer, target.offset, target.buffer,
                        target.offset + done, chunk);
            done += chunk;
        }
    }));
    device_.counters.fills.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace torchvk
