#include "diagnostics.h"

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

namespace rmsim {
namespace {

int trace_file = -1;
std::string& unknown_path = *new std::string;

struct Name {
  uint32_t number;
  const char* name;
};
const Name kControlNames[] = {
#include "control_names.inc"  // build.sh lists them from the headers
};

void append(const char* path, const char* text, size_t length) {
  const int fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (fd < 0) return;
  if (syscall(SYS_write, fd, text, length) < 0) {
  }
  syscall(SYS_close, fd);
}

}  // namespace

void open_trace(const char* path) {
  const int fd = static_cast<int>(
      syscall(SYS_openat, AT_FDCWD, path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666));
  if (fd < 0) return;
  trace_file = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, 900));
  syscall(SYS_close, fd);
}

bool tracing() {
  return trace_file >= 0;
}

void trace(const char* format, ...) {
  if (!tracing()) return;
  char line[1024];
  int length = snprintf(line, sizeof line, "%d ", getpid());
  va_list arguments;
  va_start(arguments, format);
  length +=
      vsnprintf(line + length, sizeof line - static_cast<size_t>(length) - 1, format, arguments);
  va_end(arguments);
  if (length > static_cast<int>(sizeof line) - 2) length = static_cast<int>(sizeof line) - 2;
  line[length++] = '\n';
  if (syscall(SYS_write, trace_file, line, static_cast<size_t>(length)) < 0) {
  }
}

void keep_unknown_in(const std::string& folder) {
  unknown_path = folder + "/unknown";
}

void report_unknown(const char* what, uint64_t number, const char* name, size_t size) {
  static std::mutex mutex;
  static auto& said = *new std::set<std::pair<std::string, uint64_t>>;
  const std::lock_guard<std::mutex> guard(mutex);
  if (!said.emplace(what, number).second) return;
  char line[300];
  int length = snprintf(line, sizeof line, "rmsim: unknown %s 0x%llx (%s)", what,
                        static_cast<unsigned long long>(number), name);
  const auto rest = [&] { return sizeof line - static_cast<size_t>(length); };
  if (size != 0) length += snprintf(line + length, rest(), ", %zu bytes", size);
  length += snprintf(line + length, rest(), "\n");
  if (syscall(SYS_write, 2, line, static_cast<size_t>(length)) < 0) {
  }
  append(unknown_path.c_str(), line, static_cast<size_t>(length));
  trace("%.*s", length - 1, line);
}

const char* control_name(uint32_t command) {
  for (const Name& entry : kControlNames) {
    if (entry.number == command) return entry.name;
  }
  return "no public name";
}

}  // namespace rmsim
