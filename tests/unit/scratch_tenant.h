// A tenant name of its own for one test, whose ledger file is removed at both ends.
#pragma once

#include <unistd.h>

#include <atomic>
#include <string>

#include "fracgpu/ledger_layout.h"

namespace fracgpu {

class ScratchTenant {
 public:
  ScratchTenant() {
    static std::atomic<int> count{0};
    name_ = "unit-test-" + std::to_string(getpid()) + "-" + std::to_string(++count);
    remove();
  }
  ~ScratchTenant() { remove(); }

  const char* name() const { return name_.c_str(); }
  std::string path() const { return layout::kFilePrefix + name_; }
  void remove() const {
    unlink(path().c_str());
    rmdir(path().c_str());
  }

 private:
  std::string name_;
};

}  // namespace fracgpu
