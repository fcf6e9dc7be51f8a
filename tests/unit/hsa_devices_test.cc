// The table of HSA's devices, of a runtime that is shut down and started anew under those who read.
#include <gtest/gtest.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "hooks/hsa/devices.h"
#include "hooks/hsa/runtime.h"

namespace fracgpu::hsa {
namespace {

constexpr int kAgents = 4;

// The runtime's `start`-th start: each has handles of its own, and names devices after them.
std::atomic<uint64_t> start{1};

uint64_t agent_handle(uint64_t of_start, uint64_t number) {
  return of_start << 32 | (number + 1) << 16;
}
std::string name_of(uint64_t agent) {
  return "GPU-" + std::to_string(agent);
}

int iterate_agents(void* callback, void* data) {
  const uint64_t now = start;
  for (uint64_t number = 0; number < kAgents; ++number) {
    reinterpret_cast<int (*)(hsa_agent_t, void*)>(callback)({agent_handle(now, number)}, data);
  }
  return kSuccess;
}

// One pool each, whose size tells whose it is.
int iterate_pools(hsa_agent_t agent, void* callback, void* data) {
  return reinterpret_cast<int (*)(hsa_amd_memory_pool_t, void*)>(callback)({agent.handle | 1},
                                                                           data);
}

int pool_info(hsa_amd_memory_pool_t pool, int attribute, void* value) {
  if (attribute == kPoolSegment) *static_cast<int*>(value) = kPoolIsGlobal;
  if (attribute == kPoolSize) *static_cast<size_t*>(value) = pool.handle;
  return kSuccess;
}

int agent_info(hsa_agent_t agent, int attribute, void* value) {
  if (attribute == kAgentDevice) *static_cast<int*>(value) = kDeviceIsGpu;
  if (attribute == kAgentUuid) strcpy(static_cast<char*>(value), name_of(agent.handle).c_str());
  if (attribute == kAgentDriverUid) return kNotInitialized;  // the kernel knows none of them
  return kSuccess;
}

class HsaDevicesTest : public testing::Test {
 protected:
  HsaDevicesTest() {
    slots[slot::hsa_iterate_agents] = reinterpret_cast<void*>(iterate_agents);
    slots[slot::hsa_amd_agent_iterate_memory_pools] = reinterpret_cast<void*>(iterate_pools);
    slots[slot::hsa_amd_memory_pool_get_info] = reinterpret_cast<void*>(pool_info);
    slots[slot::hsa_agent_get_info] = reinterpret_cast<void*>(agent_info);
    forget_devices();
  }
  ~HsaDevicesTest() override {
    for (std::atomic<void*>& slot : slots) slot = nullptr;
    forget_devices();
  }

  static void restart() {
    ++start;
    forget_devices();
  }
};

TEST_F(HsaDevicesTest, AreFoundByTheirHandles) {
  ASSERT_EQ(device_count(), kAgents);
  for (int number = 0; number < kAgents; ++number) {
    const uint64_t agent = agent_handle(start, number);
    EXPECT_EQ(device(number).agent.handle, agent);
    EXPECT_EQ(device(number).uuid.view(), name_of(agent));
    EXPECT_EQ(device(number).physical, agent | 1);
    EXPECT_EQ(owner_of(Handle::agent, agent).device, number);
    EXPECT_EQ(owner_of(Handle::pool, agent | 1).device, number);
  }
  EXPECT_EQ(owner_of(Handle::agent, 12345).device, -1);
}

TEST_F(HsaDevicesTest, OfAnEarlierStartAreForgotten) {
  const uint64_t before = agent_handle(start, 2);
  ASSERT_EQ(owner_of(Handle::agent, before).device, 2);
  restart();
  EXPECT_EQ(owner_of(Handle::agent, before).device, -1);
  EXPECT_EQ(owner_of(Handle::agent, agent_handle(start, 3)).device, 3);
}

// Who has asked for a device keeps what it was told.
TEST_F(HsaDevicesTest, ADeviceStaysWhatItWas) {
  const Device& found = device(device_count() - 1);
  const Device before = found;
  restart();
  ASSERT_EQ(device_count(), kAgents);
  EXPECT_EQ(found.agent.handle, before.agent.handle);
  EXPECT_EQ(found.uuid.view(), before.uuid.view());
  EXPECT_EQ(found.physical, before.physical);
}

// Whether the thread has been seen waiting for a futex within ten seconds.
bool sleeps(pid_t thread) {
  const std::string path = "/proc/self/task/" + std::to_string(thread) + "/syscall";
  const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (std::chrono::steady_clock::now() < end) {
    std::ifstream file(path);
    int number = -1;
    file >> number;
    if (number == SYS_futex) return true;
    std::this_thread::yield();
  }
  return false;
}

// A walk takes as long as the runtime does. Other threads that need it leave the processor alone.
TEST_F(HsaDevicesTest, AWalkIsWaitedForAsleep) {
  static std::atomic<pid_t> waiting{0};
  static std::atomic<bool> is_under_way{false}, has_slept{false};
  slots[slot::hsa_iterate_agents] = reinterpret_cast<void*>(+[](void* callback, void* data) {
    if (is_under_way.exchange(true)) return iterate_agents(callback, data);
    while (waiting == 0) std::this_thread::yield();
    has_slept = sleeps(waiting);
    return iterate_agents(callback, data);
  });
  std::thread other([] {
    while (!is_under_way) std::this_thread::yield();
    waiting = gettid();
    EXPECT_EQ(device_count(), kAgents);
  });
  EXPECT_EQ(device_count(), kAgents);
  other.join();
  EXPECT_TRUE(has_slept);
}

// Readers get a device of one start or of another, but never the parts of two.
TEST_F(HsaDevicesTest, AreReadWhileTheyAreForgotten) {
  constexpr int kReaders = 2, kRestarts = 2000;
  std::atomic<bool> done{false};
  std::atomic<int> torn{0};
  std::vector<std::thread> readers;
  for (int reader = 0; reader < kReaders; ++reader) {
    readers.emplace_back([&] {
      while (!done) {
        const int owner = owner_of(Handle::agent, agent_handle(start, kAgents - 1)).device;
        // A walk between the two steps of a restart finds the agents of both starts.
        if (owner >= 2 * kAgents) ++torn;
        for (int number = 0; number < device_count(); ++number) {
          const Device& one = device(number);
          const std::string name(one.uuid.view());
          if (one.agent.handle != 0 && name != name_of(one.agent.handle)) ++torn;
        }
      }
    });
  }
  for (int i = 0; i < kRestarts; ++i) {
    restart();
    device_count();
  }
  done = true;
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(torn, 0);
}

}  // namespace
}  // namespace fracgpu::hsa
