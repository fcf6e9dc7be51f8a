// Searches for files as the loader would, and reads them; see deepbind.h.
//
// If the loader might take any of several files, all are checked: the order of the search then does
// not matter.
#include "shim/interpose/deepbind.h"

#include <string.h>
#include <unistd.h>

#include <algorithm>
#include <cstdint>
#include <string_view>

#include "shim/base/elf.h"
#include "shim/base/elf_file.h"
#include "shim/base/environment.h"
#include "shim/base/fnv.h"
#include "shim/base/text.h"

namespace fracgpu {
namespace {

using Path = Text<1024>;

constexpr std::string_view kFolders[] = {
#if defined(__x86_64__)
    "/lib/x86_64-linux-gnu",
    "/usr/lib/x86_64-linux-gnu",
#else
    "/lib/aarch64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
#endif
    "/lib64",
    "/usr/lib64",
    "/lib",
    "/usr/lib"};
// Subfolders of each folder, for newer processors.
constexpr std::string_view kVariants[] = {"", "glibc-hwcaps/x86-64-v2/", "glibc-hwcaps/x86-64-v3/",
                                          "glibc-hwcaps/x86-64-v4/"};

bool is_loaded(std::string_view name) {
  return elf::find_object([&](const elf::Loaded& object) {
           return object.soname == name || object.path == name;
         }).dynamic != nullptr;
}

elf::Loaded this_library() {
  static const char here = 0;
  return elf::find_object([](const elf::Loaded& object) { return object.contains(&here); });
}

// A file and the file that needs it, up to the main program.
struct Link {
  const elf::File& file;
  std::string_view folder;  // $ORIGIN
  const Link* wanted_by;
};

// One query. If there are more files than it has room for, or a longer chain, the answer is
// unknown.
class Search {
 public:
  // Whether the file, or a library that it needs, binds past us.
  bool file_does(const char* path, const Link* wanted_by) {
    if (files_ == kMost || ++depth_ == kMostDeep) return true;
    seen_[files_++] = Fnv1a().mix(std::string_view(path)).value();
    const elf::File file(path);
    const std::string_view whole = path;
    const size_t slash = whole.rfind('/');
    const Link link = {file, whole.substr(0, slash == whole.npos ? 0 : std::max<size_t>(slash, 1)),
                       wanted_by};
    const bool does = !file ||
                      file.any_import([&](const char* import) { return is_ours(import); }) ||
                      file.any_needed([&](const char* name) { return library_does(name, &link); });
    --depth_;
    return does;
  }

  // The same for a library's name or path; also true if no file of that name is found.
  bool library_does(const char* name, const Link* wanted_by) {
    if (strchr(name, '$') != nullptr) return true;
    if (strchr(name, '/') != nullptr) return file_does(name, wanted_by);
    if (is_loaded(name)) return false;
    bool found = false;
    const auto does = [&](const Path& path) { return candidate_does(path, wanted_by, found); };
    const auto any_in = [&](const char* list, std::string_view origin) {
      return list != nullptr && any_folder(list, origin, name, does);
    };
    for (const Link* link = wanted_by; link != nullptr; link = link->wanted_by) {
      if (link->file.any_search_path(
              [&](const char* list) { return any_in(list, link->folder); })) {
        return true;
      }
    }
    if (any_in(trusted_environment("LD_LIBRARY_PATH"), {}) || any_in_cache(name, does)) return true;
    for (const std::string_view folder : kFolders) {
      if (any_in_folder(folder, name, does)) return true;
    }
    return !found;
  }

 private:
  // The most files, and the longest chain: of all programs and libraries of a Debian with
  // compilers, container engines and Mesa, none needs more than 59 files.
  static constexpr int kMost = 128, kMostDeep = 16;

  // Uses the hash table of this library's own names, so that there is no second list of them.
  bool is_ours(const char* name) const { return elf::find_symbol(self_, name) != nullptr; }

  bool candidate_does(const Path& path, const Link* wanted_by, bool& found) {
    if (access(path.c_str(), F_OK) != 0) return false;
    found = true;
    if (std::find(seen_, seen_ + files_, Fnv1a().mix(path.view()).value()) != seen_ + files_)
      return false;
    return file_does(path.c_str(), wanted_by);
  }

  template <typename Does>
  static bool any_in_folder(std::string_view folder, const char* name, Does does) {
    for (const std::string_view variant : kVariants) {
      Path path;
      path.format("{}{}{}{}", folder, folder.empty() ? "" : "/", variant, name);
      if (does(path)) return true;
    }
    return false;
  }

  // For a list that is separated by colons or, in the environment, by semicolons.
  template <typename Does>
  static bool any_folder(std::string_view list, std::string_view origin, const char* name,
                         Does does) {
    for (;;) {
      const size_t end = std::min(list.find_first_of(":;"), list.size());
      std::string_view entry = list.substr(0, end);
      Path folder;
      for (const std::string_view token : {"$ORIGIN", "${ORIGIN}"}) {
        if (entry.substr(0, token.size()) != token) continue;
        folder.assign(origin);
        entry.remove_prefix(token.size());
        break;
      }
      folder.append("{}", entry);
      if (entry.find('$') != entry.npos) return true;
      if (any_in_folder(folder.view(), name, does)) return true;
      if (end == list.size()) return false;
      list.remove_prefix(end + 1);
    }
  }

  // /etc/ld.so.cache in the form of glibc 2.2 and later, maybe behind the form of older ones
  // (sysdeps/generic/dl-cache.h).
  template <typename Does>
  static bool any_in_cache(const char* name, Does does) {
    constexpr std::string_view kOld = "ld.so-1.7.0", kNew = "glibc-ld.so.cache1.1";
    struct Entry {
      int32_t flags;
      uint32_t name, path, os_version;
      uint64_t hardware;
    };
    const elf::MappedFile cache("/etc/ld.so.cache");
    size_t start = 0;
    if (cache.bytes().substr(0, kOld.size()) == kOld) {
      const auto* const count = cache.at<uint32_t>(12);
      start = count == nullptr ? 0 : (16 + size_t{*count} * 12 + 7) / 8 * 8;
    }
    const auto* const count = cache.at<uint32_t>(start + kNew.size());
    if (count == nullptr || cache.bytes().substr(start, kNew.size()) != kNew) return false;
    const auto* const entries = cache.at<Entry>(start + 48, *count);
    for (size_t i = 0; entries != nullptr && i < *count; ++i) {
      const char* const key = cache.text_at(start + entries[i].name);
      if (key == nullptr || strcmp(key, name) != 0) continue;
      const char* const path = cache.text_at(start + entries[i].path);
      if (path == nullptr || does(Path(path))) return true;
    }
    return false;
  }

  const elf::Loaded self_ = this_library();
  uint64_t seen_[kMost] = {};  // hashes of paths
  int files_ = 0, depth_ = 0;
};

}  // namespace

bool would_bind_past_us(const char* name, const void* caller) {
  if (name == nullptr || *name == '\0') return false;  // the main program, which is bound already
  const elf::Loaded opener =
      elf::find_object([&](const elf::Loaded& object) { return object.contains(caller); });
  Path program;
  char target[1024];
  const ssize_t size = readlink("/proc/self/exe", target, sizeof target);
  program.assign({target, size > 0 ? static_cast<size_t>(size) : 0});
  const auto folder_of = [](std::string_view path) {
    return path.substr(0, path.rfind('/') == path.npos ? 0 : path.rfind('/'));
  };
  const elf::File main_file(program.c_str());
  const Link main_link = {main_file, folder_of(program.view()), nullptr};
  const char* const path = *opener.path != '\0' ? opener.path : program.c_str();
  const elf::File opener_file(path);
  const Link opener_link = {opener_file, folder_of(path), &main_link};
  return Search().library_does(name, &opener_link);
}

}  // namespace fracgpu
