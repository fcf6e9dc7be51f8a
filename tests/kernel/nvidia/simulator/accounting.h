// The accounting: which process holds how much of each GPU's memory. It is the oracle of the
// tests, so it includes nothing of the library and nothing of the driver. It is one file, mapped by
// every process; a lock that survives the death of its holder guards it.
#pragma once

#include <pthread.h>

#include <cstdint>
#include <string>
#include <vector>

namespace rmsim {

enum class Kind : uint8_t {
  kVideo = 1,  // memory of the GPU: the only kind that is counted
  kSystem,     // pinned memory of the host
  kUser,       // memory of the program that the GPU may use
  kRegisters,  // doorbells and channel control pages
  kVirtual,    // addresses of the GPU without memory behind them
};

constexpr int kMostGpus = 4;
constexpr int kProcesses = 64;  // at once in one state; one bit each in Record::holders
constexpr int kRecords = 1 << 18;
constexpr int kShared = 4096;
constexpr int kHeld = 4096;
constexpr uint32_t kNobody = kProcesses;  // RM's own client holds exports

// Of one GPU.
struct Use {
  uint64_t used = 0, peak = 0;
  // What a process has of each engine's class now. RM lists processes by that.
  uint32_t compute_objects = 0, graphics_objects = 0;

  void take(uint64_t size) {
    used += size;
    if (used > peak) peak = used;
  }
};

struct Process {
  int pid;  // 0: never used
  bool alive;
  uint64_t start_time;  // in ticks since boot, so that a pid that is used again is another process
  Use use[kMostGpus];
};

// One piece of memory, at `offset` of the memory file. It lives until no process and no export
// holds it.
struct Record {
  uint64_t offset, size;
  uint64_t holders;  // a bit for each process
  uint32_t exports;  // that hold it
  uint32_t owner;    // the process it is counted for, or kNobody
  // Who is next when the owner frees it, as a slot + 1 each, 0 behind the last. RM keeps a list: a
  // duplicate comes right behind its source, so the last importer is next (mem.c of the open
  // modules 595.45.04: memCopyConstruct, memDestructCommon). Who finds no place comes last.
  uint8_t heirs[8];
  uint8_t gpu;
  uint32_t generation;  // so that a record that is used again is not taken for the old one
  Kind kind;
  int next_free;

  bool is_free() const { return holders == 0 && exports == 0; }
};

// Memory that an export holds at a position. Its number is 0 if this is unused.
struct Held {
  uint32_t number, position;
  int record;
};

// An object that its client allows other clients to duplicate (NV_ESC_RM_SHARE).
struct SharedObject {
  uint32_t client, handle, object_class, attr, attr2;  // client 0: free
  int record;
  uint32_t generation, process;
};

struct State {
  char magic[8];
  char driver[32];
  uint64_t total;  // of each GPU
  int gpus;
  Use use[kMostGpus];
  uint64_t next_offset;
  uint32_t next_client, exports;  // how many were made
  int first_free, record_count;
  Process processes[kProcesses];
  SharedObject shared[kShared];
  Held held[kHeld];
  pthread_mutex_t lock;
  Record records[kRecords];
};

// A thread that has waited for the accounting's lock for so long ends its process.
inline int lock_seconds = 10;

// Opens the state in a folder. The accounting of a process that dies are closed by whoever looks
// next, which cannot be told from RM's closing them at its death.
class Accounting {
 public:
  // `total`: of each GPU.
  static bool create(const std::string& folder, uint64_t total, const std::string& driver,
                     int gpus);
  bool open(const std::string& folder);  // false: one line on stderr says why

  uint64_t total() const { return state_->total; }
  const char* driver() const { return state_->driver; }
  int gpus() const { return state_->gpus; }
  uint64_t used(int gpu);
  uint64_t used_by(int pid, int gpu);
  std::vector<Process> processes();
  struct Summary {
    uint64_t total;
    std::vector<Use> gpus;
    std::vector<Process> processes;
  };
  Summary summary();
  void reset_peaks();
  [[noreturn]] void hold_for_ever();  // keeps everybody else out, as a process that is stopped
  // Objects that this process made, or freed where negative.
  void count_objects(int gpu, int compute, int graphics);

  // What this process takes and gives back. -1: no memory.
  int allocate(int gpu, Kind kind, uint64_t size, uint64_t alignment);
  bool hold(int record, uint32_t generation);
  void release(int record);
  Record record(int index) const { return state_->records[index]; }
  int memory_file() const { return memory_file_; }

  // An export, which the descriptor is to carry: its number.
  uint32_t new_export(int fd);
  // Memory that was at the position before is held no longer. False: too many are held.
  bool hold_by_export(uint32_t number, uint32_t position, int record);
  bool read_export(uint32_t number, void* data, size_t size) const;
  bool write_export(uint32_t number, const void* data, size_t size);

  uint32_t new_client();
  bool share(const SharedObject& object);
  void unshare(uint32_t client, uint32_t handle);
  bool find_shared(uint32_t client, uint32_t handle, SharedObject& found);

  // This process became another one (fork), or another program (exec).
  void join_as_new_process();

  static constexpr uint64_t kWindow = 8ull << 40;  // of the memory file; no offset is used twice

 private:
  class Locked;
  int slot_of_this_process();
  void reap();
  void reap_exports();
  void drop(int record, int slot);
  void drop_export(int record);
  void hand_on(Record& record);
  void free_record(int index);
  void recount();

  State* state_ = nullptr;
  int memory_file_ = -1, exports_file_ = -1;
  uint32_t machine_ = 0;  // a number that no other machine on this host has
  int slot_ = -1;
};

}  // namespace rmsim
