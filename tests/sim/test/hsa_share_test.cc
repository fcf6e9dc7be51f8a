// Memory that several processes hold through the simulated HSA runtime. It must stay as long as
// anybody holds it, be charged to its maker's tenant all the while, and be gone at once with the
// last holder, however that ends.
#include <unistd.h>

#include <cstring>

#include "sim/test/hsa_vmem_calls.h"

using namespace simtest;

namespace {

constexpr int kInvalidArgument = HSA_STATUS_ERROR_INVALID_ARGUMENT;
constexpr int kInvalidAllocation = HSA_STATUS_ERROR_INVALID_ALLOCATION;

TEST(SimHsaShare, ADescriptorAndAnImporterOutliveTheMaker) {
  TestNode node("tiny-amd");
  setenv(sim::kTenantVariable, "maker", 1);
  Channel channel;
  Child maker([&](Child& parent) {
    const Machine machine = hsa_start();
    Handle handle{};
    int file = -1;
    ASSERT_EQ(vmem_create(machine.gpu[0], 100 * kMiB, &handle), 0);
    ASSERT_EQ(
        hsa<int(int*, Handle, uint64_t)>("hsa_amd_vmem_export_shareable_handle")(&file, handle, 0),
        0);
    channel.send(file);
    parent.say(1);
    parent.hear();
  });
  maker.hear();
  const int file = channel.receive();
  EXPECT_EQ(node->used(0), 101 * kMiB);
  maker.kill();
  EXPECT_EQ(node->used(0), 100 * kMiB);
  EXPECT_EQ(node->orphaned(0), 100 * kMiB);
  setenv(sim::kTenantVariable, "importer", 1);
  in_child([&] {
    hsa_start();
    Handle handle{};
    ASSERT_EQ(hsa<int(int, Handle*)>("hsa_amd_vmem_import_shareable_handle")(file, &handle), 0);
    close(file);
    void* address = nullptr;
    ASSERT_EQ(vmem_reserve(&address, 100 * kMiB), 0);
    ASSERT_EQ(vmem_map(address, 100 * kMiB, handle), 0);
    std::memset(address, 1, 4096);
    EXPECT_EQ(vmem_release(handle), 0);
    EXPECT_EQ(node->used(0), 101 * kMiB);
    EXPECT_EQ(node->tenant_used(0, "maker"), 100 * kMiB);
    EXPECT_EQ(node->tenant_used(0, "importer"), kContext);
  });
  EXPECT_EQ(node->used(0), 100 * kMiB);
  close(file);
  EXPECT_EQ(node->used(0), 0u);
  EXPECT_TRUE(node->consistent());
  unsetenv(sim::kTenantVariable);
}

using Ipc = hsa_amd_ipc_memory_t;

int ipc_create(void* address, size_t bytes, Ipc* out) {
  return hsa<int(void*, size_t, Ipc*)>("hsa_amd_ipc_memory_create")(address, bytes, out);
}
int ipc_attach(const Ipc& handle, size_t bytes, void** out) {
  return hsa<int(const Ipc*, size_t, uint32_t, const void*, void**)>("hsa_amd_ipc_memory_attach")(
      &handle, bytes, 0, nullptr, out);
}
int ipc_detach(void* address) {
  return hsa<int(void*)>("hsa_amd_ipc_memory_detach")(address);
}

// Carries the four words of a handle.
void say_handle(Child& to, const Ipc& handle) {
  uint64_t words[4];
  static_assert(sizeof words == sizeof handle);
  std::memcpy(words, &handle, sizeof words);
  for (const uint64_t word : words) to.say(word);
}
Ipc hear_handle(Child& from) {
  uint64_t words[4];
  for (uint64_t& word : words) word = from.hear();
  Ipc handle;
  std::memcpy(&handle, words, sizeof handle);
  return handle;
}

TEST(SimHsaShare, IpcSharesABlockAtItsMakersCost) {
  TestNode node("tiny-amd");
  Child maker([&](Child& parent) {
    const Machine machine = hsa_start();
    void *address = nullptr, *large = nullptr, *other = nullptr;
    Ipc handle;
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 64 * kKiB, &address), 0);
    EXPECT_EQ(ipc_create(address, 4096, &handle), kInvalidArgument);
    ASSERT_EQ(ipc_create(address, 64 * kKiB, &handle), 0);
    say_handle(parent, handle);
    // The block is out of use for other fragments.
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 64 * kKiB, &other), 0);
    EXPECT_EQ(node->used(0), kContext + 4 * kMiB);
    EXPECT_EQ(pool_free(other), 0);
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 50 * kMiB, &large), 0);
    ASSERT_EQ(ipc_create(large, 50 * kMiB, &handle), 0);
    say_handle(parent, handle);
    parent.hear();
    EXPECT_EQ(pool_free(address), 0);
    EXPECT_EQ(pool_free(large), 0);
    parent.say(1);
    parent.hear();
  });
  const Ipc small = hear_handle(maker), large = hear_handle(maker);
  Child importer([&](Child& parent) {
    hsa_start();
    void *first = nullptr, *second = nullptr, *third = nullptr;
    EXPECT_EQ(ipc_attach(small, 4096, &first), kInvalidArgument);
    ASSERT_EQ(ipc_attach(small, 64 * kKiB, &first), 0);
    ASSERT_EQ(ipc_attach(large, 50 * kMiB, &second), 0);
    ASSERT_EQ(ipc_attach(large, 50 * kMiB, &third), 0);
    std::memset(second, 1, 50 * kMiB);
    EXPECT_EQ(pool_free(first), kInvalidAllocation);
    EXPECT_EQ(ipc_detach(third), 0);
    EXPECT_EQ(ipc_detach(third), kInvalidArgument);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(ipc_detach(first), 0);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(ipc_detach(second), 0);
    parent.say(1);
    parent.hear();
  });
  importer.hear();
  EXPECT_EQ(node->used(0), 2 * kContext + 54 * kMiB);  // one cached block of the maker's
  EXPECT_EQ(node->used_by_pid(0, importer.pid()), kContext);
  maker.say(1);
  maker.hear();
  EXPECT_EQ(node->used(0), 2 * kContext + 54 * kMiB);
  importer.say(1);
  importer.hear();
  EXPECT_EQ(node->used(0), 2 * kContext + 52 * kMiB);
  maker.kill();
  EXPECT_EQ(node->used(0), kContext + 50 * kMiB);
  importer.say(1);
  importer.hear();
  EXPECT_EQ(node->used(0), kContext);
  in_child([&] {
    hsa_start();
    void* late = nullptr;
    EXPECT_EQ(ipc_attach(large, 50 * kMiB, &late), kInvalidArgument);
  });
}

// As newest runtimes hand them out: the exporter's address and PID, asked for over a socket. The
// block stays the runtime's, and what comes to lie there next has the same handle.
TEST(SimHsaShare, IpcHandlesThatStandForADescriptor) {
  TestNode node("tiny-amd");
  setenv("FRACGPU_SIM_HSA_IPC", "descriptor", 1);
  Child maker([&](Child& parent) {
    const Machine machine = hsa_start();
    void *first = nullptr, *second = nullptr, *other = nullptr;
    Ipc handle, again;
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 64 * kKiB, &other), 0);
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 64 * kKiB, &first), 0);
    ASSERT_EQ(ipc_create(first, 64 * kKiB, &handle), 0);
    EXPECT_EQ(handle.handle[2], static_cast<uint32_t>(getpid()));
    EXPECT_EQ(pool_free(first), 0);
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 64 * kKiB, &second), 0);
    EXPECT_EQ(node->used(0), kContext + 2 * kMiB) << "the block went out of use";
    ASSERT_EQ(ipc_create(second, 64 * kKiB, &again), 0);
    EXPECT_EQ(std::memcmp(&handle, &again, sizeof handle), 0);
    say_handle(parent, again);
    parent.hear();
    EXPECT_EQ(pool_free(second), 0);
    parent.say(1);
    parent.hear();
  });
  const Ipc handle = hear_handle(maker);
  Child importer([&](Child& parent) {
    hsa_start();
    void *address = nullptr, *late = nullptr;
    ASSERT_EQ(ipc_attach(handle, 64 * kKiB, &address), 0);
    std::memset(address, 1, 64 * kKiB);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(ipc_attach(handle, 64 * kKiB, &late), kInvalidArgument) << "it was freed";
    parent.say(1);
    parent.hear();
    EXPECT_EQ(ipc_attach(handle, 64 * kKiB, &late), kInvalidArgument) << "nobody is there";
    EXPECT_EQ(ipc_detach(address), 0);
  });
  importer.hear();
  maker.say(1);
  maker.hear();
  importer.say(1);
  importer.hear();
  maker.kill();
  EXPECT_EQ(node->used(0), kContext + 2 * kMiB);
  importer.say(1);
  EXPECT_TRUE(importer.ended());
  EXPECT_EQ(node->used(0), 0u);
  unsetenv("FRACGPU_SIM_HSA_IPC");
}

TEST(SimHsaShare, ADmabufIsMappedByOthers) {
  TestNode node("tiny-amd");
  Channel channel;
  Child maker([&](Child& parent) {
    const Machine machine = hsa_start();
    char* address = nullptr;
    void* out = nullptr;
    ASSERT_EQ(pool_take(machine.gpu[0].coarse, 8 * kMiB, &out), 0);
    address = static_cast<char*>(out);
    auto* share = hsa<int(const void*, size_t, int*, uint64_t*)>("hsa_amd_portable_export_dmabuf");
    int file = -1;
    uint64_t offset = 0;
    EXPECT_EQ(share(address + 8 * kMiB, 1, &file, &offset), kInvalidAllocation);
    ASSERT_EQ(share(address + 4096, 4096, &file, &offset), 0);
    EXPECT_EQ(offset, 4096u);
    const int copy = dup(file);
    channel.send(file);
    EXPECT_EQ(hsa<int(int)>("hsa_amd_portable_close_dmabuf")(copy), 0);
    parent.say(1);
    parent.hear();
  });
  maker.hear();
  Child importer([&](Child& parent) {
    const Machine machine = hsa_start();
    const int file = channel.receive();
    auto* import = hsa<int(uint32_t, const void*, int, uint32_t, size_t*, void**, void*, void*)>(
        "hsa_amd_interop_map_buffer");
    size_t bytes = 0;
    void* address = nullptr;
    ASSERT_EQ(import(1, &machine.gpu[0].agent, file, 0, &bytes, &address, nullptr, nullptr), 0);
    EXPECT_EQ(bytes, 8 * kMiB);
    std::memset(address, 1, bytes);
    close(file);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(hsa<int(void*)>("hsa_amd_interop_unmap_buffer")(address), 0);
    parent.say(1);
    parent.hear();
  });
  importer.hear();
  maker.kill();
  EXPECT_EQ(node->used(0), kContext + 8 * kMiB);
  importer.say(1);
  importer.hear();
  EXPECT_EQ(node->used(0), kContext);
}

TEST(SimHsaShare, DeathInTheMiddle) {
  TestNode node("tiny-amd");
  kill_in_the_middle(node, 40, [](Child& parent) {
    const Machine machine = hsa_start();
    parent.say(0);
    for (;;) {
      Handle handle{}, copy{};
      int file = -1;
      void* address = nullptr;
      if (vmem_create(machine.gpu[0], 4 * kMiB, &handle) != 0 ||
          vmem_reserve(&address, 4 * kMiB) != 0)
        break;
      vmem_map(address, 4 * kMiB, handle);
      hsa<int(int*, Handle, uint64_t)>("hsa_amd_vmem_export_shareable_handle")(&file, handle, 0);
      hsa<int(int, Handle*)>("hsa_amd_vmem_import_shareable_handle")(file, &copy);
      close(file);
      vmem_unmap(address, 4 * kMiB);
      vmem_unreserve(address, 4 * kMiB);
      vmem_release(handle);
      vmem_release(copy);
      void* plain = nullptr;
      Ipc ticket;
      pool_take(machine.gpu[0].coarse, 4096, &plain);
      ipc_create(plain, 4096, &ticket);
      pool_free(plain);
    }
  });
}

}  // namespace
