// What many call stacks had, added up by the place in the program that they came from.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/names.h"

namespace fracgpu::tools::report {

// How call stacks are told apart.
struct Naming {
  enum class By { site, function, module, stack } by = By::site;
  int callers = 3;
};

// One line for each stack, found once, without what could steer a terminal: the place, and who
// called it. Callers that all of a place's stacks have in common, as those that wrap an allocator,
// tell nothing apart: so many more are there that callers differ `callers` times. All stacks of all
// the tables take part in that.
class SiteNames {
 public:
  SiteNames(std::vector<const recording::Tables*> tables, recording::Symbols& symbols,
            const Naming& naming);
  // `which` of the tables the stack is in.
  const std::string& of(uint32_t stack, size_t which = 0);

 private:
  struct Node {
    std::map<std::string, uint32_t> callers{};
    bool ends = false;  // some stack
    bool differs() const { return callers.size() + (ends ? 1 : 0) > 1; }
  };
  uint32_t child(uint32_t node, const std::string& caller);
  std::string name_of(const SitePath& path) const;

  Naming naming_;
  std::vector<Node> nodes_{1};  // of callers; the root's children are places
  std::vector<std::vector<std::string>> names_;
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
std::vector<CallSite> call_sites(const std::vector<Part>& parts, SiteNames& names,
                                 size_t which = 0);
std::vector<CallSite> call_sites(const std::vector<Site>& sites, SiteNames& names,
                                 size_t which = 0);

// The first `top` by this number, the greatest first, without those that have none of it.
std::vector<CallSite> top_of(std::vector<CallSite> sites, uint64_t CallSite::*number, size_t top);

}  // namespace fracgpu::tools::report
