// What processes tell each other of memory that they share, as one word: bytes in hexadecimal, or
// "PID:FD", a descriptor to be taken from there.
#pragma once

#include <sys/syscall.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace client {

template <typename Bytes>
std::string hex(const Bytes& bytes) {
  std::string text;
  for (const auto byte : bytes) {
    char two[3];
    std::snprintf(two, sizeof two, "%02x", static_cast<unsigned char>(byte));
    text += two;
  }
  return text;
}

template <typename Bytes>
void read_hex(const std::string& text, Bytes& bytes) {
  size_t i = 0;
  for (auto& byte : bytes) {
    byte =
        static_cast<std::decay_t<decltype(byte)>>(std::stoi(text.substr(2 * i++, 2), nullptr, 16));
  }
}

inline std::string place_of(int fd) {
  return std::to_string(getpid()) + ":" + std::to_string(fd);
}

// A copy of another process's descriptor.
inline int take_descriptor(const std::string& place) {
  const auto process = static_cast<int>(syscall(SYS_pidfd_open, std::stoi(place), 0));
  const int theirs = std::stoi(place.substr(place.find(':') + 1));
  const auto fd = static_cast<int>(syscall(SYS_pidfd_getfd, process, theirs, 0));
  close(process);
  return fd;
}

}  // namespace client
