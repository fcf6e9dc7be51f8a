// What the simulator's tests share: a node of their own, and children that use the driver in it.
// The driver's state belongs to a process for life, so every test that calls it does so in a forked
// child. Parent and child synchronise over pipes, never by time.
#pragma once

#include <gtest/gtest.h>
#include <sys/types.h>

#include <functional>
#include <memory>
#include <string>

#include "sim/node/node.h"

namespace simtest {

inline constexpr uint64_t kMiB = 1ULL << 20;

// A node at a path of its own, removed at the end; the environment names it to this process and its
// children.
class TestNode {
 public:
  explicit TestNode(const char* profile = "tiny", const sim::NodeOptions& options = {});
  ~TestNode();
  sim::Node& operator*() { return *node_; }
  sim::Node* operator->() { return node_.get(); }
  const std::string& path() const { return path_; }

 private:
  std::string path_;
  std::unique_ptr<sim::Node> node_;
};

// The driver library of this process, opened on first use.
void* cuda_symbol(const char* name);
void* nvml_symbol(const char* name);
template <typename Function>
Function* cuda(const char* name) {
  return reinterpret_cast<Function*>(cuda_symbol(name));
}
template <typename Function>
Function* nvml(const char* name) {
  return reinterpret_cast<Function*>(nvml_symbol(name));
}

// The calls that most tests make.
int cu_start(int device = 0);  // init, retain, set current
int cu_alloc(unsigned long long* out, size_t bytes);
int cu_free(unsigned long long address);

// A forked child. It tells the parent things with say(), and waits for it with hear().
class Child {
 public:
  explicit Child(const std::function<void(Child&)>& body);
  ~Child();
  Child(Child&&) = delete;
  void say(uint64_t value);
  uint64_t hear();
  bool ended();  // waits; true if it ended well and none of its expectations failed
  void kill();   // SIGKILL, and waits until the kernel has buried it
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
  bool done_ = false, good_ = false;
};

// Carries open descriptors between processes, each message with its own.
class Channel {
 public:
  Channel();
  ~Channel();
  Channel(Channel&&) = delete;
  void send(int fd);  // and closes it here
  int receive();

 private:
  int ends_[2];
};

// Runs the body in a child, again and again, and kills it a little later each time after its first
// say(): nothing of it may be left, and the node's accounting must add up.
void kill_in_the_middle(TestNode& node, int rounds, const std::function<void(Child&)>& body);

// Runs the body in a child and expects that it ended well.
void in_child(const std::function<void()>& body);

}  // namespace simtest
