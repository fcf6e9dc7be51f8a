// What AMD's tools and their libraries show of a node with a tenant's and a stranger's processes.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tests/integration/amd_rig.h"

namespace fracgpu::test {

class AmdTools : public AmdRig {
 protected:
  explicit AmdTools(const std::string& profile = "tiny-amd") : AmdRig(profile) {}
  ~AmdTools() override;

  // A process of another tenant that holds memory on the first device, until the test ends.
  void start_stranger();
  // One of this tenant, which holds about `size` on the device that it sees first.
  Program& start_tenant(const std::string& limit, const std::string& size,
                        const Environment& extra = {});

  // The node without the library, with it and no cap, and with a cap.
  Environment uncapped() const;
  Environment watching() const;

  // Bytes that the ledger says the tenant holds.
  uint64_t held(int device = 0) const { return ledger().total_held(key(device)); }

  // Runs tests/clients/smi_client.py.
  std::string smi_client(const std::vector<std::string>& args,
                         const Environment& environment) const;

  std::string stranger_tenant_;
  std::unique_ptr<Program> stranger_;
  std::vector<std::unique_ptr<Program>> programs_;
};

// The lines of `text` that begin with `word`, joined.
std::string lines_of(const std::string& text, const std::string& word);

// The part of `text` that tells of one device: from "device N" to the next.
std::string device_part(const std::string& text, int device);

}  // namespace fracgpu::test
