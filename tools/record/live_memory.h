// The live memory of a process by its records: allocations, and the chunks that small ones share.
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
  uint64_t number = 0;  // increases with each addition
};

class LiveMemory {
 public:
  // Returns the previous entry at the key, if its release is missing.
  std::optional<Live> add(uint64_t key, Live live);
  std::optional<Live> take(uint64_t key);
  const Live* find(uint64_t key) const;
  // Takes the newest memory of a device until it has at least `bytes`: short-lived memory is more
  // likely to be gone than memory that has lived for long.
  std::vector<std::pair<uint64_t, Live>> take_last(uint32_t device, uint64_t bytes);
  // Takes all memory of an owner, except memory from pools.
  std::vector<std::pair<uint64_t, Live>> take_all_of(uint64_t owner);

  // Small allocations share chunks of 2 MiB. These return the bytes of the device's chunks.
  uint64_t enter_chunk(uint32_t device, uint64_t address, uint64_t users = 1);
  uint64_t leave_chunk(uint32_t device, uint64_t address);
  // The device of a chunk from before the recording that may contain the address.
  std::optional<uint32_t> chunk_at(uint64_t address) const;

 private:
  struct Chunks {
    std::unordered_map<uint64_t, uint64_t> users;  // by the chunk's number
  };
  std::unordered_map<uint64_t, Live> live_;
  uint64_t added_ = 0;
  std::map<uint32_t, Chunks> chunks_;  // by device
};

}  // namespace fracgpu::tools
