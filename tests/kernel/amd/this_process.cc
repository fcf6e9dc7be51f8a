// Per-process state; see this_process.h.
#include "this_process.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>

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
  for (const auto& [handle, fd] : current.load()->dma_bufs) syscall(SYS_close, fd);
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

int ThisProcess::export_handle(uint32_t handle) {
  const uint32_t buffer = accounting->handle[handle].buffer;
  const auto known = std::ranges::find_if(
      dma_bufs, [&](const auto& each) { return accounting->handle[each.first].buffer == buffer; });
  const int fd = known != dma_bufs.end() ? fcntl(known->second, F_DUPFD_CLOEXEC, 0)
                                         : export_buffer(*accounting, buffer);
  if (fd < 0) return known != dma_bufs.end() ? -errno : fd;
  hold_dma_buf(handle, fd);
  return fd;
}

void ThisProcess::hold_dma_buf(uint32_t handle, int fd) {
  constexpr int kFirst = 700;  // programs expect low numbers to be theirs
  if (!dma_bufs.contains(handle)) dma_bufs[handle] = fcntl(fd, F_DUPFD_CLOEXEC, kFirst);
}

void ThisProcess::release_handle(uint32_t handle) {
  if (const auto held = dma_bufs.find(handle); held != dma_bufs.end()) {
    syscall(SYS_close, held->second);
    dma_bufs.erase(held);
  }
  remove_handle(*accounting, handle);
}

void ThisProcess::release_handles_of_file(uint32_t file) {
  if (number < 0) return;
  for (uint32_t i = 1; i < accounting->handles_end; ++i) {
    const Handle& handle = accounting->handle[i];
    if (handle.used && handle.process == static_cast<uint32_t>(number) && handle.file == file)
      release_handle(i);
  }
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
