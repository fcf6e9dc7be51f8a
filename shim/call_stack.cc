// Says where a refused call came from, by libunwind; see report.h.
//
// Frames are named from the objects' exported symbols, and each also as object and offset, which
// addr2line turns into a source line where there is debugging information.
#include <string.h>
#include <unistd.h>

#include "shim/elf.h"
#include "shim/report.h"

#define UNW_LOCAL_ONLY
#include <libunwind.h>

namespace fracgpu {

void report_call_stack() {
  if (!logs(Level::info)) return;
  unw_context_t context;
  unw_cursor_t cursor;
  unw_getcontext(&context);
  unw_init_local(&cursor, &context);
  char program[128] = "";
  [[maybe_unused]] const ssize_t size = readlink("/proc/self/exe", program, sizeof program - 1);
  const std::string_view own = elf::place_of(reinterpret_cast<void*>(&report_call_stack)).object;
  for (int frame = 0; frame < 32 && unw_step(&cursor) > 0;) {
    unw_word_t address = 0, offset = 0;
    char name[160] = "";
    unw_get_reg(&cursor, UNW_REG_IP, &address);
    if (unw_get_proc_name(&cursor, name, sizeof name, &offset) != 0 || name[0] == '\0') {
      strcpy(name, "?");
    }
    const elf::Place place = elf::place_of(reinterpret_cast<const void*>(address));
    if (place.object == own) continue;  // the hook itself is named in the line before
    report(Level::info, "  #{} {:.120}+{:#x} ({}+{:#x})", frame++, name,
           static_cast<uint64_t>(offset), place.object.empty() ? program : place.object,
           place.offset);
  }
}

}  // namespace fracgpu
