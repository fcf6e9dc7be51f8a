// The system fails the library's own calls, one of them or all from one on: no descriptor is free,
// no memory, no lock, no answer. Whatever the program then gets, the cap holds, the program lives,
// it is told why it is refused, and nothing stays behind.
#include <unistd.h>

#include <climits>
#include <fstream>
#include <random>

#include "tests/integration/amd_rig.h"

namespace fracgpu::test {
namespace {

// One in so many of the calls is tried, from a random one on; in a campaign each of them.
int stride() {
  return getenv("FRACGPU_CAMPAIGN") != nullptr ? 1 : 10;
}

struct Cuda {
  using Base = TinyRig;
  static constexpr char kEverything[] =
      "alloc 2MiB managed 4MiB pooled 4MiB module heap 8MiB meminfo fill 16MiB freeall fill 1MiB";
};

struct Amd {
  using Base = AmdRig;
  static constexpr char kEverything[] =
      "malloc 1MiB malloc 5MiB managed 4MiB hsa 0 3MiB flags 64KiB meminfo fill 8MiB freeall "
      "fill 1MiB";
};

template <typename Vendor>
class HostFailure : public Vendor::Base {
 protected:
  static constexpr char kLimit[] = "256MiB";
  static constexpr uint64_t kCap = 256 * kMiB;

  ~HostFailure() override { unlink(report_.c_str()); }

  void SetUp() override {
    if (sanitized()) GTEST_SKIP() << "the sanitizers want to be preloaded first";
    Vendor::Base::SetUp();
  }

  // A program that uses the device and then runs `commands`.
  std::unique_ptr<Program> launch(const std::string& commands,
                                  const Environment& extra = {}) const {
    if constexpr (std::is_same_v<Vendor, Cuda>) {
      return this->start_client(kLimit, words("init retain " + commands), extra);
    } else {
      return this->start(kLimit, "init malloc 4KiB " + commands, extra);
    }
  }

  // One that leaves less than 2 MiB under the cap.
  std::unique_ptr<Program> launch_holder(const Environment& extra = {}) const {
    auto program = launch("fill 32MiB fill 2MiB wait", extra);
    program->read_until_ready();
    return program;
  }

  int how_many_fit() const {
    return static_cast<int>(field(line_of(launch("fill 4MiB")->finish().out, "fill"), "count="));
  }

  // Runs `commands` again and again, with one call after the other failing up to the `last`, beside
  // the program that `prepare()` returns, which may be none.
  template <typename Prepare>
  void sweep(const std::string& commands, int last, Prepare prepare) {
    const int first = 1 + static_cast<int>(std::random_device{}() % stride());
    for (const char* later : {"", "+"}) {
      int tried = 0;
      for (int call = first; call <= last && !this->HasFailure(); call += stride(), ++tried) {
        const std::unique_ptr<Program> beside = prepare();
        this->node_->reset_high_water();
        if (!survives(commands, std::to_string(call) + later)) break;
      }
      std::printf("%d calls failed%s\n", tried, *later != '\0' ? ", with all later ones" : "");
      EXPECT_GT(tried, 5);
    }
  }

 private:
  // False where the program does not get to the call that is to fail.
  bool survives(const std::string& commands, const std::string& failing) {
    unlink(report_.c_str());
    auto program =
        launch(commands + " wait",
               {{"LD_PRELOAD", TEST_FAILING_CALLS ":" + this->capped("").at("LD_PRELOAD")},
                {"FRACGPU_FAIL_CALL", failing},
                {"FRACGPU_FAIL_REPORT", report_}});
    std::string what = "call " + failing + "\n";
    for (const std::string& line : program->read_until_ready()) what += line + "\n";
    EXPECT_LE(this->node_->tenant_used(0, this->tenant_), kCap) << what;
    EXPECT_LE(this->node_->tenant_high_water(0, this->tenant_), kCap) << what;
    const Outcome outcome = program->finish();
    std::string failed;
    std::ifstream report(report_);
    if (!std::getline(report, failed)) return false;
    what += failed + " failed\n" + outcome.err;
    // 2: the client found no device.
    EXPECT_TRUE(outcome.status == 0 || outcome.status == 2) << outcome.status << ", " << what;
    const bool told = outcome.err.find("refused") != std::string::npos;
    EXPECT_TRUE(told || failed == "write") << what;
    return true;
  }

  const std::string report_ = this->node_path_ + ".failed";
};

using Vendors = testing::Types<Cuda, Amd>;
struct VendorNames {
  template <typename Vendor>
  static std::string GetName(int) {
    return std::is_same_v<Vendor, Cuda> ? "Cuda" : "Amd";
  }
};
TYPED_TEST_SUITE(HostFailure, Vendors, VendorNames);

TYPED_TEST(HostFailure, OfTheFirstProcess) {
  const int granted = this->how_many_fit();
  this->sweep(TypeParam::kEverything, INT_MAX, [&]() -> std::unique_ptr<Program> {
    EXPECT_EQ(this->how_many_fit(), granted) << "something stayed behind";
    unlink(this->ledger_path().c_str());
    return nullptr;
  });
}

TYPED_TEST(HostFailure, OfANewcomerAtTheCap) {
  const int granted = this->how_many_fit();
  this->sweep(TypeParam::kEverything, INT_MAX, [&] {
    EXPECT_EQ(this->how_many_fit(), granted) << "something stayed behind";
    return this->launch_holder();
  });
}

// KFD shows only what the living hold, so there is no such test for AMD.
using CudaHostFailure = HostFailure<Cuda>;

// What a dead process held is not given out before the driver has let go of it.
TEST_F(CudaHostFailure, WhileTheDriverHoldsADeadOnesMemory) {
  auto dead = launch_holder({{sim::kLingerVariable, "3600000"}});
  dead->kill(SIGKILL);
  dead->finish();
  // Who waits for the driver makes the same calls over and over.
  sweep("fill 32MiB", 150, []() -> std::unique_ptr<Program> { return nullptr; });
}

}  // namespace
}  // namespace fracgpu::test
