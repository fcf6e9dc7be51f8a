// Nodes, children and library handles for the simulator's tests.
// Libraries are opened by path, without any preload or search path, so the tests see the simulator
// alone. A child that fails an expectation prints it and ends with status 1.
#include "sim/test/support.h"

#include <dlfcn.h>
#include <signal.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <cstring>

namespace simtest {

TestNode::TestNode(const char* profile, const sim::NodeOptions& options) {
  static std::atomic<int> number{0};
  const char* folder = access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  path_ = std::string(folder) + "/simtest-" + std::to_string(getpid()) + "-" +
          std::to_string(number.fetch_add(1));
  std::string error;
  if (!sim::Node::create(path_, profile, options, &error)) ADD_FAILURE() << error;
  node_ = sim::Node::open(path_, &error);
  setenv(sim::kNodeVariable, path_.c_str(), 1);
}

TestNode::~TestNode() {
  sim::Node::remove(path_);
  unsetenv(sim::kNodeVariable);
}

namespace {
void* symbol(const char* path, const char* name) {
  void* library = dlopen(path, RTLD_NOW);
  if (library == nullptr) ADD_FAILURE() << dlerror();
  void* found = library != nullptr ? dlsym(library, name) : nullptr;
  if (found == nullptr) ADD_FAILURE() << name;
  return found;
}
}  // namespace

void* cuda_symbol(const char* name) {
  return symbol(SIM_CUDA, name);
}
void* nvml_symbol(const char* name) {
  return symbol(SIM_NVML, name);
}

int cu_start(int device) {
  int rc = cuda<int(unsigned)>("cuInit")(0);
  void* context = nullptr;
  if (rc == 0) rc = cuda<int(void**, int)>("cuDevicePrimaryCtxRetain")(&context, device);
  if (rc == 0) rc = cuda<int(void*)>("cuCtxSetCurrent")(context);
  return rc;
}

int cu_alloc(unsigned long long* out, size_t bytes) {
  static auto* const call = cuda<int(unsigned long long*, size_t)>("cuMemAlloc_v2");
  return call(out, bytes);
}

int cu_free(unsigned long long address) {
  static auto* const call = cuda<int(unsigned long long)>("cuMemFree_v2");
  return call(address);
}

Child::Child(const std::function<void(Child&)>& body) {
  int up[2], down[2];
  if (pipe(up) != 0 || pipe(down) != 0) abort();
  fflush(stdout);
  pid_ = fork();
  if (pid_ == 0) {
    close(up[0]);
    close(down[1]);
    in_ = down[0];
    out_ = up[1];
    body(*this);
    fflush(stdout);
    _exit(testing::Test::HasFailure() ? 1 : 0);
  }
  close(up[1]);
  close(down[0]);
  in_ = up[0];
  out_ = down[1];
}

Child::~Child() {
  // The end of its input lets a waiting child go.
  close(out_);
  if (!done_) ended();
  close(in_);
}

void Child::say(uint64_t value) {
  if (write(out_, &value, sizeof value) != sizeof value) ADD_FAILURE() << "the other side is gone";
}

uint64_t Child::hear() {
  uint64_t value = UINT64_MAX;
  if (read(in_, &value, sizeof value) != sizeof value) return UINT64_MAX;
  return value;
}

bool Child::ended() {
  if (!done_) {
    int status = -1;
    waitpid(pid_, &status, 0);
    done_ = true;
    good_ = WIFEXITED(status) && WEXITSTATUS(status) == 0;
  }
  return good_;
}

void Child::kill() {
  ::kill(pid_, SIGKILL);
  ended();
}

Channel::Channel() {
  if (socketpair(AF_UNIX, SOCK_SEQPACKET, 0, ends_) != 0) abort();
}

Channel::~Channel() {
  close(ends_[0]);
  close(ends_[1]);
}

void Channel::send(int fd) {
  char byte = 0;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  cmsghdr* header = CMSG_FIRSTHDR(&message);
  header->cmsg_level = SOL_SOCKET;
  header->cmsg_type = SCM_RIGHTS;
  header->cmsg_len = CMSG_LEN(sizeof fd);
  std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
  EXPECT_EQ(sendmsg(ends_[0], &message, 0), 1);
  close(fd);
}

int Channel::receive() {
  char byte = 0;
  int fd = -1;
  iovec data{&byte, 1};
  alignas(cmsghdr) char room[CMSG_SPACE(sizeof fd)] = {};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = room;
  message.msg_controllen = sizeof room;
  EXPECT_EQ(recvmsg(ends_[1], &message, MSG_CMSG_CLOEXEC), 1);
  if (const cmsghdr* header = CMSG_FIRSTHDR(&message))
    std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
  return fd;
}

void kill_in_the_middle(TestNode& node, int rounds, const std::function<void(Child&)>& body) {
  std::atomic<uint64_t> turns{0};
  for (int round = 0; round < rounds; ++round) {
    Child victim(body);
    victim.hear();
    for (int spin = 0; spin < round * 1977; ++spin) turns.fetch_add(1);
    victim.kill();
    ASSERT_EQ(node->used(0), 0u) << round;
    std::string difference;
    ASSERT_TRUE(node->consistent(&difference)) << difference;
  }
}

void in_child(const std::function<void()>& body) {
  Child child([&](Child&) { body(); });
  EXPECT_TRUE(child.ended());
}

}  // namespace simtest
