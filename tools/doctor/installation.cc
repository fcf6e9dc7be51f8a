// Checks whether the library is installed so that the dynamic linker loads it; see checks.h.
#include <fmt/core.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <stdlib.h>
#include <unistd.h>

#include <fstream>

#include "tools/cli/text_list.h"
#include "tools/doctor/checks.h"
#include "tools/doctor/elf_file.h"
#include "tools/doctor/mapped_library.h"

namespace fracgpu::tools {
namespace {

using State = Finding::State;
constexpr char kPreloadFile[] = "/etc/ld.so.preload";
constexpr int kDeadline_s = 10;  // a person waits; a start takes milliseconds

bool is_ours(std::string_view item) {
  return item.substr(item.rfind('/') + 1) == kLibrary;
}

// Our item in a list of preloaded libraries, which blanks and colons separate.
std::string our_item(std::string text) {
  for (char& c : text) {
    if (c == '\t' || c == '\n' || c == ':') c = ' ';
  }
  for (const std::string_view item : split(text, ' ')) {
    if (is_ours(item)) return std::string(item);
  }
  return {};
}

std::string in_environment() {
  const char* const value = getenv("LD_PRELOAD");
  return value == nullptr ? "" : our_item(value);
}

std::string in_preload_file() {
  std::ifstream file(kPreloadFile);
  return our_item({std::istreambuf_iterator<char>(file), {}});
}

// The library to check: the one in this process, the configured one, or the installed one.
std::string library_to_judge(const Setup& setup) {
  constexpr std::string_view kGone = " (deleted)";
  if (setup.preloaded()) {
    return setup.library.ends_with(kGone)
               ? setup.library.substr(0, setup.library.size() - kGone.size())
               : setup.library;
  }
  for (const std::string& named : {in_environment(), in_preload_file()}) {
    if (named.find('/') != named.npos) return named;
  }
  return library_path();
}

bool has_musl() {
  glob_t found;
  const bool any = glob("/lib/ld-musl-*.so.1", 0, nullptr, &found) == 0;
  if (any) globfree(&found);
  return any && read_elf("/bin/sh").wants_musl();
}

}  // namespace

Findings check_library(const Setup& setup) {
  constexpr const char* kCheck = "library";
  Findings findings;
  if (has_musl()) {
    findings.push_back({State::warn, kCheck,
                        "the programs of this system are linked to musl, which does not read "
                        "/etc/ld.so.preload, and for which no vendor makes libraries",
                        "name the library in LD_PRELOAD, or take a base image with glibc 2.31 or "
                        "newer (Debian, Ubuntu, RHEL …)"});
  }
  std::string path;
  try {
    path = library_to_judge(setup);
  } catch (const std::exception& error) {
    findings.push_back({State::fail, kCheck, error.what(),
                        "install the library, e.g. as /usr/lib/" + std::string(kLibrary)});
    return findings;
  }
  const ElfFile file = read_elf(path), here = read_elf("/proc/self/exe");
  const std::string glibc = gnu_get_libc_version();
  if (!file.is_elf) {
    findings.push_back({State::fail, kCheck,
                        fmt::format("{} {}", path,
                                    access(path.c_str(), R_OK) == 0
                                        ? "is no library: it is damaged"
                                        : "is named for preloading, and cannot be read"),
                        "install it again, by a rename and never in place"});
  } else if (file.machine != here.machine || file.is_64_bit != here.is_64_bit) {
    findings.push_back({State::fail, kCheck,
                        fmt::format("{} is for {}, and programs here are for {}", path,
                                    file.architecture(), here.architecture()),
                        "install the library for " + here.architecture()});
  } else if (is_newer(file.glibc, glibc)) {
    findings.push_back({State::fail, kCheck,
                        fmt::format("{} needs glibc {}, and here is {}: preloaded, it would keep "
                                    "every program from starting",
                                    path, file.glibc, glibc),
                        "install a build for an older glibc, or take a newer base image"});
  } else {
    const ProbeReport report = run_probe("loaded", {{"LD_PRELOAD", path}}, kDeadline_s);
    const std::string mapped = report.told.value("library", "");
    if (report.done() && !mapped.empty()) {
      findings.push_back({State::ok, kCheck,
                          fmt::format("{} loads: {}, needs glibc {}, here is {}", path,
                                      file.architecture(), file.glibc, glibc)});
    } else {
      findings.push_back(
          {State::fail, kCheck,
           fmt::format("{} does not load here: {}", path,
                       !report.said.empty() ? report.said
                       : report.done()      ? "the dynamic linker ignores LD_PRELOAD"
                                            : "a program that preloads it " + report.trouble()),
           "install it again; it may be damaged, unreadable, or made for another system"});
    }
  }
  return findings;
}

Findings check_preload(const Setup& setup) {
  constexpr const char* kCheck = "preload";
  const std::string variable = in_environment(), file = in_preload_file();
  const std::string how = !variable.empty() && !file.empty()
                              ? "LD_PRELOAD and " + std::string(kPreloadFile)
                          : !variable.empty() ? "LD_PRELOAD"
                          : !file.empty()     ? kPreloadFile
                                              : "";
  if (setup.preloaded()) {
    if (setup.library.ends_with(" (deleted)")) {
      return {{State::warn, kCheck,
               "this process has the library as it was before it was replaced: " + setup.library,
               "restart what runs, to have it use the new one"}};
    }
    return {{State::ok, kCheck,
             fmt::format("in this process, by {}", how.empty() ? "the dynamic linker" : how)}};
  }
  if (!how.empty()) {
    return {{State::fail, kCheck,
             fmt::format("{} names {}, and yet it is not in this process", how,
                         variable.empty() ? file : variable),
             "see the check of the library above; a name without a path must lie in a folder of "
             "the dynamic linker (ldconfig -p)"}};
  }
  const bool wanted = setup.asks_for_cap;
  return {{wanted ? State::fail : State::warn, kCheck,
           wanted ? "a cap is configured, and the library that would hold it is not preloaded"
                  : "not in this process, and no cap is configured: nothing is capped here",
           "start programs by fracgpu run, or set LD_PRELOAD=" + std::string(kLibrary) +
               " where the whole container sees it (ENV in its Dockerfile)"}};
}

}  // namespace fracgpu::tools
