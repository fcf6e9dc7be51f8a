// Tests of memory imported from elsewhere, by opaque descriptor and by IPC: it is never the
// importer's, and it stays as long as the import does.
#include <fcntl.h>
#include <unistd.h>

#include "sim/test/array_calls.h"
#include "sim/test/vmm_calls.h"

using namespace simtest;

namespace {

uint64_t mib(TestNode& node) {
  return node->used(0) / kMiB;
}

int import_external(void** out, int fd, uint64_t bytes, int type = 1) {
  CUDA_EXTERNAL_MEMORY_HANDLE_DESC description = {};
  description.type = type;
  description.handle.fd = fd;
  description.size = bytes;
  return cuda<int(void**, const void*)>("cuImportExternalMemory")(out, &description);
}
int end_external(void* memory) {
  return cuda<int(void*)>("cuDestroyExternalMemory")(memory);
}
int map_buffer(Pointer* out, void* memory, uint64_t offset, uint64_t bytes) {
  CUDA_EXTERNAL_MEMORY_BUFFER_DESC part = {};
  part.offset = offset;
  part.size = bytes;
  return cuda<int(Pointer*, void*, const void*)>("cuExternalMemoryGetMappedBuffer")(out, memory,
                                                                                    &part);
}
int map_mipmap(CUmipmappedArray* out, void* memory, uint64_t offset, const Form& form) {
  CUDA_EXTERNAL_MEMORY_MIPMAPPED_ARRAY_DESC part = {};
  part.offset = offset;
  part.arrayDesc = form;
  part.numLevels = 2;
  return cuda<int(CUmipmappedArray*, void*, const void*)>(
      "cuExternalMemoryGetMappedMipmappedArray")(out, memory, &part);
}

TEST(SimExternal, CostsNothing) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    void* memory = nullptr;
    EXPECT_EQ(import_external(&memory, -1, 64 * kMiB), 400);
    EXPECT_EQ(import_external(&memory, 0, 0), 1);
    const int fd = open("/dev/null", O_RDONLY);
    EXPECT_EQ(import_external(&memory, fd, 64 * kMiB, 2), 801);
    EXPECT_EQ(fcntl(fd, F_GETFD) == -1, false);
    ASSERT_EQ(import_external(&memory, fd, 64 * kMiB), 0);
    EXPECT_EQ(fcntl(fd, F_GETFD), -1);  // the driver's now, and closed
    Pointer buffer = 0, second = 0;
    ASSERT_EQ(map_buffer(&buffer, memory, 0, 64 * kMiB), 0);
    ASSERT_EQ(map_buffer(&second, memory, 32 * kMiB, kMiB), 0);
    EXPECT_EQ(map_buffer(&second, memory, 32 * kMiB, 33 * kMiB), 1);
    EXPECT_EQ(map_buffer(&second, memory, UINT64_MAX, 2), 1);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ((cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2")(buffer, 0, 64 * kMiB)),
              0);
    EXPECT_EQ(cu_free(buffer + 512), 1);
    EXPECT_EQ(cu_free(buffer), 0);
    EXPECT_EQ(cu_free(buffer), 1);
    CUmipmappedArray mipmap = nullptr;
    CUarray level = nullptr;
    EXPECT_EQ(map_mipmap(&mipmap, memory, 63 * kMiB, {1024, 1024, 0, 0x20, 1, 0}), 1);
    ASSERT_EQ(map_mipmap(&mipmap, memory, 8 * kMiB, {1024, 1024, 0, 0x20, 1, 0}), 0);
    ASSERT_EQ(mipmap_level(&level, mipmap, 1), 0);
    EXPECT_EQ(mib(node), 64u);
    EXPECT_EQ(mipmap_destroy(mipmap), 0);
    EXPECT_EQ(end_external(memory), 0);
    EXPECT_EQ(end_external(memory), 400);
    EXPECT_EQ(map_buffer(&buffer, memory, 0, 512), 400);
    EXPECT_EQ(cu_free(second), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimExternal, HoldsTheNodesOwnMemory) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0;
    int fd = -1;
    void* memory = nullptr;
    ASSERT_EQ(vmm_create(&handle, 8 * kMiB), 0);
    ASSERT_EQ(vmm_export(&fd, handle), 0);
    EXPECT_EQ(import_external(&memory, fd, 9 * kMiB), 1);
    ASSERT_EQ(import_external(&memory, fd, 8 * kMiB), 0);
    ASSERT_EQ(vmm_release(handle), 0);
    EXPECT_EQ(mib(node), 72u);
    EXPECT_EQ(end_external(memory), 0);
    EXPECT_EQ(mib(node), 64u);
  });
}

TEST(SimExternal, TheDriverSeesADescriptorsEnd) {
  TestNode node;
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    Handle handle = 0;
    int fd = -1;
    size_t free = 0, total = 0;
    auto* info = cuda<int(size_t*, size_t*)>("cuMemGetInfo_v2");
    ASSERT_EQ(vmm_create(&handle, 8 * kMiB), 0);
    ASSERT_EQ(vmm_export(&fd, handle), 0);
    ASSERT_EQ(vmm_release(handle), 0);
    ASSERT_EQ(info(&free, &total), 0);
    EXPECT_EQ(total - free, 72 * kMiB);
    close(fd);  // no call of the driver
    ASSERT_EQ(info(&free, &total), 0);
    EXPECT_EQ(total - free, 64 * kMiB);
  });
}

TEST(SimExternal, IpcMemoryFreedByItsMakerStaysForItsUser) {
  TestNode node;
  struct Ticket {
    char bytes[64];
  };
  int pipes[2];
  ASSERT_EQ(pipe(pipes), 0);
  setenv(sim::kTenantVariable, "maker", 1);
  Child maker([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ(cu_alloc(&address, 30 * kMiB), 0);
    Ticket ticket;
    ASSERT_EQ((cuda<int(Ticket*, Pointer)>("cuIpcGetMemHandle")(&ticket, address)), 0);
    ASSERT_EQ(write(pipes[1], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
    parent.say(0);
    parent.hear();
    EXPECT_EQ(cu_free(address), 0);
    EXPECT_EQ(cu_free(address), 1);
    parent.say(0);
    parent.hear();
  });
  maker.hear();
  Ticket ticket;
  ASSERT_EQ(read(pipes[0], &ticket, sizeof ticket), static_cast<ssize_t>(sizeof ticket));
  setenv(sim::kTenantVariable, "user", 1);
  Child user([&](Child& parent) {
    ASSERT_EQ(cu_start(), 0);
    Pointer address = 0;
    ASSERT_EQ((cuda<int(Pointer*, Ticket, unsigned)>("cuIpcOpenMemHandle_v2")(&address, ticket, 1)),
              0);
    parent.say(0);
    parent.hear();
    // The end of the context lets go of it like a close.
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    parent.say(0);
    parent.hear();
  });
  user.hear();
  unsetenv(sim::kTenantVariable);
  maker.say(0);
  maker.hear();
  EXPECT_EQ(mib(node), 64u + 64 + 30);
  EXPECT_EQ(node->tenant_used(0, "maker"), 94 * kMiB);
  maker.say(0);
  EXPECT_TRUE(maker.ended());
  EXPECT_EQ(node->tenant_used(0, "maker"), 30 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "user"), 64 * kMiB);
  user.say(0);
  user.hear();
  EXPECT_EQ(mib(node), 0u);
  EXPECT_EQ(node->tenant_high_water(0, "maker"), 94 * kMiB);
  user.say(0);
  EXPECT_TRUE(user.ended());
}

}  // namespace
