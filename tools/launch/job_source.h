// Where `fracgpu queue` has its commands from: a file, or standard input as it comes.
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
  // Commands end with lines or with NUL, and name one of the queues, unless there is one only.
  // Throws std::runtime_error when the file cannot be read; "-" is standard input.
  JobSource(const std::string& file, bool null_separated, std::vector<std::string> queues);

  // To be polled.
  int fd() const { return input_.get(); }
  void close() { input_ = Descriptor(); }

  // What is readable now. Of what is not understood it complains.
  std::vector<Job> read();
  bool ended() const { return ended_; }

  int jobs() const { return jobs_; }        // so far
  int refused() const { return refused_; }  // not understood
  bool failed() const { return failed_; }   // not read to its end

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
