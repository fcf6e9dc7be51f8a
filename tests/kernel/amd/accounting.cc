// Accounts for buffers and their holders; see accounting.h.
#include "accounting.h"

#include <dirent.h>
#include <fcntl.h>
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
#include <filesystem>
#include <string>

namespace kfd {
namespace {

// Atomic for readers: the file is renamed into place.
void write_number(const std::string& path, uint64_t value) {
  const std::string temporary = path + ".new";
  char text[32];
  const int length =
      std::snprintf(text, sizeof text, "%llu\n", static_cast<unsigned long long>(value));
  const int fd = open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd < 0) return;
  const bool written = write(fd, text, static_cast<size_t>(length)) == length;
  close(fd);
  if (!written || rename(temporary.c_str(), path.c_str()) != 0) unlink(temporary.c_str());
}

std::string process_folder(int pid) {
  return std::string(kProcessFolder) + "/" + std::to_string(pid);
}

void show_process(const Accounting& accounting, const Process& process, uint32_t card) {
  write_number(
      process_folder(process.pid) + "/vram_" + std::to_string(accounting.card[card].gpu_id),
      process.vram[card]);
}

void show_card(const Card& card) {
  write_number(std::string("/sys/bus/pci/devices/") + card.pci + "/mem_info_vram_used",
               card.resident());
}

void count_for_process(Accounting& accounting, uint32_t process, uint32_t card, int64_t bytes) {
  Process& p = accounting.process[process];
  p.vram[card] += static_cast<uint64_t>(bytes);
  p.peak[card] = std::max(p.peak[card], p.vram[card]);
  show_process(accounting, p, card);
}

void note_peak(Card& card) {
  card.peak = std::max(card.peak, card.resident());
  show_card(card);
}

bool has_room(const Accounting& accounting, uint32_t card, uint64_t size) {
  const Card& c = accounting.card[card];
  const uint64_t taken = c.resident() + reserved_for_page_tables(accounting);
  return taken <= c.total && size <= c.total - taken;
}

bool has_host_room(const Accounting& accounting, uint64_t size) {
  return size <= kHostLimit - accounting.host_used;
}

bool has_room(const Accounting& accounting, uint32_t card, uint64_t size, Domain domain) {
  return domain == Domain::kVram   ? has_room(accounting, card, size)
         : domain == Domain::kHost ? has_host_room(accounting, size)
                                   : true;
}

std::string dmabuf_name(uint32_t buffer, uint32_t serial) {
  return std::string(kDmabufFolder) + "/" + std::to_string(buffer) + "-" + std::to_string(serial);
}

// Each descriptor holds a read lock on its file. Duplicates, also in other processes, share that
// lock, so it lasts until the last one is closed.
bool held_by_descriptor(uint32_t buffer, const Buffer& b) {
  if (!b.exported) return false;
  const int fd = open(dmabuf_name(buffer, b.serial).c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return false;
  struct flock lock {};
  lock.l_type = F_WRLCK;
  const bool held = fcntl(fd, F_OFD_GETLK, &lock) == 0 && lock.l_type != F_UNLCK;
  close(fd);
  return held;
}

void free_memory(const Accounting& accounting, const Buffer& b) {
  const std::string path =
      "/dev/dri/renderD" + std::to_string(accounting.card[b.card].render_minor);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(b.offset),
            static_cast<off_t>(b.size));
  close(fd);
}

void free_buffer(Accounting& accounting, uint32_t buffer) {
  Buffer& b = accounting.buffer[buffer];
  if (b.domain != Domain::kNone) free_memory(accounting, b);
  if (b.exported) unlink(dmabuf_name(buffer, b.serial).c_str());
  if (b.domain == Domain::kVram) {
    Card& card = accounting.card[b.card];
    card.used -= b.size;
    card.used_aligned -= round_up(b.size, kLargePage);
    show_card(card);
  }
  if (b.domain == Domain::kHost) accounting.host_used -= b.size;
  b.serial = 0;
  b.next_free = accounting.first_free_buffer;
  accounting.first_free_buffer = buffer + 1;
}

void release_if_unused(Accounting& accounting, uint32_t buffer) {
  Buffer& b = accounting.buffer[buffer];
  if (b.serial == 0 || b.handles != 0) return;
  if (held_by_descriptor(buffer, b)) {
    ++accounting.orphans;
  } else {
    free_buffer(accounting, buffer);
  }
}

// Frees the memory of closed descriptors, so that no peak includes it.
void reap_orphans(Accounting& accounting) {
  if (accounting.orphans == 0) return;
  accounting.orphans = 0;
  for (uint32_t i = 0; i < accounting.buffers_end; ++i) release_if_unused(accounting, i);
}

// Recomputes sums and free lists from the buffers and handles.
void count_again(Accounting& accounting) {
  for (uint32_t c = 0; c < accounting.cards; ++c) {
    accounting.card[c].used = accounting.card[c].used_aligned = accounting.card[c].migrated = 0;
  }
  for (Process& process : accounting.process) {
    for (uint32_t c = 0; c < accounting.cards; ++c) {
      process.vram[c] = process.migrated[c];
      accounting.card[c].migrated += process.migrated[c];
    }
  }
  accounting.first_free_buffer = accounting.first_free_handle = 0;
  accounting.host_used = 0;
  for (uint32_t i = 0; i < accounting.buffers_end; ++i) {
    Buffer& b = accounting.buffer[i];
    b.handles = 0;
    if (b.serial == 0) {
      b.next_free = accounting.first_free_buffer;
      accounting.first_free_buffer = i + 1;
    } else if (b.domain == Domain::kVram) {
      accounting.card[b.card].used += b.size;
      accounting.card[b.card].used_aligned += round_up(b.size, kLargePage);
    } else if (b.domain == Domain::kHost) {
      accounting.host_used += b.size;
    }
  }
  for (uint32_t i = 1; i < accounting.handles_end; ++i) {
    Handle& h = accounting.handle[i];
    if (!h.used) {
      h.next_free = accounting.first_free_handle;
      accounting.first_free_handle = i;
      continue;
    }
    Buffer& b = accounting.buffer[h.buffer];
    ++b.handles;
    if (h.counted) accounting.process[h.process].vram[b.card] += b.size;
  }
  accounting.orphans = 1;  // unknown; the next reap() checks
}

int lock_seconds() {
  static const char* const patience = std::getenv("SIMULATED_KFD_LOCK_SECONDS");
  return patience != nullptr ? std::atoi(patience) : 10;
}

}  // namespace

Accounting* open_accounting(bool create) {
  const int fd = open(kAccountingFile, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0666);
  if (fd < 0) return nullptr;
  void* at = MAP_FAILED;
  if (!create || (fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof(Accounting)) == 0)) {
    at = mmap(nullptr, sizeof(Accounting), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (at == MAP_FAILED) return nullptr;
  Accounting* const accounting = static_cast<Accounting*>(at);
  if (create) {
    accounting->handles_end = 1;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&accounting->mutex, &attributes);
  }
  return accounting;
}

Lock::Lock(Accounting* accounting) : Lock(accounting, lock_seconds()) {}

Lock::Lock(Accounting* accounting, int seconds) : accounting_(accounting) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += seconds;
  const int rc = seconds == 0
                     ? pthread_mutex_trylock(&accounting->mutex)
                     : pthread_mutex_clocklock(&accounting->mutex, CLOCK_MONOTONIC, &until);
  if (rc == EOWNERDEAD) {
    pthread_mutex_consistent(&accounting->mutex);
    count_again(*accounting);
  } else if (rc != 0) {
    if (seconds == 0) return;
    std::fprintf(stderr, "simulated KFD: process %d has locked the accounting for %d s: %s\n",
                 accounting->lock_holder, seconds, std::strerror(rc));
    std::abort();
  }
  held_ = true;
  accounting->lock_holder = getpid();
}

Lock::~Lock() {
  if (held_) pthread_mutex_unlock(&accounting_->mutex);
}

uint64_t start_time_of(int pid) {
  char path[64], text[1024];
  std::snprintf(path, sizeof path, "/proc/%d/stat", pid);
  const int fd = open(path, O_RDONLY | O_CLOEXEC);
  if (fd < 0) return 0;
  const ssize_t length = read(fd, text, sizeof text - 1);
  close(fd);
  if (length <= 0) return 0;
  text[length] = '\0';
  const char* at = std::strrchr(text, ')');
  // A zombie has no memory.
  if (at == nullptr || at[2] == 'Z' || at[2] == 'X') return 0;
  constexpr int kStartTime = 22;
  for (int field = 2; field < kStartTime && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
}

int find_process(const Accounting& accounting, int pid) {
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    if (accounting.process[i].pid == pid) return static_cast<int>(i);
  }
  return -ESRCH;
}

int add_process(Accounting& accounting, int pid) {
  const int found = find_process(accounting, 0);
  if (found < 0) return -EAGAIN;
  Process& process = accounting.process[found];
  process = Process{};
  process.start_time = start_time_of(pid);
  process.pid = pid;
  return found;
}

void list_process(Accounting& accounting, uint32_t number) {
  Process& process = accounting.process[number];
  if (process.uses_kfd) return;
  process.uses_kfd = true;
  const std::string folder = process_folder(process.pid);
  mkdir(folder.c_str(), 0755);
  mkdir((folder + "/queues").c_str(), 0755);
  write_number(folder + "/pasid", 32768 + uint64_t{number});
  for (uint32_t c = 0; c < accounting.cards; ++c) {
    show_process(accounting, process, c);
    write_number(folder + "/sdma_" + std::to_string(accounting.card[c].gpu_id), 0);
  }
}

void remove_process(Accounting& accounting, uint32_t process) {
  Process& p = accounting.process[process];
  for (uint32_t i = 1; i < accounting.handles_end; ++i) {
    if (accounting.handle[i].used && accounting.handle[i].process == process)
      remove_handle(accounting, i);
  }
  for (uint32_t c = 0; c < accounting.cards; ++c) {
    accounting.card[c].migrated -= p.migrated[c];
    show_card(accounting.card[c]);
  }
  std::error_code ignored;
  std::filesystem::remove_all(process_folder(p.pid), ignored);
  p = Process{};
}

void reap(Accounting& accounting) {
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    const Process& process = accounting.process[i];
    if (process.pid != 0 && start_time_of(process.pid) != process.start_time) {
      remove_process(accounting, i);
    }
  }
  reap_orphans(accounting);
}

uint64_t reserved_for_page_tables(const Accounting& accounting) {
  constexpr uint64_t kLeast = 8u << 20;
  uint64_t all = 0;
  for (uint32_t c = 0; c < accounting.cards; ++c) all += accounting.card[c].total;
  return std::max(all >> 14, kLeast);
}

uint64_t available(const Accounting& accounting, uint32_t card) {
  const Card& c = accounting.card[card];
  const uint64_t taken = c.used_aligned + reserved_for_page_tables(accounting);
  return taken < c.total ? (c.total - taken) / kLargePage * kLargePage : 0;
}

int add_buffer(Accounting& accounting, uint32_t card, uint64_t size, uint32_t flags,
               Domain domain) {
  Card& c = accounting.card[card];
  if (size > UINT64_MAX - kLargePage) return -ENOMEM;
  size = round_up(size, kPage);
  reap_orphans(accounting);
  if (!has_room(accounting, card, size, domain)) {
    reap(accounting);
    if (!has_room(accounting, card, size, domain)) return -ENOMEM;
  }
  const uint64_t offset = c.next_offset;
  if (domain != Domain::kNone) {
    if (size > kOffsetLimit - offset - kLargePage) {
      std::fprintf(stderr, "simulated KFD: the render node has had more than %llu bytes\n",
                   static_cast<unsigned long long>(kOffsetLimit));
      return -ENOMEM;
    }
    c.next_offset += round_up(size, kLargePage);
  }
  uint32_t at = accounting.first_free_buffer;
  if (at != 0) {
    accounting.first_free_buffer = accounting.buffer[--at].next_free;
  } else if (accounting.buffers_end == kMaxBuffers) {
    std::fprintf(stderr, "simulated KFD: more than %u buffers\n", kMaxBuffers);
    return -ENOMEM;
  } else {
    at = accounting.buffers_end++;
  }
  Buffer& b = accounting.buffer[at];
  b = Buffer{};
  b.size = size;
  b.flags = flags;
  b.domain = domain;
  b.card = static_cast<uint8_t>(card);
  b.offset = offset;
  b.serial = ++accounting.last_serial;
  if (domain == Domain::kVram) {
    c.used += size;
    c.used_aligned += round_up(size, kLargePage);
    note_peak(c);
  }
  if (domain == Domain::kHost) accounting.host_used += size;
  return static_cast<int>(at);
}

void move_to_card(Accounting& accounting, uint32_t buffer) {
  Buffer& b = accounting.buffer[buffer];
  if (!has_room(accounting, b.card, b.size)) return;
  Card& card = accounting.card[b.card];
  b.domain = Domain::kVram;
  accounting.host_used -= b.size;
  card.used += b.size;
  card.used_aligned += round_up(b.size, kLargePage);
  note_peak(card);
}

int add_handle(Accounting& accounting, uint32_t process, uint32_t buffer, bool counted,
               uint32_t file) {
  uint32_t at = accounting.first_free_handle;
  if (at != 0) {
    accounting.first_free_handle = accounting.handle[at].next_free;
  } else if (accounting.handles_end == kMaxHandles) {
    std::fprintf(stderr, "simulated KFD: more than %u handles\n", kMaxHandles);
    release_if_unused(accounting, buffer);
    return -ENOMEM;
  } else {
    at = accounting.handles_end++;
  }
  Buffer& b = accounting.buffer[buffer];
  counted = counted && b.domain == Domain::kVram;
  accounting.handle[at] = {process, buffer, 0, file, true, counted};
  ++b.handles;
  if (counted) count_for_process(accounting, process, b.card, static_cast<int64_t>(b.size));
  return static_cast<int>(at);
}

void remove_handle(Accounting& accounting, uint32_t handle) {
  Handle& h = accounting.handle[handle];
  Buffer& b = accounting.buffer[h.buffer];
  h.used = false;
  h.next_free = accounting.first_free_handle;
  accounting.first_free_handle = handle;
  if (h.counted) count_for_process(accounting, h.process, b.card, -static_cast<int64_t>(b.size));
  --b.handles;
  release_if_unused(accounting, h.buffer);
}

int export_buffer(Accounting& accounting, uint32_t buffer) {
  Buffer& b = accounting.buffer[buffer];
  const std::string name = dmabuf_name(buffer, b.serial);
  if (mkfifo(name.c_str(), 0666) != 0 && errno != EEXIST) return -errno;
  const int fd = open(name.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return -errno;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  if (fchmod(fd, 0666) != 0 || fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    close(fd);
    return -ENOMEM;
  }
  b.exported = true;
  return fd;
}

int buffer_of_descriptor(const Accounting& accounting, int fd) {
  char link[64], target[256] = "";
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (readlink(link, target, sizeof target - 1) < 0) return -EBADF;
  const char* const name = std::strstr(target, "/simulated-kfd/dmabuf/");
  uint32_t buffer = 0, serial = 0;
  if (name == nullptr || std::sscanf(name, "/simulated-kfd/dmabuf/%u-%u", &buffer, &serial) != 2 ||
      buffer >= accounting.buffers_end || accounting.buffer[buffer].serial != serial)
    return -EINVAL;
  return static_cast<int>(buffer);
}

bool move_range(Accounting& accounting, uint32_t process, uint32_t card, int64_t bytes) {
  if (bytes > 0 && !has_room(accounting, card, static_cast<uint64_t>(bytes))) {
    reap(accounting);
    if (!has_room(accounting, card, static_cast<uint64_t>(bytes))) return false;
  }
  accounting.process[process].migrated[card] += static_cast<uint64_t>(bytes);
  accounting.card[card].migrated += static_cast<uint64_t>(bytes);
  note_peak(accounting.card[card]);
  count_for_process(accounting, process, card, bytes);
  return true;
}

}  // namespace kfd
