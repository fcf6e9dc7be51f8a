// The file with the rings of a tenant's processes (fracgpu/recording_ring.h), as who records has
// it: made, locked, and taken from.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fracgpu/recording_ring.h"
#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

// Removes the files of recorders that were killed; returns how many.
int remove_dead_rings();

class RingFile {
 public:
  // Makes the file for the tenant. `frames`: how many of a call stack processes shall take.
  // `owner`: the user whose processes they are. Throws std::runtime_error with one line where it
  // cannot be made, or somebody records the tenant already.
  RingFile(const std::string& tenant, uint32_t frames, uid_t owner);
  ~RingFile();  // processes stop telling
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  // Takes out all complete records of each ring, in the order in which they were claimed, and calls
  // visit(slot, record); and missed(slot, number) where processes had to drop some since the last
  // time. `is_alive(slot)`: what a dead process has not finished is passed over, what a living one
  // has not is waited for.
  void take(const std::function<void(uint32_t slot, const ring::Record&)>& visit,
            const std::function<void(uint32_t slot, uint64_t number)>& missed,
            const std::function<bool(uint32_t slot)>& is_alive);

  // Processes for whose rings there was no room: the first of them, and how many there are.
  std::vector<ring::Unrecorded> unrecorded(uint32_t& count) const;

  // Whether there is something in a slot's ring.
  bool is_empty(uint32_t slot) const;
  // How many records there were in it in all.
  uint64_t told(uint32_t slot) const {
    return map_->rings[slot].end.load(std::memory_order_acquire);
  }

 private:
  void find_rings();

  std::string path_;
  Descriptor file_;
  ring::File* map_ = nullptr;
  std::map<uint32_t, uint64_t> missed_;  // by the slots whose rings are there
};

}  // namespace fracgpu::tools
