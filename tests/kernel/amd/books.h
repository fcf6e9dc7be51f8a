// What the simulated kernel driver counts: buffers, who holds them, and the video memory of each
// process and of each card. One file in shared memory, which every process of the simulated machine
// maps and which outlives each of them. Limits and rounding are those of amdkfd and TTM.
//
// Everything but open() needs the lock. A holder that is killed leaves the lock to the next
// process, which counts again from the buffers and handles.
#pragma once

#include <pthread.h>

#include <cstdint>

namespace kfd {

// Device files and this one lie on the /dev of the simulated machine (machine.cc).
inline constexpr const char* kBooksFile = "/dev/simulated-kfd/books";
inline constexpr const char* kDmabufFolder = "/dev/simulated-kfd/dmabuf";
inline constexpr const char* kProcessFolder = "/sys/devices/virtual/kfd/kfd/proc";

inline constexpr uint32_t kMaxCards = 8;
inline constexpr uint32_t kMaxProcesses = 256;
inline constexpr uint32_t kMaxBuffers = 1u << 16;
inline constexpr uint32_t kMaxHandles = 1u << 17;

// What KFD lets processes pin of the host's memory, and the most that all buffers ever made may
// take of a render node's file (this_process.h).
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
  uint64_t used_aligned;  // the same in large pages, which is what KFD says is not available
  uint64_t migrated;      // by ranges of shared virtual memory
  uint64_t peak;          // of used + migrated, since the last reset
  uint64_t next_offset;   // in the render node's file, where buffers are mapped

  uint64_t resident() const { return used + migrated; }
};

struct Process {
  int32_t pid;  // 0: free
  uint64_t start_time;
  uint64_t vram[kMaxCards];      // what /sys/class/kfd/kfd/proc/PID/vram_ID shows
  uint64_t migrated[kMaxCards];  // of it, ranges of shared virtual memory
  uint64_t peak[kMaxCards];      // of vram, since the process began
  // For messages about a process that hangs.
  uint32_t waits_for_event;
  char blocked_queue[80];
};

enum class Domain : uint8_t { kVram, kHost, kNone };

struct Buffer {
  uint64_t size;
  uint64_t offset;
  uint32_t handles;  // 0: held by descriptors alone, or free
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

// What a process calls a buffer by, in KFD or in GEM.
struct Handle {
  uint32_t process;
  uint32_t buffer;
  uint32_t next_free;
  bool used;
  bool counted;  // its bytes are in Process::vram
  bool gem;
};

struct Books {
  uint32_t cards;
  uint32_t unknown_ioctls;
  uint32_t last_serial;
  uint64_t host_used;
  uint32_t orphans;  // buffers that only descriptors hold
  // Both tables are used up to here, and have free places in front of it.
  uint32_t buffers_end, first_free_buffer;
  uint32_t handles_end, first_free_handle;
  pthread_mutex_t mutex;
  int32_t lock_holder;
  Card card[kMaxCards];
  Process process[kMaxProcesses];
  Buffer buffer[kMaxBuffers];
  Handle handle[kMaxHandles];
};

// The machine's books; null where there are none. `create`: makes them.
Books* open_books(bool create = false);

class Lock {
 public:
  // Ends the process, with a line, when the lock cannot be had for kLockSeconds.
  explicit Lock(Books* books) : Lock(books, kLockSeconds) {}
  // Has it or not, at once.
  static Lock if_free(Books* books) { return Lock(books, 0); }
  ~Lock();
  explicit operator bool() const { return held_; }
  Lock(const Lock&) = delete;
  Lock& operator=(const Lock&) = delete;

 private:
  Lock(Books* books, int seconds);

  static constexpr int kLockSeconds = 10;
  Books* books_;
  bool held_ = false;
};

// Processes. A number, or -errno.
int find_process(const Books& books, int pid);
int add_process(Books& books, int pid);
void remove_process(Books& books, uint32_t process);
// Takes what dead processes and closed descriptors held.
void reap(Books& books);
// In clock ticks since boot; 0 when it is dead.
uint64_t start_time_of(int pid);

// Buffers and handles. Handle 0 is no handle.
int add_buffer(Books& books, uint32_t card, uint64_t size, uint32_t flags, Domain domain);
int add_handle(Books& books, uint32_t process, uint32_t buffer, bool counted, bool gem);
void remove_handle(Books& books, uint32_t handle);
// A descriptor that keeps the buffer, and its buffer.
int export_buffer(Books& books, uint32_t buffer);
int buffer_of_descriptor(const Books& books, int fd);

// Moves ranges of shared virtual memory to a card, or away from it (bytes < 0). False when the card
// has no room: they stay in the host's memory then.
bool move_range(Books& books, uint32_t process, uint32_t card, int64_t bytes);

// What KFD keeps for page tables, and what AMDKFD_IOC_AVAILABLE_MEMORY answers.
uint64_t reserved_for_page_tables(const Books& books);
uint64_t available(const Books& books, uint32_t card);

}  // namespace kfd
