// Lists the ledgers: the names in their folder.
#pragma once

#include <dirent.h>
#include <fcntl.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/descriptor.h"
#include "shim/base/text.h"

namespace fracgpu {

// The name prefix of tenants that are Kubernetes claims (tools/dra). Their ledgers are mounted into
// containers that may start at any time, so only their maker removes them.
inline constexpr std::string_view kClaimTenant = "claim-";

// Calls visit(tenant) with a NUL-terminated name for each file with a ledger's name, until visit
// returns true. Returns whether it did. Does not use opendir, which allocates.
template <typename Visit>
bool find_ledger(Visit visit) {
  constexpr std::string_view kPrefix = layout::kFilePrefix;
  constexpr size_t kFolderSize = kPrefix.rfind('/');
  constexpr std::string_view kStart = kPrefix.substr(kFolderSize + 1);
  const Text<32> folder(kPrefix.substr(0, kFolderSize));
  const int fd = open_own(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (fd < 0) return false;
  alignas(dirent64) char entries[4096];
  bool found = false;
  for (long size = 0;
       !found && (size = syscall(SYS_getdents64, fd, entries, sizeof entries)) > 0;) {
    for (long at = 0; !found && at < size;) {
      const auto* entry = reinterpret_cast<const dirent64*>(entries + at);
      at += entry->d_reclen;
      const std::string_view name = entry->d_name;
      found = name.size() > kStart.size() && name.substr(0, kStart.size()) == kStart &&
              visit(entry->d_name + kStart.size());
    }
  }
  close_own(fd);
  return found;
}

}  // namespace fracgpu
