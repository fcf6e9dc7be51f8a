// A program that looks at the kernel driver's files as C and C++ programs do, for test/kfd_test.cc:
// each argument is an order, each answer a line. It can hold memory of the node itself meanwhile.
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iostream>
#include <iterator>
#include <string>
#include <vector>

#include "sim/node/account.h"

namespace {

std::string failure() {
  return "error " + std::to_string(errno);
}

// The content, its lines joined.
std::string flat(std::string text) {
  std::replace(text.begin(), text.end(), '\n', ';');
  return text;
}

std::string content(int fd) {
  if (fd < 0) return failure();
  std::string text;
  char part[4096];
  ssize_t got = 0;
  while ((got = read(fd, part, sizeof part)) > 0) text.append(part, static_cast<size_t>(got));
  const std::string failed = got < 0 ? failure() : "";
  close(fd);
  return got < 0 ? failed : flat(text);
}

std::string content(FILE* file) {
  if (file == nullptr) return failure();
  std::string text;
  for (int c; (c = std::getc(file)) != EOF;) text += static_cast<char>(c);
  const std::string failed = std::ferror(file) != 0 ? failure() : "";
  std::fclose(file);
  return failed.empty() ? flat(text) : failed;
}

std::string list(const char* path) {
  DIR* folder = opendir(path);
  if (folder == nullptr) return failure();
  std::vector<std::string> names;
  while (const dirent* entry = readdir(folder)) {
    if (entry->d_name[0] != '.') names.emplace_back(entry->d_name);
  }
  closedir(folder);
  std::sort(names.begin(), names.end());
  std::string all;
  for (const std::string& name : names) all += name + " ";
  return all;
}

std::string scan(const char* path) {
  dirent** entries = nullptr;
  const int count = scandir(path, &entries, nullptr, alphasort);
  return count < 0 ? failure() : std::to_string(count);
}

std::string kind(const char* path) {
  struct stat about {};
  if (stat(path, &about) != 0) return failure();
  return S_ISDIR(about.st_mode) ? "folder" : S_ISREG(about.st_mode) ? "file" : "other";
}

std::string link_text(const char* path) {
  char text[256];
  const ssize_t length = readlink(path, text, sizeof text);
  return length < 0 ? failure() : std::string(text, static_cast<size_t>(length));
}

std::string below(const std::string& folder, const std::string& name) {
  const int at = open(folder.c_str(), O_RDONLY | O_DIRECTORY);
  if (at < 0) return failure();
  std::string text = content(openat(at, name.c_str(), O_RDONLY));
  close(at);
  return text;
}

// What opening leaves in errno, and whether the descriptor is closed by exec.
std::string opening(const char* path, int flags) {
  errno = 4321;
  const int fd = open(path, flags);
  if (fd < 0) return failure();
  std::string text = std::to_string(errno) + " " + std::to_string(fcntl(fd, F_GETFD) & FD_CLOEXEC);
  close(fd);
  return text;
}

sim::Account& account() {
  static std::string error;
  static const auto own = sim::Account::open(&error, sim::Vendor::kAmd);
  if (own == nullptr) std::exit(3);
  return *own;
}

std::string answer(const std::string& order, const std::string& of) {
  const char* path = of.c_str();
  const size_t colon = of.find(':');
  const std::string after = colon == std::string::npos ? "" : of.substr(colon + 1);
  if (order == "open") return content(open(path, O_RDONLY));
  if (order == "fopen") return content(fopen(path, "re"));
  if (order == "stream") {
    std::ifstream file(path);
    if (!file) return failure();
    return flat(std::string(std::istreambuf_iterator<char>(file), {}));
  }
  if (order == "below") return below(of.substr(0, colon), after);
  if (order == "fdinfo") {
    const int fd = open(path, O_RDONLY);
    const std::string number = std::to_string(fd);
    return link_text(("/proc/self/fd/" + number).c_str()) + " " +
           content(open(("/proc/self/fdinfo/" + number).c_str(), O_RDONLY));
  }
  if (order == "list") return list(path);
  if (order == "scan") return scan(path);
  if (order == "stat") return kind(path);
  if (order == "access") return access(path, R_OK) == 0 ? "yes" : failure();
  if (order == "link") return link_text(path);
  if (order == "plain") return opening(path, O_RDONLY);
  if (order == "cloexec") return opening(path, O_RDONLY | O_CLOEXEC);
  if (order == "write") return opening(path, O_WRONLY);
  if (order == "reserve" || order == "release") {
    const int dev = std::atoi(path);
    const uint64_t bytes = std::strtoull(after.c_str(), nullptr, 10);
    if (order == "reserve")
      return account().reserve(dev, bytes, sim::Kind::kAllocation) ? "good" : "full";
    account().release(dev, bytes, sim::Kind::kAllocation);
    return "good";
  }
  if (order == "self") {
    const std::string own = "/sys/class/kfd/kfd/proc/" + std::to_string(getpid()) + "/vram_" + of;
    return content(open(own.c_str(), O_RDONLY | O_CLOEXEC));
  }
  return "what?";
}

}  // namespace

int main(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    const std::string argument = argv[i];
    const size_t equals = argument.find('=');
    if (equals == std::string::npos) return 2;
    std::cout << answer(argument.substr(0, equals), argument.substr(equals + 1)) << "\n";
  }
  return 0;
}
