// Exported descriptors that are open in some process, and the freed memory that they hold.
#include "shim/sharing/open_exports.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/epoll.h>
#include <sys/eventfd.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <string>
#include <vector>

namespace fracgpu {
namespace {

constexpr uint64_t kToken = OpenExports::token_of(OpenExports::Of::pool, 0x7f0012345678);
constexpr int kDevice = 3;

class OpenExportsTest : public testing::Test {
 protected:
  static int open_one() { return eventfd(0, EFD_CLOEXEC); }

  // The number of the newest epoll instance.
  static int newest_epoll() {
    int newest = -1;
    for (int fd = 3; fd < 256; ++fd) {
      char target[64] = {};
      const std::string path = "/proc/self/fd/" + std::to_string(fd);
      const bool is_link = readlink(path.c_str(), target, sizeof target - 1) > 0;
      if (is_link && target == std::string("anon_inode:[eventpoll]")) newest = fd;
    }
    return newest;
  }

  uint64_t kept(int device_index = kDevice) {
    uint64_t units = 0, changes = 0;
    exports_.sum(device_index, units, changes);
    return units;
  }
  uint64_t free_closed() {
    uint64_t freed = 0;
    exports_.free_closed([&](uint64_t, int device_index, uint64_t units) {
      EXPECT_EQ(device_index, kDevice);
      freed += units;
      return true;
    });
    return freed;
  }

  OpenExports exports_;
  int fd_ = open_one();
};

TEST_F(OpenExportsTest, KeepsNothingThatWasNotExportedByDescriptor) {
  EXPECT_FALSE(exports_.keep(kToken, kDevice, 100));
  exports_.watch(fd_, kToken + 1);
  EXPECT_FALSE(exports_.keep(kToken, kDevice, 100));
  EXPECT_FALSE(exports_.any());
  close(fd_);
}

TEST_F(OpenExportsTest, KeepsMemoryUntilItsDescriptorIsClosed) {
  exports_.watch(fd_, kToken);
  ASSERT_TRUE(exports_.keep(kToken, kDevice, 100));
  ASSERT_TRUE(exports_.keep(kToken, kDevice, 20)) << "a pool frees more than once";
  EXPECT_EQ(kept(), 120u);
  EXPECT_EQ(kept(kDevice + 1), 0u);
  EXPECT_EQ(free_closed(), 0u);
  close(fd_);
  EXPECT_EQ(free_closed(), 120u);
  EXPECT_EQ(kept(), 0u);
  EXPECT_FALSE(exports_.any());
}

TEST_F(OpenExportsTest, KeepsNothingIfItIsClosedAlready) {
  exports_.watch(fd_, kToken);
  close(fd_);
  EXPECT_FALSE(exports_.keep(kToken, kDevice, 100));
}

TEST_F(OpenExportsTest, TheLastCopyCounts) {
  exports_.watch(fd_, kToken);
  const int copy = dup(fd_);
  ASSERT_TRUE(exports_.keep(kToken, kDevice, 100));
  close(fd_);
  EXPECT_EQ(free_closed(), 0u);
  close(copy);
  EXPECT_EQ(free_closed(), 100u);
}

TEST_F(OpenExportsTest, TheLastOfSeveralDescriptorsCounts) {
  const int other = open_one();
  exports_.watch(fd_, kToken);
  exports_.watch(other, kToken);
  ASSERT_TRUE(exports_.keep(kToken, kDevice, 100));
  close(fd_);
  EXPECT_EQ(free_closed(), 0u);
  close(other);
  EXPECT_EQ(free_closed(), 100u);
}

TEST_F(OpenExportsTest, ACopyInAnotherProcessCounts) {
  exports_.watch(fd_, kToken);
  int wait[2];
  ASSERT_EQ(pipe(wait), 0);
  const pid_t holder = fork();
  if (holder == 0) {
    char ignored;
    close(wait[1]);
    _exit(read(wait[0], &ignored, 1) == 0 ? 0 : 1);
  }
  close(fd_);
  EXPECT_TRUE(exports_.keep(kToken, kDevice, 100));
  EXPECT_EQ(free_closed(), 0u);
  close(wait[1]);
  waitpid(holder, nullptr, 0);
  EXPECT_EQ(free_closed(), 100u);
  close(wait[0]);
}

TEST_F(OpenExportsTest, FindsItAmongMoreThanOneReadOfTheKernelsList) {
  std::vector<int> others;
  exports_.watch(fd_, kToken);
  for (uint64_t i = 1; i < 200; ++i) {
    others.push_back(open_one());
    exports_.watch(others.back(), kToken + i);
  }
  for (uint64_t i = 0; i < 200; ++i) EXPECT_TRUE(exports_.keep(kToken + i, kDevice, 1)) << i;
  EXPECT_EQ(free_closed(), 0u);
  for (const int fd : others) close(fd);
  EXPECT_EQ(free_closed(), 199u);
  EXPECT_EQ(kept(), 1u);
  close(fd_);
}

// As the descriptor of a pool, to which its chunks are exported one by one.
TEST_F(OpenExportsTest, ADescriptorHoldsTheLatestMemoryOfEachPlace) {
  constexpr uint32_t kDescriptor = 7, kOther = 8;
  const int other = open_one();
  exports_.watch(fd_, OpenExports::token_of(OpenExports::Of::objects, kDescriptor));
  exports_.watch(other, OpenExports::token_of(OpenExports::Of::objects, kOther));
  exports_.hold(kDescriptor, 0, kToken);
  exports_.hold(kDescriptor, 65535, kToken + 1);
  exports_.hold(kOther, 0, kToken + 2);
  EXPECT_FALSE(exports_.keep(kToken + 3, kDevice, 8)) << "it is held nowhere";
  ASSERT_TRUE(exports_.keep(kToken, kDevice, 1));
  ASSERT_TRUE(exports_.keep(kToken + 1, kDevice, 2));
  ASSERT_TRUE(exports_.keep(kToken + 2, kDevice, 4));
  EXPECT_EQ(free_closed(), 0u);
  exports_.hold(kDescriptor, 0, kToken + 3);
  EXPECT_EQ(free_closed(), 1u);
  ASSERT_TRUE(exports_.keep(kToken + 3, kDevice, 8));
  exports_.hold(kDescriptor, 0, 0);
  EXPECT_EQ(free_closed(), 8u);
  close(other);
  EXPECT_EQ(free_closed(), 4u);
  close(fd_);
  EXPECT_EQ(free_closed(), 2u);
  EXPECT_FALSE(exports_.any());
}

// As a dma-buf of a range does.
TEST_F(OpenExportsTest, ADescriptorMayHoldSeveralMemories) {
  constexpr uint64_t kPieces = 300;
  for (int time = 0; time < 2; ++time) {
    for (uint64_t i = 0; i < kPieces; ++i) exports_.watch(fd_, kToken + i);
  }
  for (uint64_t i = 0; i < kPieces; ++i) ASSERT_TRUE(exports_.keep(kToken + i, kDevice, 1)) << i;
  EXPECT_EQ(free_closed(), 0u);
  close(fd_);
  EXPECT_EQ(free_closed(), kPieces);
}

TEST_F(OpenExportsTest, WhatIsNotFreedStays) {
  exports_.watch(fd_, kToken);
  ASSERT_TRUE(exports_.keep(kToken, kDevice, 100));
  close(fd_);
  exports_.free_closed([](uint64_t, int, uint64_t) { return false; });
  EXPECT_EQ(kept(), 100u);
  EXPECT_EQ(free_closed(), 100u);
}

// A program may close all descriptors, and have one of its own with that number then.
TEST_F(OpenExportsTest, LeavesADescriptorOfTheProgramAlone) {
  exports_.watch(fd_, kToken);
  const int number = newest_epoll();
  ASSERT_GE(number, 0);
  const int programs = epoll_create1(EPOLL_CLOEXEC);
  ASSERT_EQ(dup2(programs, number), number);
  const int other = open_one();
  exports_.watch(other, kToken + 1);
  epoll_event event{};
  EXPECT_EQ(epoll_ctl(number, EPOLL_CTL_MOD, other, &event), -1);
  EXPECT_EQ(errno, ENOENT) << "the program's instance watches what the program told it";
  EXPECT_FALSE(exports_.keep(kToken, kDevice, 1)) << "it is no longer watched";
  EXPECT_TRUE(exports_.keep(kToken + 1, kDevice, 1));
  for (const int fd : {number, programs, other, fd_}) close(fd);
}

// Nothing shows then whether it is closed, so that it counts as open.
TEST_F(OpenExportsTest, ALackOfDescriptorsFreesNothing) {
  exports_.watch(fd_, kToken);
  rlimit limit{};
  ASSERT_EQ(getrlimit(RLIMIT_NOFILE, &limit), 0);
  const rlimit none{.rlim_cur = 0, .rlim_max = limit.rlim_max};
  ASSERT_EQ(setrlimit(RLIMIT_NOFILE, &none), 0);
  close(fd_);
  EXPECT_TRUE(exports_.keep(kToken, kDevice, 100));
  EXPECT_EQ(free_closed(), 0u);
  setrlimit(RLIMIT_NOFILE, &limit);
  EXPECT_EQ(free_closed(), 100u);
}

// A regular file cannot be watched. Its memory counts as free when it is freed.
TEST_F(OpenExportsTest, WhatCannotBeWatchedIsNotKept) {
  const int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  exports_.watch(file, kToken);
  EXPECT_FALSE(exports_.keep(kToken, kDevice, 100));
  close(file);
  close(fd_);
}

}  // namespace
}  // namespace fracgpu
