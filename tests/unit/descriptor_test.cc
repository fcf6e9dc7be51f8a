// Descriptors of the library's own: a program that has closed its standard streams, or gives
// numbers to descriptors by hand, does not meet them.
#include "shim/base/descriptor.h"

#include <errno.h>
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/resource.h>

#include "shim/ledger/ledger.h"
#include "tests/unit/child.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

// The kernel does nothing any more with the first three descriptors but say whether they are open.
bool forbid_standard_streams() {
  constexpr auto kArgument = [](int number) { return offsetof(seccomp_data, args) + 8 * number; };
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_fcntl, 0, 5),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(kArgument(0))),
      BPF_JUMP(BPF_JMP | BPF_JGE | BPF_K, 3, 3, 0),
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, static_cast<uint32_t>(kArgument(1))),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, F_GETFD, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | EBADF),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter = {.len = std::size(program), .filter = program};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

void close_standard_streams() {
  for (int fd = 0; fd < 3; ++fd) close(fd);
}

TEST(DescriptorTest, IsHighAndEndsWithTheProgram) {
  const int fd = open_own("/dev/null", O_RDWR);
  EXPECT_GE(fd, 48);
  EXPECT_EQ(fcntl(fd, F_GETFD), FD_CLOEXEC);
  close_own(fd);
  errno = 7;
  EXPECT_EQ(open_own("/nonexistent", O_RDONLY), -1);
  EXPECT_EQ(errno, ENOENT);
}

// Whatever the program writes to its standard output then, it is not written to the ledger.
TEST(DescriptorTest, StandsInPlaceOfNoStandardStream) {
  ScratchTenant tenant;
  const int status = status_of_child([&] {
    close_standard_streams();
    if (!forbid_standard_streams()) return 77;
    Ledger ledger;
    Message error;
    Refusal refusal;
    if (!ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) return 1;
    const int device = ledger.device("GPU-test", 1 << 20, 1 << 20, error);
    if (device < 0) return 2;
    if (!ledger.reserve(device, 10, refusal) || ledger.reserve(device, 1 << 20, refusal)) return 3;
    if (!ledger.any_alive()) return 4;
    for (int fd = 0; fd < 3; ++fd) {
      if (fcntl(fd, F_GETFD) >= 0) return 5;
    }
    return 0;
  });
  if (status == 77) GTEST_SKIP() << "no filter of system calls can be had here";
  EXPECT_EQ(status, 0);
}

TEST(DescriptorTest, IsHadAlsoWhereFewAreAllowed) {
  EXPECT_EQ(status_of_child([] {
              for (int fd = 0; fd < 1024; ++fd) close(fd);
              const rlimit few = {4, 4};
              if (setrlimit(RLIMIT_NOFILE, &few) != 0) return 1;
              const int fd = open_own("/dev/null", O_RDWR);
              if (fd != 3) return 2;
              return open_own("/dev/null", O_RDWR) == -1 && errno == EMFILE ? 0 : 3;
            }),
            0);
}

}  // namespace
}  // namespace fracgpu
