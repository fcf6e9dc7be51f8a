// What many call stacks had, added up by the place in the program that they came from.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// One line for each stack (site_name), found once, without what could steer a terminal.
class SiteNames {
 public:
  SiteNames(const recording::Tables& tables, recording::Symbols& symbols)
      : tables_(tables), symbols_(symbols) {}
  const std::string& of(uint32_t stack);

 private:
  const recording::Tables& tables_;
  recording::Symbols& symbols_;
  std::unordered_map<uint32_t, std::string> names_;
};

struct CallSite {
  std::string name{};
  uint64_t taken = 0, live = 0, count = 0;  // of Part
  // Of Site.
  uint64_t allocations = 0, allocated_bytes = 0, releases = 0;
  uint64_t left_count = 0, left_bytes = 0;
  uint64_t most_live = 0;   // at most: not all of it was at the same time
  double lifetimes_ns = 0;  // of all allocations together
};

// In no order. What no call stands for goes by the name of its kind.
std::vector<CallSite> call_sites(const std::vector<Part>& parts, SiteNames& names);
std::vector<CallSite> call_sites(const std::vector<Site>& sites, SiteNames& names);

// The first `top` by this number, the greatest first, without those that have none of it.
std::vector<CallSite> top_of(std::vector<CallSite> sites, uint64_t CallSite::*number, size_t top);

}  // namespace fracgpu::tools::report
