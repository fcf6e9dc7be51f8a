// Says where calls came from, by libunwind; see call_stack.h.
//
// Frames are named from the objects' exported symbols, and each also as object and offset, which
// addr2line turns into a source line where there is debugging information.
#include "shim/base/call_stack.h"

#include <string.h>
#include <unistd.h>

#include "shim/base/elf.h"
#include "shim/base/report.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace fracgpu {
namespace {

// Frames that are walked, the library's own too, for the six that are shown.
constexpr unsigned kMaxFrames = 32;

std::string_view object_of(uint64_t address) {
  return elf::place_of(reinterpret_cast<const void*>(address)).object;
}

}  // namespace

unsigned take_call_stack(uint64_t* frames, unsigned most) {
  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  // The hook itself is named in the line before.
  const std::string_view own = object_of(reinterpret_cast<uint64_t>(&take_call_stack));
  unsigned count = 0;
  for (unsigned steps = 0; steps < kMaxFrames && count < most && unw_step(&cursor) > 0; ++steps) {
    unw_word_t address = 0;
    unw_get_reg(&cursor, UNW_REG_IP, &address);
    if (object_of(address) != own) frames[count++] = address;
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
