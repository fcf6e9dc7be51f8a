// The shared-memory layout of the simulated physical node: header, devices, tenants and processes.
// Every process of a test maps the same file, so all fields that change are lock-free atomics and
// nothing holds a pointer. The rows of processes and of shared memory are what counts; device and
// tenant totals are kept beside them for speed and can always be counted again from the rows.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace sim {

inline constexpr uint64_t kMagic = 0x65646f6e6d6973ULL;  // "simnode"
inline constexpr uint32_t kLayoutVersion = 8;
inline constexpr int kMaxDevices = 64;  // of a node of eight MI300X in CPX
inline constexpr int kMaxProcesses = 1023;
inline constexpr int kMaxPartitions = 8;
inline constexpr int kMaxTenants = 128;
inline constexpr int kMaxObjects = 4096;
inline constexpr uint64_t kGrain = 4096;  // the unit of accounting: AMD's page of device memory
inline constexpr uint64_t kPage = 2ULL << 20;  // NVIDIA's page of physical memory

// Byte offsets, beyond the file's end, that are locked but never read or written.
inline constexpr int64_t kRowLockBase = 1LL << 40;
inline constexpr int64_t kReapLock = 1LL << 41;
inline constexpr int64_t kObjectLockBase = 1LL << 42;
inline constexpr int64_t kMigLock = 1LL << 43;

using Counter = std::atomic<uint64_t>;
static_assert(Counter::is_always_lock_free && std::atomic<uint32_t>::is_always_lock_free);

// How a kernel's KFD differs, as bits of the node's header: see profiles.cc.
enum KfdQuirk : uint32_t {
  kReversedProbe = 1,
  kUnderflow = 2,
  kUnlistsFirst = 4,
  kUnlistsLate = 8
};

enum class Vendor : uint32_t { kNvidia = 0, kAmd = 1 };

// One compute instance of a GPU instance: what NVML and CUDA call a MIG device. It is there when
// its serial is not 0, which is stored last when it is made and first when it goes, so that a kill
// leaves it there or not there; all this is written under kMigLock.
struct ComputeInstance {
  Counter serial;  // never reused within one node
  uint32_t id, start, slices;
  unsigned char uuid[16];
};
inline constexpr int kMaxComputeInstances = 7;

struct alignas(64) DeviceRow {
  char name[96];
  unsigned char uuid[16];  // AMD: the 16 hexadecimal digits of unique_id, as HIP gives them
  uint32_t pci_domain, pci_bus, pci_device, pci_id, pci_subsystem;
  uint32_t major, minor, multiprocessors;
  uint64_t total;          // what CUDA gives
  uint64_t nvml_total;     // what NVML calls the total, which may be more
  uint64_t nvml_reserved;  // of that, what it says the driver keeps for itself
  uint64_t context_bytes;  // what every context on this device takes
  bool frame_buffer;       // false: the device uses the machine's memory, as GB10 does
  // AMD's identity of a device, which is one partition of a GPU; zero for the others.
  Vendor vendor;
  uint32_t kfd_gpu_id;   // differs between partitions, whatever else they share
  uint32_t kfd_node;     // in KFD's topology, where node 0 is the processor
  uint32_t location_id;  // bus << 8 | device << 3 | function, perhaps partition << 28
  uint32_t gfx_target_version;
  uint32_t partition, partitions;  // which one of how many on this GPU
  uint32_t svm;                    // the kernel has shared virtual memory for the device
  uint32_t cwsr_size;  // bytes of one XCC's save area, where the kernel publishes it; else 0
  uint64_t unique_id;
  uint64_t carve_out;      // of an APU: what AMD's tools take for its memory; else 0
  uint32_t board;          // which GPU of the node it is, or is a part of
  uint32_t memory_ranges;  // of its memory mode, when it was made
  uint32_t absent;         // a partition that another mode has
  // MIG. GPU instances are rows of their own, reserved for a GPU that can be divided. In MIG mode
  // nobody can allocate the memory of the GPU's own row. What comes and goes is written under
  // kMigLock, as in ComputeInstance.
  uint32_t mig_card;               // of a GPU that can be divided: its number in the table
  std::atomic<uint32_t> mig_mode;  // of such a GPU
  std::atomic<uint32_t> mig_mode_pending;
  uint32_t mig_parent;  // of a GPU instance: its GPU's row plus one
  Counter mig_serial;   // of a GPU instance that is there; else 0
  uint32_t mig_profile, mig_start, mig_size;
  uint32_t gpu_instance;
  ComputeInstance compute[kMaxComputeInstances];
  alignas(64) Counter used;
};

// What a tenant holds, the most it has held, and whose step took it there: one word, so that no
// kill can come between taking memory and having reached a height. In grains.
inline constexpr int kTallyBits = 27;
inline constexpr uint64_t kMaxTally = (1ULL << kTallyBits) - 1;
inline constexpr uint64_t kMaxDeviceBytes = kMaxTally * kGrain;  // a grain less than 512 GiB
struct Tally {
  uint64_t used : kTallyBits;
  uint64_t peak : kTallyBits;
  uint64_t climber : 10;  // row of the process that reached the peak, plus one; 0: nobody's step
};
static_assert(std::atomic<Tally>::is_always_lock_free && sizeof(Tally) == 8);
static_assert(kMaxProcesses < 1 << 10);
static_assert(kPage % kGrain == 0);

struct alignas(64) TenantDevice {
  std::atomic<Tally> tally;
  Counter high_water;  // bytes: the highest peak known to have been held by the living alone

  uint64_t used() const { return tally.load().used * kGrain; }
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
  Counter imported;      // of others' memory that it has
  Counter imported_own;  // of what it made itself
  Counter host_freed;    // bytes that a KFD which underflows has subtracted
  // What drivers count for a process in ways of their own; no total rests on these.
  Counter managed_bytes;  // of allocation_bytes: pages that the kernel moves about by itself
  Counter pinned_bytes;   // of host memory
};

// What a checkpoint has made of a process.
enum class Checkpoint : uint32_t { kRunning = 0, kLocked = 1, kCheckpointed = 2 };

enum class RowState : uint32_t { kFree = 0, kLive = 1 };

struct alignas(64) ProcessRow {
  std::atomic<uint32_t> state;  // RowState
  std::atomic<uint32_t> busy;   // the owner is between the first and the last store of one update
  int32_t pid;                  // in its own namespace
  int32_t host_pid;             // as far out as it can see itself
  int32_t tid, host_tid;        // the same of the thread that opened the driver
  uint32_t clients;             // how often it did
  uint32_t tenant;
  Vendor vendor;        // whose kernel driver it has opened
  uint64_t start_time;  // clock ticks since boot, as /proc/PID/stat has it
  uint64_t pid_namespace;
  uint64_t serial;                   // never reused within one node
  std::atomic<uint64_t> mig_device;  // serial of the compute instance that it uses; 0: none
  uint64_t linger_ns;                // how long the memory outlives its owner
  uint64_t excluded_boards;          // AMD's that its container keeps from it, as bits
  std::atomic<uint64_t>
      dead_since;  // CLOCK_MONOTONIC ns when death was first noticed; 0 while alive
  std::atomic<Checkpoint> checkpoint;
  char command[32];
  ProcessDevice device[kMaxDevices];
  // Bytes that a checkpoint has moved to the host.
  struct Parked {
    uint64_t allocations, contexts;
  } parked[kMaxDevices];
};

inline bool in_use(const ProcessRow& row) {
  return row.state.load(std::memory_order_acquire) == static_cast<uint32_t>(RowState::kLive);
}

// Physical memory that can outlive the process which took it, because other processes or open
// descriptors hold it too. Each holder has a read lock on the object's byte; when nobody has, it is
// gone. Its bytes belong to no process row, and to its tenant until the end.
enum class ObjectState : uint32_t { kFree = 0, kClaimed = 1, kLive = 2 };
inline constexpr int kMaxImporters = 8;
enum class ObjectKind : uint32_t { kMemory = 0, kPool = 1, kMulticast = 2 };

struct alignas(64) ObjectRow {
  std::atomic<uint32_t> state;  // ObjectState
  uint32_t kind;                // ObjectKind
  uint32_t tenant;
  int32_t device;        // < 0: host memory, which nobody counts
  uint32_t location[2];  // as CUmemLocation, for host memory
  uint32_t creator_row;
  uint64_t creator;                     // serial of that row
  std::atomic<uint32_t> creator_holds;  // how often its creator has it
  // Serials of the rows that imported it; 0: a free entry. An importer beyond these is not counted.
  std::atomic<uint64_t> importers[kMaxImporters];
  uint64_t serial;  // never reused within one node
  uint64_t bytes;
};

inline bool live(const ObjectRow& row) {
  return row.state.load(std::memory_order_acquire) == static_cast<uint32_t>(ObjectState::kLive);
}

// A GPU that can be divided in several modes; see amd_partitions.h. `home`: the mode in which the
// node was made, whose identities come back with it.
struct BoardRow {
  uint32_t divisible;
  uint32_t partitions, ranges;                // as they are
  uint32_t wanted_partitions, wanted_ranges;  // as they shall be, once Header::changing is set
  uint32_t home;
  uint32_t partition_is_function, partitions_have_ids;  // how the kernel tells them apart
  uint32_t multiprocessors;
  uint64_t total;
  uint32_t row[kMaxPartitions];  // of each partition; 0 behind the first: none yet
  uint32_t home_gpu_id[kMaxPartitions];
  uint64_t home_unique_id[kMaxPartitions];
};

struct alignas(64) Header {
  uint64_t magic;
  uint32_t version;
  uint32_t device_count;
  uint64_t file_size;
  uint64_t linger_ns;
  uint32_t kfd_quirks;  // of KfdQuirk
  uint64_t identity;    // tells this node from another one at the same path
  char profile[112];
  char driver[24];    // NVIDIA's version
  bool open_modules;  // of NVIDIA's kernel modules, the flavour
  alignas(64) std::atomic<uint64_t> serial;
  std::atomic<uint32_t> live_processes;     // rows in use; a hint that saves system calls
  std::atomic<uint32_t> objects;            // rows of shared memory in use; a hint too
  alignas(64) std::atomic<uint64_t> epoch;  // odd while somebody is reaping
  std::atomic<uint32_t> changing;           // a change of partitions is decided, and not made yet
  std::atomic<uint32_t> generation;         // of partitions; counts their changes
  std::atomic<uint32_t> asked_ranges;  // the memory mode that the next start of AMD's driver makes
  alignas(64) std::atomic<uint32_t> freeze;  // somebody is counting again: no update may begin
};

// What a KFD that unlists late goes on telling of a process whose memory is free.
struct alignas(64) StaleRow {
  Counter until_ns;  // CLOCK_MONOTONIC
  std::atomic<int32_t> pid;
  Counter bytes[kMaxDevices];
};
inline constexpr int kMaxStale = 64;

struct NodeFile {
  Header header;
  DeviceRow device[kMaxDevices];
  BoardRow board[kMaxDevices];
  TenantRow tenant[kMaxTenants];
  ProcessRow process[kMaxProcesses];
  ObjectRow object[kMaxObjects];
  StaleRow stale[kMaxStale];  // written by who reaps
};

}  // namespace sim
