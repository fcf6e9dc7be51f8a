// See collapsed.h.
#include "tools/report/collapsed.h"

#include <algorithm>
#include <map>
#include <utility>
#include <vector>

#include "tools/report/names.h"

namespace fracgpu::tools::report {
namespace {

// Replaces the characters that separate frames and lines.
std::string frame(std::string name) {
  for (char& c : name) {
    if (c == ';') c = ':';
    if (static_cast<unsigned char>(c) < ' ' || c == '\x7f') c = '?';
  }
  return name;
}

using Bytes = std::map<std::string, uint64_t>;

class Lines {
 public:
  Lines(const Analysis& analysis, recording::Symbols& symbols, bool callers_last, bool with_pids)
      : analysis_(analysis),
        symbols_(symbols),
        callers_last_(callers_last),
        with_pids_(with_pids) {}

  void add(uint32_t device, uint32_t process, recording::MemoryKind kind, uint32_t stack,
           uint64_t bytes) {
    if (bytes == 0) return;
    std::string line;
    if (analysis_.devices.size() > 1) line = frame(device_name(analysis_.tables, device)) + ";";
    const std::vector<recording::ProcessInfo>& processes = analysis_.tables.processes;
    line +=
        frame(with_pids_ || process >= processes.size() ? process_name(analysis_.tables, process)
                                                        : processes[process].command);
    if (stack == 0) {
      line += std::string(";(") + kind_name(kind) + ")";
    } else {
      std::vector<std::string> names = stack_names(analysis_.tables, stack, symbols_);
      if (callers_last_) std::reverse(names.begin(), names.end());
      for (const std::string& name : names) line += ";" + frame(name);
    }
    bytes_[line] += bytes;
  }

  Bytes take() { return std::move(bytes_); }

 private:
  const Analysis& analysis_;
  recording::Symbols& symbols_;
  bool callers_last_, with_pids_;
  Bytes bytes_;
};

Bytes collapsed(const Analysis& analysis, Lines lines, Of of) {
  if (of == Of::peak) {
    for (const DeviceUse& use : analysis.devices) {
      for (const Part& part : use.peak.parts) {
        lines.add(use.device, part.process, part.kind, part.stack, part.taken);
      }
    }
  } else {
    for (const Site& site : analysis.sites) {
      lines.add(site.device, site.process, site.kind, site.stack,
                of == Of::leaks       ? site.left_bytes
                : of == Of::temporary ? site.temporary_bytes
                                      : site.allocated_bytes);
    }
  }
  return lines.take();
}

}  // namespace

std::string as_collapsed(const Analysis& analysis, recording::Symbols& symbols, Of of,
                         bool callers_last) {
  std::string text;
  for (const auto& [line, bytes] :
       collapsed(analysis, Lines(analysis, symbols, callers_last, true), of)) {
    text += line + " " + std::to_string(bytes) + "\n";
  }
  return text;
}

std::string as_collapsed(const Analysis& before, const Analysis& after, recording::Symbols& symbols,
                         Of of, bool callers_last) {
  std::map<std::string, std::pair<uint64_t, uint64_t>> both;
  for (const auto& [line, bytes] :
       collapsed(before, Lines(before, symbols, callers_last, false), of)) {
    both[line].first = bytes;
  }
  for (const auto& [line, bytes] :
       collapsed(after, Lines(after, symbols, callers_last, false), of)) {
    both[line].second = bytes;
  }
  std::string text;
  for (const auto& [line, bytes] : both) {
    text += line + " " + std::to_string(bytes.first) + " " + std::to_string(bytes.second) + "\n";
  }
  return text;
}

}  // namespace fracgpu::tools::report
