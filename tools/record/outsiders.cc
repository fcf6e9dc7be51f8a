// See outsiders.h.
#include "tools/record/outsiders.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <memory>
#include <utility>

#include "shim/base/clock.h"
#include "shim/ledger/ledger_file.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/plain_text.h"

namespace fracgpu::tools {
namespace {

std::string name_of(const layout::Slot& slot) {
  const uint32_t host_pid = slot.host_pid.load();
  return fmt::format("{} (PID {})", clean(slot.command, sizeof slot.command),
                     host_pid != 0 ? host_pid : slot.pid);
}

// Reads the head and the slots of a ledger, which may contain anything. Null if it is not a ledger
// of this version.
std::unique_ptr<layout::Ledger> read_slots(int fd) {
  constexpr size_t kSize = offsetof(layout::Ledger, cells);
  auto ledger = std::make_unique<layout::Ledger>();
  const ssize_t size = pread(fd, static_cast<void*>(ledger.get()), kSize, 0);
  const bool is_ledger = size == static_cast<ssize_t>(kSize) &&
                         ledger->header.magic == layout::kMagic &&
                         ledger->header.version == layout::kVersion;
  return is_ledger ? std::move(ledger) : nullptr;
}

}  // namespace

Outsiders::Outsiders(std::string tenant, uid_t recorded_user, Told told)
    : tenant_(std::move(tenant)), user_(recorded_user), told_(std::move(told)) {}

void Outsiders::tell(const layout::Slot& slot, const std::string& why) {
  if (known_.emplace(slot.pid, slot.pid_namespace, slot.start_time).second) {
    told_(name_of(slot), why);
  }
}

void Outsiders::look_in(const layout::Ledger& ledger) {
  layout::for_each_live(ledger, [&](uint32_t number) {
    const layout::Slot& slot = ledger.slots[number];
    if (slot.uid == user_ || slot.foreign_importer != 0 || slot.pid == 0) return;
    tell(slot, fmt::format("it is of user {}, and the recording of user {}", slot.uid, user_));
  });
}

void Outsiders::look_elsewhere() {
  constexpr uint64_t kInterval_ms = 1000;
  constexpr int kAtOnce = 8;
  std::error_code error;
  if (next_ == std::filesystem::directory_iterator{}) {
    const uint64_t now = coarse_now_ms();
    if (now - began_ms_ < kInterval_ms) return;
    began_ms_ = now;
    next_ = std::filesystem::directory_iterator("/proc", error);
    seen_.clear();
  }
  for (int i = 0; i < kAtOnce && next_ != std::filesystem::directory_iterator{}; ++i) {
    const std::string process = next_->path().filename();
    if (process.find_first_not_of("0123456789") == process.npos) look_at_root_of(process);
    next_.increment(error);
  }
}

// The root may be another user's, which only root may read.
void Outsiders::look_at_root_of(const std::string& process) {
  const std::string path = fmt::format("/proc/{}/root{}{}", process, layout::kFilePrefix, tenant_);
  const Descriptor file(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK));
  struct stat status = {}, own = {};
  if (file.get() < 0 || fstat(file.get(), &status) != 0 || !S_ISREG(status.st_mode) ||
      stat("/dev/shm", &own) != 0 || status.st_dev == own.st_dev ||
      !seen_.emplace(status.st_dev, status.st_ino).second) {
    return;
  }
  const std::unique_ptr<layout::Ledger> ledger = read_slots(file.get());
  if (ledger == nullptr) return;
  layout::for_each_live(*ledger, [&](uint32_t number) {
    if (LedgerFile::slot_is_alive(file.get(), number))
      tell(ledger->slots[number], "it has a /dev/shm of its own");
  });
}

}  // namespace fracgpu::tools
