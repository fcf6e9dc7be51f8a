// What all probes of the acceptance run share. A probe is one question or one family of questions
// put to a real driver. It prints what it measured as one line of JSON for each fact:
//
//   {"key":"context.first_bytes","value":434110464}
//   {"key":"sharing.pool_importer_bytes","reason":"cuMemPoolCreate: 801"}
//
// Every return code is looked at. A function that the driver lacks, or one that fails, makes the
// facts that rest on it "not measured", with the reason. No probe judges (see assumptions.inc).
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

namespace hardware {

inline constexpr uint64_t kKiB = 1u << 10, kMiB = 1u << 20;

void fact(const std::string& key, double value);
void fact(const std::string& key, bool value);
inline void fact(const std::string& key, int value) {
  fact(key, static_cast<double>(value));
}
void fact(const std::string& key, const std::string& value);
inline void fact(const std::string& key, const char* value) {
  fact(key, std::string(value));
}
void not_measured(const std::string& key, const std::string& reason);

// Ends a question: what follows cannot be measured, for this reason.
struct Unmeasured : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Asks; those of `keys` for which it gives no fact are not measured, for the reason it ends with.
void question(std::initializer_list<const char*> keys, const std::function<void()>& ask);

double now_ms();
void wait_ms(double ms);
double median(std::vector<double> values);
// The median time of one call in microseconds, of `count`.
double time_us(int count, const std::function<void()>& call);

// A question that needs the driver in a state of its own gets a process of its own: a child of
// fork(), before this process uses a driver, so call it first. It answers with one line of text.
class Child {
 public:
  // `body` runs in the child. It may answer, and wait for the parent to say "go on" or to go.
  explicit Child(const std::function<void(Child&)>& body);
  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  int pid() const { return pid_; }
  // In the child: a line for the parent; wait() returns false when the parent has gone.
  void answer(const std::string& line);
  bool wait();
  // In the parent. Throws Unmeasured when the child ended, or answered "reason: …", or said nothing
  // for a minute.
  std::string ask();
  void tell(const std::string& line = "");
  // A descriptor goes along, for the parent to take after the line that follows it.
  void give(int fd);
  int take();
  void kill();

 private:
  std::string read_line(int timeout_ms, bool* ended);

  int pid_ = -1;
  int from_ = -1, to_ = -1, gifts_ = -1;
  std::string buffer_;
};

// The arguments behind the probe's name, as --NAME VALUE.
class Options {
 public:
  Options(int argc, char** argv);
  bool has(const std::string& name) const;
  std::string text(const std::string& name, const std::string& otherwise = "") const;
  uint64_t number(const std::string& name, uint64_t otherwise = 0) const;
  const std::vector<std::string>& command() const { return command_; }  // what follows "--"

 private:
  std::vector<std::pair<std::string, std::string>> options_;
  std::vector<std::string> command_;
};

}  // namespace hardware
