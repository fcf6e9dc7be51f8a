// Which streams come after what others have freed, by the events that they were told to wait for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/base/hash_table.h"

namespace fracgpu {

// Has no lock of its own: it is a part of PoolBlocks. Streams are numbers, as there; a moment is
// the number of the last free by then. `epoch` changes when a context ends, and what was of an
// earlier one counts no more.
class StreamOrder {
 public:
  // Out of host memory the event is not known.
  void record(uint64_t event, uint64_t stream, uint64_t moment, uint64_t epoch) {
    if (Event* const recorded = events_.insert(event))
      *recorded = {.key = event, .stream = stream, .moment = moment, .epoch = epoch};
  }
  void forget_event(uint64_t event) {
    if (Event* const recorded = events_.find(event)) events_.erase(recorded);
  }

  // The stream waits for what the event has recorded.
  void wait(uint64_t stream, uint64_t event, uint64_t epoch) {
    const Event* const recorded = events_.find(event);
    if (recorded == nullptr || recorded->epoch != epoch || recorded->stream == stream) return;
    const uint64_t key = key_of(stream, recorded->stream);
    Follow* const follow = follows_.insert(key);
    if (follow == nullptr) return;
    const bool known = is(*follow, stream, recorded->stream, epoch);
    *follow = {.key = key,
               .stream = stream,
               .other = recorded->stream,
               .moment = known ? std::max(follow->moment, recorded->moment) : recorded->moment,
               .epoch = epoch};
  }

  // Whether what the stream is told next comes after that free of the other one.
  bool comes_after(uint64_t stream, uint64_t other, uint64_t free, uint64_t epoch) const {
    const Follow* const follow = follows_.find(key_of(stream, other));
    return follow != nullptr && is(*follow, stream, other, epoch) && free <= follow->moment;
  }

  // How many pairs of streams are known of which one comes after the other.
  size_t pairs() const { return follows_.size(); }
  // Forgets those of earlier epochs, and those whose other stream `matters(stream)` says no of.
  template <typename Matters>
  void forget_pairs(uint64_t epoch, Matters matters) {
    follows_.erase_if(
        [&](const Follow& follow) { return follow.epoch != epoch || !matters(follow.other); });
  }

  // Its number may mean another one.
  void forget_stream(uint64_t stream) {
    events_.erase_if([&](const Event& event) { return event.stream == stream; });
    follows_.erase_if(
        [&](const Follow& follow) { return follow.stream == stream || follow.other == stream; });
  }

 private:
  struct Event {
    uint64_t key = 0;
    uint64_t stream = 0;
    uint64_t moment = 0;
    uint64_t epoch = 0;
  };
  struct Follow {
    uint64_t key = 0;
    uint64_t stream = 0, other = 0;
    uint64_t moment = 0;
    uint64_t epoch = 0;
  };

  static uint64_t key_of(uint64_t stream, uint64_t other) {
    return hash_of(stream + hash_of(other)) | 1;
  }
  // Two pairs may share a key: the later one is known then.
  static bool is(const Follow& follow, uint64_t stream, uint64_t other, uint64_t epoch) {
    return follow.stream == stream && follow.other == other && follow.epoch == epoch;
  }

  HashTable<Event, 8> events_;
  HashTable<Follow, 8> follows_;
};

}  // namespace fracgpu
