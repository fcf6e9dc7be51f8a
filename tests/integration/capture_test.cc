// A capture in one thread, while the library makes calls of its own in that thread and in another
// one: what the capture comes to must be what it comes to without the library.
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

// The same at a cap that makes the library trim, wait and measure before each answer. What it
// refuses is out of memory, but no capture ends by that.
TEST_F(CaptureBeside, EndsAsItDoesAtTheCap) {
  const Outcome without = Program({TEST_CAPTURE_BESIDE}, bare()).finish();
  const Outcome with = Program({TEST_CAPTURE_BESIDE}, capped("512MiB")).finish();
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
