// Names frames of call stacks, when a recording is looked at.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/recording/event.h"

namespace fracgpu::recording {

// A function that a frame is in. Where the compiler has put functions into each other, a frame is
// in several of them.
struct Place {
  std::string function;  // demangled; never empty: "libfoo.so+0x1234" where nothing names it
  std::string file;      // empty: not known
  int line = 0;          // 0: not known
  std::string module;    // the file's last component: "libtorch_cuda.so"
};

// Used by one thread. Remembers what it found.
class Symbols {
 public:
  // `roots`: folders in which modules are looked for before their own path (another machine's files
  // copied here). Debugging information is found by build id, below /usr/lib/debug too, and by
  // debuginfod where DEBUGINFOD_URLS says so.
  explicit Symbols(std::vector<std::string> roots = {});
  ~Symbols();
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;

  // The innermost first; at least one. A module whose build id is not that of the file found gives
  // names of that file never.
  const std::vector<Place>& places(const Tables& tables, const Frame& frame);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::recording
