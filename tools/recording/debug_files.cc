// See debug_files.h.
#include "tools/recording/debug_files.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <gelf.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tools/cli/descriptor.h"

namespace fracgpu::recording {
namespace {

constexpr unsigned kDownloadSeconds = 60;

bool is_hexadecimal(const std::string& text) {
  return text.find_first_not_of("0123456789abcdef") == text.npos;
}

// The path of the file that debuginfod-find downloaded; empty: none.
std::string download(const std::string& build_id) {
  static bool too_slow = false;  // only one wait per process
  const char* const servers = getenv("DEBUGINFOD_URLS");
  if (servers == nullptr || *servers == '\0' || too_slow) return "";
  int ends[2];
  if (pipe2(ends, O_CLOEXEC) != 0) return "";
  const tools::Descriptor from(ends[0]);
  tools::Descriptor into(ends[1]);
  const pid_t child = fork();
  if (child == 0) {
    dup2(ends[1], STDOUT_FILENO);
    alarm(kDownloadSeconds);  // the alarm survives exec
    execlp("debuginfod-find", "debuginfod-find", "debuginfo", build_id.c_str(), nullptr);
    _exit(127);
  }
  if (child < 0) return "";
  into = tools::Descriptor();
  std::string path;
  char bytes[4096];
  for (ssize_t size; (size = read(from.get(), bytes, sizeof bytes)) > 0;) {
    path.append(bytes, static_cast<size_t>(size));
  }
  int status = 0;
  waitpid(child, &status, 0);
  too_slow = WIFSIGNALED(status);
  if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) return "";
  while (path.ends_with('\n')) path.pop_back();
  return path;
}

}  // namespace

ElfFile::ElfFile(const std::string& path) {
  // Does not block: a FIFO with this name would wait for a writer.
  const tools::Descriptor fd(open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK));
  struct stat status;
  if (fd.get() < 0 || fstat(fd.get(), &status) != 0 || !S_ISREG(status.st_mode)) return;
  elf_version(EV_CURRENT);
  elf_ = elf_begin(fd.get(), ELF_C_READ_MMAP, nullptr);
  if (elf_ == nullptr) return;
  if (elf_kind(elf_) != ELF_K_ELF) {
    elf_end(std::exchange(elf_, nullptr));
    return;
  }
  // The file is mapped, so its descriptor can be closed. A process may have more modules than
  // descriptors.
  elf_cntl(elf_, ELF_C_FDDONE);
}

// libdw could report it too, but it would require decompressors that nothing else here needs.
std::string ElfFile::build_id() const {
  for (Elf_Scn* section = nullptr; (section = elf_nextscn(elf_, section)) != nullptr;) {
    GElf_Shdr header;
    if (gelf_getshdr(section, &header) == nullptr || header.sh_type != SHT_NOTE) continue;
    Elf_Data* const data = elf_getdata(section, nullptr);
    GElf_Nhdr note;
    size_t name = 0, bytes = 0;
    for (size_t at = 0;
         data != nullptr && (at = gelf_getnote(data, at, &note, &name, &bytes)) > 0;) {
      const char* const start = static_cast<const char*>(data->d_buf);
      if (note.n_type != NT_GNU_BUILD_ID || note.n_namesz != sizeof "GNU") continue;
      if (memcmp(start + name, "GNU", sizeof "GNU") != 0) continue;
      std::string text;
      for (size_t i = 0; i < note.n_descsz; ++i) {
        text += fmt::format("{:02x}", static_cast<unsigned char>(start[bytes + i]));
      }
      return text;
    }
  }
  return "";
}

ElfFile find_module(const ModuleInfo& module, const std::vector<std::string>& roots) {
  if (!module.path.starts_with('/')) return {};  // "[vdso]", or memory of a compiler
  std::vector<std::string> paths;
  for (const std::string& root : roots) {
    paths.push_back(root + module.path);
    paths.push_back(root + module.path.substr(module.path.rfind('/')));
  }
  paths.push_back(module.path);
  for (const std::string& path : paths) {
    ElfFile file(path);
    if (file && file.build_id() == module.build_id) return file;
  }
  return {};
}

ElfFile find_debug_file(const std::string& build_id, const std::vector<std::string>& roots) {
  if (build_id.size() < 3 || !is_hexadecimal(build_id)) return {};
  const std::string name =
      fmt::format("/.build-id/{}/{}.debug", build_id.substr(0, 2), build_id.substr(2));
  std::vector<std::string> paths;
  for (const std::string& root : roots) {
    paths.push_back(root + "/usr/lib/debug" + name);
    paths.push_back(root + name);
  }
  paths.push_back("/usr/lib/debug" + name);
  for (const std::string& path : paths) {
    ElfFile file(path);
    if (file && file.build_id() == build_id) return file;
  }
  ElfFile file(download(build_id));
  return file.build_id() == build_id ? std::move(file) : ElfFile();
}

}  // namespace fracgpu::recording
