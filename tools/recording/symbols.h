// Names the frames of call stacks when a recording is read.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "tools/recording/event.h"

namespace fracgpu::recording {

// A function that a frame is in. With inlined functions, a frame is in several of them.
struct Place {
  std::string function;  // demangled; never empty: "libfoo.so+0x1234" if nothing names it
  std::string file;      // empty: not known
  int line = 0;          // 0: not known
  std::string module;    // the file's last component: "libtorch_cuda.so"
};

// Used by one thread. Caches its results.
class Symbols {
 public:
  // `roots`: folders that are searched for modules before their own path (another machine's files
  // copied here). Debugging information is found by build id, also below /usr/lib/debug, and by
  // debuginfod if DEBUGINFOD_URLS is set.
  explicit Symbols(std::vector<std::string> roots = {});
  ~Symbols();
  Symbols(const Symbols&) = delete;
  Symbols& operator=(const Symbols&) = delete;

  // The innermost first; at least one. A file with another build id than the module's never gives
  // names.
  const std::vector<Place>& places(const Tables& tables, const Frame& frame);

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::recording
