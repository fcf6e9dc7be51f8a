// The shared-memory layout of the simulated physical node: header, devices, tenants and processes.
// Every process of a test maps the same file, so all fields that change are lock-free atomics and
// nothing holds a pointer. The rows of processes and of shared memory are the truth; device and
// tenant totals are kept beside them for speed and can always be counted again from the rows.
#ifndef FRACGPU_TESTS_SIM_NODE_LAYOUT_H_
#define FRACGPU_TESTS_SIM_NODE_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sim {

inline constexpr uint64_t kMagic = 0x65646f6e6d6973ULL;  // "simnode"
inline constexpr uint32_t kLayoutVersion = 2;
inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxProcesses = 1024;
inline constexpr int kMaxTenants = 128;
inline constexpr int kMaxObjects = 4096;
inline constexpr uint64_t kPage = 2ULL << 20;  // the granularity of physical memory

// Byte offsets, beyond the file's end, that are locked but never read or written.
inline constexpr int64_t kRowLockBase = 1LL << 40;
inline constexpr int64_t kReapLock = 1LL << 41;
inline constexpr int64_t kObjectLockBase = 1LL << 42;

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

struct alignas(64) DeviceRow {
  char name[96];
  unsigned char uuid[16];
  uint32_t pci_domain, pci_bus, pci_device, pci_id, pci_subsystem;
  uint32_t major, minor, multiprocessors;
  uint64_t total;
  uint64_t context_bytes;  // what every context on this device takes
  alignas(64) Counter used;
};

// What a tenant holds, the most it has held, and whose step took it there: one word, so that no
// kill can come between taking memory and having reached a height. In pages: 24 bits are 32 TiB.
struct Tally {
  uint64_t used : 24;
  uint64_t peak : 24;
  uint64_t climber : 16;  // row of the process that reached the peak, plus one; 0: nobody's step
};
static_assert(std::atomic<Tally>::is_always_lock_free && sizeof(Tally) == 8);

struct alignas(64) TenantDevice {
  std::atomic<Tally> tally;
  Counter high_water;  // bytes: the highest peak known to have been held by the living alone

  uint64_t used() const { return tally.load().used * kPage; }
};

struct alignas(64) TenantRow {
  std::atomic<uint32_t> in_use;
  char tag[60];
  TenantDevice device[kMaxDevices];
};

struct ProcessDevice {
  Counter context_bytes;
  Counter allocation_bytes;
  Counter contexts;
};

enum class RowState : uint32_t { kFree = 0, kLive = 1 };

struct alignas(64) ProcessRow {
  std::atomic<uint32_t> state;  // RowState
  std::atomic<uint32_t> busy;   // the owner is between the first and the last store of one update
  int32_t pid;
  uint32_t tenant;
  uint64_t start_time;  // clock ticks since boot, as /proc/PID/stat has it
  uint64_t pid_namespace;
  uint64_t serial;     // never reused within one node
  uint64_t linger_ns;  // how long the memory outlives its owner
  std::atomic<uint64_t>
      dead_since;  // CLOCK_MONOTONIC ns when death was first noticed; 0 while alive
  char command[32];
  ProcessDevice device[kMaxDevices];
};

// Physical memory that can outlive the process which took it, because other processes or open
// descriptors hold it too. Each holder has a read lock on the object's byte; when nobody has, it is
// gone. Its bytes belong to no process row, and to its tenant until the end.
enum class ObjectState : uint32_t { kFree = 0, kClaimed = 1, kLive = 2 };
enum class ObjectKind : uint32_t { kMemory = 0, kPool = 1, kMulticast = 2 };

struct alignas(64) ObjectRow {
  std::atomic<uint32_t> state;  // ObjectState
  uint32_t kind;                // ObjectKind
  uint32_t tenant;
  int32_t device;        // < 0: host memory, which nobody counts
  uint32_t location[2];  // as CUmemLocation, for host memory
  uint32_t creator_row;
  uint64_t creator;  // serial of that row
  uint64_t serial;   // never reused within one node
  uint64_t bytes;
};

struct alignas(64) Header {
  uint64_t magic;
  uint32_t version;
  uint32_t device_count;
  uint64_t file_size;
  uint64_t linger_ns;
  char profile[48];
  alignas(64) std::atomic<uint64_t> serial;
  std::atomic<uint32_t> live_processes;      // rows in use; a hint that saves system calls
  std::atomic<uint32_t> objects;             // rows of shared memory in use; a hint too
  alignas(64) std::atomic<uint64_t> epoch;   // odd while somebody is reaping
  alignas(64) std::atomic<uint32_t> freeze;  // somebody is counting again: no update may begin
};

struct NodeFile {
  Header header;
  DeviceRow device[kMaxDevices];
  TenantRow tenant[kMaxTenants];
  ProcessRow process[kMaxProcesses];
  ObjectRow object[kMaxObjects];
};

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_NODE_LAYOUT_H_
