// What may lie at the ledger's path, and what may be wrong with /dev/shm: every case is refused
// with one line that says what is wrong, and nothing is created, followed or overwritten.
#include "shim/ledger/ledger_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mount.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "shim/ledger/ledger.h"
#include "tests/unit/child.h"
#include "tests/unit/private_mounts.h"
#include "tests/unit/refused_calls.h"
#include "tests/unit/scratch_tenant.h"

namespace fracgpu {
namespace {

using Result = LedgerFile::Result;

std::string failure_of(const ScratchTenant& tenant) {
  LedgerFile file;
  Message error;
  EXPECT_EQ(file.open_or_create(tenant.name(), error), Result::failed);
  EXPECT_EQ(file.map(), nullptr);
  return error.c_str();
}

bool contains(const std::string& text, const char* part) {
  return text.find(part) != std::string::npos;
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

std::string valid_ledger(const ScratchTenant& tenant) {
  {
    LedgerFile file;
    Message error;
    EXPECT_EQ(file.open_or_create(tenant.name(), error), Result::ok) << error.view();
  }
  std::ifstream stream(tenant.path(), std::ios::binary);
  return {std::istreambuf_iterator<char>(stream), {}};
}

TEST(LedgerFileTest, IsCreatedCompleteAndForAllUsersOfTheTenant) {
  ScratchTenant tenant;
  const mode_t before = umask(0077);
  EXPECT_EQ(valid_ledger(tenant).size(), sizeof(layout::Ledger));
  umask(before);
  struct stat status;
  ASSERT_EQ(stat(tenant.path().c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0666u);
  EXPECT_EQ(status.st_blocks * 512, 84 * 1024)
      << "what every process touches is there already: a full /dev/shm would be a SIGBUS later";
}

TEST(LedgerFileTest, LeavesNoDescriptorOpen) {
  ScratchTenant tenant;
  const auto open_descriptors = [] {
    int count = 0;
    for (int fd = 0; fd < 256; ++fd) count += fcntl(fd, F_GETFD) != -1;
    return count;
  };
  const int before = open_descriptors();
  Ledger ledger;
  Message error;
  ASSERT_TRUE(ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error));
  const int device = ledger.device("GPU-test", 1 << 20, 1 << 20, error);
  Refusal refusal;
  EXPECT_TRUE(ledger.reserve(device, 10, refusal));
  EXPECT_FALSE(ledger.reserve(device, 1 << 20, refusal));
  EXPECT_EQ(open_descriptors(), before);
}

TEST(LedgerFileTest, TruncatedOrGrown) {
  ScratchTenant tenant;
  const std::string good = valid_ledger(tenant);
  for (const size_t size : {size_t{0}, size_t{1}, size_t{4096}, good.size() - 1}) {
    write_file(tenant.path(), good.substr(0, size));
    EXPECT_TRUE(contains(failure_of(tenant), "not a ledger of this version")) << size;
  }
  write_file(tenant.path(), good + "x");
  EXPECT_TRUE(contains(failure_of(tenant), "not a ledger of this version"));
}

TEST(LedgerFileTest, ScribbledHeaderOrOtherVersion) {
  ScratchTenant tenant;
  const std::string good = valid_ledger(tenant);
  std::string bad = good;
  bad[offsetof(layout::Header, magic)] = 'x';
  write_file(tenant.path(), bad);
  EXPECT_TRUE(contains(failure_of(tenant), "overwritten"));
  bad = good;
  bad[offsetof(layout::Header, version)] = 77;
  write_file(tenant.path(), bad);
  EXPECT_TRUE(contains(failure_of(tenant), "layout version 77"));
  write_file(tenant.path(), std::string(good.size(), '\xff'));
  EXPECT_TRUE(contains(failure_of(tenant), "overwritten"));
}

TEST(LedgerFileTest, ScribbledBodyIsRebuilt) {
  ScratchTenant tenant;
  std::string bytes = valid_ledger(tenant);
  unsigned state = 1;
  for (size_t i = sizeof(layout::Header); i < bytes.size(); ++i) {
    bytes[i] = static_cast<char>((state = state * 1103515245 + 12345) >> 16);
  }
  write_file(tenant.path(), bytes);
  Ledger ledger;
  Message error;
  ASSERT_TRUE(ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error))
      << error.view();
  const int device = ledger.device("GPU-test", 100 << 20, 1ull << 30, error);
  ASSERT_GE(device, 0) << error.view();
  Refusal refusal;
  EXPECT_TRUE(ledger.reserve(device, layout::units_for(100 << 20), refusal));
  EXPECT_FALSE(ledger.reserve(device, 1, refusal));
}

TEST(LedgerFileTest, SymbolicLinkIsNotFollowed) {
  ScratchTenant tenant, other;
  valid_ledger(other);
  ASSERT_EQ(symlink(other.path().c_str(), tenant.path().c_str()), 0);
  EXPECT_TRUE(contains(failure_of(tenant), "symbolic link"));
  unlink(tenant.path().c_str());
  ASSERT_EQ(symlink("/nonexistent/target", tenant.path().c_str()), 0);
  EXPECT_TRUE(contains(failure_of(tenant), "symbolic link"));
}

TEST(LedgerFileTest, DirectoryOrPipeInItsPlace) {
  ScratchTenant tenant;
  ASSERT_EQ(mkdir(tenant.path().c_str(), 0700), 0);
  EXPECT_TRUE(contains(failure_of(tenant), "directory"));
  rmdir(tenant.path().c_str());
  ASSERT_EQ(mkfifo(tenant.path().c_str(), 0600), 0);
  EXPECT_TRUE(contains(failure_of(tenant), "not a file"));
}

TEST(LedgerFileTest, RemovedOrReplacedWhileInUse) {
  ScratchTenant tenant;
  Ledger ledger;
  Message error;
  ASSERT_TRUE(ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error));
  const int device = ledger.device("GPU-test", 100 << 20, 1ull << 30, error);
  tenant.remove();
  Refusal refusal;
  EXPECT_FALSE(ledger.reserve(device, 8, refusal));
  EXPECT_TRUE(contains(refusal.fault.c_str(), "removed while in use"));
  valid_ledger(tenant);
  for (const int left_by_the_program : {0, EMFILE, ENFILE}) {
    errno = left_by_the_program;
    EXPECT_FALSE(ledger.reserve(device, 8, refusal)) << left_by_the_program;
    EXPECT_TRUE(contains(refusal.fault.c_str(), "replaced while in use"));
  }
}

TEST(LedgerFileTest, AfterChrootItIsNotCalledRemoved) {
  if (geteuid() != 0) GTEST_SKIP() << "needs root for chroot";
  ScratchTenant tenant;
  EXPECT_EQ(status_of_child([&] {
              Ledger ledger;
              Message error;
              Refusal refusal;
              if (!ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error)) return 1;
              const int device = ledger.device("GPU-test", 100 << 20, 1ull << 30, error);
              if (chroot("/proc") != 0 || chdir("/") != 0) return 2;
              if (ledger.reserve(device, 8, refusal)) return 3;
              return contains(refusal.fault.c_str(), "root folder") ? 0 : 4;
            }),
            0);
}

TEST(LedgerFileTest, NoDescriptorLeft) {
  ScratchTenant tenant;
  Ledger ledger;
  Message error;
  ASSERT_TRUE(ledger.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error));
  const int device = ledger.device("GPU-test", 100 << 20, 1ull << 30, error);
  std::vector<int> taken;
  for (int fd; (fd = dup(0)) >= 0;) taken.push_back(fd);
  Refusal refusal;
  EXPECT_TRUE(ledger.reserve(device, 8, refusal)) << "the cap has room: " << refusal.fault.view();
  EXPECT_FALSE(ledger.reserve(device, layout::units_for(100 << 20), refusal));
  EXPECT_EQ(refusal.fault.view(), "") << "the cap has not";
  EXPECT_EQ(ledger.device("GPU-other", 100 << 20, 1ull << 30, error), -1);
  EXPECT_TRUE(contains(error.c_str(), "no file descriptor is free")) << error.view();
  for (const int fd : taken) close(fd);
  EXPECT_GE(ledger.device("GPU-other", 100 << 20, 1ull << 30, error), 0) << "the trouble is over";
}

// Files in /dev/shm whose names begin with the ledger's.
std::set<std::string> files_of(const ScratchTenant& tenant) {
  std::set<std::string> files;
  for (const auto& entry : std::filesystem::directory_iterator("/dev/shm")) {
    if (entry.path().string().starts_with(tenant.path())) files.insert(entry.path().string());
  }
  return files;
}

// Where /dev/shm has no unnamed files, the ledger is made under a name that nobody can foresee: by
// its PID, a process of another container would be the same as this one.
TEST(LedgerFileTest, WithoutUnnamedFiles) {
  ScratchTenant tenant;
  std::string occupied;
  const auto create = [&] {
    occupied = tenant.path() + "." + std::to_string(getpid()) + ".new";
    write_file(occupied, "somebody else's");
    if (!refuse_calls(SYS_openat, BPF_JSET, O_TMPFILE & ~O_DIRECTORY, EOPNOTSUPP)) return 77;
    Message error;
    LedgerFile file;
    if (file.open_or_create(tenant.name(), error) != Result::ok) return 1;
    if (files_of(tenant) != std::set<std::string>{occupied, tenant.path()}) return 2;
    unlink(tenant.path().c_str());
    unlink(occupied.c_str());
    // Not even something that cannot be removed stands in its way.
    if (mkdir(occupied.c_str(), 0700) != 0) return 3;
    LedgerFile again;
    const Result result = again.open_or_create(tenant.name(), error);
    rmdir(occupied.c_str());
    return result == Result::ok ? 0 : 4;
  };
  const int status = status_of_child(create);
  if (status == 77) GTEST_SKIP() << "no filter of system calls can be had here";
  EXPECT_EQ(status, 0);
  EXPECT_EQ(files_of(tenant), std::set<std::string>{tenant.path()});
}

int expect_failure(const ScratchTenant& tenant, const char* part) {
  const std::string message = failure_of(tenant);
  if (contains(message, part)) return 0;
  fprintf(stderr, "unexpected: %s\n", message.c_str());
  return 1;
}

TEST(LedgerFileTest, DevShmFull) {
  ScratchTenant tenant;
  with_private_mounts([&] {
    if (mount("tmpfs", "/dev/shm", "tmpfs", 0, "size=32k") != 0) return 77;
    const int result = expect_failure(tenant, "no space left");
    return result != 0 ? result : access(tenant.path().c_str(), F_OK) == 0 ? 2 : 0;
  });
}

TEST(LedgerFileTest, DevShmReadOnly) {
  ScratchTenant tenant;
  with_private_mounts([&] {
    if (mount("tmpfs", "/dev/shm", "tmpfs", MS_RDONLY, "size=4m") != 0) return 77;
    return expect_failure(tenant, "read-only");
  });
}

TEST(LedgerFileTest, DevShmAbsent) {
  ScratchTenant tenant;
  with_private_mounts([&] {
    if (mount("tmpfs", "/dev", "tmpfs", 0, "size=4m") != 0) return 77;
    return expect_failure(tenant, "/dev/shm does not exist");
  });
}

}  // namespace
}  // namespace fracgpu
