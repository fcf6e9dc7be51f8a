// See output_file.h.
#include "tools/recording/output_file.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "shim/base/held_signals.h"
#include "shim/base/text.h"
#include "tools/cli/judged_file.h"

namespace fracgpu::recording {
namespace {

template <typename... Args>
[[noreturn]] void fail(fmt::format_string<Args...> pattern, Args&&... args) {
  throw std::runtime_error(fmt::format(pattern, std::forward<Args>(args)...));
}

bool is_empty(int fd) {
  struct stat status = {};
  return fstat(fd, &status) == 0 && status.st_size == 0;
}

tools::Descriptor open_output(const std::string& path, bool force) {
  const auto name = fracgpu::quoted(path);
  tools::Descriptor made(open(path.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
  if (made.get() < 0 && errno != EEXIST) {
    fail("cannot make {}: {}; name another file", name.view(), strerror(errno));
  }
  if (made.get() >= 0) {
    flock(made.get(), LOCK_EX | LOCK_NB);
    return made;
  }
  tools::Descriptor there = tools::open_judged(path, O_RDWR, tools::Links::followed);
  // Two recorders would overwrite each other.
  if (flock(there.get(), LOCK_EX | LOCK_NB) != 0 && errno == EWOULDBLOCK) {
    fail("{} is being written by another fracgpu record; name another file", name.view());
  }
  if (!force && !is_empty(there.get())) {
    fail("{} is there and is not replaced; name another file, or remove it", name.view());
  }
  if (ftruncate(there.get(), 0) != 0) fail("cannot empty {}: {}", name.view(), strerror(errno));
  return there;
}

}  // namespace

OutputFile::OutputFile(const std::string& path, bool force)
    : path_(path), file_(open_output(path, force)) {}

void OutputFile::append(const std::string& bytes) {
  const HeldSignals held;  // otherwise a write above RLIMIT_FSIZE would end the command
  size_t at = 0;
  int error = 0;
  while (at < bytes.size() && error == 0) {
    const ssize_t size =
        pwrite(file_.get(), bytes.data() + at, bytes.size() - at, static_cast<off_t>(size_ + at));
    if (size > 0) {
      at += static_cast<size_t>(size);
    } else if (size == 0 || errno != EINTR) {
      error = size == 0 ? ENOSPC : errno;
    }
  }
  if (error != 0) {
    // Half a chunk would be reported as damage. If it cannot be cut off, it is reported.
    [[maybe_unused]] const int cut = ftruncate(file_.get(), static_cast<off_t>(size_));
    fail("cannot write {}: {}; the recording ends there, and what is in it can be read",
         fracgpu::quoted(path_).view(), strerror(error));
  }
  size_ += bytes.size();
}

}  // namespace fracgpu::recording
