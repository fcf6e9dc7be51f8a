// Moves ranges to a card by AMDKFD_IOC_SVM, and off it when they are unmapped. libhsakmt allocates
// queues' save areas this way since 5.3. As in Linux since 6.13, the process is charged for its
// ranges.
#include "svm.h"

#include <algorithm>
#include <cerrno>

namespace kfd {
namespace {

using Ranges = std::map<uint64_t, Range>;

// Removes [start, end) from the ranges, and adds up what was removed from each card.
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

// Moves to a card, or to host memory (-1).
void place(ThisProcess& process, uint64_t start, uint64_t bytes, long card) {
  std::array<int64_t, kMaxCards> taken{};
  cut(process.ranges, start, start + bytes, taken);
  Accounting& accounting = *process.accounting;
  const Lock lock(&accounting);
  const int number = process.place();
  if (number < 0) return;
  for (uint32_t c = 0; c < accounting.cards; ++c) {
    if (taken[c] != 0) move_range(accounting, static_cast<uint32_t>(number), c, -taken[c]);
  }
  // If the card has no room, the range stays in host memory.
  if (card >= 0 && move_range(accounting, static_cast<uint32_t>(number),
                              static_cast<uint32_t>(card), static_cast<int64_t>(bytes))) {
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
      attribute.value = on_card ? caller.accounting.card[std::prev(behind)->second.card].gpu_id : 0;
      break;
    }
    case KFD_IOCTL_SVM_ATTR_SET_FLAGS:
      attribute.value = KFD_IOCTL_SVM_FLAG_HOST_ACCESS | KFD_IOCTL_SVM_FLAG_COHERENT;
      break;
    case KFD_IOCTL_SVM_ATTR_GRANULARITY:
      attribute.value = 9;  // the kernel's default, 2 MiB
      break;
    default:
      break;  // access: exactly what was asked about
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
      place(caller.process, args.start_addr, args.size,
            card_of(caller.accounting, attribute.value));
    }
  }
  return 0;
}

void forget_ranges(ThisProcess& process, uint64_t start, uint64_t bytes) {
  const std::lock_guard guard(process.mutex);
  if (!process.ranges.empty()) place(process, start, round_up(bytes, kPage), -1);
}

}  // namespace kfd
