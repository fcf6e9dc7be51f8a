// The shared-memory layout of the simulated physical node: header, devices, tenants and processes.
// Every process of a test maps the same file, so all fields that change are lock-free atomics and
// nothing holds a pointer. The per-process rows are the truth; device and tenant totals are kept
// beside them for speed and can always be counted again from the rows.
#ifndef FRACGPU_TESTS_SIM_NODE_LAYOUT_H_
#define FRACGPU_TESTS_SIM_NODE_LAYOUT_H_

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sim {

inline constexpr uint64_t kMagic = 0x65646f6e6d6973ULL;  // "simnode"
inline constexpr uint32_t kLayoutVersion = 1;
inline constexpr int kMaxDevices = 16;
inline constexpr int kMaxProcesses = 1024;
inline constexpr int kMaxTenants = 128;
inline constexpr uint64_t kPage = 2ULL << 20;  // the granularity of physical memory

// Byte offsets, beyond the file's end, that are locked but never read or written.
inline constexpr int64_t kRowLockBase = 1LL << 40;
inline constexpr int64_t kReapLock = 1LL << 41;

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

struct alignas(64) TenantDevice {
  Counter used;
  Counter high_water;
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

struct alignas(64) Header {
  uint64_t magic;
  uint32_t version;
  uint32_t device_count;
  uint64_t file_size;
  uint64_t linger_ns;
  char profile[48];
  alignas(64) std::atomic<uint64_t> serial;
  std::atomic<uint32_t> live_processes;      // rows in use; a hint that saves system calls
  alignas(64) std::atomic<uint64_t> epoch;   // odd while somebody is reaping
  alignas(64) std::atomic<uint32_t> freeze;  // somebody is counting again: no update may begin
};

struct NodeFile {
  Header header;
  DeviceRow device[kMaxDevices];
  TenantRow tenant[kMaxTenants];
  ProcessRow process[kMaxProcesses];
};

}  // namespace sim

#endif  // FRACGPU_TESTS_SIM_NODE_LAYOUT_H_
