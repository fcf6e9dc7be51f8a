// Writes log lines; see report.h.
//
// The level and the file are read from the environment once, when they are first needed. The file
// is opened for each line and closed again: a descriptor that stayed open would leak into the host
// process, and lines are rare by design.
#include "shim/base/report.h"

#include <fcntl.h>
#include <stdint.h>
#include <string.h>
#include <unistd.h>

#include <atomic>

#include "shim/base/clock.h"
#include "shim/base/descriptor.h"
#include "shim/base/environment.h"
#include "shim/base/held_signals.h"
#include "shim/base/stderr.h"

namespace fracgpu {
namespace {

constexpr const char* kLevels[] = {"off", "error", "warn", "info", "debug"};

constexpr int kUnknown = -1;
std::atomic<int> current_level{kUnknown};
constinit EnvironmentCopy log_file("FRACGPU_LOG_FILE");

int read_level() {
  const char* text = trusted_environment("FRACGPU_LOG");
  if (text == nullptr || *text == '\0') return static_cast<int>(Level::warn);
  for (int i = 0; i < 5; ++i) {
    if (strcmp(text, kLevels[i]) == 0) return i;
  }
  current_level.store(static_cast<int>(Level::warn), std::memory_order_relaxed);
  report(Level::warn, "FRACGPU_LOG {} is not a level; accepted: off, error, warn, info, debug",
         quoted(text).view());
  return static_cast<int>(Level::warn);
}

// False if the line is for stderr. Makes one attempt: a full pipe or disk must neither block nor
// fail the host process.
bool write_to_file(const char* path, const char* bytes, size_t size) {
  if (path == nullptr || *path == '\0') return false;
  constexpr int kFlags = O_WRONLY | O_APPEND | O_CREAT | O_NOCTTY | O_NONBLOCK;
  const int fd = open_own(path, kFlags, 0644);
  if (fd < 0) return false;
  const HeldSignals held;
  [[maybe_unused]] const ssize_t written = write_own(fd, bytes, size);
  close_own(fd);
  return true;
}

}  // namespace

bool logs(Level level) {
  int now = current_level.load(std::memory_order_relaxed);
  if (now == kUnknown) {
    now = read_level();
    current_level.store(now, std::memory_order_relaxed);
  }
  return static_cast<int>(level) <= now;
}

void write_line(Level level, std::string_view message) {
  Text<560> line;
  line.format("fracgpu[{}]: {}: {}", getpid(), kLevels[static_cast<int>(level)], message);
  line.make_printable();  // it contains names of processes, files and devices
  line.append("\n");
  if (!write_to_file(log_file.get(), line.c_str(), line.size()))
    write_to_stderr(line.c_str(), line.size());
}

bool RateLimit::pass(unsigned& held_back) {
  // As many refusals as a person reads one by one.
  constexpr unsigned kBurst = 5;
  const uint64_t second = coarse_now_ms() / 1000;
  uint64_t next = next_allowed_s_.load(std::memory_order_relaxed);
  const bool in_burst = burst_.load(std::memory_order_relaxed) < kBurst &&
                        burst_.fetch_add(1, std::memory_order_relaxed) < kBurst;
  if (!in_burst && (second < next || !next_allowed_s_.compare_exchange_strong(
                                         next, second + 1, std::memory_order_relaxed))) {
    held_back_.fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  held_back = held_back_.exchange(0, std::memory_order_relaxed);
  return true;
}

}  // namespace fracgpu
