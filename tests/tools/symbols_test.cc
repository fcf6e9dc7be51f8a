// Frames are named as the compiler and binutils made them: a library tells its own addresses and
// lines, and is stripped, parted, rebuilt and damaged here.
#include "tools/recording/symbols.h"

#include <dlfcn.h>
#include <glob.h>
#include <gtest/gtest.h>
#include <link.h>
#include <signal.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <fstream>
#include <random>
#include <sstream>
#include <string>
#include <vector>

#include "tools/recording/demangle.h"

namespace fracgpu::recording {
namespace {

struct Told {
  uint64_t offset;
  int line;
};
std::vector<Told> told;
uintptr_t loaded_at;

// What the library tells of its frames: exported, unexported, a template's member.
void load() {
  void* const library = dlopen(NAMED_FRAMES, RTLD_NOW);
  ASSERT_NE(library, nullptr) << dlerror();
  const link_map* map = nullptr;
  ASSERT_EQ(dlinfo(library, RTLD_DI_LINKMAP, &map), 0);
  loaded_at = map->l_addr;
  const auto visit =
      reinterpret_cast<void (*)(void (*)(const void*, int))>(dlsym(library, "visit_frames"));
  ASSERT_NE(visit, nullptr);
  told.clear();
  visit([](const void* call, int line) {
    told.push_back({reinterpret_cast<uintptr_t>(call) - 1 - loaded_at, line});
  });
  ASSERT_EQ(told.size(), 3u);
}

std::string output_of(const std::string& command) {
  FILE* const pipe = popen(command.c_str(), "r");
  std::string text;
  char bytes[4096];
  for (size_t size; (size = fread(bytes, 1, sizeof bytes, pipe)) > 0;) text.append(bytes, size);
  EXPECT_EQ(pclose(pipe), 0) << command;
  return text;
}

std::string build_id_of(const std::string& path) {
  std::istringstream notes(output_of(READELF " --notes --wide '" + path + "'"));
  for (std::string word; notes >> word;) {
    if (word == "ID:" && notes >> word) return word;
  }
  return "";
}

void write_file(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary) << bytes;
}

std::string read_file(const std::string& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), {}};
}

class SymbolsTest : public testing::Test {
 protected:
  void SetUp() override {
    char name[] = "/tmp/fracgpu-symbols-XXXXXX";
    ASSERT_NE(mkdtemp(name), nullptr);
    folder_ = name;
    ASSERT_NO_FATAL_FAILURE(load());
    build_id_ = build_id_of(NAMED_FRAMES);
    ASSERT_EQ(build_id_.size(), 40u);
  }
  void TearDown() override { output_of("rm -rf '" + folder_ + "'"); }

  // A copy that binutils has changed.
  std::string changed(const std::string& name, const std::string& options) {
    const std::string path = folder_ + "/" + name;
    output_of(OBJCOPY " " + options + " " NAMED_FRAMES " '" + path + "'");
    return path;
  }

  std::vector<Place> places(const std::string& path, const std::string& build_id, uint64_t offset,
                            std::vector<std::string> roots = {}) {
    Tables tables;
    tables.modules = {{path, build_id}};
    return Symbols(std::move(roots)).places(tables, {0, offset, 0});
  }

  std::string folder_, build_id_;
};

const std::string kTemplate = "frames::Buffer<std::vector<int, std::allocator<int> >, 4ul>::grow";

TEST_F(SymbolsTest, NamesFunctionsThatWereInlinedAndTheirLines) {
  const std::vector<Place> found = places(NAMED_FRAMES, build_id_, told[0].offset);
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].function, "frames::innermost(void (*)(void const*, int))");
  EXPECT_EQ(found[1].function, "frames::between(void (*)(void const*, int))");
  EXPECT_EQ(found[2].function, "frames::exported(void (*)(void const*, int))");
  EXPECT_EQ(found[0].line, told[0].line);
  EXPECT_EQ(found[1].line, told[0].line + 4) << "where innermost is called";
  for (const Place& each : found) {
    EXPECT_TRUE(each.file.ends_with("/named_frames.cc")) << each.file;
    EXPECT_EQ(each.module, "libnamed_frames.so");
  }
}

TEST_F(SymbolsTest, NamesWhatIsNotExportedAndTemplates) {
  std::vector<Place> found = places(NAMED_FRAMES, build_id_, told[1].offset);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].function, "frames::unexported(void (*)(void const*, int))");
  EXPECT_EQ(found[0].line, told[1].line);
  found = places(NAMED_FRAMES, build_id_, told[2].offset);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(found[0].function.starts_with(kTemplate)) << found[0].function;
  EXPECT_EQ(found[0].line, told[2].line);
}

TEST_F(SymbolsTest, AStrippedFileNamesWhatItExportsAndNothingElse) {
  const std::string path = changed("stripped.so", "--strip-all");
  const std::vector<Place> exported = places(path, build_id_, told[0].offset);
  ASSERT_EQ(exported.size(), 1u);
  EXPECT_EQ(exported[0].function, "frames::exported(void (*)(void const*, int))");
  EXPECT_EQ(exported[0].line, 0);
  char raw[64];
  snprintf(raw, sizeof raw, "stripped.so+0x%lx", static_cast<unsigned long>(told[1].offset));
  EXPECT_EQ(places(path, build_id_, told[1].offset)[0].function, raw);
}

TEST_F(SymbolsTest, SymbolTablesDoWithoutDebuggingInformation) {
  const std::string path = changed("symbols.so", "--strip-debug");
  const std::vector<Place> found = places(path, build_id_, told[1].offset);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].function, "frames::unexported(void (*)(void const*, int))");
  EXPECT_EQ(found[0].file, "");
}

TEST_F(SymbolsTest, DebugFilesAreFoundByBuildIdBelowTheRoots) {
  const std::string path = changed("stripped.so", "--strip-all");
  const std::string below = folder_ + "/machine/usr/lib/debug/.build-id/" + build_id_.substr(0, 2);
  output_of("mkdir -p '" + below + "'");
  const std::string debug = changed("debug", "--only-keep-debug");
  const std::string place = below + "/" + build_id_.substr(2) + ".debug";
  ASSERT_EQ(rename(debug.c_str(), place.c_str()), 0);
  const std::vector<Place> found = places(path, build_id_, told[0].offset, {folder_ + "/machine"});
  ASSERT_EQ(found.size(), 3u);
  EXPECT_EQ(found[0].line, told[0].line);
  // The module itself need not be there.
  EXPECT_EQ(places("/gone.so", build_id_, told[0].offset, {folder_ + "/machine"}).size(), 3u);
  // One of another build in the same place is none.
  const std::string of_others = std::string(38, '0');
  output_of("mkdir -p '" + folder_ + "/machine/.build-id/11'");
  output_of("cp '" + place + "' '" + folder_ + "/machine/.build-id/11/" + of_others + ".debug'");
  EXPECT_EQ(places("/gone.so", "11" + of_others, told[0].offset, {folder_ + "/machine"})[0].line,
            0);
}

TEST_F(SymbolsTest, ModulesAreFoundBelowTheRootsFirst) {
  output_of("mkdir -p '" + folder_ + "/opt'");
  changed("opt/copied.so", "--preserve-dates");
  EXPECT_EQ(places("/opt/copied.so", build_id_, told[0].offset, {folder_}).size(), 3u);
  EXPECT_EQ(places("/elsewhere/copied.so", build_id_, told[0].offset, {folder_ + "/opt"}).size(),
            3u);
}

TEST_F(SymbolsTest, AFileOfAnotherBuildNamesNothing) {
  std::string other = build_id_;
  other[5] = other[5] == '0' ? '1' : '0';
  for (const std::string& id : {other, std::string(), build_id_.substr(0, 20)}) {
    const std::vector<Place> found = places(NAMED_FRAMES, id, told[0].offset);
    ASSERT_EQ(found.size(), 1u);
    EXPECT_TRUE(found[0].function.starts_with("libnamed_frames.so+0x")) << found[0].function;
  }
}

TEST_F(SymbolsTest, CompilersAtRunTimeNameTheirOwn) {
  Tables tables;
  tables.texts = {"", "py::train:/srv/train/train.py", "LazyCompile:~step app.js:7", "py::odd"};
  tables.modules = {{"", ""}};
  Symbols symbols;
  EXPECT_EQ(symbols.places(tables, {0, 4096, 1})[0].function, "train (train.py)");
  EXPECT_EQ(symbols.places(tables, {0, 4096, 2})[0].function, "LazyCompile:~step app.js:7");
  EXPECT_EQ(symbols.places(tables, {0, 4096, 3})[0].function, "py::odd");
  EXPECT_EQ(symbols.places(tables, {0, 4096, 0})[0].function, "[anonymous]+0x1000");
  EXPECT_EQ(symbols.places(tables, {kNone, 16, 0})[0].function, "[anonymous]+0x10");
  EXPECT_EQ(symbols.places(tables, {77, 16, 99})[0].function, "[anonymous]+0x10");
}

TEST_F(SymbolsTest, WhatIsNoFileOfAModuleNamesNothing) {
  ASSERT_EQ(mkfifo((folder_ + "/fifo").c_str(), 0600), 0);
  write_file(folder_ + "/text", "#!/bin/sh\n");
  write_file(folder_ + "/empty", "");
  for (const char* name : {"fifo", "text", "empty", "", "absent"}) {
    EXPECT_EQ(places(folder_ + "/" + name, "", 64)[0].function, std::string(name) + "+0x40");
  }
  EXPECT_EQ(places("[vdso]", "", 64)[0].function, "[vdso]+0x40");
}

TEST_F(SymbolsTest, DebuginfodIsAskedWhereItsServersAreNamed) {
  const std::string debug = changed("brought", "--only-keep-debug");
  write_file(folder_ + "/debuginfod-find",
             "#!/bin/sh\n[ $1 = debuginfo ] && [ $2 = " + build_id_ + " ] && echo " + debug + "\n");
  chmod((folder_ + "/debuginfod-find").c_str(), 0700);
  const std::string path = getenv("PATH");
  setenv("PATH", (folder_ + ":" + path).c_str(), 1);
  EXPECT_EQ(places("/gone.so", build_id_, told[0].offset).size(), 1u) << "no server was named";
  setenv("DEBUGINFOD_URLS", "http://localhost:1", 1);
  EXPECT_EQ(places("/gone.so", build_id_, told[0].offset).size(), 3u);
  EXPECT_EQ(places("/gone.so", std::string(40, 'a'), told[0].offset).size(), 1u);
  unsetenv("DEBUGINFOD_URLS");
  setenv("PATH", path.c_str(), 1);
}

// Bytes that nobody meant: every answer is a name, and no file ends this process.
TEST_F(SymbolsTest, SurvivesDamagedFiles) {
  const std::string whole = read_file(NAMED_FRAMES);
  const char* const seed = getenv("FRACGPU_SEED");
  std::mt19937 random(seed == nullptr ? 1 : static_cast<uint32_t>(atoll(seed)));
  const int runs = getenv("FRACGPU_CAMPAIGN") == nullptr ? 150 : 5000;
  for (int run = 0; run < runs; ++run) {
    std::string bytes = whole;
    if (run % 3 == 0) {
      bytes.resize(random() % bytes.size());
    } else {
      // Headers, and the tables at the end, are where damage tells the most.
      const bool anywhere = run % 3 == 1;
      for (int flip = 0; flip < (anywhere ? 200 : 4); ++flip) {
        const size_t end = random() % 2 == 0 ? random() % 1024 : random() % 4096;
        const size_t at = anywhere            ? random() % bytes.size()
                          : random() % 2 == 0 ? end
                                              : bytes.size() - 1 - end;
        bytes[at] = static_cast<char>(random());
      }
    }
    const std::string path = folder_ + "/damaged.so";
    write_file(path, bytes);
    Tables tables;
    tables.modules = {{path, build_id_}};
    Symbols symbols;
    for (const Told& each : told) {
      const std::vector<Place>& found = symbols.places(tables, {0, each.offset, 0});
      ASSERT_FALSE(found.empty());
      for (const Place& place : found) EXPECT_FALSE(place.function.empty());
    }
  }
}

// Kills the child of this process that reads the files.
void kill_reader() {
  pid_t reader = 0;
  glob_t found = {};
  ASSERT_EQ(glob("/proc/[0-9]*/stat", 0, nullptr, &found), 0);
  for (size_t i = 0; i < found.gl_pathc; ++i) {
    const std::string status = read_file(found.gl_pathv[i]);
    pid_t pid = 0, parent = 0;
    sscanf(status.c_str(), "%d (symbols_tests) %*c %d", &pid, &parent);
    if (parent == getpid()) reader = pid;
  }
  globfree(&found);
  ASSERT_NE(reader, 0);
  ASSERT_EQ(kill(reader, SIGKILL), 0);
}

TEST_F(SymbolsTest, TheEndOfTheReaderCostsOneFileItsLinesAndNoOtherAnything) {
  const std::string copy = changed("copy.so", "--preserve-dates");
  Tables tables;
  tables.modules = {{NAMED_FRAMES, build_id_}, {copy, build_id_}};
  Symbols symbols;
  ASSERT_EQ(symbols.places(tables, {0, told[0].offset, 0}).size(), 3u);
  ASSERT_NO_FATAL_FAILURE(kill_reader());
  const std::vector<Place> after = symbols.places(tables, {0, told[1].offset, 0});
  ASSERT_EQ(after.size(), 1u);
  EXPECT_TRUE(after[0].function.starts_with("frames::unexported")) << after[0].function;
  EXPECT_EQ(after[0].line, 0);
  EXPECT_EQ(symbols.places(tables, {1, told[0].offset, 0}).size(), 3u);
  ASSERT_NO_FATAL_FAILURE(kill_reader());
  EXPECT_TRUE(symbols.places(tables, {0, told[2].offset, 0})[0].function.starts_with("libnam"));
  EXPECT_EQ(symbols.places(tables, {0, told[0].offset, 0}).size(), 3u) << "what is known stays";
}

TEST_F(SymbolsTest, NamesManyFramesInSeconds) {
  Tables tables;
  tables.modules = {{NAMED_FRAMES, build_id_}, {OWN_FILE, build_id_of(OWN_FILE)}};
  Symbols symbols;
  const auto began = std::chrono::steady_clock::now();
  const uint64_t frames = getenv("FRACGPU_CAMPAIGN") == nullptr ? 20'000 : 100'000;
  Dl_info info;
  const void* const somewhere = reinterpret_cast<const void*>(&write_file);
  ASSERT_NE(dladdr(somewhere, &info), 0);
  const uint64_t own =
      reinterpret_cast<uintptr_t>(somewhere) - reinterpret_cast<uintptr_t>(info.dli_fbase);
  size_t named = 0;
  for (uint64_t i = 0; i < frames; ++i) {
    const uint64_t offset = own - frames / 2 + i;
    named += symbols.places(tables, {1, offset, 0})[0].function.find("+0x") == std::string::npos;
  }
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - began;
  printf("%zu of %zu frames have names, after %.2f s\n", named, size_t{frames}, took.count());
  EXPECT_GT(named, frames / 2);
  EXPECT_LT(took.count(), 60);
}

TEST(DemangleTest, ReadsWhatLinkersKnow) {
  EXPECT_EQ(demangle("_ZN3foo3barEi"), "foo::bar(int)");
  EXPECT_EQ(demangle("_ZN3foo3barEi.constprop.0"), "foo::bar(int)");
  EXPECT_EQ(demangle("cuMemAlloc_v2"), "cuMemAlloc_v2");
  EXPECT_EQ(demangle("_ZN4core3ops8function6FnOnce9call_once17h0123456789abcdefE"),
            "core::ops::function::FnOnce::call_once");
  EXPECT_EQ(demangle("_ZN63_$LT$alloc..vec..Vec$LT$T$GT$$u20$as$u20$core..clone..Clone$GT$5clone"
                     "17h0123456789abcdefE"),
            "<alloc::vec::Vec<T> as core::clone::Clone>::clone");
  EXPECT_EQ(demangle("_RNvC6_123foo3bar"), "123foo::bar");
  EXPECT_EQ(demangle("_RNvNtCs1234_7mycrate3foo3bar"), "mycrate::foo::bar");
  EXPECT_EQ(demangle("_Z"), "_Z");
  EXPECT_EQ(demangle("_Rx"), "_Rx");
  EXPECT_EQ(demangle(""), "");
  EXPECT_EQ(demangle("_Z" + std::string(100'000, 'N')).size(), 100'002u);
}

}  // namespace
}  // namespace fracgpu::recording
