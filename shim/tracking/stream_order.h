// Which streams come after the frees of others, by the events that they wait for.
#pragma once

#include <algorithm>
#include <cstdint>

#include "shim/base/hash_table.h"

namespace fracgpu {

// Has no lock of its own: it is a part of PoolBlocks. Streams are numbers, as there; a moment is
// the number of the last free by then. `epoch` changes when a context ends; entries of an earlier
// epoch no longer count.
class StreamOrder {
 public:
  // If the host is out of memory, the event is not known.
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

  // Whether the stream's next work comes after that free of the other stream.
  bool comes_after(uint64_t stream, uint64_t other, uint64_t free, uint64_t epoch) const {
    const Follow* const follow = follows_.find(key_of(stream, other));
    return follow != nullptr && is(*follow, stream, other, epoch) && free <= follow->moment;
  }

  // The number of pairs of streams of which one is known to come after the other.
  size_t pairs() const { return follows_.size(); }
  // Forgets pairs of earlier epochs, and those for whose other stream `matters(stream)` is false.
  template <typename Matters>
  void forget_pairs(uint64_t epoch, Matters matters) {
    follows_.erase_if(
        [&](const Follow& follow) { return follow.epoch != epoch || !matters(follow.other); });
  }

  // The number may mean another stream from now on.
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
  // Two pairs may share a key: only the later one is known then.
  static bool is(const Follow& follow, uint64_t stream, uint64_t other, uint64_t epoch) {
    return follow.stream == stream && follow.other == other && follow.epoch == epoch;
  }

  HashTable<Event, 8> events_;
  HashTable<Follow, 8> follows_;
};

}  // namespace fracgpu
