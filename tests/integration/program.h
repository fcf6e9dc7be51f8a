// A program under test: started with its own environment, read line by line, and waited for.
#pragma once

#include <sys/types.h>

#include <map>
#include <string>
#include <vector>

namespace fracgpu::test {

using Environment = std::map<std::string, std::string>;

struct Outcome {
  int status = -1;  // exit code, or 128 + signal
  std::string out;  // what was on stdout and not read by read_line
  std::string err;
};

class Program {
 public:
  // Starts args[0] (searched in PATH) with exactly this environment.
  Program(const std::vector<std::string>& args, const Environment& environment);
  ~Program();  // kills what is left
  Program(const Program&) = delete;
  Program& operator=(const Program&) = delete;

  pid_t pid() const { return pid_; }

  // The next line of stdout without its newline; empty at its end.
  std::string read_line();

  // Reads lines up to and including the one that says "ready"; returns those before it.
  std::vector<std::string> read_until_ready();

  // Answers a client that waits.
  void go_on();
  void go_on_with(const std::string& line);

  void kill(int signal);

  // Stops it wherever it is, all threads of it. False when it has ended.
  bool stop();

  // Returns once a process that is started has another start time than this one, which must live:
  // the kernel tells them in hundredths of a second.
  void outlast_start_time() const;

  // Closes stdin, reads the rest and waits for the end.
  Outcome finish();

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1, err_ = -1;
  std::string buffered_;
};

// Runs to the end.
Outcome run(const std::vector<std::string>& args, const Environment& environment);

// The number after `key` ("rc=", "free=") in a line of the client's output; -1 where there is none.
long long field(const std::string& line, const std::string& key);

// The `nth` line of `text` that begins with `word`; empty where there is none.
std::string line_of(const std::string& text, const std::string& word, int nth = 0);

}  // namespace fracgpu::test
