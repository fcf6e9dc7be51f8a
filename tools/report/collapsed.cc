// See collapsed.h.
#include "tools/report/collapsed.h"

#include <map>

#include "tools/report/names.h"

namespace fracgpu::tools::report {
namespace {

// Without what separates frames and lines.
std::string frame(std::string name) {
  for (char& c : name) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return name;
}

class Lines {
 public:
  Lines(const Analysis& analysis, recording::Symbols& symbols)
      : analysis_(analysis), symbols_(symbols) {}

  void add(uint32_t device, uint32_t process, recording::MemoryKind kind, uint32_t stack,
           uint64_t bytes) {
    if (bytes == 0) return;
    std::string line;
    if (analysis_.devices.size() > 1) line = frame(device_name(analysis_.tables, device)) + ";";
    line += frame(process_name(analysis_.tables, process));
    if (stack == 0) {
      line += std::string(";(") + kind_name(kind) + ")";
    } else {
      for (const std::string& name : stack_names(analysis_.tables, stack, symbols_)) {
        line += ";" + frame(name);
      }
    }
    bytes_[line] += bytes;
  }

  std::string text() const {
    std::string text;
    for (const auto& [line, bytes] : bytes_) text += line + " " + std::to_string(bytes) + "\n";
    return text;
  }

 private:
  const Analysis& analysis_;
  recording::Symbols& symbols_;
  std::map<std::string, uint64_t> bytes_;
};

}  // namespace

std::string as_collapsed(const Analysis& analysis, recording::Symbols& symbols, Of of) {
  Lines lines(analysis, symbols);
  if (of == Of::peak) {
    for (const DeviceUse& use : analysis.devices) {
      for (const Part& part : use.peak.parts) {
        lines.add(use.device, part.process, part.kind, part.stack, part.taken);
      }
    }
  } else {
    for (const Site& site : analysis.sites) {
      lines.add(site.device, site.process, site.kind, site.stack,
                of == Of::leaks ? site.left_bytes : site.allocated_bytes);
    }
  }
  return lines.text();
}

}  // namespace fracgpu::tools::report
