// What the calling process has of the simulated driver, beside its place in the books. A forked
// child begins with nothing, as KFD refuses it the parent's.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <mutex>

#include "books.h"
#include "events.h"
#include "queues.h"

namespace kfd {

inline constexpr size_t kDoorbells = 1024;  // of a process on a card, 8 bytes each

struct Range {
  uint64_t end;
  uint32_t card;
};

struct ThisProcess {
  explicit ThisProcess(Books* its_books) : books(its_books) {}

  // Null outside a simulated machine.
  static ThisProcess* get();

  // Its place in the books, which it gets at its first need; -errno. With the books locked.
  int place();

  Books* const books;
  std::mutex mutex;  // of what follows, except for events and queues
  int number = -1;
  uint32_t next_queue = 0;
  std::map<uint32_t, std::pair<uint32_t, size_t>> queue_doorbell;  // card and number
  std::array<std::bitset<kDoorbells>, kMaxCards> doorbells;
  std::map<uint64_t, Range> ranges;  // of shared virtual memory that is on a card, by start
  int32_t xnack = 0;
  Events events;
  Queues queues{&events};
};

// The device files of the machine, known by their sizes, which are beyond any real file.
struct DeviceFile {
  enum Kind { kNone, kKfd, kRender } kind = kNone;
  uint32_t card = 0;
};
inline constexpr uint64_t kMmioOffset = 1ull << 46;    // in /dev/kfd
inline constexpr uint64_t kDoorbellStep = 1ull << 32;  // libhsakmt takes the place in a page from
                                                       // the low half
inline constexpr uint64_t kKfdFileSize = kMmioOffset + (1u << 20);
inline constexpr uint64_t kRenderFileSize = kOffsetLimit;  // and a page for each number of a card
DeviceFile device_file_of_size(uint64_t size);
DeviceFile device_file(int fd);

}  // namespace kfd
