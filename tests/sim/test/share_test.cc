// Tests of memory that several processes hold: by imported handles, by open descriptors, by IPC.
// It must stay as long as anybody holds it, be charged to its maker's tenant all the while, and be
// gone at once with the last holder, however that ends.
#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <memory>
#include <vector>

#include "sim/test/vmm_calls.h"

using namespace simtest;

namespace {

// Creates and exports memory, sends the descriptor and waits to be told to end.
void exporter(Child& parent, Channel& channel, uint64_t mib) {
  ASSERT_EQ(cu_start(), 0);
  Handle handle = 0;
  int fd = -1;
  ASSERT_EQ(vmm_create(&handle, mib * kMiB), 0);
  ASSERT_EQ(vmm_export(&fd, handle), 0);
  channel.send(fd);
  parent.say(1);
  parent.hear();
}

TEST(SimShare, DescriptorOutlivesItsExporter) {
  TestNode node;
  setenv(sim::kTenantVariable, "maker", 1);
  Channel channel;
  Child child([&](Child& parent) { exporter(parent, channel, 100); });
  child.hear();
  const int fd = channel.receive();
  EXPECT_EQ(node->used_by_pid(0, child.pid()), 164 * kMiB);
  EXPECT_EQ(node->orphaned(0), 0u);
  child.kill();
  EXPECT_EQ(node->used(0), 100 * kMiB);
  EXPECT_EQ(node->orphaned(0), 100 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "maker"), 100 * kMiB);
  EXPECT_EQ(node->tenant_high_water(0, "maker"), 164 * kMiB);
  EXPECT_TRUE(node->processes().empty());
  // What is really there counts towards the tenant's next peak, and blocks the device.
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 200 * kMiB), 0);
    EXPECT_EQ(node->tenant_high_water(0, "maker"), 364 * kMiB);
    EXPECT_EQ(cu_alloc(&address, 662 * kMiB), 2);
  });
  // Copies and heirs of the descriptor hold it too.
  const int copy = dup(fd);
  close(fd);
  EXPECT_EQ(node->used(0), 100 * kMiB);
  Child heir([&](Child& parent) { parent.hear(); });
  close(copy);
  EXPECT_EQ(node->used(0), 100 * kMiB);
  heir.kill();
  EXPECT_EQ(node->used(0), 0u);
  EXPECT_EQ(node->tenant_high_water(0, "maker"), 364 * kMiB);
  std::string difference;
  EXPECT_TRUE(node->consistent(&difference)) << difference;
  unsetenv(sim::kTenantVariable);
}

TEST(SimShare, DescriptorOnItsWayHolds) {
  TestNode node;
  auto channel = std::make_unique<Channel>();
  Child child([&](Child& parent) { exporter(parent, *channel, 10); });
  child.hear();
  child.kill();
  EXPECT_EQ(node->used(0), 10 * kMiB);  // in a socket's queue, in no process
  channel.reset();
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimShare, ImporterKeepsItAtTheMakersCost) {
  TestNode node;
  Channel channel;
  setenv(sim::kTenantVariable, "maker", 1);
  Child maker([&](Child& parent) { exporter(parent, channel, 50); });
  maker.hear();
  setenv(sim::kTenantVariable, "user", 1);
  Child user([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    const int fd = channel.receive();
    Handle handle = 0, second = 0;
    Pointer address = 0;
    ASSERT_EQ(vmm_import(&handle, fd), 0);
    ASSERT_EQ(vmm_import(&second, fd), 0);
    close(fd);
    CUmemAllocationProp prop = {};
    ASSERT_EQ((cuda<int(CUmemAllocationProp*, Handle)>("cuMemGetAllocationPropertiesFromHandle")(
                  &prop, handle)),
              0);
    EXPECT_EQ(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    EXPECT_EQ(prop.location.id, 0);
    ASSERT_EQ(vmm_reserve(&address, 50 * kMiB), 0);
    ASSERT_EQ(vmm_map(address, 50 * kMiB, handle), 0);
    EXPECT_EQ(vmm_release(second), 0);
    EXPECT_EQ(vmm_release(handle), 0);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(vmm_unmap(address, 50 * kMiB), 0);
    parent.say(2);
    parent.hear();
  });
  user.hear();
  unsetenv(sim::kTenantVariable);
  EXPECT_EQ(node->tenant_used(0, "user"), 64 * kMiB);
  EXPECT_EQ(node->used_by_pid(0, user.pid()), 64 * kMiB);
  maker.kill();
  EXPECT_EQ(node->used(0), 114 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "maker"), 50 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "user"), 64 * kMiB);
  user.say(1);
  user.hear();
  EXPECT_EQ(node->used(0), 64 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "maker"), 0u);
  EXPECT_EQ(node->tenant_high_water(0, "maker"), 114 * kMiB);
  EXPECT_EQ(node->tenant_high_water(0, "user"), 64 * kMiB);
  user.say(1);
  EXPECT_TRUE(user.ended());
}

TEST(SimShare, ReleasedByItsMakerFirst) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0, imported = 0;
    int fd = -1;
    ASSERT_EQ(vmm_create(&handle, 6 * kMiB), 0);
    ASSERT_EQ(vmm_export(&fd, handle), 0);
    ASSERT_EQ(vmm_import(&imported, fd), 0);
    EXPECT_EQ(node->used(0), 70 * kMiB);  // shared is not twice
    EXPECT_EQ(vmm_release(handle), 0);
    close(fd);
    EXPECT_EQ(node->used(0), 70 * kMiB);
    EXPECT_EQ(vmm_release(imported), 0);
    EXPECT_EQ(node->used(0), 64 * kMiB);
    EXPECT_EQ(vmm_import(&imported, open("/dev/null", O_RDONLY)), 1);
    EXPECT_EQ(vmm_import(&imported, open(node.path().c_str(), O_RDWR)), 1);
    EXPECT_EQ(vmm_import(&imported, 9999), 1);
  });
}

TEST(SimShare, KilledImporterLetsGo) {
  TestNode node;
  Channel channel;
  Child maker([&](Child& parent) { exporter(parent, channel, 20); });
  maker.hear();
  Child user([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    const int fd = channel.receive();
    Handle handle = 0;
    ASSERT_EQ(vmm_import(&handle, fd), 0);
    parent.say(1);
    parent.hear();
  });
  user.hear();
  maker.kill();
  EXPECT_EQ(node->used(0), 84 * kMiB);
  user.kill();
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimShare, IpcMemoryOutlivesItsExporter) {
  TestNode node;
  struct Ticket {
    char bytes[64];
  };
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  Child maker([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer small = 0, large = 0;
    ASSERT_EQ(cu_alloc(&small, 4096), 0);
    ASSERT_EQ(cu_alloc(&large, 30 * kMiB), 0);
    for (const Pointer address : {small, large}) {
      Ticket ticket;
      ASSERT_EQ((cuda<int(Ticket*, Pointer)>("cuIpcGetMemHandle")(&ticket, address)), 0);
      ASSERT_EQ(write(pipes[1], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
    }
    parent.say(1);
    parent.hear();
  });
  maker.hear();
  Ticket tickets[2];
  ASSERT_EQ(read(pipes[0], tickets, sizeof tickets), static_cast<ssize_t>(sizeof tickets));
  Child user([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer small = 0, large = 0;
    auto* open = cuda<int(Pointer*, Ticket, unsigned)>("cuIpcOpenMemHandle_v2");
    auto* close = cuda<int(Pointer)>("cuIpcCloseMemHandle");
    ASSERT_EQ(open(&small, tickets[0], 1), 0);
    ASSERT_EQ(open(&large, tickets[1], 1), 0);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(close(large), 0);
    EXPECT_EQ(open(&large, tickets[1], 1), 205);  // gone for good
    parent.say(1);
    parent.hear();
  });
  user.hear();
  EXPECT_EQ(node->used(0), (64 + 2 + 30 + 64) * kMiB);
  maker.kill();
  EXPECT_EQ(node->used(0), (2 + 30 + 64) * kMiB);
  EXPECT_EQ(node->used_by_pid(0, user.pid()), (2 + 30 + 64) * kMiB) << "it is handed on";
  EXPECT_EQ(node->handed_on_to_pid(0, user.pid()), (2 + 30) * kMiB);
  user.say(1);
  user.hear();
  EXPECT_EQ(node->used(0), (2 + 64) * kMiB);
  user.say(1);
  EXPECT_TRUE(user.ended());
  EXPECT_EQ(node->used(0), 0u);
}

TEST(SimShare, KilledInTheMiddleOfSharing) {
  sim::NodeOptions options;
  options.context_mib = 2;
  TestNode node("tiny", options);
  kill_in_the_middle(node, 40, [](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    parent.say(0);
    for (;;) {
      Handle handle = 0, imported = 0;
      int fd = -1;
      if (vmm_create(&handle, 4 * kMiB) != 0) continue;
      vmm_export(&fd, handle);
      vmm_import(&imported, fd);
      close(fd);
      vmm_release(handle);
      vmm_release(imported);
    }
  });
  // 2 of context, 4 of memory: never more, whatever was counted twice for a moment.
  EXPECT_EQ(node->tenant_high_water(0, "none"), 6 * kMiB);
}

}  // namespace
