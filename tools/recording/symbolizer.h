// Asks a child process what lies at an address of a module.
//
// The files that say so are whatever lies on the disk by now. Where one is damaged, the libraries
// that read it may crash or never end. That ends the child, and the file is asked for less.
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

  // The innermost first; none where nothing names the address.
  std::vector<Place> look_up(const ModuleInfo& module, uint64_t address);

 private:
  // What of a module the child may look at: less after each time that it did not survive.
  enum class Trust : uint8_t { nothing, symbols, everything };

  bool start();
  void end();
  // False when the child is gone.
  bool ask(const ModuleInfo& module, Trust trust, uint64_t address, std::vector<Place>& places);

  std::vector<std::string> roots_;
  std::map<std::pair<std::string, std::string>, Trust> trust_{};  // by path and build id
  tools::Descriptor line_{};
  pid_t child_ = -1;
};

}  // namespace fracgpu::recording
