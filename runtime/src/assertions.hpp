// Assertions that kernels report.
// In: messages registered by the compiler; an error buffer that kernels write
//     (u32 words: [0] assertion id, [1..3] details).
// Out: DeviceAssert at the next point where the host waits.
// Forbidden: reading the buffer while the work in question may still run.
#pragma once

#include <cstdint>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "allocator.hpp"

namespace torchvk {

class Assertions {
  public:
    static constexpr uint64_t buffer_bytes = 64;

    // `tables` hands out host-visible, coherent memory.
    explicit Assertions(Allocator& tables) : tables_(tables) {}

    // Greater than 0; the same message always has the same id.
    uint32_t register_message(const std::string& message);

    // Device address of the error buffer.
    uint64_t address();

    // Throws DeviceAssert if a kernel reported something, and clears the report.
    void raise_pending();

  private:
    Allocator& tables_;
    std::mutex mutex_;
    Block buffer_;
    std::vector<std::string> messages_;
    std::unordered_map<std::string, uint32_t> ids_;
};

}  // namespace torchvk
