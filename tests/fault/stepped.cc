// Traces a child with ptrace; see stepped.h. x86-64 only.
#include "tests/fault/stepped.h"

#include <signal.h>
#include <sys/ptrace.h>
#include <sys/user.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstddef>

#include "shim/base/unforked.h"

namespace fracgpu::fault {
namespace {

constexpr int kForbidden = 77;         // exit status of a child that may not be traced
constexpr uint8_t kBreakpoint = 0xcc;  // int3

// The child's code is the parent's own: it was forked, and nothing is loaded since.
const uint8_t* code_at(uint64_t address) {
  return reinterpret_cast<const uint8_t*>(address);
}

bool system_call_at(uint64_t address) {
  return code_at(address)[0] == 0x0f && code_at(address)[1] == 0x05;
}

// Bytes of the repeated string instruction at the address, or 0 if it is another instruction.
int repeated_string_bytes(uint64_t address) {
  const uint8_t* code = code_at(address);
  if (code[0] != 0xf2 && code[0] != 0xf3) return 0;
  int i = 1;
  while ((code[i] & 0xf0) == 0x40 || code[i] == 0x66) ++i;
  const uint8_t op = code[i];
  const bool string = (op >= 0xa4 && op <= 0xa7) || (op >= 0xaa && op <= 0xaf);
  return string ? i + 1 : 0;
}

}  // namespace

void Trace::add(uint64_t at) {
  visit.push_back(++visits_[at]);
  address.push_back(at);
  is_system_call.push_back(system_call_at(at));
}

Stepped::Stepped(const std::function<void()>& prepare, const std::function<void()>& operation) {
  // The operation's frames lie alike on their pages, whoever asks: see World.
  [[maybe_unused]] alignas(4096) volatile char page = 0;
  pid_ = fork();
  if (pid_ == 0) {
    page = 1;
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(kForbidden);
    // Handlers for fork() are registered once, so whether that is among the instructions must not
    // depend on what the parent did.
    { const Unforked registered; }
    prepare();
    asm volatile("int3");
    operation();
    asm volatile("int3");
    _exit(0);
  }
  ready_ = wait_for_trap();
}

Stepped::~Stepped() {
  if (pid_ > 0) kill();
}

bool Stepped::wait_for_trap() {
  int status = 0;
  while (waitpid(pid_, &status, 0) == pid_ && WIFSTOPPED(status)) {
    if (WSTOPSIG(status) == SIGTRAP) return true;
    // The end of the child's own children is no news to it.
    if (WSTOPSIG(status) != SIGCHLD || ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0) {
      return false;
    }
  }
  forbidden_ = WIFEXITED(status) && WEXITSTATUS(status) == kForbidden;
  pid_ = -1;
  return false;
}

uint64_t Stepped::instruction_pointer() const {
  return static_cast<uint64_t>(
      ptrace(PTRACE_PEEKUSER, pid_, offsetof(user_regs_struct, rip), nullptr));
}

bool Stepped::at_end() const {
  return code_at(instruction_pointer())[0] == kBreakpoint;
}

bool Stepped::run_until(uint64_t address) {
  const uint64_t aligned = address & ~uint64_t{7};
  const unsigned shift = static_cast<unsigned>(address & 7) * 8;
  const uint64_t before = static_cast<uint64_t>(ptrace(PTRACE_PEEKTEXT, pid_, aligned, nullptr));
  const uint64_t with_trap =
      (before & ~(uint64_t{0xff} << shift)) | (uint64_t{kBreakpoint} << shift);
  if (ptrace(PTRACE_POKETEXT, pid_, aligned, with_trap) != 0) return false;
  if (ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0 || !wait_for_trap()) return false;
  ptrace(PTRACE_POKETEXT, pid_, aligned, before);
  if (instruction_pointer() != address + 1) return false;
  ptrace(PTRACE_POKEUSER, pid_, offsetof(user_regs_struct, rip), address);
  return true;
}

bool Stepped::step() {
  const uint64_t at = instruction_pointer();
  if (const int bytes = repeated_string_bytes(at); bytes != 0) {
    return run_until(at + static_cast<uint64_t>(bytes));
  }
  return ptrace(PTRACE_SINGLESTEP, pid_, nullptr, nullptr) == 0 && wait_for_trap();
}

Trace Stepped::trace() {
  Trace trace;
  while (!at_end()) {
    trace.add(instruction_pointer());
    if (!step()) return {};
  }
  return trace;
}

bool Stepped::run_to_visit(uint64_t address, unsigned visit) {
  for (; visit > 1; --visit) {
    if (!run_until(address) || !step()) return false;
  }
  return run_until(address);
}

bool Stepped::run_to(const Trace& trace, size_t count) {
  const size_t last = count < trace.size() ? count : trace.size() - 1;
  // A breakpoint stops the child twice at each visit, once to pass it: from some instruction at or
  // before the last one this and single steps from there take the fewest stops.
  size_t from = last, stops = 2 * trace.visit[last];
  for (size_t place = last; place > 0 && last - place < stops; --place) {
    const size_t that_way = 2 * trace.visit[place] + (last - place);
    if (that_way < stops) from = place, stops = that_way;
  }
  if (!run_to_visit(trace.address[from], trace.visit[from])) return false;
  for (size_t done = from; done < count; ++done) {
    if (instruction_pointer() != trace.address[done] || !step()) return false;
  }
  return count < trace.size() ? instruction_pointer() == trace.address[count] : at_end();
}

bool Stepped::complete() {
  return at_end() || (ptrace(PTRACE_CONT, pid_, nullptr, nullptr) == 0 && wait_for_trap());
}

void Stepped::kill() {
  ::kill(pid_, SIGKILL);
  waitpid(pid_, nullptr, 0);
  pid_ = -1;
}

int Stepped::finish() {
  // The trap at the end is passed over by continuing without delivering it.
  int status = 0;
  do {
    if (ptrace(PTRACE_CONT, pid_, nullptr, nullptr) != 0) return -1;
    if (waitpid(pid_, &status, 0) != pid_) return -1;
  } while (WIFSTOPPED(status) && WSTOPSIG(status) == SIGTRAP);
  if (WIFSTOPPED(status)) {
    const int signal = WSTOPSIG(status);
    kill();
    return 128 + signal;
  }
  pid_ = -1;
  return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

}  // namespace fracgpu::fault
