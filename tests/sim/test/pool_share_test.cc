// Tests of pools that several processes use: the exporter pays, an importer holds what it imported
// and pays nothing. What the importer still holds stays when the exporter has freed it or is dead.
#include <fcntl.h>
#include <unistd.h>

#include "sim/test/pool_calls.h"

using namespace simtest;

namespace {

struct Ticket {
  char bytes[64];
};

CUmemPoolProps shareable() {
  CUmemPoolProps props = pool_props();
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  return props;
}
int pool_export(int* fd, CUmemoryPool pool) {
  return cuda<int(void*, CUmemoryPool, int, uint64_t)>("cuMemPoolExportToShareableHandle")(fd, pool,
                                                                                           1, 0);
}
int pool_import(CUmemoryPool* out, int fd) {
  return cuda<int(CUmemoryPool*, void*, int, uint64_t)>("cuMemPoolImportFromShareableHandle")(
      out, reinterpret_cast<void*>(static_cast<intptr_t>(fd)), 1, 0);
}
int pointer_export(Ticket* out, Pointer address) {
  return cuda<int(Ticket*, Pointer)>("cuMemPoolExportPointer")(out, address);
}
int pointer_import(Pointer* out, CUmemoryPool pool, const Ticket& ticket) {
  return cuda<int(Pointer*, CUmemoryPool, const Ticket*)>("cuMemPoolImportPointer")(out, pool,
                                                                                    &ticket);
}

// Makes a pool with two allocations in one chunk, and sends what others need to use them.
struct Exporter {
  CUstream stream = nullptr;
  CUmemoryPool pool = nullptr;
  Pointer a = 0, b = 0;

  void start(Channel& channel, int pipe) {
    ASSERT_EQ(cu_start(), 0);
    stream = stream_create();
    ASSERT_EQ(pool_create(&pool, shareable()), 0);
    ASSERT_EQ(pool_alloc(&a, 10 * kMiB, pool, stream), 0);
    ASSERT_EQ(pool_alloc(&b, 5 * kMiB, pool, stream), 0);
    int fd = -1;
    ASSERT_EQ(pool_export(&fd, pool), 0);
    channel.send(fd);
    Ticket tickets[2];
    ASSERT_EQ(pointer_export(&tickets[0], a), 0);
    ASSERT_EQ(pointer_export(&tickets[1], b), 0);
    ASSERT_EQ(write(pipe, tickets, sizeof tickets), static_cast<ssize_t>(sizeof tickets));
  }
};

struct SimPoolShare : testing::Test {
  TestNode node;
  Channel channel;
  int pipes[2];
  SimPoolShare() {
    if (pipe(pipes) != 0) abort();
  }
  ~SimPoolShare() override {
    close(pipes[0]);
    close(pipes[1]);
  }
  void receive(CUmemoryPool* pool, Ticket tickets[2]) {
    ASSERT_EQ(cu_start(), 0);
    const int fd = channel.receive();
    ASSERT_EQ(pool_import(pool, fd), 0);
    close(fd);
    ASSERT_EQ(read(pipes[0], tickets, 2 * sizeof(Ticket)),
              static_cast<ssize_t>(2 * sizeof(Ticket)));
  }
};

TEST_F(SimPoolShare, TheImporterPaysNothing) {
  setenv(sim::kTenantVariable, "maker", 1);
  Child maker([&](Child& parent) {
    Exporter exporter;
    exporter.start(channel, pipes[1]);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(free_async(exporter.a, exporter.stream), 0);
    EXPECT_EQ(free_async(exporter.b, exporter.stream), 0);
    EXPECT_EQ(stream_sync(exporter.stream), 0);
    EXPECT_EQ(reserved(exporter.pool), 0u);
    parent.say(1);
    parent.hear();
  });
  maker.hear();
  setenv(sim::kTenantVariable, "user", 1);
  Child user([&](Child& parent) {
    CUmemoryPool pool = nullptr;
    Ticket tickets[2];
    receive(&pool, tickets);
    const CUstream stream = stream_create();
    Pointer a = 0, b = 0, c = 0;
    ASSERT_EQ(pointer_import(&a, pool, tickets[0]), 0);
    ASSERT_EQ(pointer_import(&b, pool, tickets[1]), 0);
    EXPECT_NE(a, b);
    EXPECT_EQ((cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2")(a, 0, 10 * kMiB)), 0);
    EXPECT_EQ((cuda<int(Pointer, unsigned char, size_t)>("cuMemsetD8_v2")(a, 0, 10 * kMiB + 1)), 1);
    // No pool to allocate from, nor to be the device's.
    EXPECT_EQ(pool_alloc(&c, 512, pool, stream), 1);
    EXPECT_EQ((cuda<int(int, CUmemoryPool)>("cuDeviceSetMemPool")(0, pool)), 1);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(free_async(a, stream), 0);
    EXPECT_EQ(free_async(a, stream), 1);
    EXPECT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(pool_destroy(pool), 0);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(cu_free(b), 0);
    EXPECT_EQ(cu_free(b), 1);
    parent.say(1);
    parent.hear();
  });
  user.hear();
  unsetenv(sim::kTenantVariable);
  EXPECT_EQ(node->used(0), (64 + 32 + 64) * kMiB);
  EXPECT_EQ(node->used_by_pid(0, maker.pid()), 96 * kMiB);
  EXPECT_EQ(node->used_by_pid(0, user.pid()), 64 * kMiB);
  user.say(1);
  user.hear();
  EXPECT_EQ(node->used(0), (64 + 32 + 64) * kMiB);  // freeing an import gives nothing back
  maker.say(1);
  maker.hear();
  EXPECT_EQ(node->used(0), (64 + 32 + 64) * kMiB);  // the other import still holds the chunk
  EXPECT_EQ(node->tenant_used(0, "maker"), 96 * kMiB);
  EXPECT_EQ(node->tenant_used(0, "user"), 64 * kMiB);
  user.say(1);
  user.hear();
  EXPECT_EQ(node->used(0), (64 + 64) * kMiB);
  user.say(1);
  maker.say(1);
  EXPECT_TRUE(user.ended());
  EXPECT_TRUE(maker.ended());
  EXPECT_EQ(node->used(0), 0u);
  std::string difference;
  EXPECT_TRUE(node->consistent(&difference)) << difference;
}

TEST_F(SimPoolShare, OutlivesItsMaker) {
  Child maker([&](Child& parent) {
    Exporter exporter;
    exporter.start(channel, pipes[1]);
    parent.say(1);
    parent.hear();
  });
  maker.hear();
  Child user([&](Child& parent) {
    CUmemoryPool pool = nullptr;
    Ticket tickets[2];
    receive(&pool, tickets);
    Pointer a = 0, b = 0;
    ASSERT_EQ(pointer_import(&a, pool, tickets[0]), 0);
    parent.say(1);
    parent.hear();
    EXPECT_EQ(pointer_import(&b, pool, tickets[1]), 0);  // in the same chunk, so still there
    EXPECT_EQ(cu_free(a), 0);
    EXPECT_EQ(cu_free(b), 0);
    EXPECT_EQ(pointer_import(&b, pool, tickets[1]), 1);
    parent.say(1);
    parent.hear();
  });
  user.hear();
  maker.kill();
  EXPECT_EQ(node->used(0), (32 + 64) * kMiB);
  EXPECT_EQ(node->orphaned(0), 32 * kMiB);
  user.say(1);
  user.hear();
  EXPECT_EQ(node->used(0), 64 * kMiB);
  user.kill();
  EXPECT_EQ(node->used(0), 0u);
}

TEST_F(SimPoolShare, OutlivesTheImportersContext) {
  Child maker([&](Child& parent) {
    Exporter exporter;
    exporter.start(channel, pipes[1]);
    parent.say(1);
    parent.hear();
  });
  maker.hear();
  Child user([&](Child& parent) {
    CUmemoryPool pool = nullptr;
    Ticket tickets[2];
    receive(&pool, tickets);
    Pointer a = 0;
    ASSERT_EQ(pointer_import(&a, pool, tickets[0]), 0);
    parent.say(1);
    parent.hear();
    ASSERT_EQ(cuda<int(int)>("cuDevicePrimaryCtxReset_v2")(0), 0);
    parent.say(1);
    parent.hear();
  });
  user.hear();
  maker.kill();
  EXPECT_EQ(node->used(0), (32 + 64) * kMiB);
  user.say(1);
  user.hear();
  EXPECT_EQ(node->used(0), 32 * kMiB);
  user.kill();
  EXPECT_EQ(node->used(0), 0u);
}

TEST_F(SimPoolShare, WhatIsRefused) {
  in_child([&] {
    ASSERT_EQ(cu_start(), 0);
    const CUstream stream = stream_create();
    CUmemoryPool open = nullptr, closed = nullptr, imported = nullptr, other = nullptr;
    ASSERT_EQ(pool_create(&open, shareable()), 0);
    ASSERT_EQ(pool_create(&other, shareable()), 0);
    ASSERT_EQ(pool_create(&closed), 0);
    int fd = -1;
    EXPECT_EQ(pool_export(&fd, closed), 1);
    EXPECT_EQ(pool_export(&fd, default_pool()), 1);
    Pointer a = 0, b = 0, c = 0;
    ASSERT_EQ(pool_alloc(&a, 512, closed, stream), 0);
    ASSERT_EQ(pool_alloc(&b, 512, open, stream), 0);
    Ticket ticket{};
    EXPECT_EQ(pointer_export(&ticket, a), 1);
    EXPECT_EQ(pointer_export(&ticket, b + 512), 1);
    ASSERT_EQ(pool_export(&fd, other), 0);
    ASSERT_EQ(pool_import(&imported, fd), 0);
    close(fd);
    EXPECT_EQ(pointer_import(&c, imported, ticket), 1);
    ASSERT_EQ(pointer_export(&ticket, b), 0);
    EXPECT_EQ(pointer_import(&c, imported, ticket), 1);  // it is of another pool
    EXPECT_EQ(pointer_import(&c, open, ticket), 1);      // and this one was not imported
    EXPECT_EQ(pool_export(&fd, imported), 1);
    EXPECT_EQ(pool_import(&imported, 9999), 1);
    fd = ::open("/dev/null", O_RDONLY);
    EXPECT_EQ(pool_import(&imported, fd), 1);
    // In one process, too; the accounting stays right.
    ASSERT_EQ(pool_export(&fd, open), 0);
    ASSERT_EQ(pool_import(&imported, fd), 0);
    close(fd);
    ASSERT_EQ(pointer_import(&c, imported, ticket), 0);
    EXPECT_EQ(node->used(0), (64 + 32 + 32) * kMiB);
    EXPECT_EQ(free_async(b, stream), 0);
    EXPECT_EQ(stream_sync(stream), 0);
    EXPECT_EQ(node->used(0), (64 + 32 + 32) * kMiB);
    EXPECT_EQ(cu_free(c), 0);
    EXPECT_EQ(node->used(0), (64 + 32) * kMiB);
    std::string difference;
    EXPECT_TRUE(node->consistent(&difference)) << difference;
  });
}

}  // namespace
