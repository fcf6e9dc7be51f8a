// See demangle.h. libiberty reads Rust's names, as in gdb. The C++ runtime would take older Rust
// names for C++ and keep their hash, and it does not know the newer ones.
#include "tools/recording/demangle.h"

#include <cxxabi.h>
#include <libiberty/demangle.h>
#include <stdlib.h>

#include <memory>

namespace fracgpu::recording {
namespace {

// Longer names are not worth the minutes that a malicious one can take.
constexpr size_t kLongest = 16384;

}  // namespace

std::string demangle(const std::string& name) {
  if (name.size() > kLongest || !(name.starts_with("_Z") || name.starts_with("_R"))) return name;
  using Text = std::unique_ptr<char, decltype(&free)>;
  Text readable(rust_demangle(name.c_str(), DMGL_NO_OPTS), free);
  int status = 0;
  if (!readable) readable.reset(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status));
  if (!readable || *readable == '\0') return name;
  // A compiler's copy of a function, for certain arguments, still is that function.
  const std::string text = readable.get();
  return text.substr(0, text.find(" [clone "));
}

}  // namespace fracgpu::recording
