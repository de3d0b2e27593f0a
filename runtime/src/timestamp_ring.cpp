#include "timestamp_ring.hpp"

#include <utility>

namespace torchvk {

uint32_t TimestampRing::reserve(uint32_t count) {
    if (!pool_) pool_ = create_timestamps(device_, capacity);
    uint64_t begin = head_;
    if (begin % capacity + count > capacity) {
        begin += capacity - begin % capacity;  // a launch's timestamps do not wrap around
    }
    const uint64_t end = begin + count;
    while (!unread_.empty() && end - unread_.front().begin > capacity) {
        stream_.wait(unread_.front().value);
        read_oldest();
    }
    begin_ = begin;
    head_ = end;
    return static_cast<uint32_t>(begin % capacity);
}

void TimestampRing::written(std::shared_ptr<TimedPlan> plan, std::vector<TimedStep> steps,
                            uint64_t value) {
    unread_.push_back({std::move(plan), std::move(steps), value, begin_});
}

void TimestampRing::read_finished() {
    while (!unread_.empty() && stream_.finished(unread_.front().value))
        read_oldest();
}

void TimestampRing::read_oldest() {
    const Unread& oldest = unread_.front();
    profiler_.read(pool_.get(), static_cast<uint32_t>(oldest.begin % capacity), oldest.steps,
                   oldest.plan);
    unread_.pop_front();
}

}  // namespace torchvk
