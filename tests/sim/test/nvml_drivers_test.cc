// What the simulated NVML lists under one driver or another, seen by the very process that is
// listed: in the host's PID namespace or in one of its own, which opened the driver from its first
// thread or from another.
#include <sched.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdlib>
#include <fstream>
#include <sstream>
#include <thread>
#include <vector>

#include "sim/nvml/abi.h"
#include "sim/test/support.h"

using namespace simtest;

namespace {

constexpr uint64_t kUsed = (414 + 1024) * kMiB;

struct Case {
  const char* driver;
  bool open_modules, is_private, by_thread;
  int clients;
};

struct Entry {
  uint64_t pid, used;
};

struct Seen {
  uint64_t pid = 0, tid = 0, host_pid = 0;  // of the process itself
  std::vector<Entry> list;
};

bool can_unshare() {
  const pid_t child = fork();
  if (child == 0) _exit(unshare(CLONE_NEWPID) == 0 ? 0 : 1);
  int status = 1;
  waitpid(child, &status, 0);
  return status == 0;
}

uint64_t host_pid_of_self() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.rfind("NSpid:", 0) == 0) return std::strtoull(line.c_str() + 6, nullptr, 10);
  }
  return 0;
}

void look(Child& parent, bool by_thread) {
  long tid = 0;
  const auto start = [&] {
    tid = syscall(SYS_gettid);
    ASSERT_EQ(cu_start(0), 0);
    unsigned long long address = 0;
    ASSERT_EQ(cu_alloc(&address, 1024 * kMiB), 0);
  };
  by_thread ? std::thread(start).join() : start();
  nvmlDevice_t device = nullptr;
  ASSERT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
  ASSERT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2")(0, &device)), 0);
  nvmlProcessInfo_v2_t infos[8] = {};
  unsigned count = 8;
  ASSERT_EQ((nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*)>(
                "nvmlDeviceGetComputeRunningProcesses_v2")(device, &count, infos)),
            0);
  for (const uint64_t value :
       {uint64_t(getpid()), uint64_t(tid), host_pid_of_self(), uint64_t{count}})
    parent.say(value);
  for (unsigned i = 0; i < count; ++i) {
    parent.say(infos[i].pid);
    parent.say(infos[i].used);
  }
}

Seen seen_under(const Case& given) {
  sim::NodeOptions options;
  options.driver = given.driver;
  options.open_modules = given.open_modules;
  TestNode node("a100-40gb", options);
  setenv(sim::kClientsVariable, std::to_string(given.clients).c_str(), 1);
  Child child([&](Child& parent) {
    if (!given.is_private) return look(parent, given.by_thread);
    ASSERT_EQ(unshare(CLONE_NEWPID), 0);
    const pid_t inside = fork();
    if (inside == 0) {
      look(parent, given.by_thread);
      _exit(testing::Test::HasFailure() ? 1 : 0);
    }
    int status = 1;
    waitpid(inside, &status, 0);
    EXPECT_EQ(status, 0);
  });
  unsetenv(sim::kClientsVariable);
  Seen seen;
  seen.pid = child.hear();
  seen.tid = child.hear();
  seen.host_pid = child.hear();
  for (uint64_t left = child.hear(); left > 0; --left) {
    const uint64_t pid = child.hear();
    seen.list.push_back({pid, child.hear()});
  }
  EXPECT_TRUE(child.ended());
  return seen;
}

// The one entry that there is.
Entry entry_under(const Case& given, Seen* seen) {
  *seen = seen_under(given);
  EXPECT_EQ(seen->list.size(), 1u) << given.driver;
  return seen->list.empty() ? Entry{} : seen->list[0];
}

constexpr bool kOpen = true, kClosed = false, kPrivate = true, kHost = false, kThread = true;

TEST(SimNvmlDrivers, OnTheHostThePidIsTheProcesss) {
  for (const char* driver : {"525.60.13", "535.104.05", "535.113.01", "550.163.01", "565.57.01",
                             "570.144", "570.148.08", "575.51.03", "575.57.08", "595.45.04"}) {
    for (const bool open : {kOpen, kClosed}) {
      Seen seen;
      const Entry entry = entry_under({driver, open, kHost, false, 1}, &seen);
      EXPECT_EQ(entry.pid, seen.pid) << driver;
      EXPECT_EQ(entry.used, kUsed) << driver;
    }
  }
}

TEST(SimNvmlDrivers, AThreadThatOpenedTheDriverGivesItsNumber) {
  for (const char* driver : {"535.104.05", "570.148.08", "570.211.01", "575.57.08", "580.65.06"}) {
    Seen seen;
    const Entry entry = entry_under({driver, kOpen, kHost, kThread, 1}, &seen);
    EXPECT_NE(seen.pid, seen.tid);
    EXPECT_EQ(entry.pid, seen.pid) << driver;
    EXPECT_EQ(entry.used, kUsed) << driver;
  }
  for (const char* driver : {"565.57.01", "570.124.06", "570.144", "575.51.03"}) {
    Seen seen;
    const Entry entry = entry_under({driver, kOpen, kHost, kThread, 1}, &seen);
    EXPECT_EQ(entry.pid, seen.tid) << driver;
    EXPECT_EQ(entry.used, kUsed) << driver;
  }
  for (const char* driver : {"535.113.01", "550.163.01", "560.35.03"}) {
    Seen seen;
    const Entry entry = entry_under({driver, kOpen, kHost, kThread, 1}, &seen);
    EXPECT_EQ(entry.pid, seen.tid) << driver;
    EXPECT_EQ(entry.used, 0u) << driver << " looks memory up by the process's PID";
  }
  Seen seen;
  EXPECT_EQ(entry_under({"550.163.01", kClosed, kHost, kThread, 1}, &seen).pid, seen.pid);
}

TEST(SimNvmlDrivers, InAPrivateNamespace) {
  if (!can_unshare()) GTEST_SKIP() << "no PID namespace can be made here";
  for (const char* driver : {"535.113.01", "550.163.01", "560.35.03"}) {
    Seen seen;
    const Entry entry = entry_under({driver, kOpen, kPrivate, false, 1}, &seen);
    EXPECT_NE(seen.pid, seen.host_pid);
    EXPECT_EQ(entry.pid, seen.pid) << driver;
    EXPECT_EQ(entry.used, 0u) << driver;
  }
  for (const char* driver : {"565.57.01", "570.124.06", "580.65.06"}) {
    Seen seen;
    const Entry entry = entry_under({driver, kOpen, kPrivate, false, 1}, &seen);
    EXPECT_EQ(entry.pid, seen.pid) << driver;
    EXPECT_EQ(entry.used, kUsed) << driver;
  }
  for (const char* driver : {"525.60.13", "550.163.01", "580.65.06"}) {
    Seen seen;
    const Entry entry = entry_under({driver, kClosed, kPrivate, kThread, 1}, &seen);
    EXPECT_EQ(entry.pid, seen.host_pid) << driver;
    EXPECT_EQ(entry.used, kUsed) << driver;
  }
  Seen seen;
  EXPECT_EQ(entry_under({"570.124.06", kOpen, kPrivate, kThread, 1}, &seen).pid, seen.tid);
}

TEST(SimNvmlDrivers, TwoClientsOfOneProcessAreListedTwiceInAPrivateNamespace) {
  if (!can_unshare()) GTEST_SKIP() << "no PID namespace can be made here";
  const Seen twice = seen_under({"595.45.04", kOpen, kPrivate, false, 2});
  ASSERT_EQ(twice.list.size(), 2u);
  for (const Entry& entry : twice.list) {
    EXPECT_EQ(entry.pid, twice.pid);
    EXPECT_EQ(entry.used, kUsed) << "each with the whole memory";
  }
  EXPECT_EQ(seen_under({"595.45.04", kOpen, kHost, false, 2}).list.size(), 1u);
  EXPECT_EQ(seen_under({"595.45.04", kClosed, kPrivate, false, 2}).list.size(), 1u);
  EXPECT_EQ(seen_under({"570.124.06", kOpen, kHost, kThread, 2}).list.size(), 2u)
      << "a thread's number is not the process's";
}

TEST(SimNvmlDrivers, TheKernelSaysWhichModulesItHas) {
  const auto file_of = [](bool open) {
    sim::NodeOptions options;
    options.driver = "550.163.01";
    options.open_modules = open;
    TestNode node("a100-40gb", options);
    std::stringstream text;
    text << std::ifstream(sim::driver_file_of(node.path())).rdbuf();
    return text.str();
  };
  EXPECT_EQ(
      file_of(kOpen).find("NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  550.163.01 "),
      0u);
  EXPECT_EQ(file_of(kClosed).find("NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.163.01 "),
            0u);
}

// What this process holds, by the list.
uint64_t own_use() {
  nvmlDevice_t device = nullptr;
  nvmlProcessInfo_v2_t info = {};
  unsigned count = 1;
  EXPECT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
  EXPECT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2")(0, &device)), 0);
  EXPECT_EQ((nvml<int(nvmlDevice_t, unsigned*, nvmlProcessInfo_v2_t*)>(
                "nvmlDeviceGetComputeRunningProcesses_v2")(device, &count, &info)),
            0);
  return info.used;
}

TEST(SimNvmlDrivers, ManagedMemoryIsNobodys) {
  TestNode node("a100-40gb");
  in_child([&] {
    ASSERT_EQ(cu_start(0), 0);
    unsigned long long managed = 0, linear = 0;
    auto* allocate = cuda<int(unsigned long long*, size_t, unsigned)>("cuMemAllocManaged");
    ASSERT_EQ(allocate(&managed, 64 * kMiB, 1), 0);
    ASSERT_EQ(cu_alloc(&linear, 32 * kMiB), 0);
    EXPECT_EQ(own_use(), (414 + 32) * kMiB);
    EXPECT_EQ(node->used(0), (414 + 32 + 64) * kMiB);
    ASSERT_EQ(cu_free(managed), 0);
    ASSERT_EQ(cu_free(linear), 0);
    EXPECT_EQ(own_use(), 414 * kMiB);
  });
}

TEST(SimNvmlDrivers, WithoutAFrameBufferPinnedMemoryCounts) {
  for (const bool frame_buffer : {true, false}) {
    TestNode node(frame_buffer ? "a100-40gb" : "gb10");
    in_child([&] {
      ASSERT_EQ(cu_start(0), 0);
      const uint64_t before = own_use();
      void* pinned = nullptr;
      ASSERT_EQ((cuda<int(void**, size_t)>("cuMemAllocHost_v2")(&pinned, 48 * kMiB)), 0);
      EXPECT_EQ(own_use() - before, frame_buffer ? 0 : 48 * kMiB);
      ASSERT_EQ(cuda<int(void*)>("cuMemFreeHost")(pinned), 0);
      EXPECT_EQ(own_use(), before);
    });
  }
}

TEST(SimNvmlDrivers, TotalsThatAreNotCudas) {
  const auto memory_on = [](const char* profile, int expected) {
    TestNode node(profile);
    in_child([&] {
      ASSERT_EQ(nvml<int()>("nvmlInit_v2")(), 0);
      ASSERT_EQ(cu_start(0), 0);
      nvmlDevice_t device = nullptr;
      ASSERT_EQ((nvml<int(unsigned, nvmlDevice_t*)>("nvmlDeviceGetHandleByIndex_v2")(0, &device)),
                0);
      nvmlMemory_v2_t memory = {};
      memory.version = kMemoryV2;
      EXPECT_EQ((nvml<int(nvmlDevice_t, nvmlMemory_v2_t*)>("nvmlDeviceGetMemoryInfo_v2")(device,
                                                                                         &memory)),
                expected);
      size_t of_cuda = 0;
      ASSERT_EQ((cuda<int(size_t*, int)>("cuDeviceTotalMem_v2")(&of_cuda, 0)), 0);
      EXPECT_EQ(of_cuda, node->total(0));
      if (expected != 0) return;
      EXPECT_EQ(memory.total, 49140 * kMiB);
      EXPECT_EQ(of_cuda, 48508 * kMiB);
      EXPECT_GE(memory.total - memory.reserved, of_cuda);
      EXPECT_EQ(memory.total, memory.reserved + memory.used + memory.free);
    });
  };
  memory_on("rtx6000-ada", NVML_SUCCESS);
  memory_on("gb10", NVML_ERROR_NOT_SUPPORTED);
}

}  // namespace
