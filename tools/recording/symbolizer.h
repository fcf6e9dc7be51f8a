// Lets a child process name the addresses of a module.
//
// The files on the disk may have changed or be damaged. The libraries that read a damaged file may
// crash or never return. That ends the child, and the next child reads less of that file.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/cli/descriptor.h"
#include "tools/recording/event.h"
#include "tools/recording/symbols.h"

namespace fracgpu::recording {

class Symbolizer {
 public:
  explicit Symbolizer(std::vector<std::string> roots) : roots_(std::move(roots)) {}
  ~Symbolizer() { end(); }
  Symbolizer(const Symbolizer&) = delete;
  Symbolizer& operator=(const Symbolizer&) = delete;

  // The innermost first; none if nothing names the address.
  std::vector<Place> look_up(const ModuleInfo& module, uint64_t address);

 private:
  // What the child may read of a module: less after each time that the child did not survive.
  enum class Trust : uint8_t { nothing, symbols, everything };

  bool start();
  void end();
  // False if the child is gone.
  bool ask(const ModuleInfo& module, Trust trust, uint64_t address, std::vector<Place>& places);

  std::vector<std::string> roots_;
  std::map<std::pair<std::string, std::string>, Trust> trust_{};  // by path and build id
  tools::Descriptor line_{};
  pid_t child_ = -1;
};

}  // namespace fracgpu::recording
