// Finds the C library's own functions by walking its symbol table; see real_dlfcn.h.
#include "shim/base/real_dlfcn.h"

#include <link.h>

#include "shim/base/elf.h"

namespace fracgpu {

void* find_real_dl_function(const char* name) {
  // Before glibc 2.34 they are in libdl.so.2; since then, that is an empty shell.
  void* found = elf::find_symbol("libc.so.6", name);
  if (found == nullptr) found = elf::find_symbol("libdl.so.2", name);
  if (found != nullptr) return found;
  // Musl's library, which may have any name or none. It has no dlvsym.
  const elf::Loaded libc = elf::find_object([](const elf::Loaded& object) {
    return object.contains(reinterpret_cast<const void*>(&dl_iterate_phdr));
  });
  return libc.dynamic != nullptr ? elf::find_symbol(libc, name) : nullptr;
}

}  // namespace fracgpu
