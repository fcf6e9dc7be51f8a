// The recorder's side of the file with the rings of a tenant's processes
// (fracgpu/recording_ring.h): makes it, locks it, and takes records from it.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "fracgpu/recording_ring.h"
#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

// Removes the files of recorders that were killed. Returns their number.
int remove_dead_rings();

class RingFile {
 public:
  // Makes the file for the tenant. `frames`: the number of frames that processes take of a call
  // stack. `owner`: the user who owns the processes. Throws std::runtime_error with one line if the
  // file cannot be made, or if another recorder already records the tenant.
  RingFile(const std::string& tenant, uint32_t frames, uid_t owner);
  ~RingFile();  // processes then stop recording
  RingFile(const RingFile&) = delete;
  RingFile& operator=(const RingFile&) = delete;

  // Takes all complete records of each ring, in the order in which they were claimed, and calls
  // visit(slot, record). Calls missed(slot, number) if processes had to drop records since the last
  // call, once the process that dropped them is described. `is_alive(slot)`: unfinished records of
  // a dead process are skipped, and those of a live one are awaited.
  void take(const std::function<void(uint32_t slot, const ring::Record&)>& visit,
            const std::function<void(uint32_t slot, uint64_t number)>& missed,
            const std::function<bool(uint32_t slot)>& is_alive);

  // Processes whose rings had no room: the first of them, and `count`, the number of all.
  std::vector<ring::Unrecorded> unrecorded(uint32_t& count) const;

  // Whether a slot's ring is empty.
  bool is_empty(uint32_t slot) const;
  // The number of records written to it so far.
  uint64_t told(uint32_t slot) const {
    return map_->rings[slot].end.load(std::memory_order_acquire);
  }

 private:
  void find_rings();

  std::string path_;
  Descriptor file_;
  ring::File* map_ = nullptr;
  std::map<uint32_t, uint64_t> missed_;  // by slots with rings
};

}  // namespace fracgpu::tools
