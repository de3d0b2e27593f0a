#include "staging.hpp"

#include <string>

#include "error.hpp"

namespace torchvk {
namespace {

constexpr uint64_t place_alignment = 64;

}  // namespace

StagingRing::Place StagingRing::reserve(uint64_t bytes) {
    if (!segment_) {
        std::string reason;
        segment_ = Segment::create(device_, kind_, capacity_, reason);
        if (!segment_) {
            throw OutOfMemory("No host-visible memory for transfers (" + readable_bytes(capacity_) +
                              "): " + reason + ".");
        }
    }
    const uint64_t size = (bytes + place_alignment - 1) / place_alignment * place_alignment;
    uint64_t begin = head_;
    if (begin % capacity_ + size > capacity_) {
        begin += capacity_ - begin % capacity_;  // a place does not wrap around
    }
    while (begin + size - tail_ > capacity_) {
        if (used_.empty()) {
            tail_ = begin;
            break;
        }
        stream_.wait(used_.front().value);
        tail_ = used_.front().end;
        used_.pop_front();
    }
    head_ = begin + size;
    const uint64_t address = segment_->address() + begin % capacity_;
    return {segment_->host(address), segment_->buffer(), segment_->buffer_offset(address), address};
}

void StagingRing::used_until(uint64_t value) {
    used_.push_back({head_, value});
    while (used_.size() > 1 && stream_.finished(used_.front().value)) {
        tail_ = used_.front().end;
        used_.pop_front();
    }
}

}  // namespace torchvk
