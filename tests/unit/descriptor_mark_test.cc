// Marks on open file descriptions, of files and of devices that all descriptors share.
#include "shim/sharing/descriptor_mark.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <string>

#include "shim/base/byte_lock.h"

namespace fracgpu {
namespace {

constexpr DescriptorMark kMark = {.tenant = 0x3fffffff, .exporter = 0x7fffffff, .units = 0x12345};

class MarkedDescriptorTest : public testing::TestWithParam<const char*> {
 protected:
  ~MarkedDescriptorTest() override {
    close(fd_);
    if (GetParam() != std::string("/dev/null")) unlink(GetParam());
  }
  static int open_one() { return open(GetParam(), O_RDWR | O_CREAT | O_CLOEXEC, 0600); }
  int fd_ = open_one();
};

TEST_P(MarkedDescriptorTest, GoesWithTheDescription) {
  ASSERT_GE(fd_, 0);
  DescriptorMark read;
  EXPECT_FALSE(read_mark(fd_, read));
  mark_descriptor(fd_, kMark);
  const int copy = dup(fd_);
  const int other = open_one();
  ASSERT_TRUE(read_mark(copy, read));
  EXPECT_EQ(read.tenant, kMark.tenant);
  EXPECT_EQ(read.exporter, kMark.exporter);
  EXPECT_EQ(read.units, kMark.units);
  EXPECT_FALSE(read_mark(other, read)) << "it is another description of the same file";
  constexpr uint32_t kMost = (1 << 30) - 1;
  mark_descriptor(other, {.tenant = 0, .units = UINT32_MAX});
  ASSERT_TRUE(read_mark(other, read)) << "two marks are in nobody's way";
  EXPECT_EQ(read.tenant, 0u);
  EXPECT_EQ(read.units, kMost);
  EXPECT_EQ(read.number, 0u);
  const pid_t child = fork();
  if (child == 0) _exit(read_mark(copy, read) && read.tenant == kMark.tenant ? 0 : 1);
  int status = -1;
  waitpid(child, &status, 0);
  EXPECT_EQ(status, 0) << "another process reads it too";
  close(other);
  const int listed = open_one();
  mark_descriptor(listed, {.exporter = 0x7fffffff, .number = 992, .units = 5});
  ASSERT_TRUE(read_mark(listed, read));
  EXPECT_EQ(read.exporter, 0x7fffffffu);
  EXPECT_EQ(read.number, 992u);
  EXPECT_EQ(read.units, 0u) << "the ledger knows them";
  EXPECT_EQ(read.objects, 0u);
  close(listed);
  const int many = open_one();
  mark_descriptor(many, {.exporter = 0x7fffffff, .objects = kMost});
  ASSERT_TRUE(read_mark(many, read));
  EXPECT_EQ(read.exporter, 0x7fffffffu);
  EXPECT_EQ(read.objects, kMost);
  EXPECT_EQ(read.number, 0u);
  EXPECT_EQ(read.units, 0u);
  close(many);
  close(copy);
}

TEST_P(MarkedDescriptorTest, IsFoundAmongTheProgramsOwnLocks) {
  ASSERT_GE(fd_, 0);
  struct flock own = byte_lock(F_RDLCK, 5);
  own.l_len = 100;
  ASSERT_EQ(fcntl(fd_, F_OFD_SETLK, &own), 0);
  mark_descriptor(fd_, kMark);
  own = byte_lock(F_RDLCK, 1 << 20);
  ASSERT_EQ(fcntl(fd_, F_OFD_SETLK, &own), 0);
  DescriptorMark read;
  ASSERT_TRUE(read_mark(fd_, read));
  EXPECT_EQ(read.units, kMark.units);
}

TEST_P(MarkedDescriptorTest, OtherLocksAreNoMark) {
  ASSERT_GE(fd_, 0);
  struct flock own = byte_lock(F_RDLCK, 7);
  own.l_len = 0;  // to its end, which is no number in the kernel's list
  ASSERT_EQ(fcntl(fd_, F_OFD_SETLK, &own), 0);
  DescriptorMark read;
  EXPECT_FALSE(read_mark(fd_, read));
}

INSTANTIATE_TEST_SUITE_P(Of, MarkedDescriptorTest, testing::Values("/dev/null", "unit-test-marked"),
                         [](const auto& info) { return info.index == 0 ? "ADevice" : "AFile"; });

TEST(DescriptorMarkTest, OfNothing) {
  DescriptorMark read;
  mark_descriptor(-1, kMark);
  EXPECT_FALSE(read_mark(-1, read));
  EXPECT_FALSE(read_mark(999, read));
}

}  // namespace
}  // namespace fracgpu
