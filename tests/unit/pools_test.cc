// Charges of pools whose driver cannot be asked, in a process with a ledger of its own and no
// vendor: nothing but the pool's driver tells anything.
#include "shim/charge/pools.h"

#include <gtest/gtest.h>

#include <cstdlib>
#include <functional>

#include "tests/unit/process_of_its_own.h"

namespace fracgpu {
namespace {

constexpr uint64_t kKey = 0x1000;
constexpr uint64_t kGrownBytes = 4u << 20;
constexpr uint64_t kGrownUnits = kGrownBytes / layout::kUnit;

unsigned questions = 0;

// The first answer is that the pool has grown, and meanwhile another thread settles it, so that the
// answer is stale. Then nothing is told any more.
bool grows_and_falls_silent(uint64_t key, uint64_t& bytes) {
  if (questions++ > 0) return false;
  PoolTable& pools = Process::known()->pools;
  Pool seen_by_another;
  pools.begin_use(key, seen_by_another);
  pools.end_use(seen_by_another, seen_by_another.units, 0, 0);
  bytes = kGrownBytes;
  return true;
}

constexpr PoolDriver kDriver = {.reserved = grows_and_falls_silent, .trim = [](uint64_t) {}};

void in_a_process(const std::function<void(Process&, int)>& body) {
  in_a_process_of_its_own([&](Process& process, int device_index) {
    if (!process.pools.add(kKey, device_index, kDriver)) return 2;
    body(process, device_index);
    const uint64_t overhead = process.overhead[device_index].units;
    const uint64_t held = process.ledger.held_by_self(device_index);
    return overhead == kGrownUnits && held == overhead ? 0 : 3;
  });
}

TEST(PoolsTest, ReadingTheUsageWithoutAnAnswerCharges) {
  in_a_process([](Process& process, int device_index) { settle_overhead(process, device_index); });
}

TEST(PoolsTest, RefusingAContextWithoutAnAnswerCharges) {
  in_a_process([](Process& process, int device_index) {
    const uint64_t too_much = process.ledger.cap(device_index) + 1;
    EXPECT_FALSE(OverheadReservation(process, device_index, too_much, "cuCtxCreate"));
  });
}

TEST(PoolsTest, SettlingWithoutAnAnswerCharges) {
  in_a_process([](Process& process, int) { settle_pool(process, kKey, nullptr); });
}

// What a pool has, as calls that are under way see it.
uint64_t reserved_bytes = 0;
constexpr PoolDriver kGrowing = {.reserved =
                                     [](uint64_t, uint64_t& bytes) {
                                       bytes = reserved_bytes;
                                       return true;
                                     },
                                 .trim = [](uint64_t) {}};

// Two calls that reserve room and then have the driver make one pool grow. `body` plays them, and
// returns the number of what is wrong.
struct TwoCalls {
  static constexpr uint64_t kUnits = kPoolChunkBytes / layout::kUnit;

  explicit TwoCalls(Process& process, int device_index)
      : first_room(process, device_index, kUnits, "cuMemAllocAsync"),
        second_room(process, device_index, kUnits, "cuMemAllocAsync"),
        first(process, kKey, kUnits),
        second(process, kKey, kUnits) {}

  Reservation first_room, second_room;
  PoolUse first, second;
};

void with_two_calls(const std::function<int(Process&, int, TwoCalls&)>& body) {
  in_a_process_of_its_own([&](Process& process, int device_index) {
    if (!process.pools.add(kKey, device_index, kGrowing)) return 2;
    int wrong = 0;
    {
      TwoCalls calls(process, device_index);
      wrong = body(process, device_index, calls);
    }
    if (wrong != 0) return wrong;
    const uint64_t held = process.ledger.held_by_self(device_index);
    return held == reserved_bytes / layout::kUnit ? 0 : 9;
  });
}

TEST(PoolsTest, WhatTwoCallsMakeAPoolGrowByIsChargedOnce) {
  with_two_calls([](Process& process, int device_index, TwoCalls& calls) {
    reserved_bytes = 2 * kPoolChunkBytes;
    if (!calls.first.settle(&calls.first_room).foreseen) return 3;
    if (process.ledger.held_by_self(device_index) != 2 * TwoCalls::kUnits) return 4;
    return calls.second.settle(&calls.second_room).foreseen ? 0 : 5;
  });
}

TEST(PoolsTest, AReadingChargesNothingThatIsReservedForCallsUnderWay) {
  with_two_calls([](Process& process, int device_index, TwoCalls& calls) {
    reserved_bytes = kPoolChunkBytes;
    settle_pool(process, kKey, nullptr);
    if (process.ledger.held_by_self(device_index) != 2 * TwoCalls::kUnits) return 3;
    reserved_bytes = 2 * kPoolChunkBytes;
    if (!calls.second.settle(&calls.second_room).foreseen) return 4;
    return calls.first.settle(&calls.first_room).foreseen ? 0 : 5;
  });
}

TEST(PoolsTest, WhatIsLentAndNotTakenIsGivenBack) {
  with_two_calls([](Process&, int, TwoCalls& calls) {
    reserved_bytes = 2 * kPoolChunkBytes;
    calls.first.settle(&calls.first_room);
    reserved_bytes = 0;  // the driver has given all of it back
    return calls.second.settle(&calls.second_room).foreseen ? 0 : 5;
  });
}

TEST(PoolsTest, MoreThanBothHaveReservedIsNotForeseen) {
  with_two_calls([](Process&, int, TwoCalls& calls) {
    reserved_bytes = 2 * kPoolChunkBytes + (2u << 20);
    if (calls.first.settle(&calls.first_room).foreseen) return 3;
    return calls.second.settle(&calls.second_room).foreseen ? 0 : 5;
  });
}

// Pools of which each holds a little that it does not use.
constexpr uint64_t kManyPools = 1000;
bool is_trimmed[kManyPools + 1];

constexpr PoolDriver kUnused = {.reserved =
                                    [](uint64_t key, uint64_t& bytes) {
                                      bytes = is_trimmed[key] ? 0 : layout::kUnit;
                                      return true;
                                    },
                                .trim = [](uint64_t key) { is_trimmed[key] = true; }};

// A pool with one hole, from which a call allocates. `body` plays what comes then.
constexpr uint64_t kHole = 0x40000000, kHoleBytes = 2u << 20, kStream = 0x10;

void free_the_hole(Process& process) {
  const uint64_t number = process.pool_blocks.begin_free(kHole);
  process.pool_blocks.end_free(kHole, number, kStream, 1);
}

void with_a_hole(const std::function<int(Process&, int)>& body) {
  in_a_process_of_its_own([&](Process& process, int device_index) {
    if (!process.pools.add(kKey, device_index, kGrowing)) return 2;
    reserved_bytes = kPoolChunkBytes;
    Reservation room(process, device_index, TwoCalls::kUnits, "cuMemAllocAsync");
    PoolUse use(process, kKey, TwoCalls::kUnits);
    const PoolUse::Outcome outcome = use.settle(&room);
    process.pool_blocks.allocated(kKey, kHole, kHoleBytes, outcome.grown, outcome.reserved);
    free_the_hole(process);
    return body(process, device_index);
  });
}

// Nobody else frees or allocates, so the charge is right without a question.
TEST(PoolsTest, AnAllocationThatTakesAHoleAsksTheDriverNowAndThen) {
  with_a_hole([](Process& process, int device_index) {
    int asked = 0;
    for (int i = 0; i < 160; ++i) {
      Reservation room(process, device_index, TwoCalls::kUnits, "cuMemAllocAsync");
      PoolUse use(process, kKey, TwoCalls::kUnits);
      if (!use.end_in_hole(kHole, kHoleBytes, room)) {
        const PoolUse::Outcome outcome = use.settle(&room);
        process.pool_blocks.allocated(kKey, kHole, kHoleBytes, outcome.grown, outcome.reserved);
        ++asked;
      }
      if (process.ledger.held_by_self(device_index) != TwoCalls::kUnits) return 3;
      free_the_hole(process);
    }
    if (asked != 10) return 4;
    // The pool has shrunk unseen. Sooner or later that is noticed.
    reserved_bytes = 0;
    for (int i = 0; i < 16; ++i) {
      Reservation room(process, device_index, TwoCalls::kUnits, "cuMemAllocAsync");
      PoolUse use(process, kKey, TwoCalls::kUnits);
      if (use.end_in_hole(kHole, kHoleBytes, room)) {
        free_the_hole(process);
      } else {
        use.settle(&room);
      }
    }
    return process.ledger.held_by_self(device_index) == 0 ? 0 : 5;
  });
}

// The driver takes memory again for the hole that it had given back; another thread has read before
// that how little there was.
TEST(PoolsTest, AHoleIsNotReliedOnWhereTheChargeFallsMeanwhile) {
  with_a_hole([](Process& process, int device_index) {
    Reservation room(process, device_index, TwoCalls::kUnits, "cuMemAllocAsync");
    PoolUse use(process, kKey, TwoCalls::kUnits);
    reserved_bytes = 0;
    settle_pool(process, kKey, nullptr);
    reserved_bytes = kPoolChunkBytes;
    if (use.end_in_hole(kHole, kHoleBytes, room) || use.has_entered()) return 3;
    if (!use.settle(&room).foreseen) return 4;
    return process.ledger.held_by_self(device_index) == TwoCalls::kUnits ? 0 : 5;
  });
}

TEST(PoolsTest, AReadingFromBeforeAHoleWasTakenIsStale) {
  with_a_hole([](Process& process, int device_index) {
    Reservation room(process, device_index, TwoCalls::kUnits, "cuMemAllocAsync");
    PoolUse use(process, kKey, TwoCalls::kUnits);
    Pool read_before;
    process.pools.begin_use(kKey, read_before);
    if (!use.end_in_hole(kHole, kHoleBytes, room)) return 3;
    if (process.pools.end_use(read_before, 0, 0, 0).is_done) return 4;
    return process.ledger.held_by_self(device_index) == TwoCalls::kUnits ? 0 : 5;
  });
}

TEST(PoolsTest, EveryPoolIsTrimmed) {
  in_a_process_of_its_own([](Process& process, int device_index) {
    for (uint64_t key = 1; key <= kManyPools; ++key) {
      if (!process.pools.add(key, device_index, kUnused)) return 2;
    }
    settle_pools(process, device_index);
    if (process.ledger.held_by_self(device_index) != kManyPools) return 3;
    return trim_pools(process, device_index) && process.ledger.held_by_self(device_index) == 0 ? 0
                                                                                               : 4;
  });
}

}  // namespace
}  // namespace fracgpu
