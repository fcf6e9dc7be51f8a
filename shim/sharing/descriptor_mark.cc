// The mark as a lock; see descriptor_mark.h.
#include "shim/sharing/descriptor_mark.h"

#include <fcntl.h>
#include <stdlib.h>
#include <string.h>

#include <algorithm>

#include "fracgpu/ledger_layout.h"
#include "shim/base/byte_lock.h"
#include "shim/base/small_file.h"
#include "shim/base/text.h"

namespace fracgpu {
namespace {

// The locked range: the marks of tenant and exporter are its start. Its length is the units, or a
// number with a bit above them.
constexpr int kTenantShift = 32;
constexpr uint32_t kIsNumber = uint32_t{1} << 30, kIsObjects = uint32_t{1} << 31;
constexpr int64_t kFirst = int64_t{1} << 62;

// The number that ends at `end`. Moves `end` to the text before it.
uint64_t last_number(const char* begin, const char*& end) {
  const char* at = end;
  while (at > begin && at[-1] >= '0' && at[-1] <= '9') --at;
  end = std::max(begin, at - 1);
  return strtoull(at, nullptr, 10);
}

}  // namespace

uint64_t hash_of_object(const DescriptorMark& mark, uint32_t place) {
  const uint32_t words[] = {mark.exporter, mark.objects, place};
  return layout::hash_of_handle(words, sizeof words);
}

void mark_descriptor(int fd, const DescriptorMark& mark) {
  struct flock lock =
      byte_lock(F_RDLCK, kFirst | int64_t{mark.tenant} << kTenantShift | mark.exporter);
  lock.l_len = mark.objects != 0  ? kIsObjects | mark.objects
               : mark.number != 0 ? kIsNumber | mark.number
                                  : std::clamp<uint32_t>(mark.units, 1, kIsNumber - 1);
  fcntl(fd, F_OFD_SETLK, &lock);
}

bool mark_in(const char* text, DescriptorMark& mark) {
  // "lock:	1: OFDLCK ADVISORY  READ -1 00:06:3 FIRST LAST"
  for (const char* at = text; (at = strstr(at, "OFDLCK")) != nullptr;) {
    const char* end = strchrnul(at, '\n');
    const uint64_t last = last_number(at, end);
    const uint64_t first = last_number(at, end);
    at += strlen("OFDLCK");
    if (first < kFirst || last < first || last - first >= UINT32_MAX) continue;
    mark.tenant = static_cast<uint32_t>((first ^ kFirst) >> kTenantShift);
    mark.exporter = static_cast<uint32_t>(first);
    const auto length = static_cast<uint32_t>(last - first + 1);
    const uint32_t kind = length & (kIsNumber | kIsObjects), value = length & (kIsNumber - 1);
    mark.objects = kind == kIsObjects ? value : 0;
    mark.number = kind == kIsNumber ? value : 0;
    mark.units = kind == 0 ? value : 0;
    return true;
  }
  return false;
}

bool read_mark(int fd, DescriptorMark& mark) {
  Text<32> path;
  path.format("/proc/self/fdinfo/{}", fd);
  char text[4096];
  return read_small_file(path.c_str(), text, sizeof text) >= 0 && mark_in(text, mark);
}

}  // namespace fracgpu
