// What lives in a process, by what it told: allocations, and the chunks that small ones share.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <unordered_map>
#include <vector>

#include "tools/recording/event.h"

namespace fracgpu::tools {

struct Live {
  recording::MemoryKind kind = recording::MemoryKind::linear;
  uint32_t device = recording::kNone, stack = 0;
  uint64_t bytes = 0, taken = 0, owner = 0;
  bool in_chunk = false;
  uint64_t number = 0;  // the later it came, the greater
};

class LiveMemory {
 public:
  // What was at the key, if its release was never told.
  std::optional<Live> add(uint64_t key, Live live);
  std::optional<Live> take(uint64_t key);
  // Takes what came last of a device, until it is `bytes` or more: what lives briefly is more
  // likely to be gone than what has lived for long.
  std::vector<std::pair<uint64_t, Live>> take_last(uint32_t device, uint64_t bytes);
  // All of an owner, but for what comes from pools.
  std::vector<std::pair<uint64_t, Live>> take_all_of(uint64_t owner);

  // Small allocations come and go in chunks of 2 MiB. How many bytes the device's chunks have.
  uint64_t enter_chunk(uint32_t device, uint64_t address, uint64_t users = 1);
  uint64_t leave_chunk(uint32_t device, uint64_t address);
  // The device of a chunk that was there before the recording, of which the address may be a part.
  std::optional<uint32_t> chunk_at(uint64_t address) const;

 private:
  struct Chunks {
    std::unordered_map<uint64_t, uint64_t> users;  // by the chunk's number
  };
  std::unordered_map<uint64_t, Live> live_;
  uint64_t added_ = 0;
  std::map<uint32_t, Chunks> chunks_;  // by the device
};

}  // namespace fracgpu::tools
