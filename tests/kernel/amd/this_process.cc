// Per-process state; see this_process.h.
#include "this_process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>

namespace kfd {
namespace {

// Never destroyed, since runtimes unmap memory in exit handlers.
std::atomic<ThisProcess*> current{nullptr};

void before_fork() {
  current.load()->mutex.lock();
}
void after_fork_in_parent() {
  current.load()->mutex.unlock();
}
void after_fork_in_child() {
  current.store(new ThisProcess(current.load()->accounting));
}

}  // namespace

ThisProcess* ThisProcess::get() {
  if (ThisProcess* const found = current.load(std::memory_order_acquire); found != nullptr) {
    return found;
  }
  static std::mutex mutex;
  const std::lock_guard guard(mutex);
  if (current.load() == nullptr) {
    Accounting* const accounting = open_accounting();
    if (accounting == nullptr) return nullptr;
    current.store(new ThisProcess(accounting));
    pthread_atfork(before_fork, after_fork_in_parent, after_fork_in_child);
  }
  return current.load();
}

int ThisProcess::place() {
  if (number >= 0) return number;
  // From before an exec, or from a dead process with the same PID.
  if (const int old = find_process(*accounting, getpid()); old >= 0) {
    remove_process(*accounting, static_cast<uint32_t>(old));
  }
  number = add_process(*accounting, getpid());
  if (number >= 0) {
    Process* const mine = &accounting->process[number];
    events.report_to(&mine->waits_for_event);
    queues.report_to(mine->blocked_queue, sizeof mine->blocked_queue);
  }
  return number;
}

void ThisProcess::open_kfd() {
  const std::lock_guard guard(mutex);
  if (is_listed) return;
  const Lock lock(accounting);
  if (place() >= 0) list_process(*accounting, static_cast<uint32_t>(number));
  is_listed = true;
}

DeviceFile device_file_of_size(uint64_t size) {
  if (size == kKfdFileSize) return {DeviceFile::kKfd, 0};
  if (size >= kRenderFileSize && size < kRenderFileSize + kMaxCards * kPage) {
    return {DeviceFile::kRender, static_cast<uint32_t>((size - kRenderFileSize) / kPage)};
  }
  return {};
}

DeviceFile device_file(int fd) {
  struct stat about {};
  if (syscall(SYS_newfstatat, fd, "", &about, AT_EMPTY_PATH) != 0 || !S_ISREG(about.st_mode)) {
    return {};
  }
  return device_file_of_size(static_cast<uint64_t>(about.st_size));
}

}  // namespace kfd
