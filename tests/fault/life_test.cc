// Every way in which a process comes to be or ceases, as far as the ledger can tell: children that
// share memory or do not, programs replaced, descriptors closed, more processes than slots, PID
// namespaces and PIDs used again.
#include <gtest/gtest.h>
#include <sched.h>
#include <spawn.h>
#include <sys/mount.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/utsname.h>

#include <cstdio>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "tests/fault/shared.h"

extern char** environ;

namespace fracgpu::fault {
namespace {

constexpr uint64_t kCap = 100000;
constexpr int kNotPermitted = 77;

// What the test's owner holds stays charged while `in_owner` runs in it, and is free once it ends.
void expect_owner_outlives(const std::function<int(Member&)>& in_owner) {
  ScratchTenant tenant;
  Gate done, go_on;
  const pid_t owner = spawn([&] {
    Member member;
    if (!member.join(tenant, kCap) || !member.reserve(kCap - 100)) return 2;
    if (const int status = in_owner(member); status != 0) return status;
    done.arrive();
    go_on.wait();
    return member.reserve(50) ? 0 : 4;
  });
  if (!done.await_arrival()) FAIL() << "the owner ended with " << exit_status(owner);
  Member other;
  ASSERT_TRUE(other.join(tenant, kCap));
  EXPECT_FALSE(other.reserve(101)) << "a living owner's memory was given away";
  go_on.open();
  EXPECT_EQ(exit_status(owner), 0);
  EXPECT_TRUE(other.reserve(kCap));
}

TEST(Life, RawCloneEndsWithoutHarm) {
  expect_owner_outlives([](Member&) {
    const pid_t child = static_cast<pid_t>(syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0));
    if (child == 0) _exit(0);
    return exit_status(child);
  });
}

TEST(Life, VforkAndSpawn) {
  expect_owner_outlives([](Member&) {
    pid_t child = -1;
    char name[] = "true";
    char* arguments[] = {name, nullptr};
    if (posix_spawn(&child, "/bin/true", nullptr, nullptr, arguments, environ) != 0) return 5;
    return exit_status(child);
  });
}

TEST(Life, DaemonThatClosesEverything) {
  // Daemons fork twice, leave the session and close what they inherited.
  ScratchTenant tenant;
  Gate joined, end;
  const pid_t first = spawn([&] {
    spawn([&] {
      setsid();
      Member member;
      if (!member.join(tenant, kCap) || !member.reserve(kCap)) return 2;
      // The test's own pipes are put where the closing does not reach.
      closefrom(64);
      joined.arrive();
      end.wait();
      return 0;
    });
    return 0;
  });
  EXPECT_EQ(exit_status(first), 0);
  ASSERT_TRUE(joined.await_arrival());
  Member other;
  ASSERT_TRUE(other.join(tenant, kCap));
  EXPECT_FALSE(other.reserve(1)) << "a living daemon was taken for dead";
  end.open();
  // Nobody waits for a daemon; its memory is free when the kernel has ended it.
  while (!other.reserve(kCap)) sched_yield();
}

TEST(Life, MoreProcessesThanSlots) {
  ScratchTenant tenant;
  Member all;
  ASSERT_TRUE(all.join(tenant, kCap));
  std::vector<std::unique_ptr<Ledger>> ledgers;
  Message error;
  for (uint32_t i = 1; i < layout::kMaxSlots; ++i) {
    ledgers.push_back(std::make_unique<Ledger>());
    ASSERT_TRUE(ledgers.back()->join(tenant.name(), ProcessIdentity::of_self(), nullptr, error))
        << i << ": " << error.view();
  }
  Ledger one_more;
  EXPECT_FALSE(one_more.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error));
  EXPECT_NE(error.view().find("no free slot: 1024 processes"), std::string_view::npos)
      << error.view();
  Refusal refusal;
  EXPECT_TRUE(ledgers.back()->reserve(all.device, 10, refusal)) << "the others are unharmed";
  ledgers.pop_back();
  EXPECT_TRUE(one_more.join(tenant.name(), ProcessIdentity::of_self(), nullptr, error))
      << "the slot of one that left is free again: " << error.view();
}

TEST(Life, FileOfAnotherVersion) {
  ScratchTenant tenant;
  {
    Member member;
    ASSERT_TRUE(member.join(tenant, kCap));
  }
  const uint32_t other = layout::kVersion + 1;
  std::fstream file(tenant.path(), std::ios::binary | std::ios::in | std::ios::out);
  file.seekp(offsetof(layout::Header, version));
  file.write(reinterpret_cast<const char*>(&other), sizeof other);
  file.close();
  Member member;
  EXPECT_FALSE(member.join(tenant, kCap));
  EXPECT_NE(member.error.view().find("use one version"), std::string_view::npos)
      << member.error.view();
}

TEST(Life, FileThatIsMoreThanData) {
  ScratchTenant tenant;
  {
    Member member;
    ASSERT_TRUE(member.join(tenant, kCap));
  }
  for (const mode_t mode : {0777u, 04666u, 01666u}) {
    ASSERT_EQ(chmod(tenant.path().c_str(), mode), 0);
    Member member;
    EXPECT_FALSE(member.join(tenant, kCap));
    EXPECT_NE(member.error.view().find("has bits that no ledger has"), std::string_view::npos)
        << member.error.view();
  }
  ASSERT_EQ(chmod(tenant.path().c_str(), 0600), 0);
  Member member;
  EXPECT_TRUE(member.join(tenant, kCap)) << "it may be for one user alone: " << member.error.view();
}

TEST(Life, FileRemovedWhileInUseKeepsWhatIsHeld) {
  ScratchTenant tenant;
  Member old;
  ASSERT_TRUE(old.join(tenant, kCap) && old.reserve(1000));
  tenant.remove();
  Member next;
  ASSERT_TRUE(next.join(tenant, kCap)) << "a new tenant of the same name";
  EXPECT_TRUE(old.reserve(100)) << "within its lease the old one goes on";
  EXPECT_FALSE(old.reserve(50000));
  EXPECT_NE(old.refusal.fault.view().find("while in use"), std::string_view::npos);
  old.release(1100);
}

// Runs `body` as PID 1 of a new PID namespace.
int in_pid_namespace(const std::function<int()>& body) {
  return exit_status(spawn([&] {
    if (unshare(CLONE_NEWPID | CLONE_NEWNS) != 0) return kNotPermitted;
    return exit_status(spawn([&] {
      if (mount("none", "/", "none", MS_REC | MS_PRIVATE, nullptr) != 0 ||
          mount("proc", "/proc", "proc", 0, nullptr) != 0) {
        return kNotPermitted;
      }
      return body();
    }));
  }));
}

TEST(Life, PidNamespacesShareOneTenant) {
  ScratchTenant tenant;
  Member here;
  ASSERT_TRUE(here.join(tenant, kCap) && here.reserve(60000));
  const int status = in_pid_namespace([&] {
    Member there;
    if (getpid() != 1 || !there.join(tenant, kCap)) return 2;
    if (there.reserve(40001)) return 3;  // the owner outside is alive, though no PID here says so
    if (!there.reserve(40000)) return 4;
    // A sibling namespace whose PIDs are the same.
    return in_pid_namespace([&] {
      Member sibling;
      if (!sibling.join(tenant, kCap)) return 5;
      return sibling.reserve(1) ? 6 : 0;
    });
  });
  if (status == kNotPermitted) GTEST_SKIP() << "no PID namespace can be made here";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(here.reserve(40000)) << "what died in the namespace is free";
}

// The PID of the process that sent a byte, as this process sees it: the kernel translates it.
pid_t pid_of_sender(int socket) {
  char byte = 0;
  iovec data = {&byte, 1};
  alignas(cmsghdr) char control[CMSG_SPACE(sizeof(ucred))];
  msghdr message = {};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control;
  message.msg_controllen = sizeof control;
  if (recvmsg(socket, &message, 0) != 1) return -1;
  const cmsghdr* header = CMSG_FIRSTHDR(&message);
  if (header == nullptr || header->cmsg_type != SCM_CREDENTIALS) return -1;
  ucred sender;
  memcpy(&sender, CMSG_DATA(header), sizeof sender);
  return sender.pid;
}

TEST(Life, HostReaderTellsHostPids) {
  ScratchTenant tenant;
  int sockets[2];
  ASSERT_EQ(socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, sockets), 0);
  const int on = 1;
  ASSERT_EQ(setsockopt(sockets[0], SOL_SOCKET, SO_PASSCRED, &on, sizeof on), 0);
  const pid_t outer = spawn([&] {
    return in_pid_namespace([&] {
      Member member;
      if (!member.join(tenant, kCap) || !member.reserve(1000)) return 2;
      if (write(sockets[1], "x", 1) != 1) return 3;
      char byte;
      return read(sockets[1], &byte, 1) == 1 ? 0 : 4;
    });
  });
  close(sockets[1]);
  const pid_t host_pid = pid_of_sender(sockets[0]);
  if (host_pid < 0) {
    ASSERT_EQ(exit_status(outer), kNotPermitted);
    GTEST_SKIP() << "no PID namespace can be made here";
  }
  Member here;
  ASSERT_TRUE(here.join(tenant, kCap));
  const auto told = [&] {
    const layout::Ledger& map = *here.ledger->map();
    bool found = false;
    layout::for_each_live(map, [&](uint32_t slot) {
      found = found || map.slots[slot].host_pid.load() == static_cast<uint32_t>(host_pid);
    });
    return found;
  };
  EXPECT_FALSE(told()) << "from inside nobody can know it";
  const std::string command = std::string(TEST_FRACGPU) + " status --json " + tenant.name();
  FILE* const status = popen(command.c_str(), "r");
  ASSERT_NE(status, nullptr);
  std::string shown(1 << 16, '\0');
  shown.resize(fread(shown.data(), 1, shown.size(), status));
  pclose(status);
  EXPECT_NE(shown.find("\"host_pid\": " + std::to_string(host_pid)), std::string::npos) << shown;
  EXPECT_TRUE(told()) << "and the ledger says it from now on";
  EXPECT_EQ(write(sockets[0], "x", 1), 1);
  EXPECT_EQ(exit_status(outer), 0);
  close(sockets[0]);
}

TEST(Life, PidsUsedAgain) {
  ScratchTenant tenant;
  Member here;
  ASSERT_TRUE(here.join(tenant, kCap) && here.reserve(kCap / 2));
  const int status = in_pid_namespace([&] {
    {
      // Before 6.14 this is one number for the whole machine.
      utsname kernel;
      int major = 0, minor = 0;
      if (uname(&kernel) != 0 || sscanf(kernel.release, "%d.%d", &major, &minor) != 2 ||
          major * 1000 + minor < 6014) {
        return kNotPermitted;
      }
      // The least the kernel takes, so that PIDs come round within a few hundred processes.
      std::ofstream file("/proc/sys/kernel/pid_max");
      file << 301 << std::flush;
      if (!file) return kNotPermitted;
    }
    // A process that lives throughout, and others that die holding all the rest.
    Member steady;
    if (!steady.join(tenant, kCap) || !steady.reserve(1000)) return 2;
    const uint64_t rest = kCap / 2 - 1000;
    std::set<pid_t> seen;
    int again = 0;
    for (int i = 0; i < 700 && again < 20; ++i) {
      const pid_t child = spawn([&] {
        Member member;
        return member.join(tenant, kCap) && member.reserve(rest) && !member.reserve(1) ? 0 : 1;
      });
      if (child < 0) return 3;
      again += !seen.insert(child).second;
      if (exit_status(child) != 0) return 4;
    }
    return again == 20 ? 0 : kNotPermitted;
  });
  if (status == kNotPermitted) GTEST_SKIP() << "PIDs do not come round here";
  EXPECT_EQ(status, 0);
  EXPECT_TRUE(here.reserve(kCap / 2));
}

// The driver as it is seen by PID alone: it says of a PID that it holds memory, whoever that is
// now.
Ledger::DriverRelease driver_never_lets_go(const DeadProcess&, const char*) {
  return Ledger::DriverRelease::held;
}

TEST(Life, ReplacedProgramDoesNotWaitForItself) {
  // After exec the PID is the same, and so what the driver reports for it is the new program's
  // memory.
  ScratchTenant tenant;
  ProcessIdentity same = ProcessIdentity::of_self();
  same.host_pid = same.pid;
  Message error;
  int device = -1;
  const auto enter = [&](Ledger& ledger) {
    return ledger.join(tenant.name(), same, driver_never_lets_go, error) &&
           (device = ledger.device("GPU-test", kCap * layout::kUnit, 1ull << 40, error)) >= 0;
  };
  auto before = std::make_unique<Ledger>();
  Refusal refusal;
  ASSERT_TRUE(enter(*before) && before->reserve(device, 60000, refusal));
  before.reset();  // exec
  Ledger after;
  ASSERT_TRUE(enter(after));
  EXPECT_TRUE(after.reserve(device, kCap, refusal)) << "held by its own former self";
}

}  // namespace
}  // namespace fracgpu::fault
