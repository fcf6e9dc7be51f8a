// The file of a recording: what goes in comes out, and of what is cut off, damaged or no recording
// at all a line tells, after all that precedes it.
#include <fcntl.h>
#include <gtest/gtest.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <string>

#include "tests/tools/training.h"
#include "tests/unit/child.h"
#include "tools/recording/chunk.h"
#include "tools/recording/format.h"
#include "tools/recording/reader.h"
#include "tools/recording/writer.h"
#include "tools/report/analysis.h"

namespace fracgpu::recording {
namespace {

std::string bytes_of(const std::string& path) {
  std::ostringstream bytes;
  bytes << std::ifstream(path, std::ios::binary).rdbuf();
  return bytes.str();
}

void write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
}

struct Content {
  std::vector<Event> events{};
  Tables tables{};
  std::string damage{};
};

Content content_of(const std::string& path) {
  Reader reader(path);
  Content content;
  reader.for_each([&](const Event& event, const Tables& tables) {
    EXPECT_TRUE(event.process == kNone || event.process < tables.processes.size());
    EXPECT_TRUE(event.device == kNone || event.device < tables.devices.size());
    EXPECT_LT(event.stack, tables.stacks.size());
    EXPECT_LT(event.api, tables.texts.size());
    content.events.push_back(event);
  });
  content.tables = reader.tables();
  content.damage = reader.damage();
  return content;
}

// The line with which a recording is refused; empty where it is not.
std::string refusal_of(const std::string& path) {
  try {
    Reader reader(path);
    return {};
  } catch (const std::runtime_error& error) {
    return error.what();
  }
}

bool is_prefix(const std::vector<Event>& begin, const std::vector<Event>& all) {
  return begin.size() <= all.size() && std::equal(begin.begin(), begin.end(), all.begin());
}

class RecordingFileTest : public testing::Test {
 protected:
  RecordingFileTest() : folder_(testing::TempDir() + "recording-XXXXXX") {
    EXPECT_NE(mkdtemp(folder_.data()), nullptr);
    path_ = folder_ + "/a.rec";
  }
  ~RecordingFileTest() override {
    unlink(path_.c_str());
    rmdir(folder_.c_str());
  }

  // A recording with an event of every kind, and numbers of every size.
  std::vector<Event> write_all_kinds(int events = 200) {
    std::mt19937_64 random(1);
    Writer writer(path_,
                  {1'700'000'000'000'000'000, "python train.py", "node7", "1.2", true, true});
    writer.add_device({"GPU-1", "GPU 0 (Made-up)", 80ULL << 30, 1ULL << 30});
    std::vector<Event> written, living;
    for (int i = 0; i < events; ++i) {
      const uint32_t process = writer.add_process({static_cast<uint32_t>(i), 0, "p", 0});
      const uint32_t module = writer.add_module({"/lib/m" + std::to_string(i % 9), "ab"});
      Event event;
      event.type = static_cast<EventType>(1 + random() % 8);
      event.kind = static_cast<MemoryKind>(random() % kMemoryKinds);
      event.reason = static_cast<RefusalReason>(random() % 4);
      event.process = random() % 5 == 0 ? kNone : process;
      event.device = random() % 5 == 0 ? kNone : 0;
      event.thread = static_cast<uint32_t>(random());
      event.api = writer.add_text("call" + std::to_string(i % 5));
      event.stack = writer.add_stack(
          {{module, random() >> random() % 64, event.api}, {kNone, random() >> random() % 64, 0}});
      for (uint64_t* number : {&event.time_ns, &event.bytes, &event.taken, &event.owner,
                               &event.address, &event.held, &event.cap}) {
        *number = random() >> random() % 64;
      }
      constexpr uint64_t kUnit = 512, kPage = 2 << 20;
      const uint64_t likely[] = {event.taken, event.bytes, 0, event.bytes / kUnit * kUnit + kUnit,
                                 event.bytes / kPage * kPage + kPage};
      event.taken = likely[random() % 5];
      if (event.type == EventType::released && !living.empty() && random() % 4 != 0) {
        event = living[random() % living.size()];
        event.type = EventType::released;
        event.thread = static_cast<uint32_t>(random() % 3);
      }
      if (event.type == EventType::allocated) living.push_back(event);
      written.push_back(event);
      writer.add(event);
      if (i % 40 == 39) writer.flush();
    }
    writer.finish();
    return written;
  }

  std::string folder_, path_;
};

TEST_F(RecordingFileTest, GivesBackWhatWasWritten) {
  const std::vector<Event> written = write_all_kinds(5'000);
  Reader reader(path_);
  EXPECT_EQ(reader.header().command, "python train.py");
  EXPECT_EQ(reader.header().host, "node7");
  EXPECT_EQ(reader.header().began_unix_ns, 1'700'000'000'000'000'000U);
  EXPECT_TRUE(reader.header().stacks && reader.header().attached);
  const Content content = content_of(path_);
  EXPECT_EQ(content.damage, "");
  EXPECT_EQ(content.events, written);
  EXPECT_EQ(content.tables.processes.size(), 5'000U);
  EXPECT_EQ(content.tables.processes[77].pid, 77U);
  EXPECT_EQ(content.tables.devices[0].name, "GPU 0 (Made-up)");
  EXPECT_EQ(content.tables.modules.size(), 9U) << "what is there already keeps its index";
  EXPECT_EQ(content.tables.texts.size(), 6U);
  EXPECT_EQ(content.tables.stacks[1][1].module, kNone);
}

TEST_F(RecordingFileTest, ReadsAgain) {
  write_all_kinds();
  Reader reader(path_);
  for (int i = 0; i < 3; ++i) {
    int events = 0;
    reader.for_each([&](const Event&, const Tables&) { ++events; });
    EXPECT_EQ(events, 200);
    EXPECT_EQ(reader.damage(), "");
  }
  EXPECT_THROW(reader.for_each([](const Event&, const Tables&) { throw 1; }), int);
}

// More shapes and more living allocations than are remembered.
TEST_F(RecordingFileTest, GoesOnWhenItHasSeenTooMuchToRemember) {
  constexpr uint32_t kLiving = 530'000;
  const auto event_at = [](uint32_t i) {
    Event event;
    event.type = i < kLiving ? EventType::allocated : EventType::released;
    event.thread = i % 150'000;
    event.time_ns = i;
    event.address = 4096 * (i % kLiving + 1);
    event.bytes = event.taken = i % kLiving % 1000 * 512;
    return event;
  };
  {
    Writer writer(path_, {});
    for (uint32_t i = 0; i < 2 * kLiving; ++i) writer.add(event_at(i));
    writer.finish();
  }
  Reader reader(path_);
  uint32_t i = 0, wrong = 0;
  reader.for_each(
      [&](const Event& event, const Tables&) { wrong += event != event_at(i++) ? 1 : 0; });
  EXPECT_EQ(i, 2 * kLiving);
  EXPECT_EQ(wrong, 0U);
  EXPECT_EQ(reader.damage(), "");
}

TEST_F(RecordingFileTest, TellsOfEveryCutWhatPrecedesIt) {
  const std::vector<Event> written = write_all_kinds(80);
  const std::string whole = bytes_of(path_);
  size_t most = 0;
  for (size_t size = 0; size < whole.size(); ++size) {
    write_bytes(path_, whole.substr(0, size));
    if (!refusal_of(path_).empty()) continue;
    const Content content = content_of(path_);
    EXPECT_NE(content.damage.find("cut off"), std::string::npos) << "at " << size;
    EXPECT_TRUE(is_prefix(content.events, written)) << "at " << size;
    EXPECT_GE(content.events.size(), most) << "at " << size;
    most = content.events.size();
  }
  EXPECT_EQ(most, written.size());
  write_bytes(path_, whole + "x");
  EXPECT_NE(content_of(path_).damage, "");
}

TEST_F(RecordingFileTest, NoticesEveryFlippedBit) {
  const std::vector<Event> written = write_all_kinds(100);
  const std::string whole = bytes_of(path_);
  size_t unseen = 0;
  for (size_t i = 0; i < whole.size(); ++i) {
    std::string damaged = whole;
    damaged[i] = static_cast<char>(damaged[i] ^ 1 << i % 8);
    write_bytes(path_, damaged);
    if (!refusal_of(path_).empty()) continue;
    const Content content = content_of(path_);
    EXPECT_TRUE(is_prefix(content.events, written)) << "at " << i;
    if (content.damage.empty()) {
      // A few of zstd's bits mean nothing.
      EXPECT_EQ(content.events, written) << "at " << i;
      ++unseen;
    }
  }
  EXPECT_LT(unseen * 100, whole.size());
}

TEST_F(RecordingFileTest, RefusesWhatIsNoRecording) {
  write_all_kinds();
  std::string other_version = bytes_of(path_);
  other_version[8] = 2;
  write_bytes(path_, other_version);
  EXPECT_NE(refusal_of(path_).find("version 2"), std::string::npos) << refusal_of(path_);
  write_bytes(path_, "");
  EXPECT_NE(refusal_of(path_).find("is empty"), std::string::npos) << refusal_of(path_);
  std::mt19937 random(5);
  for (int i = 0; i < 100; ++i) {
    std::string bytes;
    for (unsigned left = random() % 4096 + 1; left > 0; --left) {
      bytes.push_back(static_cast<char>(random()));
    }
    write_bytes(path_, bytes);
    EXPECT_NE(refusal_of(path_).find("no recording"), std::string::npos);
  }
  EXPECT_NE(refusal_of(folder_).find("a folder"), std::string::npos) << refusal_of(folder_);
  EXPECT_NE(refusal_of(folder_ + "/none").find("No such file"), std::string::npos);
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(refusal_of(path_).find("a FIFO"), std::string::npos) << refusal_of(path_);
}

// Hostile bytes behind checksums that are right.
TEST_F(RecordingFileTest, SurvivesHostileContent) {
  write_all_kinds();
  const std::string whole = bytes_of(path_);
  std::vector<std::pair<ChunkHeader, std::string>> chunks;
  Decompressor decompressor;
  for (size_t at = kStartBytes; at < whole.size();) {
    const ChunkHeader header = header_of(std::string_view(whole).substr(at, kChunkHeaderBytes),
                                         static_cast<uint32_t>(chunks.size()));
    at += kChunkHeaderBytes;
    chunks.emplace_back(
        header, decompressor.content(header, std::string_view(whole).substr(at, header.stored)));
    at += header.stored;
  }
  std::mt19937 random(9);
  Compressor compressor;
  for (int round = 0; round < 3'000; ++round) {
    std::string bytes = whole.substr(0, kStartBytes);
    uint32_t number = 0;
    for (auto [header, content] : chunks) {
      for (unsigned times = random() % 4; times > 0 && !content.empty(); --times) {
        const size_t at = random() % content.size();
        if (random() % 3 == 0) {
          content.erase(at, random() % 4);
        } else if (random() % 2 == 0) {
          content.insert(at, random() % 4, static_cast<char>(random() % 3 == 0 ? 0xff : random()));
        } else {
          content[at] = static_cast<char>(random());
        }
      }
      const uint32_t events = random() % 5 == 0 ? random() % 20'000 : header.events;
      compressor.append_chunk(header.type, number++, events, {content}, bytes);
    }
    write_bytes(path_, bytes);
    if (refusal_of(path_).empty()) {
      Reader reader(path_);
      tools::report::analyse(reader);
    }
  }
}

TEST_F(RecordingFileTest, KeepsWhatIsOnAFullDisk) {
  EXPECT_EQ(status_of_child([&] {
              const rlimit limit{60'000, 60'000};
              setrlimit(RLIMIT_FSIZE, &limit);
              std::string line;
              try {
                Writer writer(path_, {});
                tests::Training training(writer);
                for (;;) {
                  training.run(1'000);
                  writer.flush();
                }
              } catch (const std::runtime_error& error) {
                line = error.what();
              }
              return line.find("cannot write") == 0 && line.find("File too large") != line.npos ? 0
                                                                                                : 1;
            }),
            0);
  const Content content = content_of(path_);
  EXPECT_GT(content.events.size(), 1'000U);
  EXPECT_EQ(content.events.size() % 1'000, 0U) << "a chunk is there whole, or not";
  EXPECT_NE(content.damage.find("cut off"), std::string::npos);
}

TEST_F(RecordingFileTest, ReplacesNothingWithoutBeingTold) {
  const auto complaint = [](const std::string& path, bool force = false) -> std::string {
    try {
      Writer writer(path, {}, force);
      return {};
    } catch (const std::runtime_error& error) {
      return error.what();
    }
  };
  write_bytes(path_, "the only copy of a thesis");
  EXPECT_NE(complaint(path_).find("is not replaced"), std::string::npos) << complaint(path_);
  EXPECT_EQ(bytes_of(path_), "the only copy of a thesis");
  EXPECT_EQ(complaint(path_, true), "");
  EXPECT_NE(complaint(path_).find("is not replaced"), std::string::npos) << "an older recording";
  write_bytes(path_, "");
  EXPECT_EQ(complaint(path_), "") << "there was nothing in it";
  {
    Writer writer(path_, {}, true);
    EXPECT_NE(complaint(path_, true).find("another fracgpu record"), std::string::npos);
  }
  unlink(path_.c_str());
  ASSERT_EQ(mkfifo(path_.c_str(), 0600), 0);
  EXPECT_NE(complaint(path_).find("a FIFO"), std::string::npos) << complaint(path_);
  EXPECT_NE(complaint(folder_).find("a folder"), std::string::npos) << complaint(folder_);
  EXPECT_NE(complaint("/dev/full").find("a device"), std::string::npos);
  EXPECT_NE(complaint(folder_ + "/none/a.rec").find("cannot make"), std::string::npos);
}

TEST_F(RecordingFileTest, HoldsAMillionAllocationsInTenMegabytes) {
  {
    Writer writer(path_, {});
    tests::Training training(writer);
    for (int i = 0; i < 400; ++i) {
      training.run(5'000);
      writer.flush();  // as a recorder does several times a second
    }
    writer.finish();
  }
  struct stat status = {};
  ASSERT_EQ(stat(path_.c_str(), &status), 0);
  printf("%lld bytes\n", static_cast<long long>(status.st_size));
  EXPECT_LT(status.st_size, 10'000'000);
}

// An hour of 100 million events as a campaign, else two million.
TEST_F(RecordingFileTest, IsReportedInSeconds) {
  const char* const campaign = getenv("FRACGPU_CAMPAIGN");
  const uint64_t events = campaign == nullptr ? 2'000'000 : 100'000'000;
  {
    Writer writer(path_, {});
    tests::Training training(writer);
    training.run(events);
    writer.finish();
  }
  EXPECT_EQ(status_of_child([&] {
              const auto begin = std::chrono::steady_clock::now();
              Reader reader(path_);
              const tools::report::Analysis analysis = tools::report::analyse(reader);
              const std::chrono::duration<double> taken = std::chrono::steady_clock::now() - begin;
              rusage use = {};
              getrusage(RUSAGE_SELF, &use);
              printf("%llu events in %.2f s, %ld MiB\n",
                     static_cast<unsigned long long>(analysis.events), taken.count(),
                     use.ru_maxrss / 1024);
              fflush(stdout);
              return analysis.events == events && use.ru_maxrss / 1024 < 1024 ? 0 : 1;
            }),
            0);
}

}  // namespace
}  // namespace fracgpu::recording
