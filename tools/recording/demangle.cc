// See demangle.h. Rust's names are libiberty's to read, as in gdb: the C++ runtime would take the
// older ones for C++ and leave their hash, and does not know the newer ones.
#include "tools/recording/demangle.h"

#include <cxxabi.h>
#include <libiberty/demangle.h>
#include <stdlib.h>

#include <memory>

namespace fracgpu::recording {
namespace {

// What is longer is not worth the minutes that a made-up name can take.
constexpr size_t kLongest = 16384;

}  // namespace

std::string demangle(const std::string& name) {
  if (name.size() > kLongest || !(name.starts_with("_Z") || name.starts_with("_R"))) return name;
  using Text = std::unique_ptr<char, decltype(&free)>;
  Text readable(rust_demangle(name.c_str(), DMGL_NO_OPTS), free);
  int status = 0;
  if (!readable) readable.reset(abi::__cxa_demangle(name.c_str(), nullptr, nullptr, &status));
  if (!readable || *readable == '\0') return name;
  // What the compiler has made a copy of, for certain arguments, is still that function.
  const std::string text = readable.get();
  return text.substr(0, text.find(" [clone "));
}

}  // namespace fracgpu::recording
