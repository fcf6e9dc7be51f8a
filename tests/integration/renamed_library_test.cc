// The vendors' libraries under other names: newer releases count on, wheels rename the files, and
// some tools that make wheels change the SONAME inside as well. And two of them in one process.
#include <dlfcn.h>
#include <link.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "tests/integration/amd_rig.h"

namespace fracgpu::test {
namespace {

namespace fs = std::filesystem;

constexpr int kNotInitialized = 3;  // of CUDA and HIP
constexpr int kHsaNotInitialized = 0x100b;

class RenamedLibrary : public AmdRig {
 protected:
  RenamedLibrary() : folder_(fs::temp_directory_path() / ("fracgpu-renamed-" + tenant_)) {
    fs::create_directories(folder_);
  }
  ~RenamedLibrary() override { fs::remove_all(folder_); }

  // A copy of the library with each `from` in it replaced by `to`, which is as long.
  std::string copy_of(const std::string& library, const std::string& file, const std::string& from,
                      const std::string& to) const {
    EXPECT_EQ(from.size(), to.size());
    std::ifstream in(library, std::ios::binary);
    std::string bytes{std::istreambuf_iterator<char>(in), {}};
    EXPECT_FALSE(bytes.empty()) << library;
    for (size_t at = 0; (at = bytes.find(from, at)) != std::string::npos; at += to.size())
      bytes.replace(at, to.size(), to);
    const std::string path = (folder_ / file).string();
    std::ofstream(path, std::ios::binary) << bytes;
    return path;
  }
  static std::string hip() {
    link_map* map = nullptr;
    void* const handle = dlopen("libamdhip64.so.5", RTLD_LAZY);
    return handle != nullptr && dlinfo(handle, RTLD_DI_LINKMAP, &map) == 0 ? map->l_name : "";
  }
  static std::string hsa() { return TEST_SIM_DIR "/libhsa-runtime64.so.1"; }

  fs::path folder_;
};

// What each is called by whoever renamed it, in as many letters.
TEST_F(RenamedLibrary, HipIsFoundByWhatItExports) {
  for (const char* name : {"libamdhip64.so.5", "libamdhip64.so.8", "libgpu-0a1b2c.so"}) {
    const std::string path = copy_of(hip(), "libamdhip64.so", "libamdhip64.so.5", name);
    for (const char* lookup : {"dlsym", "default"}) {
      auto program = start("32MiB",
                           std::string("--lookup=") + lookup +
                               " init malloc 24MiB malloc 24MiB managed 24MiB meminfo wait",
                           {{"HIP_LIBRARY", path}});
      const auto lines = program->read_until_ready();
      ASSERT_EQ(lines.size(), 5u) << name << lookup << program->finish().err;
      EXPECT_EQ(field(lines[1], "rc="), 0) << name << " by " << lookup;
      EXPECT_EQ(field(lines[2], "rc="), 2) << name << " by " << lookup;
      EXPECT_EQ(field(lines[3], "rc="), 2) << name << " by " << lookup;
      EXPECT_EQ(field(lines[4], "total="), 32 * kMiB) << name << " by " << lookup;
      program->finish();
    }
  }
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 32 * kMiB);
}

TEST_F(RenamedLibrary, HsaIsFoundByWhatItExports) {
  const std::string path =
      copy_of(hsa(), "hsa.so", "libhsa-runtime64.so.1", "libhsa-rt-0a1b2c.so.1");
  const Outcome outcome = run({TEST_HSA_PROGRAM, "init", "alloc", "24MiB", "alloc", "24MiB"},
                              capped("32MiB") + Environment{{"HSA_LIBRARY", path}});
  EXPECT_EQ(field(line_of(outcome.out, "alloc"), "rc="), 0) << outcome.out << outcome.err;
  EXPECT_EQ(field(line_of(outcome.out, "alloc", 1), "rc="), 0x1008) << outcome.out;
  EXPECT_LE(node_->tenant_high_water(0, tenant_), 32 * kMiB);
}

// The second is called neither itself nor in the first one's place.
TEST_F(RenamedLibrary, ASecondHipIsRefused) {
  const std::string second = copy_of(hip(), "second.so", "libamdhip64.so.5", "libamdhip64.so.8");
  const Outcome outcome = AmdRig::hip(
      "32MiB", "init malloc 8MiB second " + second + " hipDeviceReset malloc 8MiB free 0");
  EXPECT_EQ(field(line_of(outcome.out, "second"), "rc="), kNotInitialized) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "malloc", 1), "rc="), 0) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "free"), "rc="), 0) << "the first one was reset";
  EXPECT_NE(outcome.err.find("functions of " + second + " are refused"), std::string::npos)
      << outcome.err;
}

TEST_F(RenamedLibrary, WithoutACapASecondHipIsItself) {
  const std::string second = copy_of(hip(), "second.so", "libamdhip64.so.5", "libamdhip64.so.8");
  Environment environment = capped("");
  environment.erase("FRACGPU_MEMORY_LIMIT");
  const Outcome outcome = run({TEST_HIP_PROGRAM, "init", "malloc", "8MiB", "second", second,
                               "hipDeviceReset", "malloc", "8MiB", "free", "0"},
                              environment);
  EXPECT_EQ(field(line_of(outcome.out, "second"), "rc="), 0) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "free"), "rc="), 0) << "the first one was reset";
  EXPECT_EQ(outcome.err, "");
}

TEST_F(RenamedLibrary, ASecondHsaIsRefused) {
  const std::string second = copy_of(hsa(), "second.so", "no such text", "no such text");
  const Outcome outcome =
      AmdRig::hip("32MiB", "init malloc 8MiB second " + second + " hsa_init malloc 8MiB");
  EXPECT_EQ(field(line_of(outcome.out, "second"), "rc="), kHsaNotInitialized) << outcome.out;
  EXPECT_EQ(field(line_of(outcome.out, "malloc", 1), "rc="), 0) << outcome.out;
  EXPECT_NE(outcome.err.find("functions of " + second + " are refused"), std::string::npos)
      << outcome.err;
}

class RenamedDriver : public Rig {};

TEST_F(RenamedDriver, CudaIsFoundByWhatItExports) {
  const fs::path path = fs::temp_directory_path() / ("fracgpu-renamed-" + tenant_ + ".so");
  std::ifstream in(TEST_SIM_DIR "/libcuda.so.1", std::ios::binary);
  std::string bytes{std::istreambuf_iterator<char>(in), {}};
  for (size_t at = 0; (at = bytes.find("libcuda.so.1", at)) != std::string::npos; ++at)
    bytes.replace(at, 12, "libcu-9a.so1");
  std::ofstream(path, std::ios::binary) << bytes;
  for (const char* lookup : {"cudart", "dlsym", "default"}) {
    std::vector<std::string> args = {TEST_CLIENT, std::string("--lookup=") + lookup};
    for (const std::string& word : words("init retain meminfo alloc 600MiB alloc 600MiB"))
      args.push_back(word);
    const Outcome outcome =
        run(args, capped("1GiB") + Environment{{"CUDA_LIBRARY", path.string()}});
    EXPECT_EQ(field(line_of(outcome.out, "meminfo"), "total="), kGiB) << lookup << outcome.err;
    EXPECT_EQ(field(line_of(outcome.out, "alloc"), "rc="), 0) << lookup << outcome.out;
    EXPECT_EQ(field(line_of(outcome.out, "alloc", 1), "rc="), 2) << lookup << ": not capped";
  }
  fs::remove(path);
}

}  // namespace
}  // namespace fracgpu::test
