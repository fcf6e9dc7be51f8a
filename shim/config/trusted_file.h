// Files by which root binds every process: the ceiling, and the tenant file beside it. They are
// trusted because no other user can write them.
#pragma once

#include <cstddef>
#include <string_view>

#include "shim/base/text.h"

namespace fracgpu {

// Whether anything is at `path`. Also true if its folder may not be searched, because nothing is
// known then. A link that leads nowhere is something. Costs one system call if the folder does not
// exist.
[[gnu::cold]] bool trusted_file_is_there(const char* path);

struct TrustedText {
  char bytes[8192];
  size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};

// Reads the file at `path`. False with `error` set if it is unreadable, too long, or cannot be
// trusted. Follows only links within the folder that `path` names, such as Kubernetes makes for a
// ConfigMap.
bool read_trusted_file(const char* path, TrustedText& text, Message& error);

}  // namespace fracgpu
