// The real HIP runtime, in four releases, on the simulated HSA runtime: what a program asks for is
// in the node's accounting to the byte, streams and events come to an end, copies copy, and memory
// crosses processes. Where a release behaves in its own way, the test says which and how.
#include "sim/test/hip_client.h"
#include "sim/test/support.h"

using namespace simtest;

namespace {

constexpr int kOutOfMemory = 2;

constexpr HipRelease kReleases[] = {
    {"5.2.3", 502, "mi210", false},  // knows no gfx942
    {"5.7.1", 507, "mi300x", true},
    {"6.4.3", 604, "mi300x", true},
    {"7.2.4", 702, "mi300x", true},
};

class SimHip : public testing::TestWithParam<HipRelease> {
 protected:
  SimHip() : node_(GetParam().profile, {.total_mib = 8192}) {}
  void SetUp() override {
    std::string why;
    command_ = hip_command(GetParam(), &why);
    if (command_.empty()) GTEST_SKIP() << "HIP " << GetParam().name << " cannot be had: " << why;
  }
  int release() const { return GetParam().number; }
  uint64_t used() { return node_->used(0); }

  // With its queue and its kernels in place, so that only what is asked for is taken from here on.
  std::unique_ptr<HipClient> warm_client() {
    auto client = std::make_unique<HipClient>(command_);
    EXPECT_EQ(client->number("init", 1), static_cast<unsigned>(release()));
    const std::string place = client->make("malloc 4096");
    EXPECT_EQ(client->ask("roundtrip " + place + " 4096"), (std::vector<std::string>{"0", "1"}));
    EXPECT_EQ(client->result("device-sync"), 0);
    return client;
  }

  TestNode node_;
  std::vector<std::string> command_;
};

INSTANTIATE_TEST_SUITE_P(Releases, SimHip, testing::ValuesIn(kReleases), [](const auto& chosen) {
  return "of" + std::to_string(chosen.param.number);
});

TEST_P(SimHip, SeesTheDevice) {
  HipClient client(command_);
  EXPECT_EQ(client.number("init", 1), static_cast<unsigned>(release()));
  EXPECT_EQ(client.number("device-count", 1), 1u);
  EXPECT_EQ(client.number("device-total 0", 1), 8192 * kMiB);
  const std::vector<std::string> properties = client.ask("device-properties 0");
  ASSERT_GE(properties.size(), 3u);
  EXPECT_EQ(properties[1], std::to_string(8192 * kMiB));
  EXPECT_EQ(properties[2].substr(0, properties[2].find(':')),
            release() == 502 ? "gfx90a" : "gfx942");
  EXPECT_EQ(client.ask("device-bus 0")[1], node_->bus_id(0));
  EXPECT_EQ("GPU-" + client.ask("device-uuid 0")[1], node_->uuid(0));
  EXPECT_EQ(node_->context_bytes(0, client.pid()), node_->device(0).context_bytes);
  EXPECT_TRUE(client.finish());
  EXPECT_EQ(used(), 0u);
}

TEST_P(SimHip, MallocIsInTheBooks) {
  const auto client = warm_client();
  const uint64_t before = used();
  const auto free_bytes = [&] { return client->number("info", 1); };
  const uint64_t free_before = free_bytes();
  // 5.2 counts only what its own process has asked of it; later ones ask the device.
  if (release() > 502) {
    EXPECT_EQ(free_before, 8192 * kMiB - before);
  }
  const std::string large = client->make("malloc " + std::to_string(100 * kMiB));
  EXPECT_EQ(used(), before + 100 * kMiB);
  EXPECT_EQ(free_bytes(), free_before - 100 * kMiB);
  const std::string odd = client->make("malloc " + std::to_string(5 * kMiB + 1));
  EXPECT_EQ(used(), before + 106 * kMiB);
  EXPECT_EQ(free_bytes(), free_before - (release() > 502 ? 106 * kMiB : 105 * kMiB + 1024));
  EXPECT_EQ(client->result("free " + large), 0);
  EXPECT_EQ(client->result("free " + odd), 0);
  EXPECT_EQ(used(), before);
  EXPECT_EQ(free_bytes(), free_before);
  // The warm client's 4096 bytes have a block with room for this.
  const std::string small = client->make("malloc " + std::to_string(kMiB / 2));
  EXPECT_EQ(used(), before);
  EXPECT_EQ(client->result("free " + small), 0);
  EXPECT_EQ(client->result("free " + small) == 0, false);
  EXPECT_TRUE(client->finish());
  EXPECT_EQ(used(), 0u);
}

TEST_P(SimHip, ADeviceThatIsFullSaysSo) {
  const auto client = warm_client();
  const uint64_t before = used();
  EXPECT_EQ(client->result("malloc " + std::to_string(8193 * kMiB)), kOutOfMemory);
  EXPECT_EQ(client->result("malloc " + std::to_string(8192 * kMiB - before + 4096)), kOutOfMemory);
  EXPECT_EQ(used(), before);
  // Another process' memory is not there either.
  const auto other = warm_client();
  const std::string theirs = other->make("malloc " + std::to_string(5000 * kMiB));
  EXPECT_EQ(client->result("malloc " + std::to_string(4000 * kMiB)), kOutOfMemory);
  EXPECT_EQ(other->result("free " + theirs), 0);
  client->make("malloc " + std::to_string(4000 * kMiB));
  client->kill();
  EXPECT_LT(used(), 256 * kMiB);  // the other one's queue has a save area of 177 MiB
  EXPECT_TRUE(other->finish());
  EXPECT_EQ(used(), 0u);
}

TEST_P(SimHip, CopiesComeBack) {
  const auto client = warm_client();
  for (const uint64_t bytes : {uint64_t{1}, uint64_t{5000}, 33 * kMiB}) {
    const std::string size = std::to_string(bytes);
    const std::string place = client->make("malloc " + size);
    EXPECT_EQ(client->ask("roundtrip " + place + " " + size), (std::vector<std::string>{"0", "1"}));
    EXPECT_EQ(client->result("free " + place), 0);
  }
  EXPECT_TRUE(client->finish());
}

TEST_P(SimHip, StreamsAndEventsComeToAnEnd) {
  const auto client = warm_client();
  const std::string place = client->make("malloc 65536");
  std::vector<std::string> streams;
  for (int i = 0; i < 6; ++i) streams.push_back(client->make("stream-create"));
  for (int round = 0; round < 3; ++round) {
    for (const std::string& stream : streams) {
      EXPECT_EQ(client->result("stream-memset " + stream + " " + place), 0);
      EXPECT_EQ(client->result("stream-event " + stream), 0);
    }
    for (const std::string& stream : streams) EXPECT_EQ(client->result("stream-sync " + stream), 0);
  }
  EXPECT_EQ(client->result("device-sync"), 0);
  for (const std::string& stream : streams)
    EXPECT_EQ(client->result("stream-destroy " + stream), 0);
  EXPECT_TRUE(client->finish());
  EXPECT_EQ(used(), 0u);
}

// On a stream of its own: with the null stream, 5.2.3 ends in a segmentation fault.
TEST_P(SimHip, MemoryInStreamOrder) {
  const auto client = warm_client();
  const std::string stream = client->make("stream-create");
  EXPECT_EQ(client->result("stream-sync " + stream), 0);
  const uint64_t before = used();
  const std::string place =
      client->make("stream-malloc " + stream + " " + std::to_string(64 * kMiB));
  EXPECT_GE(used(), before + 64 * kMiB);
  EXPECT_EQ(client->result("stream-free " + stream + " " + place), 0);
  EXPECT_EQ(client->result("stream-sync " + stream), 0);
  EXPECT_TRUE(client->finish());
  EXPECT_EQ(used(), 0u);
}

TEST_P(SimHip, PitchedMemoryAndArrays) {
  const auto client = warm_client();
  const uint64_t before = used();
  const std::vector<std::string> pitched = client->ask("pitch 10000 1000");
  ASSERT_EQ(pitched[0], "0");
  const uint64_t bytes = std::stoull(pitched[2]) * 1000;
  EXPECT_GE(bytes, 10000u * 1000);
  EXPECT_EQ(used(), before + (bytes + 2 * kMiB - 1) / (2 * kMiB) * (2 * kMiB));
  EXPECT_EQ(client->result("free " + pitched[1]), 0);
  EXPECT_EQ(used(), before);
  const std::vector<std::string> array = client->ask("array 1024 1024");
  if (array[0] == "801") {
    EXPECT_EQ(release(), 702);  // says that this GPU has no images, which is true
  } else {
    ASSERT_EQ(array[0], "0");
    EXPECT_GE(used(), before + 4 * kMiB);
    EXPECT_EQ(client->result("freearray " + array[1]), 0);
    EXPECT_EQ(used(), before);
  }
  EXPECT_TRUE(client->finish());
}

TEST_P(SimHip, HostAndManagedMemoryCostTheDeviceNothing) {
  const auto client = warm_client();
  const uint64_t before = used();
  const std::string host = client->make("host " + std::to_string(64 * kMiB));
  const std::string managed = client->make("managed " + std::to_string(64 * kMiB));
  EXPECT_EQ(used(), before);
  EXPECT_EQ(client->result("free " + managed), 0);
  EXPECT_TRUE(client->finish());
}

TEST_P(SimHip, VirtualMemory) {
  const auto client = warm_client();
  const uint64_t before = used();
  const std::string size = std::to_string(4 * kMiB);
  const std::string handle = client->make("vmm-create " + size);
  EXPECT_EQ(used(), before + 4 * kMiB);
  if (release() < 600) {
    // Plain memory behind the handle, which is not given back, and no addresses to map it at.
    EXPECT_EQ(client->result("vmm-release " + handle), 0);
    EXPECT_EQ(used(), before + 4 * kMiB);
    return;
  }
  const std::string address = client->make("vmm-reserve " + size);
  EXPECT_EQ(client->result("vmm-map " + address + " " + handle), 0);
  EXPECT_EQ(client->result("vmm-access " + address + " " + size), 0);
  EXPECT_EQ(client->ask("roundtrip " + address + " " + size), (std::vector<std::string>{"0", "1"}));
  const uint64_t mapped = used();  // a queue more, perhaps
  EXPECT_EQ(client->result("vmm-release " + handle), 0);
  EXPECT_EQ(used(), mapped);
  EXPECT_EQ(client->result("vmm-unmap " + address + " " + size), 0);
  EXPECT_EQ(used(), mapped - 4 * kMiB);
  EXPECT_EQ(client->result("vmm-unreserve " + address), 0);
  EXPECT_TRUE(client->finish());
  EXPECT_EQ(used(), 0u);
}

TEST_P(SimHip, MemoryCrossesProcesses) {
  const auto maker = warm_client();
  const auto importer = warm_client();
  const uint64_t before = used();
  const std::string place = maker->make("malloc " + std::to_string(40 * kMiB));
  const std::string ticket = maker->ask("getipc " + place)[1];
  const std::string there = importer->make("openipc " + ticket);
  EXPECT_EQ(used(), before + 40 * kMiB);
  const uint64_t importers = node_->used_by_pid(0, importer->pid());
  maker->kill();
  EXPECT_EQ(used(), importers + 40 * kMiB);
  EXPECT_EQ(node_->orphaned(0), 40 * kMiB);
  EXPECT_EQ(importer->result("closeipc " + there), 0);
  // 5.7.1 detaches the null pointer in its place, and so keeps it to the end.
  EXPECT_EQ(used(), importers + (release() == 507 ? 40 * kMiB : 0));
  EXPECT_TRUE(importer->finish());
  EXPECT_EQ(used(), 0u);
}

TEST_P(SimHip, ForkedChildrenGetNothing) {
  const auto client = warm_client();
  const uint64_t before = used();
  const std::vector<std::string> child = client->ask("fork-malloc 1048576");
  EXPECT_NE(child[0], "0");
  EXPECT_EQ(child[1], "0");
  EXPECT_EQ(used(), before);
  const std::string place = client->make("malloc " + std::to_string(3 * kMiB));
  EXPECT_EQ(client->result("free " + place), 0);
  EXPECT_TRUE(client->finish());
}

TEST_P(SimHip, PartitionsAreDevices) {
  if (release() == 502) GTEST_SKIP() << "HIP 5.2.3 knows no GPU that has partitions";
  for (const char* profile : {"mi300x-cpx-nps4", "mi300x-cpx-nps4-fn", "mi300x-cpx-nps4-xcp"}) {
    TestNode node(profile);
    HipClient client(command_);
    client.number("init", 1);
    EXPECT_EQ(client.number("device-count", 1), 8u);
    for (int dev = 0; dev < 8; ++dev) {
      EXPECT_EQ(client.number("device-total " + std::to_string(dev), 1), 24574 * kMiB);
      EXPECT_EQ("GPU-" + client.ask("device-uuid " + std::to_string(dev))[1], node->uuid(dev));
    }
    const uint64_t before = node->used(5);
    EXPECT_EQ(client.result("device-set 5"), 0);
    client.make("malloc " + std::to_string(100 * kMiB));
    // With the first memory on a device comes what HIP takes for itself there.
    EXPECT_GE(node->used(5), before + 100 * kMiB);
    EXPECT_LT(node->used(5), before + 110 * kMiB);
    EXPECT_LT(node->used(4), 10 * kMiB);
    EXPECT_TRUE(client.finish());
    EXPECT_EQ(node->used(5), 0u);
  }
}

}  // namespace
