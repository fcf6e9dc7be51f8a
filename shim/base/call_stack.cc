// Says where calls came from, by libunwind; see call_stack.h.
//
// Frames are named from the objects' exported symbols, and each also as object and offset, which
// addr2line turns into a source line where there is debugging information.
#include "shim/base/call_stack.h"

#include <string.h>
#include <unistd.h>

#include <atomic>

#include "shim/base/elf.h"
#include "shim/base/report.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace fracgpu {
namespace {

// Frames that are shown of a refused call.
constexpr unsigned kMaxFrames = 32;

// Where this library lies.
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

unsigned take_call_stack(uint64_t* frames, unsigned most) {
  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  // The hook itself is named elsewhere. It may be walked through more than once, where a runtime
  // calls its own exports.
  constexpr unsigned kOwnFrames = 16;
  unsigned count = 0;
  for (unsigned steps = 0; steps < most + kOwnFrames && count < most && unw_step(&cursor) > 0;
       ++steps) {
    unw_word_t address = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &address);
    if (!is_own(address)) frames[count++] = address;
  }
  return count;
}

void report_frames(const uint64_t* frames, unsigned count) {
  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  char program[128] = "";
  [[maybe_unused]] const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
  for (unsigned i = 0; i < count && frames[i] != 0; ++i) {
    // The call lies before the address that it returns to, which may begin another function.
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
