// The locks that tell the living from the dead, and the one that lets a single process reap at a
// time. All are open-file-description byte-range locks far beyond the end of the node's file, which
// the kernel drops however their owner ends. Descriptors are opened per use, because the program
// may close every descriptor it did not open.
#pragma once

#include <string>
#include <utility>

#include "sim/node/node.h"

namespace sim {

// A fresh descriptor of the node's file, closed at the end of the scope.
class NodeDescriptor {
 public:
  explicit NodeDescriptor(const std::string& path);
  ~NodeDescriptor();
  NodeDescriptor(const NodeDescriptor&) = delete;
  NodeDescriptor& operator=(const NodeDescriptor&) = delete;
  int fd() const { return fd_; }
  // The descriptor is the caller's from now on.
  int leave() { return std::exchange(fd_, -1); }
  bool lock(int64_t offset, bool wait, bool shared = false) const;
  bool held_elsewhere(int64_t offset) const;

 private:
  int fd_;
};

// Reaping and registering are done under this lock. Being a file lock, it is never left behind by
// the dead.
class ReapLock {
 public:
  explicit ReapLock(Node& node);
  bool held() const { return held_; }
  int fd() const { return descriptor_.fd(); }

 private:
  NodeDescriptor descriptor_;
  bool held_;
};

uint64_t monotonic_ns();

}  // namespace sim
