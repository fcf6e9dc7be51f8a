// The simulated kernel driver's accounting: buffers, their holders, and the video memory of each
// process and each card. It is one shared-memory file that every process of the simulated machine
// maps and that outlives them. Limits and rounding follow amdkfd and TTM.
//
// Everything except open_accounting() needs the lock. If a process is killed while it holds the
// lock, the next one takes it over and recounts from the buffers and handles.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace kfd {

// Files on the simulated machine's /dev (machine.cc).
inline constexpr const char* kAccountingFile = "/dev/simulated-kfd/accounting";
inline constexpr const char* kDmabufFolder = "/dev/simulated-kfd/dmabuf";
inline constexpr const char* kProcessFolder = "/sys/devices/virtual/kfd/kfd/proc";

inline constexpr uint32_t kMaxCards = 8;
inline constexpr uint32_t kMaxProcesses = 256;
inline constexpr uint32_t kMaxBuffers = 1u << 16;
inline constexpr uint32_t kMaxHandles = 1u << 17;

// The most host memory that KFD lets processes pin, and the end of a render node's file
// (this_process.h), in which each buffer gets a new place.
inline constexpr uint64_t kHostLimit = 64ull << 30;
inline constexpr uint64_t kOffsetLimit = 1ull << 50;

inline constexpr uint64_t kPage = 4096;
inline constexpr uint64_t kLargePage = 2u << 20;

inline uint64_t round_up(uint64_t value, uint64_t to) {
  return (value + to - 1) / to * to;
}

struct Card {
  uint32_t gpu_id, render_minor, device_id, pci_revision;
  char pci[16];  // 0000:c1:00.0
  uint64_t total;
  uint64_t used;          // by buffers
  uint64_t used_aligned;  // rounded to large pages: KFD subtracts this from what is available
  uint64_t migrated;      // by ranges of shared virtual memory
  uint64_t peak;          // of used + migrated, since the last reset
  uint64_t next_offset;   // in the render node's file, where buffers are mapped

  uint64_t resident() const { return used + migrated; }
};

struct Process {
  int32_t pid;    // 0: free
  bool uses_kfd;  // otherwise only render nodes: KFD does not list it
  uint64_t start_time;
  uint64_t vram[kMaxCards];      // what /sys/class/kfd/kfd/proc/PID/vram_ID shows
  uint64_t migrated[kMaxCards];  // the part of it that is ranges of shared virtual memory
  uint64_t peak[kMaxCards];      // of vram, since the process started
  // For messages about hung processes.
  uint32_t waits_for_event;
  char blocked_queue[80];
};

enum class Domain : uint8_t { kVram, kHost, kNone };

struct Buffer {
  uint64_t size;
  uint64_t offset;
  uint32_t handles;  // 0: only descriptors hold it, or it is free
  uint32_t flags;    // KFD_IOC_ALLOC_MEM_FLAGS_*
  uint32_t serial;   // 0: free
  uint32_t next_free;
  uint8_t card;
  Domain domain;
  bool exported;  // a dma-buf descriptor may hold it
  bool shared;    // an IPC handle names it
  uint32_t metadata_size;
  uint8_t metadata[256];
};

// A process's name for a buffer, in KFD or in GEM.
struct Handle {
  uint32_t process;
  uint32_t buffer;
  uint32_t next_free;
  uint32_t file;  // the opening of a render node that a GEM handle belongs to; 0: KFD's
  bool used;
  bool counted;  // its bytes count in Process::vram
};

struct Accounting {
  uint32_t cards;
  uint32_t unknown_ioctls;
  uint32_t last_serial;
  uint32_t last_file;
  uint64_t host_used;
  uint32_t orphans;  // buffers that only descriptors hold
  // Entries from here on were never used. Free entries before it are linked (index + 1 for
  // buffers).
  uint32_t buffers_end, first_free_buffer;
  uint32_t handles_end, first_free_handle;
  pthread_mutex_t mutex;
  int32_t lock_holder;
  Card card[kMaxCards];
  Process process[kMaxProcesses];
  Buffer buffer[kMaxBuffers];
  Handle handle[kMaxHandles];
};

// Null if this is no simulated machine. `create` makes a new one.
Accounting* open_accounting(bool create = false);

class Lock {
 public:
  // Aborts the process with a message if the lock is not free within 10 s, or within
  // SIMULATED_KFD_LOCK_SECONDS.
  explicit Lock(Accounting* accounting);
  // Does not wait.
  static Lock if_free(Accounting* accounting) { return Lock(accounting, 0); }
  ~Lock();
  explicit operator bool() const { return held_; }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Lock(Accounting* accounting, int seconds);

  Accounting* accounting_;
  bool held_ = false;
};

// Processes, by number. Functions return a number or -errno.
int find_process(const Accounting& accounting, int pid);
int add_process(Accounting& accounting, int pid);
// The process has opened /dev/kfd.
void list_process(Accounting& accounting, uint32_t process);
void remove_process(Accounting& accounting, uint32_t process);
// Frees the memory of dead processes and of closed descriptors.
void reap(Accounting& accounting);
// In clock ticks since boot; 0 if the process is dead.
uint64_t start_time_of(int pid);

// Buffers and handles, by number. Handle 0 is invalid.
int add_buffer(Accounting& accounting, uint32_t card, uint64_t size, uint32_t flags, Domain domain);
// Moves a buffer from host memory, if the card has room.
void move_to_card(Accounting& accounting, uint32_t buffer);
int add_handle(Accounting& accounting, uint32_t process, uint32_t buffer, bool counted,
               uint32_t file = 0);
void remove_handle(Accounting& accounting, uint32_t handle);
// A dma-buf descriptor, which keeps the buffer alive, and the reverse. It is a FIFO, because a
// dma-buf has an inode of its own and can be watched by epoll.
int export_buffer(Accounting& accounting, uint32_t buffer);
int buffer_of_descriptor(const Accounting& accounting, int fd);

// Moves a range of shared virtual memory to a card, or away from it (bytes < 0). False if the card
// has no room; the range then stays in host memory.
bool move_range(Accounting& accounting, uint32_t process, uint32_t card, int64_t bytes);

// What KFD reserves for page tables, and the answer to AMDKFD_IOC_AVAILABLE_MEMORY.
uint64_t reserved_for_page_tables(const Accounting& accounting);
uint64_t available(const Accounting& accounting, uint32_t card);

}  // namespace kfd
