// A node with AMD devices, and AMD's own HIP runtime for the programs on it: of this machine, or a
// newer release that was fetched and unpacked beside the system, with the C library it needs.
//
// Of a device below 1 GiB, which a capped one often is, HIP after 5.2 gives no single request more
// than three quarters (measured with 5.7.1). Tests that are not about that ask for less.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/rig.h"

namespace fracgpu::test {

class AmdRig : public Rig {
 protected:
  explicit AmdRig(const std::string& profile = "tiny-amd") : Rig(profile, 1) {}

  // Skips the test where this machine has no HIP 5.
  void SetUp() override;

  // Makes the programs run on this release ("6.4.3"); false with the reason in `why` when it cannot
  // be had.
  bool use_release(const std::string& release, std::string* why);

  std::unique_ptr<Program> start(const std::string& limit, const std::string& commands,
                                 const Environment& extra = {}) const;
  Outcome hip(const std::string& limit, const std::string& commands,
              const Environment& extra = {}) const {
    return start(limit, commands, extra)->finish();
  }

 private:
  std::vector<std::string> program_ = {TEST_HIP_PROGRAM};
  Environment release_;
};

}  // namespace fracgpu::test
