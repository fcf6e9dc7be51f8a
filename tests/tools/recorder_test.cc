// The rings between a process and who records it: what many threads append comes out once, in each
// thread's order and unharmed, whatever is dropped; what a killed process has left half-written is
// passed over; and bytes of any kind in a ring make no recorder fall.
#include "shim/recording/recorder.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <functional>
#include <map>
#include <random>
#include <set>
#include <string>
#include <thread>
#include <vector>

#include "shim/base/unforked.h"
#include "tests/unit/before_advice.h"
#include "tests/unit/child.h"
#include "tools/record/ring_file.h"
#include "tools/record/tracker.h"
#include "tools/recording/reader.h"

namespace fracgpu {
namespace {

using ring::Record;
using ring::Type;

// A tenant of its own, and its file of rings as a process maps it.
class RingTest : public testing::Test {
 protected:
  RingTest()
      : tenant_("ring-test-" + std::to_string(getpid()) + "-" +
                testing::UnitTest::GetInstance()->current_test_info()->name()) {}

  ring::File* map() const {
    const int fd = open((ring::kFilePrefix + tenant_).c_str(), O_RDWR);
    void* bytes = mmap(nullptr, sizeof(ring::File), PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0);
    close(fd);
    return bytes == MAP_FAILED ? nullptr : static_cast<ring::File*>(bytes);
  }

  const std::string tenant_;
};

ProcessIdentity identity() {
  ProcessIdentity self;
  self.pid = static_cast<uint32_t>(getpid());
  strcpy(self.command, "test");
  return self;
}

bool is_event(const Record& record) {
  return record.type == Type::allocated;
}

TEST_F(RingTest, WhatThreadsAppendComesOutOnceAndInOrder) {
  constexpr uint64_t kThreads = 4, kEach = 50'000;
  tools::RingFile rings(tenant_, 0, geteuid());
  Recorder recorder;
  ASSERT_TRUE(recorder.start(tenant_, 3, identity(), false));
  EXPECT_FALSE(recorder.start(tenant_, 3, identity(), false)) << "it records already";

  std::atomic<uint64_t> running{kThreads};
  std::vector<std::thread> threads;
  for (uint64_t thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      for (uint64_t i = 1; i <= kEach; ++i) {
        recorder.add({.type = Type::allocated,
                      .address = thread << 32 | i,
                      .bytes = i * 3,
                      .taken = thread * 7,
                      .owner = ~(thread << 32 | i)});
        if (i % 1000 == 0) std::this_thread::yield();
      }
      --running;
    });
  }
  std::map<uint64_t, uint64_t> last;
  uint64_t seen = 0, missed = 0, described = 0;
  const auto take = [&] {
    rings.take(
        [&](uint32_t slot, const Record& record) {
          ASSERT_EQ(slot, 3U);
          if (record.type == Type::process) ++described;
          if (!is_event(record)) return;
          const uint64_t thread = record.address >> 32, i = record.address & 0xffffffff;
          ASSERT_EQ(record.owner, ~record.address);
          ASSERT_EQ(record.bytes, i * 3);
          ASSERT_EQ(record.taken, thread * 7);
          ASSERT_GT(i, last[thread]) << "of thread " << thread;
          last[thread] = i;
          ++seen;
        },
        [&](uint32_t, uint64_t number) { missed += number; }, [](uint32_t) { return true; });
  };
  while (running > 0) take();
  for (std::thread& thread : threads) thread.join();
  take();
  EXPECT_EQ(seen + missed, kThreads * kEach);
  EXPECT_GT(seen, ring::kRecords) << "some were taken out meanwhile";
  EXPECT_EQ(described, 2U) << "of two parts";
  EXPECT_TRUE(rings.is_empty(3));
}

TEST_F(RingTest, WhatAKilledProcessLeftHalfWrittenIsPassedOver) {
  tools::RingFile rings(tenant_, 0, geteuid());
  {
    Recorder killed;
    ASSERT_TRUE(killed.start(tenant_, 0, identity(), false));
    killed.add({.type = Type::allocated, .address = 1});
    killed.add({.type = Type::allocated, .address = 2});
    killed.add({.type = Type::allocated, .address = 3});
  }
  ring::File* const file = map();
  ASSERT_NE(file, nullptr);
  ring::Ring& ring = file->rings[0];
  // As if the thread that wrote the second had died before it was done.
  ring.places[ring.end - 2].stamp = 0;
  std::vector<uint64_t> seen;
  const auto take = [&](bool is_alive) {
    rings.take(
        [&](uint32_t, const Record& record) {
          if (is_event(record)) seen.push_back(record.address);
        },
        [](uint32_t, uint64_t) {}, [&](uint32_t) { return is_alive; });
  };
  take(true);
  EXPECT_EQ(seen, (std::vector<uint64_t>{1})) << "it may be writing still";
  take(false);
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 3}));

  // The next process of the slot goes on behind it.
  {
    Recorder killed;
    ASSERT_TRUE(killed.start(tenant_, 0, identity(), false));
    killed.add({.type = Type::allocated, .address = 4});
    ring.places[(ring.end - 1) % ring::kRecords].stamp = 0;
  }
  Recorder next;
  ASSERT_TRUE(next.start(tenant_, 0, identity(), false));
  next.add({.type = Type::allocated, .address = 5});
  take(true);
  EXPECT_EQ(seen, (std::vector<uint64_t>{1, 3, 5}));
  munmap(file, sizeof *file);
}

TEST_F(RingTest, AFullRingDropsAndCounts) {
  tools::RingFile rings(tenant_, 0, geteuid());
  Recorder before, recorder, after;
  ASSERT_TRUE(before.start(tenant_, 1, identity(), false));
  ASSERT_TRUE(recorder.start(tenant_, 1, identity(), false));
  for (uint64_t i = 0; i < 2 * ring::kRecords; ++i) {
    recorder.add({.type = Type::allocated, .address = i});
  }
  uint32_t unrecorded = 0;
  rings.unrecorded(unrecorded);
  EXPECT_EQ(unrecorded, 0U);
  EXPECT_FALSE(after.start(tenant_, 1, identity(), false)) << "there is no room to describe it";
  EXPECT_FALSE(after.is_on());
  rings.unrecorded(unrecorded);
  EXPECT_EQ(unrecorded, 1U) << "the recorder can name it";
  uint64_t described = 0, seen = 0, missed = 0;
  rings.take(
      [&](uint32_t, const Record& record) {
        described += record.type == Type::process ? 1U : 0U;
        seen += is_event(record) ? 1U : 0U;
      },
      [&](uint32_t, uint64_t number) {
        EXPECT_EQ(described, 4U) << "they are of the second process";
        EXPECT_EQ(seen, 0U) << "any of its records may be missing";
        missed += number;
      },
      [](uint32_t) { return true; });
  EXPECT_EQ(seen, ring::kRecords - 4) << "two describe each process";
  EXPECT_EQ(seen + missed, 2 * ring::kRecords);
}

TEST_F(RingTest, WhatEndedIsUnmappedOnceNoThreadIsInIt) {
  tools::RingFile rings(tenant_, 0, geteuid());
  const auto mappings = [&] {
    std::ifstream maps("/proc/self/maps");
    int count = 0;
    for (std::string line; std::getline(maps, line);)
      count += line.find(tenant_) != line.npos ? 1 : 0;
    return count;
  };
  const int before = mappings();
  Recorder recorder;
  std::atomic<bool> done{false};
  std::vector<std::thread> threads;
  for (int i = 0; i < 3; ++i) {
    threads.emplace_back([&] {
      while (!done) recorder.add({.type = Type::allocated, .address = 1}, "cuMemAlloc_v2");
    });
  }
  for (int i = 0; i < 200; ++i) {
    ASSERT_TRUE(recorder.start(tenant_, 1, identity(), true)) << i;
    rings.take([](uint32_t, const Record&) {}, [](uint32_t, uint64_t) {},
               [](uint32_t) { return true; });
    recorder.stop();
    rings.take([](uint32_t, const Record&) {}, [](uint32_t, uint64_t) {},
               [](uint32_t) { return false; });
  }
  done = true;
  for (std::thread& thread : threads) thread.join();
  recorder.stop();
  EXPECT_EQ(mappings(), before);
}

TEST_F(RingTest, ALevelIsToldWhenItIsNews) {
  tools::RingFile rings(tenant_, 0, geteuid());
  Recorder recorder;
  ASSERT_TRUE(recorder.start(tenant_, 1, identity(), false));
  for (const uint64_t taken : {5, 5, 5, 6, 6, 5, 0, 0}) {
    recorder.add({.type = Type::level, .kind = ring::Kind::reserved, .taken = taken, .owner = 77});
  }
  std::vector<uint64_t> seen;
  rings.take(
      [&](uint32_t, const Record& record) {
        if (record.type == Type::level) seen.push_back(record.taken);
      },
      [](uint32_t, uint64_t) {}, [](uint32_t) { return true; });
  EXPECT_EQ(seen, (std::vector<uint64_t>{5, 6, 5, 0}));
}

TEST_F(RingTest, NobodyRecordsInAFileThatNobodyTakesOutOf) {
  Recorder recorder;
  EXPECT_FALSE(recorder.start(tenant_, 0, identity(), false)) << "there is none";
  const std::string path = ring::kFilePrefix + tenant_;
  // Under a name that no recorder of another test takes for a dead one's file.
  const std::string kept = "/dev/shm/" + tenant_;
  {
    const tools::RingFile rings(tenant_, 0, geteuid());
    EXPECT_THROW(tools::RingFile(tenant_, 0, geteuid()), std::runtime_error) << "one is enough";
    std::filesystem::create_hard_link(path, kept);
  }
  EXPECT_FALSE(std::filesystem::exists(path));
  // As a recorder leaves it that was killed: nobody holds its lock.
  std::filesystem::create_hard_link(kept, path);
  EXPECT_FALSE(recorder.start(tenant_, 0, identity(), false));
  EXPECT_FALSE(recorder.is_on());
  recorder.add({.type = Type::allocated});
  // A recorder of another test may remove the file first.
  int removed = tools::remove_dead_rings();
  for (int i = 0; removed == 0 && i < 100; ++i) {
    std::filesystem::create_hard_link(kept, path);
    removed = tools::remove_dead_rings();
  }
  EXPECT_GE(removed, 1);
  EXPECT_FALSE(std::filesystem::exists(path));
  std::filesystem::remove(kept);
}

int mappings_of(const std::string& path) {
  std::ifstream maps("/proc/self/maps");
  int count = 0;
  for (std::string line; std::getline(maps, line);) count += line.ends_with(path) ? 1 : 0;
  return count;
}

// Memory of the file would stay for as long as the child is there.
TEST_F(RingTest, AChildThatIsForkedAsTheRecordingBeginsHasNoRing) {
  const tools::RingFile rings(tenant_, 0, geteuid());
  const std::string path = ring::kFilePrefix + tenant_;
  const int of_recorder = mappings_of(path);
  std::atomic<bool> begin{false}, forked{false};
  int of_child = -1;
  std::thread forking([&] {
    while (!begin) sched_yield();
    of_child = status_of_child([&] { return mappings_of(path); });
    forked = true;
  });
  before_advice = [&] {
    begin = true;
    while (!forked && !Unforked::is_awaited()) sched_yield();
  };
  Recorder recorder;
  EXPECT_TRUE(recorder.start(tenant_, 0, identity(), false));
  before_advice = nullptr;
  EXPECT_TRUE(begin);
  begin = true;
  forking.join();
  EXPECT_EQ(mappings_of(path), of_recorder + 1);
  EXPECT_EQ(of_child, of_recorder);
}

TEST_F(RingTest, TheEndOfARecordingCostsAProcessNothing) {
  Recorder recorder;
  {
    const tools::RingFile rings(tenant_, 0, geteuid());
    ASSERT_TRUE(recorder.start(tenant_, 0, identity(), false));
  }
  for (int i = 0; i < 100; ++i) recorder.add({.type = Type::allocated});
  // And another one may begin.
  tools::RingFile rings(tenant_, 0, geteuid());
  recorder.stop();
  ASSERT_TRUE(recorder.start(tenant_, 0, identity(), true));
  recorder.add({.type = Type::allocated, .address = 9});
  std::vector<uint64_t> seen;
  rings.take(
      [&](uint32_t, const Record& record) {
        if (is_event(record)) seen.push_back(record.address);
      },
      [](uint32_t, uint64_t) {}, [](uint32_t) { return true; });
  EXPECT_EQ(seen, (std::vector<uint64_t>{9}));
}

// As a process describes something.
void tell_text(tools::Tracker& tracker, uint32_t slot, Type type, uint32_t number,
               const std::string& text) {
  for (size_t at = 0, part = 0; at < text.size(); at += ring::kPartBytes, ++part) {
    Record record{.type = type,
                  .thread = static_cast<uint32_t>(part),
                  .stack = number,
                  .api = static_cast<uint32_t>(text.size())};
    memcpy(reinterpret_cast<char*>(&record) + offsetof(Record, time_ns), text.data() + at,
           std::min(ring::kPartBytes, text.size() - at));
    tracker.add(slot, record);
  }
}

template <typename Struct>
std::string bytes_of(const Struct& it) {
  return {reinterpret_cast<const char*>(&it), sizeof it};
}

// Records as no library writes them: of bytes by chance, and of numbers that nearly make sense.
TEST_F(RingTest, AnyRecordsMakeARecordingThatCanBeRead) {
  const std::string path = testing::TempDir() + tenant_ + ".fgr";
  for (uint64_t seed = 0; seed < 30; ++seed) {
    SCOPED_TRACE(seed);
    std::mt19937_64 chance(seed);
    {
      recording::Writer writer(path, {}, true);
      tools::Tracker tracker(writer, 1000, [](const std::string& key) { return key; });
      const auto below = [&](uint64_t most) { return chance() % most; };
      for (int i = 0; i < 20'000; ++i) {
        if (i % 2000 == 0) {
          for (uint32_t slot = 0; slot < 3; ++slot) {
            tell_text(tracker, slot, Type::process, slot, bytes_of(ring::ProcessText{.pid = slot}));
            ring::DeviceText device;
            strcpy(device.key, slot == 0 ? "GPU-a" : "GPU-b");
            for (uint32_t number = 0; number < 2; ++number) {
              tell_text(tracker, slot, Type::device, number, bytes_of(device));
            }
            tell_text(tracker, slot, Type::module, 1, std::string("abcd") + '\0' + "/lib/libx.so");
            tell_text(tracker, slot, Type::stack, 2, bytes_of(ring::frame_of(1, 0x1234)));
            tell_text(tracker, slot, Type::api, 7, "cuMemAlloc");
          }
        }
        Record record;
        if (seed % 2 == 0) {
          auto* const bytes = reinterpret_cast<unsigned char*>(&record);
          for (size_t at = 0; at < sizeof record; ++at)
            bytes[at] = static_cast<unsigned char>(chance());
          if (below(2) == 0) record.type = static_cast<Type>(below(30));
        } else {
          record = {.type = static_cast<Type>(below(26)),
                    .kind = static_cast<ring::Kind>(below(12)),
                    .device = static_cast<uint8_t>(below(3)),
                    .reason = static_cast<uint8_t>(below(5)),
                    .thread = static_cast<uint32_t>(below(3)),
                    .stack = static_cast<uint32_t>(below(4)),
                    .api = static_cast<uint32_t>(below(100)),
                    .time_ns = below(1'000'000),
                    .address = below(20),
                    .bytes = below(4u << 20),
                    .taken = below(2) * (2u << 20),
                    .owner = below(3)};
        }
        const auto slot = static_cast<uint32_t>(below(3));
        tracker.add(slot, record);
        if (below(1000) == 0) tracker.missed(slot, below(100));
        if (below(1000) == 0) tracker.end(slot, below(1'000'000));
        if (below(100) == 0) tracker.write();
      }
      // Processes that are described well, among it.
      for (uint32_t slot = 0; slot < 3; ++slot) tracker.end(slot, 2'000'000);
      tracker.write();
      writer.finish();
    }
    recording::Reader reader(path);
    uint64_t events = 0;
    reader.for_each([&](const recording::Event&, const recording::Tables&) { ++events; });
    EXPECT_EQ(reader.damage(), "");
    EXPECT_GT(events, 100U);
  }
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fracgpu
