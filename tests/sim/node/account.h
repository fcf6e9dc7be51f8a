// One process's account with the physical node: what a driver library uses to take and give back
// memory. The caller serialises the calls of one process; processes meet only in atomics, and in a
// file lock when somebody has died. Each update is bracketed by the row's busy flag, so that a kill
// in the middle is recognised later and the totals are counted again.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "sim/node/node.h"

namespace sim {

// kModule: what a context takes later on; counted with it, but not as one more context. kRequest:
// an allocation in RM's smaller pages, which NVIDIA's libraries beside libcuda request.
enum class Kind { kAllocation, kContext, kModule, kRequest };

// Physical memory as one process has it: its own alone, or shared through an object of the node.
// What it is used for (pages, chunks, handles, pools, arrays) is the driver's business.
struct Physical {
  int device = -1;  // < 0: host memory, which the node does not count
  int object = -1;  // of the node; < 0: nobody else's
  uint64_t bytes = 0;
  uint64_t serial = 0;         // of the object
  void* keeper = nullptr;      // the mapping that keeps this process's lock on the object
  bool is_own_import = false;  // this process made it, and imported it
};

class Account {
 public:
  // Registers this process, as a client of this vendor's kernel driver, in the node named by the
  // environment. Null with a reason when that cannot be done, and without one when the node has no
  // such device.
  static std::unique_ptr<Account> open(std::string* error, Vendor vendor);

  // The account of the process with this PID in the caller's namespace, for checkpoints alone: it
  // must stand still. Null where nobody has it.
  static std::unique_ptr<Account> of_other(int pid, Vendor vendor);
  std::atomic<Checkpoint>& checkpoint() { return row_->checkpoint; }
  // Moves all that it has to the host, and back; false when a device has no room.
  void park();
  bool unpark();

  Node& node() { return *node_; }
  uint64_t serial() const { return row_->serial; }
  int pid() const { return row_->pid; }
  // This process uses the MIG device from now on; the caller holds the MIG lock.
  void use_mig_device(uint64_t serial) { row_->mig_device.store(serial); }

  // Takes physical memory, a whole number of grains, or nothing and false when the device is full.
  // Rounding to the vendor's page is the caller's.
  bool reserve(int dev, uint64_t bytes, Kind kind);
  void release(int dev, uint64_t bytes, Kind kind);

  // Host memory of the runtime's was freed, which some kernels' KFD subtracts on the first device.
  void host_memory_freed(uint64_t bytes);
  // Remembers bytes that the driver's lists count in a way of their own; fewer if negative.
  void note(int dev, Counter ProcessDevice::*what, int64_t bytes) {
    (row_->device[dev].*what).fetch_add(static_cast<uint64_t>(bytes));
  }

  // The life of physical memory. take() wants *out to hold nothing yet. drop() gives it back if
  // this process has it alone, and lets go of it otherwise: the bytes are free when the last
  // holder, a process or a descriptor, is gone.
  bool take(int dev, uint64_t bytes, Physical* out) {
    if (dev >= 0 && !reserve(dev, bytes, Kind::kAllocation)) return false;
    out->device = dev;
    out->bytes = bytes;
    return true;
  }
  void drop(Physical* memory) {
    if (memory->object >= 0) {
      let_go(*memory);
    } else if (memory->device >= 0) {
      release(memory->device, memory->bytes, Kind::kAllocation);
    }
    memory->device = memory->object = -1;
  }
  // Moves it into an object of the node, with no change of any sum; nothing to do if it is there.
  bool share(Physical* memory, ObjectKind kind, const uint32_t location[2]);
  // A new open descriptor that holds the shared memory like a process; -1 when there is none.
  int descriptor(const Physical& memory);
  // Holds what a descriptor holds, or an object that is still the one of this serial.
  bool import(int fd, ObjectKind kind, Physical* out);
  bool import(int object, uint64_t serial, Physical* out);
  const ObjectRow& row_of(const Physical& memory) const {
    return node_->file_->object[memory.object];
  }

  uint64_t total(int dev) const { return node_->file_->device[dev].total; }
  uint64_t context_cost(int dev) const { return node_->file_->device[dev].context_bytes; }
  uint64_t free_bytes(int dev);

 private:
  explicit Account(std::unique_ptr<Node> node) : node_(std::move(node)) {}
  bool enroll(std::string* error, Vendor vendor);
  void let_go(const Physical& shared);
  void begin();
  void end() { row_->busy.store(0, std::memory_order_release); }
  bool try_reserve(int dev, uint64_t bytes, Kind kind, bool* higher);

  std::unique_ptr<Node> node_;
  ProcessRow* row_ = nullptr;
  TenantRow* tenant_ = nullptr;
  int row_index_ = -1;
  int tenant_index_ = -1;
};

}  // namespace sim
