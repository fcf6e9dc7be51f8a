// A capture in one thread, while the library makes calls of its own in that thread and in another
// one: what the capture comes to must be what it comes to without the library.
#include <algorithm>

#include "tests/integration/rig.h"

namespace fracgpu::test {
namespace {

class CaptureBeside : public Rig {
 protected:
  CaptureBeside() : Rig("a100-40gb", 256) {}
};

TEST_F(CaptureBeside, EndsAsItDoesWithoutTheLibrary) {
  const Outcome without = Program({TEST_CAPTURE_BESIDE}, bare()).finish();
  const Outcome with = Program({TEST_CAPTURE_BESIDE}, capped("20GiB")).finish();
  EXPECT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(with.out, without.out);
  EXPECT_NE(without.out.find("info mode=0 own=0 begin=0 call=900 end=901"), std::string::npos)
      << "the simulated driver forgives everything: " << without.out;
}

// Nobody knows which calls a driver counts among the unsafe ones. Here they are all that the
// library makes for itself, but for those that are documented for use beside a capture, or that are
// asked wherever a program is. What of the library's own is in a program's line is unsafe there as
// well.
TEST_F(CaptureBeside, EndsAsItDoesWhereAllOwnCallsAreUnsafe) {
  constexpr const char* kCalled[] = {
#define FRACGPU_HOOKED(family, version, name, parameters)
#define FRACGPU_CALLED(family, version, name, parameters) #name,
#include "hooks/cuda/functions.inc"
#undef FRACGPU_HOOKED
#undef FRACGPU_CALLED
  };
  constexpr std::string_view kSafe[] = {"cuCtxGetCurrent", "cuStreamIsCapturing",
                                        "cuThreadExchangeStreamCaptureMode"};
  std::string names = "cuArray3DCreate_v2,cuDevicePrimaryCtxRetain";
  for (const char* const name : kCalled) {
    if (std::find(std::begin(kSafe), std::end(kSafe), name) == std::end(kSafe))
      names += "," + std::string(name);
  }
  const auto with_unsafe = [&](Environment environment) {
    environment["FRACGPU_SIM_UNSAFE"] = names;
    return environment;
  };
  const Outcome without = Program({TEST_CAPTURE_BESIDE}, with_unsafe(bare())).finish();
  const Outcome with = Program({TEST_CAPTURE_BESIDE}, with_unsafe(capped("20GiB"))).finish();
  EXPECT_EQ(without.status, 0) << without.err;
  EXPECT_EQ(with.out, without.out);
  EXPECT_NE(without.out.find("array-3d mode=0 own=0 begin=0 call=900 end=901"), std::string::npos)
      << "no call was made unsafe: " << without.out;
}

// The same at a cap that makes the library trim, wait and measure before each answer. What it
// refuses is out of memory, but no capture ends by that.
TEST_F(CaptureBeside, EndsAsItDoesAtTheCap) {
  const Outcome without = Program({TEST_CAPTURE_BESIDE}, bare()).finish();
  const Outcome with = Program({TEST_CAPTURE_BESIDE}, capped("770MiB")).finish();
  EXPECT_EQ(with.status, 0) << with.err;
  const auto lines = [](const std::string& text) {
    std::vector<std::string> all;
    for (size_t at = 0; at < text.size();) {
      const size_t end = text.find('\n', at);
      all.push_back(text.substr(at, end - at));
      at = end + 1;
    }
    return all;
  };
  const auto before = lines(without.out), after = lines(with.out);
  ASSERT_EQ(before.size(), after.size());
  int refused = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    const bool out_of_memory = after[i].find("call=2 ") != std::string::npos;
    refused += out_of_memory ? 1 : 0;
    // A call that would have ended the capture by itself never came to the driver.
    if (out_of_memory && before[i].find("end=0") == std::string::npos) continue;
    EXPECT_EQ(after[i].substr(after[i].find("end=")), before[i].substr(before[i].find("end=")))
        << after[i];
    if (!out_of_memory) {
      EXPECT_EQ(after[i], before[i]);
    }
  }
  EXPECT_GT(refused, 0) << with.out;
}

}  // namespace
}  // namespace fracgpu::test
