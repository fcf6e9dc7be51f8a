// Checks executables; see program.h.
#include "tools/doctor/program.h"

#include <errno.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <sys/xattr.h>
#include <unistd.h>

#include <algorithm>

#include "shim/base/text.h"
#include "tools/cli/judged_file.h"
#include "tools/cli/plain_text.h"
#include "tools/cli/text_list.h"
#include "tools/doctor/elf_file.h"
#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;
constexpr const char* kCheck = "program";
constexpr int kDeepestScript = 4;  // as in the kernel

constexpr const char* kRemedyForPrivileges =
    "name the library in /etc/ld.so.preload and cap by /etc/fracgpu/limit.conf: a program with "
    "raised privileges takes nothing from the environment";

// The first line of a script, without "#!"; empty if the file is not a script.
std::string interpreter_line(const std::string& path) {
  const std::string start = read_judged(path, 255, Links::followed);
  const std::string_view text = start;
  if (!text.starts_with("#!")) return {};
  return std::string(trim(text.substr(2, text.find('\n') - 2)));
}

// The program that "#!/usr/bin/env python3" and "#!/usr/bin/env -S python3 -u" run.
std::string command_of_env(const std::vector<std::string>& words) {
  for (size_t i = 1; i < words.size(); ++i) {
    if (words[i][0] != '-' && words[i].find('=') == std::string::npos) return words[i];
  }
  return {};
}

std::vector<std::string> words_of(const std::string& line) {
  std::vector<std::string> words;
  for (const std::string_view word : split(line, ' ')) {
    if (!word.empty()) words.emplace_back(word);
  }
  return words;
}

// Set-uid, set-gid or file capabilities: the privileges that the kernel gives the program, in
// words.
std::string privileges_of(const std::string& path, const struct stat& status) {
  struct statvfs mount = {};
  if (statvfs(path.c_str(), &mount) == 0 && (mount.f_flag & ST_NOSUID) != 0) return {};
  if ((status.st_mode & S_ISUID) != 0) return "set-uid for " + user_name(status.st_uid);
  if ((status.st_mode & (S_ISGID | S_IXGRP)) == (S_ISGID | S_IXGRP)) {
    return fmt::format("set-gid for group {}", status.st_gid);
  }
  if (getxattr(path.c_str(), "security.capability", nullptr, 0) > 0) return "has file capabilities";
  return {};
}

// Whether the caller already has these privileges, so that nothing changes.
bool gains_nothing(const struct stat& status) {
  const bool same_user = (status.st_mode & S_ISUID) == 0 || status.st_uid == geteuid();
  const bool same_group = (status.st_mode & S_ISGID) == 0 || status.st_gid == getegid();
  const bool set_id = (status.st_mode & (S_ISUID | S_ISGID)) != 0;
  return same_user && same_group && (set_id || geteuid() == 0);
}

}  // namespace

Finding judge_executable(const std::string& path, const std::string& shown) {
  const ElfFile file = read_elf(path);
  const ElfFile here = read_elf("/proc/self/exe");
  if (!file.is_elf) {
    return {State::warn, kCheck, shown + " is no ELF program: what runs it is not known",
            "name the program that runs it"};
  }
  if (file.machine != here.machine || file.is_64_bit != here.is_64_bit) {
    return {State::fail, kCheck,
            fmt::format("{} is a program for {}, and the library is for {}: it is not capped",
                        shown, file.architecture(), here.architecture()),
            "run a program for " + here.architecture()};
  }
  if (file.interpreter.empty()) {
    return {State::fail, kCheck,
            shown + " is statically linked: nothing can be preloaded, so it is not capped",
            "link it dynamically with the C library (of Go: CGO_ENABLED=1); a static CUDA "
            "runtime inside a dynamic program is fine"};
  }
  if (file.wants_musl()) {
    return {State::warn, kCheck,
            shown +
                " is linked to musl, which preloads what LD_PRELOAD names, and does not read "
                "/etc/ld.so.preload: by that file alone it is not capped",
            "name the library in LD_PRELOAD, as fracgpu run does"};
  }
  struct stat status = {};
  if (stat(path.c_str(), &status) == 0) {
    const std::string privileges = privileges_of(path, status);
    if (!privileges.empty() && gains_nothing(status)) {
      return {State::warn, kCheck,
              fmt::format("{} is {}: it is capped for {}, and not for other users", shown,
                          privileges, user_name(geteuid())),
              kRemedyForPrivileges};
    }
    if (!privileges.empty()) {
      return {State::fail, kCheck,
              fmt::format("{} {}{}: LD_PRELOAD means nothing to it, so it is not capped", shown,
                          privileges.starts_with("has") ? "" : "is ", privileges),
              kRemedyForPrivileges};
    }
  }
  const bool sanitized =
      std::any_of(file.needed.begin(), file.needed.end(),
                  [](const std::string& name) { return name.starts_with("libasan.so"); });
  if (sanitized) {
    return {State::warn, kCheck,
            shown +
                " is built with the address sanitizer, which refuses to start when another "
                "library is preloaded before it",
            "set ASAN_OPTIONS=verify_asan_link_order=0"};
  }
  return {State::ok, kCheck,
          shown + " is dynamically linked to glibc: it is capped when preloaded"};
}

Findings check_program(const std::vector<std::string>& command) {
  if (command.empty()) return {};
  Findings findings;
  std::string name = command[0];
  for (int depth = 0; depth < kDeepestScript && !name.empty(); ++depth) {
    std::string path;
    try {
      path = find_command(name);
    } catch (const RunError& error) {
      findings.push_back(
          {State::fail, kCheck, error.what(), "write the name of a program in PATH, or its path"});
      return findings;
    }
    const std::string shown = fracgpu::quoted(path).c_str();
    const std::string line = interpreter_line(path);
    if (line.empty()) {
      // execvp runs a script without a first line by the shell.
      if (read_elf(path).is_elf || name == "/bin/sh") {
        findings.push_back(judge_executable(path, shown));
        return findings;
      }
      name = "/bin/sh";
      continue;
    }
    const std::vector<std::string> words = words_of(line);
    if (words.empty()) break;
    const bool is_env = words[0].substr(words[0].rfind('/') + 1) == "env";
    name = is_env && !command_of_env(words).empty() ? command_of_env(words) : words[0];
  }
  findings.push_back({State::warn, kCheck,
                      "scripts lead to scripts: what runs in the end is not known",
                      "name the program itself"});
  return findings;
}

}  // namespace fracgpu::tools
