// Files by which root binds every process: the ceiling, and the tenant's name beside it. They count
// because nobody else can write them.
#pragma once

#include <cstddef>
#include <string_view>

#include "shim/base/text.h"

namespace fracgpu {

// Whether anything is at `path`, which cannot be said where its folder may not be searched: then
// yes. A link that leads nowhere is something. Costs a system call where the folder is not there.
[[gnu::cold]] bool trusted_file_is_there(const char* path);

struct TrustedText {
  char bytes[8192];
  size_t size = 0;
  std::string_view view() const { return {bytes, size}; }
};

// Reads the file at `path`. False with `error` set when it is unreadable, too long, or cannot be
// trusted. Links are followed within the folder that `path` names, as Kubernetes makes them for a
// ConfigMap, and no others.
bool read_trusted_file(const char* path, TrustedText& text, Message& error);

}  // namespace fracgpu
