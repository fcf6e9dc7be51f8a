// Lists the open file descriptions that an epoll instance watches; see open_exports.h.
#include "shim/sharing/open_exports.h"

#include <errno.h>
#include <string.h>
#include <sys/epoll.h>

#include <algorithm>

#include "shim/base/descriptor.h"
#include "shim/base/text.h"
#include "shim/sharing/descriptor_mark.h"

namespace fracgpu {
namespace {

// Finds the tokens in the text of an epoll instance's fdinfo, which comes in pieces: "tfd:      33
// events:       18 data:         12ab34cd  pos:0 ino:6 sdev:d" is a line.
class TokenReader {
 public:
  template <typename Visit>
  void read(const char* text, size_t size, Visit visit) {
    for (size_t i = 0; i < size; ++i) {
      const char next = text[i];
      if (matched_ < sizeof kName - 1) {
        matched_ = next == kName[matched_] ? matched_ + 1 : next == kName[0] ? 1 : 0;
        token_ = 0;
        has_digits_ = false;
      } else if (const int digit = digit_of(next); digit >= 0) {
        token_ = token_ << 4 | static_cast<uint64_t>(digit);
        has_digits_ = true;
      } else if (has_digits_ || next != ' ') {
        if (has_digits_) visit(token_);
        matched_ = 0;
      }
    }
  }

 private:
  static constexpr char kName[] = "data:";

  static int digit_of(char c) {
    if ('0' <= c && c <= '9') return c - '0';
    return 'a' <= c && c <= 'f' ? c - 'a' + 10 : -1;
  }

  size_t matched_ = 0;  // of kName; all of it: inside the number
  uint64_t token_ = 0;
  bool has_digits_ = false;
};

// Marks the instance: a program that closes all descriptors closes ours too, and may then have a
// descriptor of its own with that number. No ledger has this mark.
constexpr DescriptorMark kEpollMark = {.tenant = 0};

bool is_own(const DescriptorMark& mark) {
  return mark.tenant == kEpollMark.tenant;
}

}  // namespace

void OpenExports::watch(int fd, uint64_t token) {
  const Locked<SleepLock> lock(lock_);
  const int error = errno;
  DescriptorMark mark;
  if (epoll_ < 0 || !read_mark(epoll_, mark) || !is_own(mark)) {
    const int made = open_own_epoll();
    if (made < 0) {
      errno = error;
      return;
    }
    mark_descriptor(epoll_ = made, kEpollMark);
  }
  add(fd, token);
  errno = error;
}

// An epoll instance keeps one entry for each descriptor number by which an open file was added,
// also after that descriptor is closed. So a file that stands for several memories, as a dma-buf
// may, is added by other numbers too. A dma-buf that is exported again may have its entry already.
void OpenExports::add(int fd, uint64_t token) {
  constexpr int kFirstCopy = 64, kCopies = 900;
  epoll_event event{.events = 0, .data = {.u64 = token}};
  const auto is_there = [&](int by) {
    return epoll_ctl(epoll_, EPOLL_CTL_ADD, by, &event) != 0 && errno == EEXIST;
  };
  if (!is_there(fd)) return;
  bool is_watched = false;
  visit_open([&](uint64_t each) { is_watched |= each == token; });
  for (int i = 0; i < kCopies && !is_watched; ++i) {
    const int copy = fcntl(fd, F_DUPFD_CLOEXEC, kFirstCopy + copies_++ % kCopies);
    if (copy < 0) return;
    is_watched = !is_there(copy);
    close_own(copy);
  }
}

template <typename Visit>
bool OpenExports::visit_open(Visit visit) const {
  if (epoll_ < 0) return true;
  Text<32> path;
  path.format("/proc/self/fdinfo/{}", epoll_);
  const int error = errno;
  const int fd = open_own(path.c_str(), O_RDONLY);
  if (fd < 0) {
    const bool is_gone = errno == ENOENT;  // no /proc, or the program has closed our descriptor
    errno = error;
    return is_gone;
  }
  char text[2048];
  ssize_t got = read_own(fd, text, sizeof text - 1);
  text[std::max<ssize_t>(got, 0)] = '\0';
  DescriptorMark mark;
  if (got > 0 && (!mark_in(text, mark) || !is_own(mark))) got = 0;  // it is the program's
  TokenReader reader;
  for (; got > 0; got = read_own(fd, text, sizeof text))
    reader.read(text, static_cast<size_t>(got), visit);
  close_own(fd);
  errno = error;
  return got == 0;
}

template <typename Visit>
bool OpenExports::visit_held(Visit visit) {
  places_.for_each([](Place& each) { each.is_open = false; });
  const bool is_known = visit_open([&](uint64_t token) {
    if (kind_of(token) != Of::objects) return visit(token);
    places_.for_each([&](Place& each) {
      if (token_of(Of::objects, each.key >> kPlaceBits) != token) return;
      each.is_open = true;
      visit(each.token);
    });
  });
  if (is_known) places_.erase_if([](const Place& each) { return !each.is_open; });
  return is_known;
}

void OpenExports::hold(uint32_t descriptor, uint32_t place, uint64_t token) {
  const Locked<SleepLock> lock(lock_);
  const uint64_t key = uint64_t{descriptor} << kPlaceBits | place;
  if (token == 0) {
    if (Place* const known = places_.find(key); known != nullptr) places_.erase(known);
  } else if (Place* const entry = places_.insert(key); entry != nullptr) {
    entry->token = token;
  }
}

bool OpenExports::keep(uint64_t token, int device_index, uint64_t units) {
  const Locked<SleepLock> lock(lock_);
  if (epoll_ < 0) return false;
  bool is_open = false;
  const bool is_known = visit_held([&](uint64_t each) { is_open |= each == token; });
  return (is_open || !is_known) && enter(token, device_index, units);
}

void OpenExports::keep_until_freed(uint64_t token, int device_index, uint64_t units) {
  const Locked<SleepLock> lock(lock_);
  enter(token, device_index, units);
}

bool OpenExports::enter(uint64_t token, int device_index, uint64_t units) {
  Kept* const kept = kept_.insert(token);
  if (kept == nullptr) return false;
  if (kept->units == 0) kept_count_.fetch_add(1, std::memory_order_relaxed);
  kept->units += units;
  kept->device_index = device_index;
  ++changes_;
  return true;
}

void OpenExports::find_closed() {
  kept_.for_each([](Kept& each) { each.is_open = false; });
  const bool is_known = visit_held([&](uint64_t token) {
    if (Kept* const kept = kept_.find(token); kept != nullptr) kept->is_open = true;
  });
  if (!is_known) kept_.for_each([](Kept& each) { each.is_open = true; });
}

void OpenExports::sum(int device_index, uint64_t& units, uint64_t& changes) {
  units = changes = 0;
  const Locked<SleepLock> lock(lock_);
  changes = changes_;
  kept_.for_each([&](const Kept& each) {
    if (each.device_index == device_index) units += each.units;
  });
}

}  // namespace fracgpu
