// Tests of names: what the driver library exports and what its entry-point getters answer.
// The table behind the getters must cover every export, and every pointer it gives must be an
// exported address. The outcomes for unknown and empty names, flags and versions are those measured
// on the real 535 driver.
#include <dlfcn.h>

#include <cstdint>
#include <cstdlib>
#include <fstream>
#include <sstream>

#include "sim/test/support.h"

using namespace simtest;

namespace {

using Getter = int(const char*, void**, int, uint64_t, int*);

// The library is opened in children only: it reads the environment once, when it is loaded.
void every_line() {
  setenv("FRACGPU_SIM_DRIVER_VERSION", "13030", 1);  // what the newest line wants
  std::ifstream table(SIM_SYMBOLS);
  ASSERT_TRUE(table.good());
  auto* get = cuda<Getter>("cuGetProcAddress_v2");
  std::string line;
  int lines = 0;
  while (std::getline(table, line)) {
    const size_t open = line.find("SIM_SYMBOL(");
    if (open != 0) continue;
    for (char& c : line) {
      if (c == '(' || c == ',' || c == ')') c = ' ';
    }
    std::istringstream words(line);
    std::string macro, base, exported, twin;
    int version = 0;
    words >> macro >> base >> version >> exported >> twin;
    void* found = nullptr;
    int status = -1;
    EXPECT_EQ(get(base.c_str(), &found, version, twin == "true" ? 2 : 0, &status), 0);
    EXPECT_EQ(found, cuda_symbol(exported.c_str())) << exported;
    EXPECT_EQ(status, 0) << exported;
    ++lines;
  }
  EXPECT_GT(lines, 100);
}

void outcomes() {
  auto* get = cuda<Getter>("cuGetProcAddress_v2");
  void* found = nullptr;
  int status = -1;
  const auto expect = [&](const char* name, int version, uint64_t flags, const char* symbol,
                          int wanted) {
    found = &status;
    status = -1;
    EXPECT_EQ(get(name, &found, version, flags, &status), 0) << name;
    EXPECT_EQ(found, symbol != nullptr ? cuda_symbol(symbol) : nullptr) << name << " " << version;
    EXPECT_EQ(status, wanted) << name << " " << version;
  };
  expect("", 0, 0, nullptr, 1);
  expect("cuNoSuchThing", 12000, 0, nullptr, 1);
  expect("cuMemAlloc_v2", 12000, 0, nullptr, 1);
  expect("cuMemAlloc", 1000, 0, nullptr, 2);
  expect("cuMemAlloc", 2000, 0, "cuMemAlloc", 0);
  expect("cuMemAlloc", 3020, 0, "cuMemAlloc_v2", 0);
  expect("cuMemAlloc", 13000, 2, "cuMemAlloc_v2", 0);
  expect("cuMemcpyHtoD", 12000, 0, "cuMemcpyHtoD_v2", 0);
  expect("cuMemcpyHtoD", 12000, 2, "cuMemcpyHtoD_v2_ptds", 0);
  expect("cuMemcpyHtoD", 5000, 2, nullptr, 2);
  expect("cuLaunchKernel", 12000, 2, "cuLaunchKernel_ptsz", 0);
  expect("cuCtxCreate", 11040, 0, "cuCtxCreate_v3", 0);
  expect("cuGetProcAddress", 11030, 0, "cuGetProcAddress", 0);
  expect("cuGetProcAddress", 12000, 0, "cuGetProcAddress_v2", 0);
  found = &status;
  EXPECT_EQ(get("cuMemAlloc", &found, 12000, 4, &status), 1);
  EXPECT_EQ(found, &status);
  auto* old = cuda<int(const char*, void**, int, uint64_t)>("cuGetProcAddress");
  EXPECT_EQ(old("cuNoSuchThing", &found, 12000, 0), 500);
  EXPECT_EQ(found, &status);
  EXPECT_EQ(old("cuMemAlloc", &found, 12000, 0), 0);
  EXPECT_EQ(found, cuda_symbol("cuMemAlloc_v2"));
}

TEST(SimNames, EveryLineOfTheTableIsAnExportAndIsFound) {
  in_child(every_line);
}
TEST(SimNames, GetterOutcomes) {
  in_child(outcomes);
}

}  // namespace
