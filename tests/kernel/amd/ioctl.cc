// Dispatches ioctls; see ioctl.h.
#include "ioctl.h"

#include <sys/ioctl.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string_view>
#include <vector>

#include "user_memory.h"

namespace kfd {

void report_unknown(Accounting& accounting, const char* what, unsigned number, size_t bytes) {
  std::atomic_ref<uint32_t>(accounting.unknown_ioctls).fetch_add(1);
  std::fprintf(stderr, "simulated KFD: %s (0x%02x, %zu bytes) is not simulated\n", what, number,
               bytes);
}

bool refuses(const char* what) {
  static const char* const listed = std::getenv("SIMULATED_KFD_REFUSES");
  for (std::string_view rest = listed != nullptr ? listed : ""; !rest.empty();) {
    const std::string_view word = rest.substr(0, rest.find(' '));
    if (word == what) return true;
    rest.remove_prefix(std::min(rest.size(), word.size() + 1));
  }
  return false;
}

long call_ioctl(std::span<const Ioctl> table, const char* device, Caller& caller,
                unsigned long request, void* arguments) {
  const unsigned number = _IOC_NR(request);
  const size_t given = _IOC_SIZE(request);
  const auto found = std::ranges::find(table, number, &Ioctl::number);
  if (found == table.end() || found->call == nullptr) {
    report_unknown(caller.accounting, found == table.end() ? device : found->name, number, given);
    return -ENOTTY;
  }
  const auto address = reinterpret_cast<uint64_t>(arguments);
  alignas(16) char small[512];
  std::vector<char> large;
  const size_t bytes = std::max(found->bytes, given);
  char* copy = small;
  if (bytes > sizeof small) {
    large.resize(bytes);
    copy = large.data();
  }
  std::memset(copy, 0, bytes);
  if ((_IOC_DIR(request) & _IOC_WRITE) != 0 && !copy_from_user(copy, address, given))
    return -EFAULT;
  long result = 0;
  {
    std::unique_lock lock(caller.process.mutex, std::defer_lock);
    if (!found->waits) lock.lock();
    result = refuses(found->name) ? -ENOMEM : found->call(caller, copy, given);
  }
  if (traces()) std::fprintf(stderr, "simulated KFD: %s: %ld\n", found->name, result);
  if ((_IOC_DIR(request) & _IOC_READ) != 0 && !copy_to_user(address, copy, given)) return -EFAULT;
  return result;
}

uint32_t handle_of_caller(const Caller& caller, uint64_t number, bool gem) {
  const auto at = static_cast<uint32_t>(number);
  if (at == 0 || at >= caller.accounting.handles_end || caller.process.number < 0) return 0;
  const Handle& handle = caller.accounting.handle[at];
  return handle.used && handle.file == (gem ? caller.file : 0) &&
                 handle.process == static_cast<uint32_t>(caller.process.number)
             ? at
             : 0;
}

long card_of(const Accounting& accounting, uint32_t gpu_id) {
  for (uint32_t c = 0; c < accounting.cards; ++c) {
    if (accounting.card[c].gpu_id == gpu_id) return c;
  }
  return -EINVAL;
}

}  // namespace kfd
