// The simulated HSA runtime's agents, its beginning and end in a process, and what it exports.
#include <unistd.h>

#include <cstdlib>
#include <cstring>
#include <set>

#include "sim/node/container.h"
#include "sim/test/hsa_calls.h"

using namespace simtest;

namespace {

constexpr int kOutOfResources = HSA_STATUS_ERROR_OUT_OF_RESOURCES;
constexpr int kNotInitialized = HSA_STATUS_ERROR_NOT_INITIALIZED;

TEST(SimHsa, AgentsAreTheNodes) {
  TestNode node("mi300x+2xmi210");
  in_child([&] {
    const Machine machine = hsa_start();
    ASSERT_EQ(machine.gpu.size(), 3u);
    for (int i = 0; i < 3; ++i) {
      const sim::DeviceRow& row = node->device(i);
      const Gpu& gpu = machine.gpu[static_cast<size_t>(i)];
      EXPECT_EQ(agent_text(gpu.agent, HSA_AGENT_INFO_NAME), i == 0 ? "gfx942" : "gfx90a");
      EXPECT_EQ(agent_text(gpu.agent, HSA_AMD_AGENT_INFO_PRODUCT_NAME), row.name);
      EXPECT_EQ(agent_text(gpu.agent, HSA_AMD_AGENT_INFO_UUID), node->uuid(i));
      EXPECT_EQ(agent_info<uint32_t>(gpu.agent, HSA_AMD_AGENT_INFO_BDFID), row.location_id);
      EXPECT_EQ(agent_info<uint32_t>(gpu.agent, HSA_AMD_AGENT_INFO_DOMAIN), 0u);
      EXPECT_EQ(agent_info<uint32_t>(gpu.agent, HSA_AMD_AGENT_INFO_DRIVER_NODE_ID), row.kfd_node);
      EXPECT_EQ(agent_info<uint32_t>(gpu.agent, sim::kAgentDriverUid), row.kfd_gpu_id);
      EXPECT_EQ(free_bytes(gpu), row.total - kContext);
      size_t size = 0;
      hsa<int(hsa_amd_memory_pool_t, uint32_t, void*)>("hsa_amd_memory_pool_get_info")(
          gpu.coarse, HSA_AMD_MEMORY_POOL_INFO_SIZE, &size);
      EXPECT_EQ(size, row.total);
    }
  });
}

TEST(SimHsa, PartitionsAreAgentsHoweverTheyAreNamed) {
  struct Naming {
    const char* profile;
    size_t bus_ids, uuids;  // different ones
  };
  for (const Naming& naming :
       {Naming{"mi300x-cpx-nps4", 1, 1}, Naming{"mi300x-cpx-nps4-fn", 8, 1},
        Naming{"mi300x-cpx-nps4-xcp", 1, 8}, Naming{"mi300x-cpx-nps1", 1, 1}}) {
    TestNode node(naming.profile);
    in_child([&] {
      const Machine machine = hsa_start();
      ASSERT_EQ(machine.gpu.size(), 8u);
      std::set<uint32_t> bus_ids, gpu_ids;
      std::set<std::string> uuids;
      for (const Gpu& gpu : machine.gpu) {
        // The whole location id, of which HIP takes these bits.
        bus_ids.insert(agent_info<uint32_t>(gpu.agent, HSA_AMD_AGENT_INFO_BDFID) & 0xffff);
        gpu_ids.insert(agent_info<uint32_t>(gpu.agent, sim::kAgentDriverUid));
        uuids.insert(agent_text(gpu.agent, HSA_AMD_AGENT_INFO_UUID));
        EXPECT_EQ(free_bytes(gpu), 24574 * kMiB - kContext);
        EXPECT_EQ(agent_info<uint32_t>(gpu.agent, HSA_AMD_AGENT_INFO_COMPUTE_UNIT_COUNT), 38u);
        EXPECT_EQ(agent_info<uint32_t>(gpu.agent, sim::kAgentXccCount), 1u);
      }
      EXPECT_EQ(bus_ids.size(), naming.bus_ids) << naming.profile;
      EXPECT_EQ(uuids.size(), naming.uuids) << naming.profile;
      EXPECT_EQ(gpu_ids.size(), 8u);
      void* address = nullptr;
      ASSERT_EQ(pool_take(machine.gpu[5].coarse, 4 * kMiB, &address), 0);
      EXPECT_EQ(node->used(5), kContext + 4 * kMiB);
      EXPECT_EQ(node->used(4), kContext);
    });
  }
}

TEST(SimHsa, VisibleDevicesChooseAndOrder) {
  TestNode node("3xtiny-amd");
  struct Choice {
    std::string list;
    std::vector<int> devices;
  };
  const std::string last = node->uuid(2);
  for (const Choice& choice :
       {Choice{"1", {1}}, Choice{"2,0", {2, 0}}, Choice{last + ", 1", {2, 1}}, Choice{"0,7,1", {0}},
        Choice{"1,1,0", {1}}, Choice{"", {}}}) {
    setenv("ROCR_VISIBLE_DEVICES", choice.list.c_str(), 1);
    in_child([&] {
      const Machine machine = hsa_start();
      std::vector<int> devices;
      for (const Gpu& gpu : machine.gpu) {
        for (int i = 0; i < 3; ++i) {
          if (agent_info<uint32_t>(gpu.agent, sim::kAgentDriverUid) == node->device(i).kfd_gpu_id)
            devices.push_back(i);
        }
      }
      EXPECT_EQ(devices, choice.devices) << choice.list;
      // What is hidden is not touched either.
      EXPECT_EQ(node->used(2) != 0, choice.list.find('2') == 0 || choice.list.find(last) == 0);
    });
    unsetenv("ROCR_VISIBLE_DEVICES");
  }
}

// As libhsakmt does, whichever way a container keeps a device from it.
TEST(SimHsa, NodesThatAreHiddenAreLeftOutOfTheNumbering) {
  TestNode node("3xtiny-amd@reversed");
  for (const char* hidden : {"2", "2:render"}) {
    setenv(sim::kHiddenVariable, hidden, 1);
    in_child([&] {
      const Machine machine = hsa_start();
      ASSERT_EQ(machine.gpu.size(), 2u);
      for (const int i : {0, 1}) {
        const hsa_agent_t agent = machine.gpu[static_cast<size_t>(i)].agent;
        const sim::DeviceRow& row = node->device(1 - i);
        EXPECT_EQ(row.kfd_node, static_cast<uint32_t>(i) + 2);
        EXPECT_EQ(agent_info<uint32_t>(agent, HSA_AMD_AGENT_INFO_DRIVER_NODE_ID), i + 1u);
        EXPECT_EQ(agent_info<uint32_t>(agent, sim::kAgentDriverUid), row.kfd_gpu_id);
        EXPECT_EQ(agent_info<uint32_t>(agent, HSA_AMD_AGENT_INFO_BDFID), row.location_id);
      }
      EXPECT_EQ(node->used(2), 0u);
    });
    unsetenv(sim::kHiddenVariable);
  }
}

TEST(SimHsa, ARuntimeBefore57DoesNotTellKfdsNumber) {
  TestNode node("tiny-amd");
  setenv("FRACGPU_SIM_ROCR", "5.6", 1);
  in_child([&] {
    const Machine machine = hsa_start();
    uint32_t id = 0;
    EXPECT_NE(hsa<int(hsa_agent_t, uint32_t, void*)>("hsa_agent_get_info")(
                  machine.gpu[0].agent, sim::kAgentDriverUid, &id),
              0);
  });
  unsetenv("FRACGPU_SIM_ROCR");
}

TEST(SimHsa, AProcessMaySeeSixtyFourDevices) {
  TestNode node("8xmi300x-cpx-nps1");
  in_child([&] {
    const Machine machine = hsa_start();
    ASSERT_EQ(machine.gpu.size(), 64u);
    void* address = nullptr;
    ASSERT_EQ(pool_take(machine.gpu[63].coarse, 4 * kMiB, &address), 0);
    EXPECT_EQ(node->used(63), kContext + 4 * kMiB);
  });
}

TEST(SimHsa, InitTakesAndTheLastShutDownReturns) {
  TestNode node("2xtiny-amd");
  in_child([&] {
    EXPECT_EQ(hsa<int()>("hsa_shut_down")(), kNotInitialized);
    const Machine machine = hsa_start();
    EXPECT_EQ(hsa<int()>("hsa_init")(), 0);
    for (int dev = 0; dev < 2; ++dev) EXPECT_EQ(node->context_bytes(dev, getpid()), kContext);
    void* address = nullptr;
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 3 * kMiB, &address), 0);
    EXPECT_EQ(hsa_stop(), 0);
    EXPECT_EQ(node->used(0), kContext + 4 * kMiB);
    EXPECT_EQ(hsa_stop(), 0);
    EXPECT_EQ(node->used(0), 0u);
    EXPECT_EQ(node->used(1), 0u);
    EXPECT_EQ(hsa_stop(), kNotInitialized);
    EXPECT_EQ(pool_take(machine.gpu[0].coarse, 4096, &address), kNotInitialized);
    EXPECT_EQ(hsa_start().gpu.size(), 2u);
    EXPECT_EQ(node->used(1), kContext);
  });
  EXPECT_TRUE(node->consistent());
}

TEST(SimHsa, InitFailsWithoutDevicesOrRoom) {
  {
    TestNode node("tiny");  // NVIDIA alone
    in_child([] { EXPECT_EQ(hsa<int()>("hsa_init")(), kOutOfResources); });
  }
  TestNode node("2xtiny-amd");
  Child full([&](Child& parent) {
    const Machine machine = hsa_start();
    void* address = nullptr;
    ASSERT_EQ(pool_take(machine.gpu[1].coarse, 1022 * kMiB, &address), 0);
    ASSERT_EQ(pool_take(machine.gpu[1].coarse, 600 * kKiB, &address, 4), 0);
    parent.say(0);
    parent.hear();
  });
  full.hear();
  in_child([] { EXPECT_EQ(hsa<int()>("hsa_init")(), kOutOfResources); });
  EXPECT_EQ(node->used(0), kContext);
}

TEST(SimHsa, ForkedChildrenAreStrangers) {
  TestNode node("tiny-amd");
  in_child([&] {
    const Machine machine = hsa_start();
    void* address = nullptr;
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 4 * kMiB, &address), 0);
    const hsa_signal_t signal = signal_make(1);
    in_child([&] {
      EXPECT_EQ(pool_take(machine.gpu[0].coarse, 4096, &address), kNotInitialized);
      EXPECT_EQ(pool_free(address), kNotInitialized);
      EXPECT_EQ(hsa<int()>("hsa_init")(), kOutOfResources);
      EXPECT_EQ(hsa_stop(), kNotInitialized);
      EXPECT_FALSE(signal_reaches(signal, 0));  // nobody will, so it does not wait
    });
    EXPECT_EQ(node->used(0), kContext + 4 * kMiB);
    std::memset(address, 1, 4 * kMiB);
    EXPECT_EQ(pool_free(address), 0);
    EXPECT_EQ(node->used(0), kContext);
  });
  // A child of a process that has not begun is as good as any.
  in_child([&] { in_child([] { EXPECT_EQ(hsa_start().gpu.size(), 1u); }); });
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimHsa, OrderedFailuresAndNotMore) {
  TestNode node("tiny-amd");
  setenv("FRACGPU_SIM_FAIL", "hsa_amd_memory_pool_allocate:2=4104,hsa_init:1=4096", 1);
  in_child([&] {
    EXPECT_EQ(hsa<int()>("hsa_init")(), HSA_STATUS_ERROR);
    const Machine machine = hsa_start();
    void* address = nullptr;
    EXPECT_EQ(pool_take(machine.gpu[0].coarse, 4096, &address), 0);
    EXPECT_EQ(pool_take(machine.gpu[0].coarse, 4096, &address), kOutOfResources);
    EXPECT_EQ(pool_take(machine.gpu[0].coarse, 4096, &address), 0);
  });
  unsetenv("FRACGPU_SIM_FAIL");
}

TEST(SimHsa, StubsSayWhatTheyAre) {
  TestNode node("tiny-amd");
  in_child([] {
    EXPECT_EQ(hsa<int(int)>("hsa_amd_spm_acquire")(0), kNotInitialized);
    hsa_start();
    EXPECT_EQ(hsa<int(int)>("hsa_amd_spm_acquire")(0), HSA_STATUS_ERROR);
    EXPECT_EQ(hsa<int(int)>("hsa_amd_register_system_event_handler")(0), 0);
  });
}

}  // namespace
