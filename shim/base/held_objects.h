// Visits loaded objects outside the dynamic linker's lock, under which imports are not replaced.
#pragma once

#include <dlfcn.h>

#include <array>

#include "shim/base/elf.h"
#include "shim/base/real_dlfcn.h"

namespace fracgpu::elf {

// Calls visit(object) for each loaded object for which wanted(object) is true, 32 at most. The
// objects stay loaded meanwhile.
template <typename Wanted, typename Visit>
void visit_held_objects(Wanted wanted, Visit visit) {
  const auto open = real_dl_function<decltype(&::dlopen)>("dlopen");
  const auto close = real_dl_function<decltype(&::dlclose)>("dlclose");
  if (open == nullptr || close == nullptr) return;
  std::array<Loaded, 32> found;
  size_t count = 0;
  find_object([&](const Loaded& object) {
    if (wanted(object) && count < found.size()) found[count++] = object;
    return false;
  });
  for (size_t i = 0; i < count; ++i) {
    void* const handle = open(found[i].path, RTLD_LAZY | RTLD_NOLOAD);
    if (handle == nullptr) continue;  // unloaded meanwhile
    visit(found[i]);
    close(handle);
  }
}

}  // namespace fracgpu::elf
