#include "accounting.h"

#include <fcntl.h>
#include <sys/eventfd.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>

#include "proc_file.h"

namespace rmsim {
namespace {

constexpr char kMagic[8] = "rmsim 1";
constexpr uint64_t kPage = 4096;
constexpr int kHighDescriptor = 900;  // out of the way of programs that count or close theirs

// Straight into the kernel: this may be called while the functions of the C library are the
// simulator's own.
int open_file(const std::string& path, int flags) {
  const int fd =
      static_cast<int>(syscall(SYS_openat, AT_FDCWD, path.c_str(), flags | O_CLOEXEC, 0666));
  if (fd < 0 || fd >= kHighDescriptor) return fd;
  const int high = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, kHighDescriptor));
  if (high < 0) return fd;  // the limit of descriptors is low
  syscall(SYS_close, fd);
  return high;
}

[[noreturn]] void give_up(const char* what) {
  char line[200];
  const int length = snprintf(line, sizeof line, "rmsim: %s\n", what);
  if (syscall(SYS_write, 2, line, static_cast<size_t>(length)) < 0) {
  }
  abort();
}

// When the process started, in ticks since boot; 0 when it is gone. A zombie has given back what it
// had.
uint64_t start_time(int pid) {
  char path[40], text[1024];
  snprintf(path, sizeof path, "/proc/%d/stat", pid);
  read_proc_file(path, text);
  const char* field = strrchr(text, ')');  // the name may contain anything
  if (field == nullptr || field[2] == 'Z' || field[2] == 'X') return 0;
  constexpr int kFieldsToStart = 20;  // from the name, which is field 2, to field 22
  for (int i = 0; i < kFieldsToStart && field != nullptr; ++i) field = strchr(field + 1, ' ');
  return field == nullptr ? 0 : strtoull(field, nullptr, 10);
}

}  // namespace

class Accounting::Locked {
 public:
  explicit Locked(Accounting& accounting) : state_(*accounting.state_) {
    timespec end{};
    clock_gettime(CLOCK_REALTIME, &end);
    end.tv_sec += lock_seconds;
    const int rc = pthread_mutex_timedlock(&state_.lock, &end);
    if (rc == EOWNERDEAD) {
      pthread_mutex_consistent(&state_.lock);
      accounting.recount();
    } else if (rc != 0) {
      char line[100];
      snprintf(line, sizeof line, "thread %d has held the lock of the accounting for %d s",
               state_.lock.__data.__owner, lock_seconds);
      give_up(line);
    }
  }
  ~Locked() { pthread_mutex_unlock(&state_.lock); }
  Locked(const Locked&) = delete;
  Locked& operator=(const Locked&) = delete;

 private:
  State& state_;
};

bool Accounting::create(const std::string& folder, uint64_t total, const std::string& driver,
                        int gpus) {
  const int fd = open_file(folder + "/accounting", O_RDWR | O_CREAT | O_EXCL);
  const int memory = open_file(folder + "/memory", O_RDWR | O_CREAT | O_EXCL);
  const int exports = open_file(folder + "/exports", O_RDWR | O_CREAT | O_EXCL);
  if (fd < 0 || memory < 0 || exports < 0 || ftruncate(fd, sizeof(State)) != 0 ||
      ftruncate(memory, static_cast<off_t>(kWindow)) != 0) {
    fprintf(stderr, "rmsim: cannot make a state in %s: %s\n", folder.c_str(), strerror(errno));
    return false;
  }
  void* mapped = mmap(nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  if (mapped == MAP_FAILED) return false;
  auto* state = static_cast<State*>(mapped);
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
  pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
  pthread_mutex_init(&state->lock, &attributes);
  state->total = total;
  state->gpus = gpus;
  state->first_free = -1;
  state->next_offset = 2 << 20;
  snprintf(state->driver, sizeof state->driver, "%s", driver.c_str());
  memcpy(state->magic, kMagic, sizeof kMagic);
  return true;
}

bool Accounting::open(const std::string& folder) {
  const int fd = open_file(folder + "/accounting", O_RDWR);
  memory_file_ = open_file(folder + "/memory", O_RDWR);
  exports_file_ = open_file(folder + "/exports", O_RDWR);
  struct stat status;
  if (fd < 0 || memory_file_ < 0 || exports_file_ < 0 || syscall(SYS_fstat, fd, &status) != 0) {
    fprintf(stderr, "rmsim: no state in %s: %s\n", folder.c_str(), strerror(errno));
    return false;
  }
  void* mapped = reinterpret_cast<void*>(
      syscall(SYS_mmap, nullptr, sizeof(State), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0));
  syscall(SYS_close, fd);
  if (mapped == MAP_FAILED ||
      memcmp(static_cast<State*>(mapped)->magic, kMagic, sizeof kMagic) != 0) {
    fprintf(stderr, "rmsim: the state in %s is none of this simulator\n", folder.c_str());
    return false;
  }
  state_ = static_cast<State*>(mapped);
  machine_ = static_cast<uint32_t>(status.st_ino);
  return true;
}

// After exec the process is the same to everyone else, but the kernel has closed its descriptors.
void Accounting::join_as_new_process() {
  slot_ = -1;
  const Locked locked(*this);
  const int pid = getpid();
  const uint64_t started = start_time(pid);
  for (int i = 0; i < kProcesses; ++i) {
    Process& process = state_->processes[i];
    if (process.alive && process.pid == pid && process.start_time == started) {
      for (int r = 0; r < state_->record_count; ++r) drop(r, i);
      for (Use& use : process.use) use.compute_objects = use.graphics_objects = 0;
    }
  }
}

int Accounting::slot_of_this_process() {
  if (slot_ >= 0) return slot_;
  const int pid = getpid();
  const uint64_t started = start_time(pid);
  int free = -1;
  for (int i = 0; i < kProcesses; ++i) {
    const Process& process = state_->processes[i];
    if (process.alive && process.pid == pid && process.start_time == started) return slot_ = i;
    if (!process.alive && (free < 0 || process.start_time < state_->processes[free].start_time))
      free = i;
  }
  if (free < 0) {
    reap();
    for (int i = 0; i < kProcesses && free < 0; ++i) {
      if (!state_->processes[i].alive) free = i;
    }
    if (free < 0) give_up("more than 64 processes use one state");
  }
  state_->processes[free] = Process{.pid = pid, .alive = true, .start_time = started, .use = {}};
  return slot_ = free;
}

namespace {

void add_heir(Record& record, int slot) {
  std::copy_backward(std::begin(record.heirs), std::end(record.heirs) - 1, std::end(record.heirs));
  record.heirs[0] = static_cast<uint8_t>(slot + 1);
}

void remove_heir(Record& record, int slot) {
  const auto end = std::remove(std::begin(record.heirs), std::end(record.heirs), slot + 1);
  std::fill(end, std::end(record.heirs), uint8_t{0});
}

// An export's duplicate comes right behind its source too.
uint32_t next_owner(const Record& record) {
  if (record.exports != 0) return kNobody;
  if (record.heirs[0] != 0) return record.heirs[0] - 1u;
  return static_cast<uint32_t>(__builtin_ctzll(record.holders));
}

// The lock that shows whether an export's descriptor is open. All eventfds have one inode, so the
// lock's place says which machine and export it is.
struct flock lock_of(uint32_t machine, uint32_t number, short type) {
  struct flock lock {};
  lock.l_type = type;
  lock.l_whence = SEEK_SET;
  lock.l_start = int64_t{1} << 61 | int64_t{machine} << 24 | number;
  lock.l_len = 1;
  return lock;
}

}  // namespace

void Accounting::drop(int index, int slot) {
  Record& record = state_->records[index];
  const uint64_t bit = 1ull << slot;
  if ((record.holders & bit) == 0) return;
  record.holders &= ~bit;
  remove_heir(record, slot);
  if (record.is_free()) {
    free_record(index);
  } else if (record.owner == static_cast<uint32_t>(slot)) {
    hand_on(record);
  }
}

void Accounting::drop_export(int index) {
  Record& record = state_->records[index];
  if (--record.exports != 0) return;
  if (record.is_free()) {
    free_record(index);
  } else if (record.owner == kNobody) {
    hand_on(record);
  }
}

// From now on the memory is counted for the next in the list.
void Accounting::hand_on(Record& record) {
  const uint32_t before = record.owner;
  record.owner = next_owner(record);
  if (record.owner != kNobody) remove_heir(record, static_cast<int>(record.owner));
  if (record.kind != Kind::kVideo) return;
  if (before != kNobody) state_->processes[before].use[record.gpu].used -= record.size;
  if (record.owner == kNobody) return;
  state_->processes[record.owner].use[record.gpu].take(record.size);
}

void Accounting::free_record(int index) {
  Record& record = state_->records[index];
  if (record.kind == Kind::kVideo) {
    state_->use[record.gpu].used -= record.size;
    if (record.owner != kNobody)
      state_->processes[record.owner].use[record.gpu].used -= record.size;
  }
  fallocate(memory_file_, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(record.offset), static_cast<off_t>(record.size));
  record.next_free = state_->first_free;
  state_->first_free = index;
}

// Memory of exports whose last descriptor is closed.
void Accounting::reap_exports() {
  if (std::all_of(std::begin(state_->held), std::end(state_->held),
                  [](const Held& each) { return each.number == 0; })) {
    return;
  }
  const int probe = static_cast<int>(syscall(SYS_eventfd2, 0, EFD_CLOEXEC));
  for (Held& each : state_->held) {
    if (each.number == 0) continue;
    struct flock lock = lock_of(machine_, each.number, F_WRLCK);
    if (syscall(SYS_fcntl, probe, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK) continue;
    const int record = each.record;
    each = {};
    drop_export(record);
  }
  syscall(SYS_close, probe);
}

void Accounting::reap() {
  for (int i = 0; i < kProcesses; ++i) {
    Process& process = state_->processes[i];
    if (!process.alive || i == slot_ || start_time(process.pid) == process.start_time) continue;
    for (int r = 0; r < state_->record_count; ++r) drop(r, i);
    for (SharedObject& object : state_->shared) {
      if (object.client != 0 && object.process == static_cast<uint32_t>(i)) object.client = 0;
    }
    process.alive = false;  // last: if this process dies meanwhile, another one goes on
  }
  reap_exports();
}

// A process died in the middle of a change: all sums and the list of free records are made anew
// from the records.
void Accounting::recount() {
  for (int gpu = 0; gpu < kMostGpus; ++gpu) {
    state_->use[gpu].used = 0;
    for (Process& process : state_->processes) process.use[gpu].used = 0;
  }
  state_->first_free = -1;
  for (int i = 0; i < state_->record_count; ++i) state_->records[i].exports = 0;
  for (const Held& each : state_->held) {
    if (each.number != 0) ++state_->records[each.record].exports;
  }
  for (int i = 0; i < state_->record_count; ++i) {
    Record& record = state_->records[i];
    if (record.is_free()) {
      record.next_free = state_->first_free;
      state_->first_free = i;
    } else if (record.kind == Kind::kVideo) {
      state_->use[record.gpu].take(record.size);
      if (record.owner != kNobody)
        state_->processes[record.owner].use[record.gpu].take(record.size);
    }
  }
}

int Accounting::allocate(int gpu, Kind kind, uint64_t size, uint64_t alignment) {
  const Locked locked(*this);
  const int slot = slot_of_this_process();
  const bool counted = kind == Kind::kVideo;
  size = (size + kPage - 1) & ~(kPage - 1);
  alignment = std::max(alignment, kPage);
  // A peak must not contain what a dead process still had in the accounting, and neither must a
  // refusal come from it.
  Use& use = state_->use[gpu];
  if (counted && use.used + size > std::min(use.peak, state_->total)) reap();
  if (size > kWindow || (counted && use.used + size > state_->total)) return -1;
  const uint64_t offset = (state_->next_offset + alignment - 1) & ~(alignment - 1);
  if (offset + size > kWindow) give_up("8 TiB were allocated in this state; make a new one");
  int index = state_->first_free;
  if (index >= 0) {
    state_->first_free = state_->records[index].next_free;
  } else if (state_->record_count < kRecords) {
    index = state_->record_count++;
  } else {
    give_up("the accounting are full");
  }
  state_->next_offset = offset + size;
  Record& record = state_->records[index];
  record.offset = offset;
  record.size = size;
  record.owner = static_cast<uint32_t>(slot);
  std::fill(std::begin(record.heirs), std::end(record.heirs), uint8_t{0});
  record.gpu = static_cast<uint8_t>(gpu);
  record.kind = kind;
  ++record.generation;
  record.holders = 1ull << slot;  // last: with it the record is valid
  if (counted) {
    use.take(size);
    state_->processes[slot].use[gpu].take(size);
  }
  return index;
}

bool Accounting::hold(int index, uint32_t generation) {
  const Locked locked(*this);
  if (index < 0 || index >= state_->record_count) return false;
  Record& record = state_->records[index];
  if (record.is_free() || record.generation != generation) return false;
  const int slot = slot_of_this_process();
  if ((record.holders >> slot & 1) == 0) add_heir(record, slot);
  record.holders |= 1ull << slot;
  return true;
}

void Accounting::release(int index) {
  const Locked locked(*this);
  drop(index, slot_of_this_process());
}

uint64_t Accounting::used(int gpu) {
  const Locked locked(*this);
  reap();
  return state_->use[gpu].used;
}

uint64_t Accounting::used_by(int pid, int gpu) {
  uint64_t used = 0;
  for (const Process& process : processes()) used += process.pid == pid ? process.use[gpu].used : 0;
  return used;
}

std::vector<Process> Accounting::processes() {
  std::vector<Process> alive;
  for (const Process& process : summary().processes) {
    if (process.alive) alive.push_back(process);
  }
  return alive;
}

Accounting::Summary Accounting::summary() {
  const Locked locked(*this);
  reap();
  Summary summary{state_->total, {state_->use, state_->use + state_->gpus}, {}};
  for (const Process& process : state_->processes) {
    if (process.pid != 0) summary.processes.push_back(process);
  }
  return summary;
}

void Accounting::hold_for_ever() {
  const Locked locked(*this);
  printf("held\n");
  fflush(stdout);
  for (;;) pause();
}

void Accounting::reset_peaks() {
  const Locked locked(*this);
  reap();
  for (int gpu = 0; gpu < kMostGpus; ++gpu) {
    state_->use[gpu].peak = state_->use[gpu].used;
    for (Process& process : state_->processes) process.use[gpu].peak = process.use[gpu].used;
  }
}

void Accounting::count_objects(int gpu, int compute, int graphics) {
  const Locked locked(*this);
  Use& use = state_->processes[slot_of_this_process()].use[gpu];
  use.compute_objects += static_cast<uint32_t>(compute);
  use.graphics_objects += static_cast<uint32_t>(graphics);
}

uint32_t Accounting::new_export(int fd) {
  const Locked locked(*this);
  const uint32_t number = ++state_->exports;
  struct flock lock = lock_of(machine_, number, F_RDLCK);
  if (syscall(SYS_fcntl, fd, F_OFD_SETLK, &lock) != 0) give_up("an export cannot be locked");
  return number;
}

bool Accounting::hold_by_export(uint32_t number, uint32_t position, int record) {
  const Locked locked(*this);
  reap_exports();
  Held* place = nullptr;
  for (Held& each : state_->held) {
    if (each.number == number && each.position == position) {
      place = &each;
      break;
    }
    if (each.number == 0 && place == nullptr) place = &each;
  }
  if (place == nullptr) return false;
  ++state_->records[record].exports;
  if (place->number != 0) drop_export(place->record);
  *place = {number, position, record};
  return true;
}

bool Accounting::read_export(uint32_t number, void* data, size_t size) const {
  return syscall(SYS_pread64, exports_file_, data, size, uint64_t{number} * size) ==
         static_cast<ssize_t>(size);
}

bool Accounting::write_export(uint32_t number, const void* data, size_t size) {
  return syscall(SYS_pwrite64, exports_file_, data, size, uint64_t{number} * size) ==
         static_cast<ssize_t>(size);
}

uint32_t Accounting::new_client() {
  constexpr uint32_t kClientBase = 0xc1d00000, kClientMask = 0xfffff;  // as RM's own look
  const Locked locked(*this);
  slot_of_this_process();
  return kClientBase + (++state_->next_client & kClientMask);
}

bool Accounting::share(const SharedObject& object) {
  const Locked locked(*this);
  SharedObject* place = nullptr;
  for (SharedObject& other : state_->shared) {
    if (other.client == object.client && other.handle == object.handle) {
      place = &other;
      break;
    }
    if (other.client == 0 && place == nullptr) place = &other;
  }
  if (place == nullptr) return false;
  *place = object;
  place->process = static_cast<uint32_t>(slot_of_this_process());
  return true;
}

void Accounting::unshare(uint32_t client, uint32_t handle) {
  const Locked locked(*this);
  for (SharedObject& object : state_->shared) {
    if (object.client == client && object.handle == handle) object.client = 0;
  }
}

bool Accounting::find_shared(uint32_t client, uint32_t handle, SharedObject& found) {
  const Locked locked(*this);
  reap();
  for (const SharedObject& object : state_->shared) {
    if (client != 0 && object.client == client && object.handle == handle) {
      found = object;
      return true;
    }
  }
  return false;
}

}  // namespace rmsim
