// A tenant name of its own for one test, whose ledger file is removed at both ends.
#pragma once

#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <string>

#include "fracgpu/ledger_layout.h"

namespace fracgpu {

class ScratchTenant {
 public:
  explicit ScratchTenant(const char* start = "") {
    static std::atomic<int> count{0};
    snprintf(name_, sizeof name_, "%sunit-test-%07d-%07d", start, getpid(), ++count);
    remove();
  }
  ~ScratchTenant() { remove(); }

  const char* name() const { return name_; }
  std::string path() const { return std::string(layout::kFilePrefix) + name_; }
  void remove() const {
    unlink(path().c_str());
    rmdir(path().c_str());
  }

 private:
  // Always as long, and inside: traced children must take one way through the string functions.
  char name_[40];
};

}  // namespace fracgpu
