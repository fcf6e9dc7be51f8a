// Chunks that linger, as several threads enter them.
#include "shim/tracking/lingering_chunks.h"

#include <gtest/gtest.h>

#include <memory>
#include <thread>
#include <vector>

namespace fracgpu {
namespace {

constexpr uint64_t kRoom = 64;

uint64_t key(uint64_t number) {
  return number << 21 | 1;
}

TEST(LingeringChunksTest, KnowsWhatWasEnteredByAnyThread) {
  for (int round = 0; round < 200; ++round) {
    const auto chunks = std::make_unique<LingeringChunks>();
    std::vector<std::thread> threads;
    for (uint64_t thread = 0; thread < 4; ++thread) {
      threads.emplace_back([&, thread] {
        for (uint64_t i = 0; i < kRoom; ++i) {
          // Half of them are entered by two threads.
          const uint64_t mine = key(thread / 2 * kRoom / 2 + (i + thread) % (kRoom / 2));
          chunks->add(mine);
          EXPECT_TRUE(chunks->may_have(mine));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    for (uint64_t i = 0; i < kRoom; ++i) EXPECT_TRUE(chunks->may_have(key(i)));
    ASSERT_FALSE(chunks->may_have(key(kRoom))) << "a chunk that was entered twice took two places";
    chunks->add(key(kRoom));
    EXPECT_TRUE(chunks->may_have(key(kRoom))) << "there was no place for it";
    EXPECT_TRUE(chunks->may_have(key(kRoom + 1))) << "as little as for this one";
  }
}

TEST(LingeringChunksTest, HasNothingAtFirst) {
  const LingeringChunks chunks;
  EXPECT_FALSE(chunks.may_have(key(0)));
}

}  // namespace
}  // namespace fracgpu
