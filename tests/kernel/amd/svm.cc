// Moves ranges by AMDKFD_IOC_SVM, and back when they are unmapped. libhsakmt since 5.3 keeps the
// save areas of queues so. Counted for the process, as by kernels since 6.13.
#include "svm.h"

#include <algorithm>
#include <cerrno>

namespace kfd {
namespace {

using Ranges = std::map<uint64_t, Range>;

// Takes what lies between out of the ranges; says how much that was of each card.
void cut(Ranges& ranges, uint64_t start, uint64_t end, std::array<int64_t, kMaxCards>& taken) {
  auto at = ranges.upper_bound(start);
  if (at != ranges.begin()) --at;
  while (at != ranges.end() && at->first < end) {
    const uint64_t first = at->first;
    const Range range = at->second;
    if (range.end <= start) {
      ++at;
      continue;
    }
    at = ranges.erase(at);
    taken[range.card] += static_cast<int64_t>(std::min(range.end, end) - std::max(first, start));
    if (first < start) ranges[first] = {start, range.card};
    if (range.end > end) at = ranges.insert({end, range}).first;
  }
}

// To a card, or to the host's memory (-1).
void place(ThisProcess& process, uint64_t start, uint64_t bytes, long card) {
  std::array<int64_t, kMaxCards> taken{};
  cut(process.ranges, start, start + bytes, taken);
  Books& books = *process.books;
  const Lock lock(&books);
  const int number = process.place();
  if (number < 0) return;
  for (uint32_t c = 0; c < books.cards; ++c) {
    if (taken[c] != 0) move_range(books, static_cast<uint32_t>(number), c, -taken[c]);
  }
  // Without room on the card it stays where it is.
  if (card >= 0 && move_range(books, static_cast<uint32_t>(number), static_cast<uint32_t>(card),
                              static_cast<int64_t>(bytes))) {
    process.ranges[start] = {start + bytes, static_cast<uint32_t>(card)};
  }
}

void answer(const Caller& caller, uint64_t start, kfd_ioctl_svm_attribute& attribute) {
  switch (attribute.type) {
    case KFD_IOCTL_SVM_ATTR_PREFERRED_LOC:
    case KFD_IOCTL_SVM_ATTR_PREFETCH_LOC: {
      const Ranges& ranges = caller.process.ranges;
      const auto behind = ranges.upper_bound(start);
      const bool on_card = behind != ranges.begin() && std::prev(behind)->second.end > start;
      attribute.value = on_card ? caller.books.card[std::prev(behind)->second.card].gpu_id : 0;
      break;
    }
    case KFD_IOCTL_SVM_ATTR_SET_FLAGS:
      attribute.value = KFD_IOCTL_SVM_FLAG_HOST_ACCESS | KFD_IOCTL_SVM_FLAG_COHERENT;
      break;
    case KFD_IOCTL_SVM_ATTR_GRANULARITY:
      attribute.value = 9;  // the kernel's default, 2 MiB
      break;
    default:
      break;  // access is as it was asked about
  }
}

}  // namespace

long svm(Caller& caller, kfd_ioctl_svm_args& args, size_t bytes) {
  if (bytes < sizeof args || args.nattr > (bytes - sizeof args) / sizeof args.attrs[0] ||
      args.size == 0 || args.start_addr % kPage != 0 || args.size % kPage != 0 ||
      args.start_addr + args.size < args.start_addr || args.start_addr + args.size > 1ull << 56)
    return -EINVAL;
  if (args.op != KFD_IOCTL_SVM_OP_SET_ATTR && args.op != KFD_IOCTL_SVM_OP_GET_ATTR) return -EINVAL;
  for (uint32_t i = 0; i < args.nattr; ++i) {
    kfd_ioctl_svm_attribute& attribute = args.attrs[i];
    if (attribute.type > KFD_IOCTL_SVM_ATTR_GRANULARITY) return -EINVAL;
    if (args.op == KFD_IOCTL_SVM_OP_GET_ATTR) {
      answer(caller, args.start_addr, attribute);
    } else if (attribute.type == KFD_IOCTL_SVM_ATTR_PREFETCH_LOC &&
               attribute.value != KFD_IOCTL_SVM_LOCATION_UNDEFINED) {
      place(caller.process, args.start_addr, args.size, card_of(caller.books, attribute.value));
    }
  }
  return 0;
}

void forget_ranges(ThisProcess& process, uint64_t start, uint64_t bytes) {
  const std::lock_guard guard(process.mutex);
  if (!process.ranges.empty()) place(process, start, round_up(bytes, kPage), -1);
}

}  // namespace kfd
