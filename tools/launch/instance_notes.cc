// See instance_notes.h.
#include "tools/launch/instance_notes.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <stdexcept>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {
namespace {

using claim_table_layout::MigGrant;

std::string name_of(const std::string& gpu, const MigGrant& instance) {
  return fmt::format("{}-{}-{}", gpu, instance.profile, instance.start);
}

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path, strerror(error)));
}

// Returns no descriptor if there is no folder.
Descriptor open_folder(const std::string& path) {
  Descriptor folder(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
  struct stat status = {};
  if (folder.get() < 0 && errno == ENOENT) return folder;
  const bool mine = folder.get() >= 0 && fstat(folder.get(), &status) == 0 &&
                    status.st_uid == geteuid() && (status.st_mode & 077) == 0;
  if (mine) return folder;
  throw std::runtime_error(
      fmt::format("{} is not a folder of this user's alone, as notes of MIG instances need; remove "
                  "it when no launch has an instance",
                  path));
}

}  // namespace

void InstanceNotes::add(const std::string& gpu, const MigGrant& instance) const {
  const std::string name = name_of(gpu, instance);
  for (;;) {
    if (mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST) fail("make", folder_, errno);
    const Descriptor folder = open_folder(folder_);
    const Descriptor note(
        openat(folder.get(), name.c_str(), O_WRONLY | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (note.get() >= 0) return;
    // Another process has just removed the last note, and the folder with it.
    if (errno != ENOENT && errno != EBADF) fail("write in", folder_, errno);
  }
}

bool InstanceNotes::has(const std::string& gpu, const MigGrant& instance) const {
  const Descriptor folder = open_folder(folder_);
  return folder.get() >= 0 &&
         faccessat(folder.get(), name_of(gpu, instance).c_str(), F_OK, AT_SYMLINK_NOFOLLOW) == 0;
}

void InstanceNotes::remove(const std::string& gpu, const MigGrant& instance) const {
  const Descriptor folder = open_folder(folder_);
  if (folder.get() >= 0) unlinkat(folder.get(), name_of(gpu, instance).c_str(), 0);
  rmdir(folder_.c_str());  // succeeds if it was the last one
}

}  // namespace fracgpu::tools
