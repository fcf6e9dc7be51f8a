// Tests that children which never exec take none of their parent's holds along, also when another
// thread was in the middle of the node's file locks at the moment of the fork. Such a child would
// keep memory, a dead parent's life, or everybody's reaping for itself.
#include <signal.h>
#include <unistd.h>

#include <thread>

#include "sim/test/support.h"

using namespace simtest;

namespace {

using Pointer = unsigned long long;

TEST(SimFork, ChildrenInheritNoLocks) {
  TestNode node;
  int pipes[2];  // the forked children live until the test closes its end
  ASSERT_EQ(pipe(pipes), 0);
  Child parent_process([&](Child& parent) {
    close(pipes[1]);
    ASSERT_EQ(cu_start(), 0);
    auto* share = cuda<int(void*, Pointer)>("cuIpcGetMemHandle");
    std::thread([share] {
      ASSERT_EQ(cu_start(), 0);
      for (;;) {
        Pointer address = 0;
        char ticket[64];
        cu_alloc(&address, 2 * kMiB);
        share(ticket, address);  // no descriptor of the program's own comes of this
        cu_free(address);
      }
    }).detach();
    for (int i = 0; i < 300; ++i) {
      if (fork() == 0) {
        char byte;
        _exit(read(pipes[0], &byte, 1) == 0 ? 0 : 1);
      }
    }
    parent.say(1);
    pause();
  });
  close(pipes[0]);
  parent_process.hear();
  parent_process.kill();
  EXPECT_EQ(node->used(0), 0u);
  EXPECT_TRUE(node->processes().empty());
  std::string difference;
  EXPECT_TRUE(node->consistent(&difference)) << difference;
  close(pipes[1]);
}

}  // namespace
