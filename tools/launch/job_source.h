// Source of the commands of `fracgpu queue`: a file, or standard input as it arrives.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

struct Job {
  int number = 0;
  std::string queue, command;
};

class JobSource {
 public:
  // Commands end with a newline or with NUL. Each names one of the queues, unless there is only
  // one. Throws std::runtime_error if the file cannot be read. "-" is standard input.
  JobSource(const std::string& file, bool null_separated, std::vector<std::string> queues);

  // The descriptor to poll.
  int fd() const { return input_.get(); }
  void close() { input_ = Descriptor(); }

  // Returns the commands that are readable now, and reports those that it does not understand.
  std::vector<Job> read();
  bool ended() const { return ended_; }

  int jobs() const { return jobs_; }        // read so far
  int refused() const { return refused_; }  // not understood
  bool failed() const { return failed_; }   // not read to the end

 private:
  void refuse(const std::string& why);
  void take_line(std::string_view line, std::vector<Job>& jobs);

  std::string file_;
  char separator_;
  std::vector<std::string> queues_;
  Descriptor input_;
  std::string unread_{};
  bool skipping_ = false;  // the rest of a command that is too long
  size_t skipped_ = 0;
  bool ended_ = false, failed_ = false;
  int lines_ = 0, jobs_ = 0, refused_ = 0;
};

}  // namespace fracgpu::tools
