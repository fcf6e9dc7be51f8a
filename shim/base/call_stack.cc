// Finds where calls came from, by libunwind; see call_stack.h.
//
// Frames are named from the objects' exported symbols. Each is also shown as object and offset,
// which addr2line turns into a source line if there is debugging information.
#include "shim/base/call_stack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/uio.h>
#include <unistd.h>

#include <atomic>

#include "shim/base/elf.h"
#include "shim/base/frame_rules.h"
#include "shim/base/report.h"
#include "shim/base/small_file.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace fracgpu {
namespace {

// The number of frames that are shown for a refused call.
constexpr unsigned kMaxFrames = 32;

// The addresses of this library.
struct Range {
  std::atomic<uint64_t> begin{0}, end{0};
};
constinit Range own;

bool is_own(uint64_t address) {
  uint64_t end = own.end.load(std::memory_order_acquire);
  if (end == 0) {
    const elf::Loaded object = elf::find_object([](const elf::Loaded& each) {
      return each.contains(reinterpret_cast<const void*>(&take_call_stack));
    });
    own.begin.store(object.begin, std::memory_order_relaxed);
    own.end.store(end = object.end, std::memory_order_release);
  }
  return address >= own.begin.load(std::memory_order_relaxed) && address < end;
}

}  // namespace

// The most frames of this library that a walk skips. The hook itself is named elsewhere. A walk may
// meet it more than once, if a runtime calls its own exports.
static constexpr unsigned kOwnFrames = 16;

static unsigned walk(uint64_t* frames, unsigned most) {
  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  unsigned count = 0;
  for (unsigned steps = 0; steps < most + kOwnFrames && count < most && unw_step(&cursor) > 0;
       ++steps) {
    unw_word_t address = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &address);
    if (!is_own(address)) frames[count++] = address;
  }
  return count;
}

#ifdef __x86_64__

// Code that a program generates at run time has no frame information. Its instructions are enough
// if it does nothing after a call except return, like CPython's trampolines for perf: those of 3.12
// (`add $8,%rsp; ret`) and those of later versions (`pop %rbp; ret`).
static FrameRule rule_by_return(uint64_t address) {
  unsigned char code[5] = {};
  const iovec to = {code, sizeof code}, from = {reinterpret_cast<void*>(address), sizeof code};
  if (process_vm_readv(getpid(), &to, 1, &from, 1, 0) != sizeof code) return {};
  if (memcmp(code, "\x48\x83\xc4\x08\xc3", 5) == 0)
    return {.form = FrameRule::Form::by_rsp, .cfa_offset = 16};
  if (memcmp(code, "\x5d\xc3", 2) == 0) {
    return {
        .form = FrameRule::Form::by_rsp, .cfa_offset = 16, .saves_rbp = true, .rbp_offset = -16};
  }
  return {};
}

// The rule of the function that contains the return address.
static FrameRule find_rule(uint64_t address, FrameRules& rules) {
  FrameRule rule;
  if (rules.find(address, rule)) return rule;
  unw_context_t context;
  unw_cursor_t cursor;
  unw_proc_info_t function = {};
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  // The call is before the address that it returns to, which may begin another function.
  unw_set_reg(&cursor, UNW_REG_IP, address - 1);
  const bool known = unw_get_proc_info(&cursor, &function) == 0 && function.unwind_info != 0;
  rule = known ? read_frame_rule(reinterpret_cast<const unsigned char*>(function.unwind_info),
                                 function.start_ip, address - 1)
               : rule_by_return(address);
  rules.enter(address, rule);
  return rule;
}

static bool is_readable(uint64_t address) {
  char byte = 0;
  const iovec to = {&byte, 1}, from = {reinterpret_cast<void*>(address), 1};
  return process_vm_readv(getpid(), &to, 1, &from, 1, 0) == 1;
}

// Wrong rules must not lead out of the calling thread's stack. Some assembly code has wrong rules,
// and a cached rule may belong to an object that was unloaded and replaced. The first thread's
// stack ends where the kernel began it. Other stacks have no known end, only a usual largest size,
// so the kernel is asked page by page, once for each thread.
class StackBounds {
 public:
  explicit StackBounds(uint64_t rsp) : rsp_(rsp) {
    const uint64_t first = first_thread();
    if (first > rsp && first - rsp <= kLargestStack) {
      end_ = readable_ = first;
    } else {
      end_ = rsp + kLargestStack;
      readable_ = rsp >= asked_.begin && rsp < asked_.end ? asked_.end : (rsp | (kPage - 1)) + 1;
    }
  }

  // Whether the frame is between the two addresses, and so is the word that was saved at `saved`.
  bool allow(uint64_t rsp, uint64_t cfa, uint64_t saved) {
    if (cfa <= rsp || cfa > end_ || cfa % 8 != 0 || saved < rsp || saved > cfa - 8) return false;
    for (; cfa > readable_; asked_ = {rsp_, readable_}) {
      if (!is_readable(readable_)) return false;
      readable_ += kPage;
    }
    return true;
  }

 private:
  static constexpr uint64_t kLargestStack = 64u << 20, kPage = 4096;

  struct Range {
    uint64_t begin, end;
  };
  [[gnu::tls_model("initial-exec")]] static inline constinit thread_local Range asked_{};

  // The end of the first thread's stack; 1: not known.
  static uint64_t first_thread();

  uint64_t rsp_, end_;
  uint64_t readable_;  // known to be readable up to here
};

uint64_t StackBounds::first_thread() {
  static constinit std::atomic<uint64_t> known{0};
  uint64_t first = known.load(std::memory_order_relaxed);
  if (first == 0) {
    char text[1024];
    first = 1;
    if (read_small_file("/proc/self/stat", text, sizeof text) > 0) {
      const char* at = strrchr(text, ')');
      // startstack is field 28; field 3 is behind the name.
      for (int field = 2; at != nullptr && field < 28; ++field) at = strchr(at + 1, ' ');
      if (at != nullptr) first = strtoull(at + 1, nullptr, 10);
    }
    known.store(first, std::memory_order_relaxed);
  }
  return first;
}

// Walks by rules. -1 if one of them is too complex.
[[gnu::noinline]] static int walk_by_rules(uint64_t* frames, unsigned most, FrameRules& rules) {
  const auto* const own_frame = static_cast<const uint64_t*>(__builtin_frame_address(0));
  uint64_t rbp = own_frame[0], address = own_frame[1];
  auto rsp = reinterpret_cast<uint64_t>(own_frame + 2);
  StackBounds bounds(rsp);
  unsigned count = 0;
  for (unsigned steps = 0; steps < most + kOwnFrames && count < most && address != 0; ++steps) {
    if (!is_own(address)) frames[count++] = address;
    const FrameRule rule = find_rule(address, rules);
    if (rule.form == FrameRule::Form::complex) return -1;
    if (rule.form == FrameRule::Form::none) break;
    const uint64_t base = rule.form == FrameRule::Form::by_rsp ? rsp : rbp;
    const uint64_t cfa = base + static_cast<uint64_t>(int64_t{rule.cfa_offset});
    const uint64_t saved =
        rule.saves_rbp ? cfa + static_cast<uint64_t>(int64_t{rule.rbp_offset}) : cfa - 8;
    if (!bounds.allow(rsp, cfa, saved)) break;
    const auto* const words = reinterpret_cast<const uint64_t*>(cfa);
    if (rule.saves_rbp) rbp = *reinterpret_cast<const uint64_t*>(saved);
    address = words[-1];
    rsp = cfa;
  }
  return static_cast<int>(count);
}

unsigned take_call_stack(uint64_t* frames, unsigned most, FrameRules* rules) {
  const int count = rules != nullptr ? walk_by_rules(frames, most, *rules) : -1;
  return count >= 0 ? static_cast<unsigned>(count) : walk(frames, most);
}

#else

unsigned take_call_stack(uint64_t* frames, unsigned most, FrameRules*) {
  return walk(frames, most);
}

#endif

void report_frames(const uint64_t* frames, unsigned count) {
  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  char program[128] = "";
  [[maybe_unused]] const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
  for (unsigned i = 0; i < count && frames[i] != 0; ++i) {
    // The call is before the address that it returns to, which may begin another function.
    unw_word_t offset = 0;
    char name[160] = "";
    unw_set_reg(&cursor, UNW_REG_IP, frames[i] - 1);
    if (unw_get_proc_name(&cursor, name, sizeof name, &offset) != 0 || name[0] == '\0') {
      strcpy(name, "?");
    }
    const elf::Place place = elf::place_of(reinterpret_cast<const void*>(frames[i]));
    report(Level::info, "  #{} {:.120}+{:#x} ({}+{:#x})", i, name,
           static_cast<uint64_t>(offset) + 1, place.object.empty() ? program : place.object,
           place.offset);
  }
}

void report_call_stack() {
  if (!logs(Level::info)) return;
  uint64_t frames[kMaxFrames] = {};
  report_frames(frames, take_call_stack(frames, kMaxFrames));
}

}  // namespace fracgpu
