// Reads and splits commands; see job_source.h.
#include "tools/launch/job_source.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "shim/base/text.h"
#include "tools/cli/output.h"
#include "tools/cli/plain_text.h"
#include "tools/cli/text_list.h"

namespace fracgpu::tools {
namespace {

constexpr size_t kLongest = 128 * 1024 - 1;  // the kernel's limit for a shell (MAX_ARG_STRLEN)
constexpr size_t kMostSkipped = 16 << 20;    // the most to skip of a longer command

}  // namespace

JobSource::JobSource(const std::string& file, bool null_separated, std::vector<std::string> queues)
    : file_(file == "-" ? "standard input" : clean(file.c_str(), file.size())),
      separator_(null_separated ? '\0' : '\n'),
      queues_(std::move(queues)),
      input_(file == "-" ? fcntl(STDIN_FILENO, F_DUPFD_CLOEXEC, 3)
                         : open(file.c_str(), O_RDONLY | O_CLOEXEC)) {
  if (input_.get() < 0) {
    throw std::runtime_error(fmt::format("cannot read {}: {}", file_, strerror(errno)));
  }
  struct stat status = {};
  if (fstat(input_.get(), &status) == 0 && S_ISDIR(status.st_mode)) {
    throw std::runtime_error(fmt::format("{} is a folder, not a list of commands", file_));
  }
}

std::vector<Job> JobSource::read() {
  std::vector<Job> jobs;
  char bytes[65536];
  const ssize_t size = ::read(input_.get(), bytes, sizeof bytes);
  if (size < 0 && (errno == EINTR || errno == EAGAIN)) return jobs;
  if (size < 0) {
    complain(fmt::format("cannot read {}: {}", file_, strerror(errno)));
    failed_ = true;
  }
  if (size > 0) {
    unread_.append(bytes, static_cast<size_t>(size));
  } else {
    ended_ = true;
    if (!unread_.empty() || skipping_) unread_ += separator_;
  }
  size_t start = 0;
  for (size_t end; (end = unread_.find(separator_, start)) != unread_.npos; start = end + 1) {
    if (!std::exchange(skipping_, false)) {
      take_line(std::string_view(unread_).substr(start, end - start), jobs);
    }
  }
  unread_.erase(0, start);
  skipped_ = skipping_ ? skipped_ + unread_.size() : 0;
  if (skipping_) unread_.clear();
  if (skipped_ > kMostSkipped) {
    complain(fmt::format("{} is no list of commands: one does not end", file_));
    ended_ = failed_ = true;
  }
  if (unread_.size() > kLongest) {
    ++lines_;
    refuse(fmt::format("is too long: {} bytes are the most", kLongest));
    unread_.clear();
    skipping_ = true;
  }
  return jobs;
}

void JobSource::refuse(const std::string& why) {
  ++refused_;
  complain(fmt::format("command {} {}", lines_, why));
}

void JobSource::take_line(std::string_view line, std::vector<Job>& jobs) {
  ++lines_;
  line = trim(line);
  if (line.empty() || (line[0] == '#' && separator_ == '\n')) return;
  if (line.find('\0') != line.npos) {
    refuse("has a NUL byte in it, which no command can have; -0 is for commands that end with NUL");
    return;
  }
  if (line.size() > kLongest) {
    refuse(fmt::format("is too long: {} bytes are the most", kLongest));
    return;
  }
  const size_t colon = line.find(':');
  const std::string* queue = queues_.size() == 1 ? &queues_[0] : nullptr;
  for (const std::string& each : queues_) {
    if (colon == line.npos || trim(line.substr(0, colon)) != each) continue;
    queue = &each;
    line = trim(line.substr(colon + 1));
  }
  if (queue == nullptr || line.empty()) {
    refuse(fmt::format("{} {}; write NAME: COMMAND", fracgpu::quoted(line).view(),
                       queue == nullptr ? "names no queue" : "is empty"));
    return;
  }
  jobs.push_back({++jobs_, *queue, std::string(line)});
}

}  // namespace fracgpu::tools
