// Counts buffers and their holders; see books.h.
#include "books.h"

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

// A reader sees the old number or the new one.
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

void show_process(const Books& books, const Process& process, uint32_t card) {
  write_number(process_folder(process.pid) + "/vram_" + std::to_string(books.card[card].gpu_id),
               process.vram[card]);
}

void show_card(const Card& card) {
  write_number(std::string("/sys/bus/pci/devices/") + card.pci + "/mem_info_vram_used",
               card.resident());
}

void count_for_process(Books& books, uint32_t process, uint32_t card, int64_t bytes) {
  Process& p = books.process[process];
  p.vram[card] += static_cast<uint64_t>(bytes);
  p.peak[card] = std::max(p.peak[card], p.vram[card]);
  show_process(books, p, card);
}

void note_peak(Card& card) {
  card.peak = std::max(card.peak, card.resident());
  show_card(card);
}

bool has_room(const Books& books, uint32_t card, uint64_t size) {
  const Card& c = books.card[card];
  const uint64_t taken = c.resident() + reserved_for_page_tables(books);
  return taken <= c.total && size <= c.total - taken;
}

bool has_host_room(const Books& books, uint64_t size) {
  return size <= kHostLimit - books.host_used;
}

bool has_room(const Books& books, uint32_t card, uint64_t size, Domain domain) {
  return domain == Domain::kVram   ? has_room(books, card, size)
         : domain == Domain::kHost ? has_host_room(books, size)
                                   : true;
}

std::string dmabuf_name(uint32_t buffer, uint32_t serial) {
  return std::string(kDmabufFolder) + "/" + std::to_string(buffer) + "-" + std::to_string(serial);
}

// Each descriptor has a read lock on its file, which its copies in other processes share.
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

void free_memory(const Books& books, const Buffer& b) {
  const std::string path = "/dev/dri/renderD" + std::to_string(books.card[b.card].render_minor);
  const int fd = open(path.c_str(), O_RDWR | O_CLOEXEC);
  if (fd < 0) return;
  fallocate(fd, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE, static_cast<off_t>(b.offset),
            static_cast<off_t>(b.size));
  close(fd);
}

void free_buffer(Books& books, uint32_t buffer) {
  Buffer& b = books.buffer[buffer];
  if (b.domain != Domain::kNone) free_memory(books, b);
  if (b.exported) unlink(dmabuf_name(buffer, b.serial).c_str());
  if (b.domain == Domain::kVram) {
    Card& card = books.card[b.card];
    card.used -= b.size;
    card.used_aligned -= round_up(b.size, kLargePage);
    show_card(card);
  }
  if (b.domain == Domain::kHost) books.host_used -= b.size;
  b.serial = 0;
  b.next_free = books.first_free_buffer;
  books.first_free_buffer = buffer + 1;
}

void release_if_unused(Books& books, uint32_t buffer) {
  Buffer& b = books.buffer[buffer];
  if (b.serial == 0 || b.handles != 0) return;
  if (held_by_descriptor(buffer, b)) {
    ++books.orphans;
  } else {
    free_buffer(books, buffer);
  }
}

// The sums and the lists of free places, from what buffers and handles say.
void count_again(Books& books) {
  for (uint32_t c = 0; c < books.cards; ++c) {
    books.card[c].used = books.card[c].used_aligned = books.card[c].migrated = 0;
  }
  for (Process& process : books.process) {
    for (uint32_t c = 0; c < books.cards; ++c) {
      process.vram[c] = process.migrated[c];
      books.card[c].migrated += process.migrated[c];
    }
  }
  books.first_free_buffer = books.first_free_handle = 0;
  books.host_used = 0;
  for (uint32_t i = 0; i < books.buffers_end; ++i) {
    Buffer& b = books.buffer[i];
    b.handles = 0;
    if (b.serial == 0) {
      b.next_free = books.first_free_buffer;
      books.first_free_buffer = i + 1;
    } else if (b.domain == Domain::kVram) {
      books.card[b.card].used += b.size;
      books.card[b.card].used_aligned += round_up(b.size, kLargePage);
    } else if (b.domain == Domain::kHost) {
      books.host_used += b.size;
    }
  }
  for (uint32_t i = 1; i < books.handles_end; ++i) {
    Handle& h = books.handle[i];
    if (!h.used) {
      h.next_free = books.first_free_handle;
      books.first_free_handle = i;
      continue;
    }
    Buffer& b = books.buffer[h.buffer];
    ++b.handles;
    if (h.counted) books.process[h.process].vram[b.card] += b.size;
  }
  books.orphans = 1;  // perhaps; the next reap() looks
}

}  // namespace

Books* open_books(bool create) {
  const int fd = open(kBooksFile, O_RDWR | O_CLOEXEC | (create ? O_CREAT | O_EXCL : 0), 0666);
  if (fd < 0) return nullptr;
  void* at = MAP_FAILED;
  if (!create || (fchmod(fd, 0666) == 0 && ftruncate(fd, sizeof(Books)) == 0)) {
    at = mmap(nullptr, sizeof(Books), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
  }
  close(fd);
  if (at == MAP_FAILED) return nullptr;
  Books* const books = static_cast<Books*>(at);
  if (create) {
    books->handles_end = 1;
    pthread_mutexattr_t attributes;
    pthread_mutexattr_init(&attributes);
    pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED);
    pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST);
    pthread_mutex_init(&books->mutex, &attributes);
  }
  return books;
}

Lock::Lock(Books* books, int seconds) : books_(books) {
  timespec until{};
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_sec += seconds;
  const int rc = seconds == 0 ? pthread_mutex_trylock(&books->mutex)
                              : pthread_mutex_clocklock(&books->mutex, CLOCK_MONOTONIC, &until);
  if (rc == EOWNERDEAD) {
    pthread_mutex_consistent(&books->mutex);
    count_again(*books);
  } else if (rc != 0) {
    if (seconds == 0) return;
    std::fprintf(stderr, "simulated KFD: process %d has the books' lock for %d s: %s\n",
                 books->lock_holder, seconds, std::strerror(rc));
    std::abort();
  }
  held_ = true;
  books->lock_holder = getpid();
}

Lock::~Lock() {
  if (held_) pthread_mutex_unlock(&books_->mutex);
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
  // The memory of a zombie is gone.
  if (at == nullptr || at[2] == 'Z' || at[2] == 'X') return 0;
  constexpr int kStartTime = 22;
  for (int field = 2; field < kStartTime && at != nullptr; ++field) at = std::strchr(at + 1, ' ');
  return at != nullptr ? std::strtoull(at + 1, nullptr, 10) : 0;
}

int find_process(const Books& books, int pid) {
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    if (books.process[i].pid == pid) return static_cast<int>(i);
  }
  return -ESRCH;
}

int add_process(Books& books, int pid) {
  const int found = find_process(books, 0);
  if (found < 0) return -EAGAIN;
  Process& process = books.process[found];
  process = Process{};
  process.start_time = start_time_of(pid);
  process.pid = pid;
  const std::string folder = process_folder(pid);
  mkdir(folder.c_str(), 0755);
  mkdir((folder + "/queues").c_str(), 0755);
  write_number(folder + "/pasid", 32768 + static_cast<uint64_t>(found));
  for (uint32_t c = 0; c < books.cards; ++c) {
    show_process(books, process, c);
    write_number(folder + "/sdma_" + std::to_string(books.card[c].gpu_id), 0);
  }
  return found;
}

void remove_process(Books& books, uint32_t process) {
  Process& p = books.process[process];
  for (uint32_t i = 1; i < books.handles_end; ++i) {
    if (books.handle[i].used && books.handle[i].process == process) remove_handle(books, i);
  }
  for (uint32_t c = 0; c < books.cards; ++c) {
    books.card[c].migrated -= p.migrated[c];
    show_card(books.card[c]);
  }
  std::error_code ignored;
  std::filesystem::remove_all(process_folder(p.pid), ignored);
  p = Process{};
}

void reap(Books& books) {
  for (uint32_t i = 0; i < kMaxProcesses; ++i) {
    const Process& process = books.process[i];
    if (process.pid != 0 && start_time_of(process.pid) != process.start_time) {
      remove_process(books, i);
    }
  }
  if (books.orphans == 0) return;
  books.orphans = 0;
  for (uint32_t i = 0; i < books.buffers_end; ++i) release_if_unused(books, i);
}

uint64_t reserved_for_page_tables(const Books& books) {
  constexpr uint64_t kLeast = 8u << 20;
  uint64_t all = 0;
  for (uint32_t c = 0; c < books.cards; ++c) all += books.card[c].total;
  return std::max(all >> 14, kLeast);
}

uint64_t available(const Books& books, uint32_t card) {
  const Card& c = books.card[card];
  const uint64_t taken = c.used_aligned + reserved_for_page_tables(books);
  return taken < c.total ? (c.total - taken) / kLargePage * kLargePage : 0;
}

int add_buffer(Books& books, uint32_t card, uint64_t size, uint32_t flags, Domain domain) {
  Card& c = books.card[card];
  if (size > UINT64_MAX - kLargePage) return -ENOMEM;
  size = round_up(size, kPage);
  if (!has_room(books, card, size, domain)) {
    reap(books);
    if (!has_room(books, card, size, domain)) return -ENOMEM;
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
  uint32_t at = books.first_free_buffer;
  if (at != 0) {
    books.first_free_buffer = books.buffer[--at].next_free;
  } else if (books.buffers_end == kMaxBuffers) {
    std::fprintf(stderr, "simulated KFD: more than %u buffers\n", kMaxBuffers);
    return -ENOMEM;
  } else {
    at = books.buffers_end++;
  }
  Buffer& b = books.buffer[at];
  b = Buffer{};
  b.size = size;
  b.flags = flags;
  b.domain = domain;
  b.card = static_cast<uint8_t>(card);
  b.offset = offset;
  b.serial = ++books.last_serial;
  if (domain == Domain::kVram) {
    c.used += size;
    c.used_aligned += round_up(size, kLargePage);
    note_peak(c);
  }
  if (domain == Domain::kHost) books.host_used += size;
  return static_cast<int>(at);
}

int add_handle(Books& books, uint32_t process, uint32_t buffer, bool counted, bool gem) {
  uint32_t at = books.first_free_handle;
  if (at != 0) {
    books.first_free_handle = books.handle[at].next_free;
  } else if (books.handles_end == kMaxHandles) {
    std::fprintf(stderr, "simulated KFD: more than %u handles\n", kMaxHandles);
    release_if_unused(books, buffer);
    return -ENOMEM;
  } else {
    at = books.handles_end++;
  }
  Buffer& b = books.buffer[buffer];
  counted = counted && b.domain == Domain::kVram;
  books.handle[at] = {process, buffer, 0, true, counted, gem};
  ++b.handles;
  if (counted) count_for_process(books, process, b.card, static_cast<int64_t>(b.size));
  return static_cast<int>(at);
}

void remove_handle(Books& books, uint32_t handle) {
  Handle& h = books.handle[handle];
  Buffer& b = books.buffer[h.buffer];
  h.used = false;
  h.next_free = books.first_free_handle;
  books.first_free_handle = handle;
  if (h.counted) count_for_process(books, h.process, b.card, -static_cast<int64_t>(b.size));
  --b.handles;
  release_if_unused(books, h.buffer);
}

int export_buffer(Books& books, uint32_t buffer) {
  Buffer& b = books.buffer[buffer];
  const std::string name = dmabuf_name(buffer, b.serial);
  const int fd = open(name.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  if (fd < 0) return -errno;
  struct flock lock {};
  lock.l_type = F_RDLCK;
  if (fchmod(fd, 0666) != 0 || ftruncate(fd, static_cast<off_t>(b.size)) != 0 ||
      fcntl(fd, F_OFD_SETLK, &lock) != 0) {
    close(fd);
    return -ENOMEM;
  }
  b.exported = true;
  return fd;
}

int buffer_of_descriptor(const Books& books, int fd) {
  char link[64], target[256] = "";
  std::snprintf(link, sizeof link, "/proc/self/fd/%d", fd);
  if (readlink(link, target, sizeof target - 1) < 0) return -EBADF;
  const char* const name = std::strstr(target, "/simulated-kfd/dmabuf/");
  uint32_t buffer = 0, serial = 0;
  if (name == nullptr || std::sscanf(name, "/simulated-kfd/dmabuf/%u-%u", &buffer, &serial) != 2 ||
      buffer >= books.buffers_end || books.buffer[buffer].serial != serial)
    return -EINVAL;
  return static_cast<int>(buffer);
}

bool move_range(Books& books, uint32_t process, uint32_t card, int64_t bytes) {
  if (bytes > 0 && !has_room(books, card, static_cast<uint64_t>(bytes))) {
    reap(books);
    if (!has_room(books, card, static_cast<uint64_t>(bytes))) return false;
  }
  books.process[process].migrated[card] += static_cast<uint64_t>(bytes);
  books.card[card].migrated += static_cast<uint64_t>(bytes);
  note_peak(books.card[card]);
  count_for_process(books, process, card, bytes);
  return true;
}

}  // namespace kfd
