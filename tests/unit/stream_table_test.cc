// Threads that ask about streams while others capture or destroy them.
#include "shim/tracking/stream_table.h"

#include <gtest/gtest.h>
#include <sched.h>

#include <atomic>
#include <thread>

namespace fracgpu {
namespace {

constexpr uint64_t kStream = 0x10;

// A thread asks about a stream; another one has `wait` end only when the answer is there.
template <typename Wait>
void expect_to_wait(StreamTable& streams, Wait wait) {
  std::atomic<bool> asks{true}, waited{false};
  ASSERT_TRUE(streams.begin_wait());
  std::thread other([&] {
    wait();
    EXPECT_FALSE(asks);
    waited = true;
  });
  for (int i = 0; i < 1000 && !waited; ++i) sched_yield();
  asks = false;
  streams.end_wait();
  other.join();
}

TEST(StreamTableTest, WhoDestroysAStreamWaitsForWhoAsksAboutOne) {
  StreamTable streams;
  expect_to_wait(streams, [&] { streams.await_waits(); });
  streams.await_waits();
}

TEST(StreamTableTest, WhoBeginsACaptureWaitsForWhoAsks) {
  StreamTable streams;
  expect_to_wait(streams, [&] { streams.begin_capture(kStream); });
  EXPECT_TRUE(streams.any_captured());
  EXPECT_FALSE(streams.begin_wait());
  streams.end_capture(kStream);
  EXPECT_FALSE(streams.any_captured());
}

TEST(StreamTableTest, NobodyWaitsForEver) {
  StreamTable streams;
  ASSERT_TRUE(streams.begin_wait());
  streams.await_waits();
  streams.begin_capture(kStream);
  EXPECT_TRUE(streams.any_captured());
}

// The driver may give the handle to another thread's stream before the call that destroys it is
// back: whatever that stream does is its own.
TEST(StreamTableTest, AStreamIsForgottenBeforeItIsDestroyed) {
  StreamTable streams;
  const uint64_t epoch = streams.epoch();
  streams.begin_capture(16);
  const uint64_t captures = streams.take(16);
  EXPECT_NE(streams.epoch(), epoch) << "what threads remember of it is stale";
  EXPECT_FALSE(streams.any_captured());
  streams.begin_capture(16);
  EXPECT_TRUE(streams.any_captured()) << "the new stream's capture goes on";
  streams.end_capture(16);
  EXPECT_FALSE(streams.any_captured());
  streams.put_back(16, captures);
  EXPECT_TRUE(streams.any_captured()) << "the driver has not destroyed it";
  streams.end_capture(16);
  EXPECT_FALSE(streams.any_captured());
  EXPECT_EQ(streams.take(16), 0u);
}

}  // namespace
}  // namespace fracgpu
