// The driver's per-process state that no other process needs. A forked child starts with an empty
// one, as KFD does not share the parent's.
#pragma once

#include <array>
#include <bitset>
#include <cstdint>
#include <map>
#include <mutex>

#include "accounting.h"
#include "events.h"
#include "queues.h"

namespace kfd {

inline constexpr size_t kDoorbells = 1024;  // per process and card, 8 bytes each

struct Range {
  uint64_t end;
  uint32_t card;
};

// A synchronization object of DRM. All that is submitted is complete, so that a fence is signaled.
struct Syncobj {
  bool has_fence = false;
  uint64_t point = 0;
};

struct ThisProcess {
  explicit ThisProcess(Accounting* its_accounting) : accounting(its_accounting) {}

  // Null if this is no simulated machine.
  static ThisProcess* get();

  // Its number in the accounting, assigned on first use, or -errno. Needs the accounting's lock.
  int place();
  // Has KFD list it.
  void open_kfd();

  // Dma-bufs, with the accounting's lock. As in Linux, a buffer has one dma-buf, which each handle
  // holds that was exported or came from a descriptor (drm_prime.c, amdgpu_amdkfd_gpuvm.c). Here
  // each of them has a descriptor of its own.
  int export_handle(uint32_t handle);          // a new descriptor, or -errno
  void hold_dma_buf(uint32_t handle, int fd);  // the handle came from it
  void release_handle(uint32_t handle);        // as accounting's remove_handle
  void release_handles_of_file(uint32_t file);

  Accounting* const accounting;
  std::mutex mutex;  // guards what follows, except events and queues
  int number = -1;
  bool is_listed = false;
  uint32_t next_queue = 0;
  std::map<uint32_t, std::pair<uint32_t, size_t>> queue_doorbell;  // card and number
  std::array<std::bitset<kDoorbells>, kMaxCards> doorbells;
  std::map<uint64_t, Range> ranges;  // shared virtual memory on a card, by start
  int32_t xnack = 0;
  std::map<uint32_t, int> dma_bufs;  // descriptors, by handle
  std::map<uint32_t, Syncobj> syncobjs;
  uint32_t last_syncobj = 0;
  uint64_t submissions = 0;
  Events events;
  Queues queues{&events};
};

// Device files are recognized by their sizes, which no real file has.
struct DeviceFile {
  enum Kind { kNone, kKfd, kRender } kind = kNone;
  uint32_t card = 0;
};
inline constexpr uint64_t kMmioOffset = 1ull << 46;  // in /dev/kfd
inline constexpr uint64_t kDoorbellStep =
    1ull << 32;  // libhsakmt takes the offset in the page from the low half
inline constexpr uint64_t kKfdFileSize = kMmioOffset + (1u << 20);
inline constexpr uint64_t kRenderFileSize = kOffsetLimit;  // plus a page times the card's number
DeviceFile device_file_of_size(uint64_t size);
DeviceFile device_file(int fd);

}  // namespace kfd
