// Every way to look a driver's function up leads to the cap, and every other look-up that passes
// through the interposer is answered as if the library were not there.
#include <signal.h>

#include <filesystem>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

// 1 GiB cap, 256 MiB context: one allocation of 600 MiB fits, a second does not.
constexpr char kTwoAllocations[] = "init total retain meminfo alloc 600MiB alloc 600MiB";

class InterposerTest : public Rig {
 protected:
  void expect_capped(const Outcome& outcome, const std::string& how) {
    EXPECT_EQ(outcome.status, 0) << how << outcome.err;
    EXPECT_EQ(field(line_of(outcome.out, "total"), "bytes="), kGiB) << how << outcome.out;
    EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "total="), kGiB) << how;
    EXPECT_EQ(field(line_of(outcome.out, "alloc", 0), "rc="), 0) << how;
    EXPECT_EQ(field(line_of(outcome.out, "alloc", 1), "rc="), 2) << how << ": not capped";
    EXPECT_EQ(node_->tenant_high_water(0, tenant_), 856 * kMiB) << how;
  }
  Outcome through(const std::string& program, const std::vector<std::string>& options,
                  const Environment& extra = {}) {
    std::vector<std::string> args = {program};
    args.insert(args.end(), options.begin(), options.end());
    for (const std::string& word : words(kTwoAllocations)) args.push_back(word);
    return run(args, capped("1GiB") + extra);
  }
};

TEST_F(InterposerTest, EveryWayToLookAFunctionUp) {
  for (const char* lookup : {"cudart", "dlsym", "dlvsym", "default", "deepbind"}) {
    // A sanitizer's runtime ends every process that asks for RTLD_DEEPBIND.
    if (lookup == std::string("deepbind") && sanitized()) continue;
    expect_capped(through(TEST_CLIENT, {std::string("--lookup=") + lookup}), lookup);
  }
  for (const char* lookup : {"link", "next", "cudart"}) {
    expect_capped(through(TEST_CLIENT_LINKED, {std::string("--lookup=") + lookup}),
                  std::string("linked, ") + lookup);
  }
}

TEST_F(InterposerTest, PerThreadStreamNames) {
  expect_capped(through(TEST_CLIENT, {"--lookup=cudart", "--ptsz"}), "cudart with _ptsz");
}

TEST_F(InterposerTest, DriversOfOtherVersions) {
  // Older drivers lack the newest functions; what they have must be capped all the same.
  for (const char* version : {"11040", "11080", "12000", "12040"}) {
    const Environment old = {{"FRACGPU_SIM_DRIVER_VERSION", version}};
    const Outcome without = run({TEST_CLIENT, "init"}, bare() + old);
    if (without.status != 0) continue;  // the client itself asks for more than this driver has
    expect_capped(through(TEST_CLIENT, {"--lookup=cudart"}, old), version);
  }
}

TEST_F(InterposerTest, InterposersBeforeAndAfterNeitherRecurseNorBypass) {
  const std::string shim = std::string(TEST_PRELOAD_FIRST) + TEST_SHIM;
  const std::string after = shim + ":" + TEST_INTERPOSER;
  const std::string before = std::string(TEST_PRELOAD_FIRST) + TEST_INTERPOSER + ":" + TEST_SHIM;
  for (const std::string& order : {after, before}) {
    for (const char* program : {TEST_CLIENT, TEST_CLIENT_LINKED}) {
      const Outcome outcome = through(program, {}, {{"LD_PRELOAD", order}});
      expect_capped(outcome, order);
      EXPECT_EQ(outcome.err.find("recursion"), std::string::npos) << order;
    }
  }
  const Outcome linked = through(TEST_CLIENT_LINKED, {}, {{"LD_PRELOAD", before}});
  EXPECT_NE(linked.err.find("interposer: cuMemAlloc_v2"), std::string::npos)
      << "an interposer in front must still be called";
}

// RTLD_DEEPBIND binds a library to its own dependencies first, also to the real dlsym.
TEST_F(InterposerTest, DeepbindIsLeftToLibrariesThatCannotGetPast) {
  if (sanitized()) GTEST_SKIP() << "a sanitizer's runtime ends whoever asks for RTLD_DEEPBIND";
  const Environment in_folder = {
      {"LD_LIBRARY_PATH", bare().at("LD_LIBRARY_PATH") + ":" TEST_DEEPBIND}};
  const auto probe = [&](const std::string& library) {
    return run({TEST_DEEPBIND "deepbind_probe", library}, capped("1GiB") + in_folder);
  };
  for (const char* folder : {TEST_DEEPBIND, ""}) {
    const std::string prefix = std::string(folder) + "libdeepbind_";
    Outcome outcome = probe(prefix + "plain.so");
    EXPECT_NE(outcome.out.find("who is=plugin"), std::string::npos) << outcome.out << outcome.err;
    for (const char* plugin : {"lookup.so", "needing.so"}) {
      outcome = probe(prefix + plugin);
      EXPECT_EQ(field(line_of(outcome.out, "alloc"), "rc="), 2) << plugin << ": not capped";
    }
  }
  EXPECT_LE(node_->tenant_high_water(0, tenant_), kGiB);
}

// Their wrappers look the real functions up through us, and may not be called meanwhile.
TEST_F(InterposerTest, WrappersThatLookUpWhatWeUse) {
  if (sanitized()) GTEST_SKIP() << "the sanitizer's runtime is such a wrapper itself";
  for (const std::string& preload : {std::string(TEST_SHIM ":" TEST_LAZY_INTERPOSER),
                                     std::string(TEST_LAZY_INTERPOSER ":" TEST_SHIM)}) {
    expect_capped(through(TEST_CLIENT, {}, {{"LD_PRELOAD", preload}}), preload);
    const Outcome uncapped = run({"/bin/ls", "/"}, bare() + Environment{{"LD_PRELOAD", preload}});
    EXPECT_EQ(uncapped.status, 0) << preload << ": " << uncapped.err;
  }
}

TEST_F(InterposerTest, ProgramsUnderASanitizer) {
  std::string rest = TEST_SANITIZED_CLIENTS;
  if (rest.empty()) GTEST_SKIP() << "built with a sanitizer, or by compilers without one";
  for (rest += ':'; !rest.empty(); rest.erase(0, rest.find(':') + 1)) {
    const std::string program = rest.substr(0, rest.find(':'));
    // gcc's own complains of anything preloaded; the simulated driver keeps what it has.
    Environment options = {{"LD_PRELOAD", TEST_SHIM},
                           {"ASAN_OPTIONS", "verify_asan_link_order=0:detect_leaks=0"},
                           {"LSAN_OPTIONS", "detect_leaks=0"}};
    // gcc 13's leak sanitizer and glibc 2.39 call each other for ever once a library with
    // thread-local variables is opened.
    Environment alone = bare() + options;
    alone["LD_PRELOAD"] = "";
    if (run({"timeout", "--signal=KILL", "30", program}, alone).status == 128 + SIGKILL) {
      std::printf("left out, as it does not end without the library either: %s\n", program.c_str());
      continue;
    }
    if (program.ends_with("_memory")) {
      // Whatever a driver that it did not compile writes is uninitialised to it. So it is started,
      // looks for a driver where there is none, and says so.
      options["LD_LIBRARY_PATH"] = "";
      for (const Environment& environment : {capped("1GiB"), bare()}) {
        const Outcome started = run({program}, environment + options);
        EXPECT_EQ(started.status, 10) << program << ": " << started.err;
      }
      continue;
    }
    const Outcome with_cap = run({program}, capped("1GiB") + options);
    EXPECT_EQ(with_cap.status, 0) << program << ": " << with_cap.err;
    EXPECT_EQ(with_cap.out, "alloc rc=0\nalloc rc=2\n") << program << ": " << with_cap.err;
    const Outcome without = run({program}, bare() + options);
    EXPECT_EQ(without.out, "alloc rc=0\nalloc rc=0\n") << program << ": " << without.err;
  }
}

// As on WSL2: what the program opens is a library that looks every function up in the driver
// proper. Answered with our hooks it would call itself for ever.
TEST_F(InterposerTest, LibraryThatOnlyLoadsTheDriver) {
  const Environment wsl = {{"LD_LIBRARY_PATH", TEST_SIM_DIR "/wsl:" TEST_SIM_DIR}};
  for (const char* way : {"cudart", "dlsym", "dlvsym", "default"}) {
    expect_capped(through(TEST_CLIENT, {std::string("--lookup=") + way}, wsl), way);
  }
  Environment uncapped = bare() + wsl;
  uncapped["LD_PRELOAD"] += TEST_SHIM;
  std::vector<std::string> args = {TEST_CLIENT, "--lookup=cudart"};
  for (const std::string& word : words(kTwoAllocations)) args.push_back(word);
  const Outcome outcome = run(args, uncapped);
  EXPECT_EQ(outcome.status, 0) << "without a cap: " << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "alloc", 1), "rc="), 0) << outcome.out;
}

TEST_F(InterposerTest, CtypesFromPython) {
  const Outcome outcome =
      run({"python3", TEST_CTYPES_CLIENT, "629145600", "629145600"}, capped("1GiB"));
  EXPECT_EQ(outcome.status, 0) << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "alloc", 0), "rc="), 0) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "alloc", 1), "rc="), 2) << outcome.out;
  EXPECT_NE(outcome.out.find("total=" + std::to_string(kGiB)), std::string::npos) << outcome.out;
}

// The simulated driver is not genuine and the runtime gives up on it, but by then it has its table
// of the driver's functions.
TEST_F(InterposerTest, TheRealRuntimeTakesOurHooks) {
  if (*TEST_CUDART == '\0') GTEST_SKIP() << "no libcudart on this machine";
  if (sanitized()) GTEST_SKIP() << "the sanitizer's shadow would be searched too";
  const std::vector<std::string> probe = {
      TEST_CUDART_PROBE,   TEST_CUDART,       "cuMemAlloc_v2",       "cuMemFree_v2",
      "cuMemAllocManaged", "cuMemGetInfo_v2", "cuDeviceTotalMem_v2", "cuDevicePrimaryCtxRetain"};
  const Outcome without = run(probe, bare());
  const Outcome with = run(probe, capped("1GiB"));
  for (size_t i = 2; i < probe.size(); ++i) {
    EXPECT_GT(field(line_of(without.out, probe[i]), "driver="), 0) << without.out << without.err;
    EXPECT_EQ(field(line_of(with.out, probe[i]), "driver="), 0) << with.out << with.err;
    EXPECT_GT(field(line_of(with.out, probe[i]), "other="), 0) << with.out;
  }
}

TEST_F(InterposerTest, OtherLookUpsAreAnsweredAsWithoutTheLibrary) {
  const Outcome without = run({TEST_LOOKUP_PROBE}, bare());
  const Environment limit = capped("1GiB");
  EXPECT_EQ(without.status, 0);
  for (const Environment& environment :
       {limit, bare() + Environment{{"LD_PRELOAD", limit.at("LD_PRELOAD")}}}) {
    const Outcome with = run({TEST_LOOKUP_PROBE}, environment);
    EXPECT_EQ(with.out, without.out);
    EXPECT_EQ(with.err, without.err);
  }
  EXPECT_NE(without.out.find("no driver, default hsa_init: nothing, dlerror set"),
            std::string::npos);
  EXPECT_NE(without.out.find("driver: 1 alone"), std::string::npos);
  EXPECT_NE(without.out.find("driver, used: 1\ndriver, error: none"), std::string::npos);
}

TEST_F(InterposerTest, WithoutNvmlNoErrorOfOursIsLeft) {
  const std::string folder = node_path_ + ".cuda-alone";
  std::filesystem::create_directory(folder);
  std::filesystem::copy_file(std::string(TEST_SIM_DIR) + "/libcuda.so.1", folder + "/libcuda.so.1");
  const Outcome with =
      run({TEST_LOOKUP_PROBE}, capped("1GiB") + Environment{{"LD_LIBRARY_PATH", folder}});
  std::filesystem::remove_all(folder);
  EXPECT_NE(with.out.find("driver, used: 1\ndriver, error: none"), std::string::npos) << with.out;
}

TEST_F(InterposerTest, NothingIsPrintedToStdout) {
  const std::vector<std::string> commands = words("init retain alloc 100GiB meminfo");
  std::vector<std::string> args = {TEST_CLIENT};
  args.insert(args.end(), commands.begin(), commands.end());
  const Outcome without = run(args, bare());
  const Outcome with = run(args, capped("100%") + Environment{{"FRACGPU_LOG", "debug"}});
  EXPECT_EQ(with.out, without.out);
}

}  // namespace
}  // namespace fracgpu::test
