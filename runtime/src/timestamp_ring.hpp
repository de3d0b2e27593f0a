// Timestamps of launches, whose command buffers belong to the stream.
// In: how many timestamps a launch takes, and what it is, once it was recorded. Out: room for them;
// the times of launches that are done, to the profiler, in order.
// Forbidden: more timestamps at once than `capacity`; locking (whoever launches has the lock).
#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "profiler.hpp"
#include "stream.hpp"

namespace torchvk {

class TimestampRing {
  public:
    static constexpr uint32_t capacity = 4096;

    TimestampRing(const LogicalDevice& device, Stream& stream, Profiler& profiler)
        : device_(device), stream_(stream), profiler_(profiler) {}
    TimestampRing(const TimestampRing&) = delete;
    TimestampRing& operator=(const TimestampRing&) = delete;

    // The first of `count` consecutive timestamps, to be reset before they are written. Waits for
    // the oldest launches and reads them if they have the room.
    uint32_t reserve(uint32_t count);
    // The timestamps reserved last are those of this run, which is done when the timeline has
    // reached `value`.
    void written(std::shared_ptr<TimedPlan> plan, std::vector<TimedStep> steps, uint64_t value);
    // Reads what is done.
    void read_finished();

    VkQueryPool pool() const { return pool_.get(); }

  private:
    struct Unread {
        std::shared_ptr<TimedPlan> plan;
        std::vector<TimedStep> steps;
        uint64_t value = 0;
        uint64_t begin = 0;  // position in the endless tape of which the ring shows a window
    };

    void read_oldest();

    const LogicalDevice& device_;
    Stream& stream_;
    Profiler& profiler_;
    OwnedQueryPool pool_;
    uint64_t begin_ = 0;  // of the timestamps reserved last
    uint64_t head_ = 0;
    std::deque<Unread> unread_;
};

}  // namespace torchvk
