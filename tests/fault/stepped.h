// A child process that runs one operation under the tracer's control, instruction by instruction.
//
// The operation stands between two breakpoint instructions. A first child is stepped from one to
// the other, which gives the trace: the address of every instruction executed. Later children are
// forked from the same prepared parent and so execute the same instructions at the same addresses;
// each is brought to one place of the trace and left there, not running, for the test to judge.
// A system call is one instruction, and so is a repeated string instruction.
#pragma once

#include <sys/types.h>

#include <cstddef>
#include <cstdint>
#include <functional>
#include <unordered_map>
#include <vector>

namespace fracgpu::fault {

struct Trace {
  std::vector<uint64_t> address;  // of each instruction, in the order of execution
  std::vector<bool> is_system_call;
  std::vector<unsigned> visit;  // of its address: 1 where it is executed for the first time

  void add(uint64_t at);
  size_t size() const { return address.size(); }

 private:
  std::unordered_map<uint64_t, unsigned> visits_;
};

class Stepped {
 public:
  // Forks a child that runs `prepare` freely and then stops before `operation`.
  Stepped(const std::function<void()>& prepare, const std::function<void()>& operation);
  ~Stepped();
  Stepped(const Stepped&) = delete;
  Stepped& operator=(const Stepped&) = delete;

  // Whether the child has come to the operation; `forbidden` if not, since tracing is not
  // permitted.
  bool ready() const { return ready_; }
  bool forbidden() const { return forbidden_; }

  // Steps through the whole operation.
  Trace trace();

  // Brings the child to where it has executed `count` instructions of the trace. False when it
  // did not take the same way.
  bool run_to(const Trace& trace, size_t count);

  // Lets the child end its operation and stand still behind it.
  bool complete();

  void kill();

  // Lets the child end its operation and exit; its exit status, or 128 and a signal's number.
  int finish();

 private:
  bool step();
  bool run_until(uint64_t address);
  bool run_to_visit(uint64_t address, unsigned visit);
  bool wait_for_trap();
  uint64_t instruction_pointer() const;
  bool at_end() const;

  pid_t pid_ = -1;
  bool ready_ = false;
  bool forbidden_ = false;
};

}  // namespace fracgpu::fault
