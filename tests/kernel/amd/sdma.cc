// The copy engine's packets that ROCr writes, by the kernel's vega10_sdma_pkt_open.h.
#include <algorithm>
#include <cstdio>

#include "queues.h"
#include "user_memory.h"

namespace kfd {
namespace {

enum Operation : uint32_t {
  kNop = 0,
  kCopy = 1,
  kFence = 5,
  kTrap = 6,
  kPollRegisterOrMemory = 8,
  kAtomic = 10,
  kConstantFill = 11,
  kTimestamp = 13,
  kCacheRequest = 17
};
constexpr uint32_t kCopyLinear = 0, kCopySubWindow = 4;
constexpr uint32_t kAtomicAdd64 = 47;
enum Function : uint32_t { kLess = 1, kLessEqual, kEqual, kNotEqual, kGreaterEqual, kGreater };

class Packet {
 public:
  Packet(const Queue& queue, uint64_t at) : queue_(queue), at_(at) {}

  uint32_t word(uint32_t number) const {
    return *reinterpret_cast<const uint32_t*>(queue_.ring + (at_ + number * 4) % queue_.ring_bytes);
  }
  uint64_t address(uint32_t number) const {
    return word(number) | static_cast<uint64_t>(word(number + 1)) << 32;
  }

 private:
  const Queue& queue_;
  uint64_t at_;
};

// Ignores bad addresses. A real device would raise a memory fault.
void copy(uint64_t to, uint64_t from, uint64_t bytes) {
  if (from != 0 && to != 0) copy_to_user(to, reinterpret_cast<const void*>(from), bytes);
}

void fill(uint64_t to, uint32_t value, uint64_t bytes) {
  static uint32_t pattern[16384];
  std::fill(std::begin(pattern), std::end(pattern), value);
  for (uint64_t done = 0; done < bytes; done += sizeof pattern) {
    copy_to_user(to + done, pattern, std::min<uint64_t>(sizeof pattern, bytes - done));
  }
}

// Copies a box between two surfaces. Sizes are in elements of 2^n bytes, minus one.
void copy_sub_window(const Packet& packet) {
  const uint32_t element = packet.word(0) >> 29;
  struct Plane {
    uint64_t start, pitch, slice;
  };
  const auto plane = [&](uint32_t first) {
    const uint64_t pitch = (packet.word(first + 3) >> 13) + 1;
    const uint64_t slice = (packet.word(first + 4) & 0x0fffffff) + 1;
    const uint64_t x = packet.word(first + 2) & 0x3fff, y = packet.word(first + 2) >> 16 & 0x3fff;
    const uint64_t z = packet.word(first + 3) & 0x7ff;
    return Plane{packet.address(first) + ((x + y * pitch + z * slice) << element), pitch, slice};
  };
  const Plane from = plane(1), to = plane(6);
  const uint64_t width = (packet.word(11) & 0x3fff) + 1,
                 height = (packet.word(11) >> 16 & 0x3fff) + 1;
  const uint64_t depth = (packet.word(12) & 0x7ff) + 1;
  for (uint64_t z = 0; z < depth; ++z) {
    for (uint64_t y = 0; y < height; ++y) {
      copy(to.start + ((y * to.pitch + z * to.slice) << element),
           from.start + ((y * from.pitch + z * from.slice) << element), width << element);
    }
  }
}

bool compare(Function function, uint32_t now, uint32_t wanted) {
  switch (function) {
    case kLess:
      return now < wanted;
    case kLessEqual:
      return now <= wanted;
    case kEqual:
      return now == wanted;
    case kNotEqual:
      return now != wanted;
    case kGreaterEqual:
      return now >= wanted;
    case kGreater:
      return now > wanted;
    default:
      return true;
  }
}

Step broken(Why& why, const char* what, uint64_t value) {
  std::snprintf(why.text, sizeof why.text, "%s %#lx", what, value);
  return Step::kBroken;
}

}  // namespace

Step step_sdma(Queue& queue, Events& events, Why& why) {
  const auto read_pointer = shared_with_program<uint64_t>(queue.read_pointer);
  const uint64_t read = read_pointer.load();
  if (read == shared_with_program<uint64_t>(queue.write_pointer).load()) return Step::kEmpty;
  if (!is_readable(queue.ring, queue.ring_bytes)) return broken(why, "no ring at", queue.ring);
  const Packet packet(queue, read);
  const uint32_t header = packet.word(0), sub = header >> 8 & 0xff;
  queue.traced = header;
  const uint64_t target = packet.address(1);
  uint32_t words = 0;
  switch (header & 0xff) {
    case kNop:
      words = 1 + (header >> 16 & 0x3fff);
      break;
    case kCopy:
      if (sub == kCopyLinear) {
        words = 7;
        copy(packet.address(5), packet.address(3), (packet.word(1) & 0x3fffffff) + 1);
      } else if (sub == kCopySubWindow) {
        words = 13;
        copy_sub_window(packet);
      } else {
        return broken(why, "a copy of kind", sub);
      }
      break;
    case kFence: {
      words = 4;
      const uint32_t value = packet.word(3);
      copy_to_user(target, &value, sizeof value);
      break;
    }
    case kTrap:
      words = 2;
      events.set(packet.word(1) & 0x0fffffff);
      break;
    case kPollRegisterOrMemory: {
      words = 6;
      const bool memory = header >> 31 != 0;
      if (!memory) break;
      if (!is_readable(target, 4)) return broken(why, "no memory to poll at", target);
      const uint32_t now = shared_with_program<uint32_t>(target).load() & packet.word(4);
      if (!compare(static_cast<Function>(header >> 28 & 7), now, packet.word(3))) {
        std::snprintf(why.text, sizeof why.text, "memory %#lx, which is %u, to be %u", target, now,
                      packet.word(3));
        return Step::kBlocked;
      }
      break;
    }
    case kAtomic:
      words = 8;
      if (header >> 25 != kAtomicAdd64) return broken(why, "an atomic operation", header >> 25);
      if (!is_readable(target, 8)) return broken(why, "no memory to add to at", target);
      shared_with_program<uint64_t>(target).fetch_add(packet.address(3));
      break;
    case kConstantFill:
      words = 5;
      fill(target, packet.word(3), (packet.word(4) & 0x3fffffff) + 4);
      break;
    case kTimestamp: {
      words = 3;
      const uint64_t now = gpu_clock();
      copy_to_user(target, &now, sizeof now);
      break;
    }
    case kCacheRequest:
      words = 5;
      break;
    default:
      return broken(why, "an unknown packet of the copy engine,", header);
  }
  read_pointer.store(read + words * 4);
  return Step::kDone;
}

}  // namespace kfd
