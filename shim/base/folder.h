// Lists a folder without the heap, which opendir uses.
#pragma once

#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstdint>
#include <cstring>

#include "shim/base/descriptor.h"

namespace fracgpu {

// Calls visit(name) for every entry whose name does not begin with a dot.
template <typename Visit>
void for_each_entry(const char* path, Visit visit) {
  const int folder = open_own(path, O_RDONLY | O_DIRECTORY);
  if (folder < 0) return;
  alignas(8) char entries[4096];
  constexpr size_t kNameAt = 19;  // of struct linux_dirent64: inode, offset, length, type, name
  for (long got; (got = syscall(SYS_getdents64, folder, entries, sizeof entries)) > 0;) {
    for (long at = 0; at < got;) {
      uint16_t length = 0;
      memcpy(&length, entries + at + 16, sizeof length);
      const char* const name = entries + at + kNameAt;
      if (*name != '.') visit(name);
      at += length;
    }
  }
  close_own(folder);
}

}  // namespace fracgpu
