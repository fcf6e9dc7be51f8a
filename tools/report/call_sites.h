// Sums over many call stacks, grouped by their place in the program.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "tools/recording/symbols.h"
#include "tools/report/analysis.h"
#include "tools/report/names.h"

namespace fracgpu::tools::report {

// How call stacks are distinguished.
struct Naming {
  enum class By { site, function, module, stack } by = By::site;
  int callers = 3;
};

// One line for each stack, computed once, without characters that could control a terminal: the
// place and its callers. Callers that all stacks of a place share, such as wrappers of an
// allocator, distinguish nothing. So a line has as many callers as it takes to distinguish
// `callers` times. This considers all stacks of all tables.
class SiteNames {
 public:
  SiteNames(std::vector<const recording::Tables*> tables, recording::Symbols& symbols,
            const Naming& naming);
  // `which` is the number of the stack's table.
  const std::string& of(uint32_t stack, size_t which = 0);

 private:
  struct Node {
    std::map<std::string, uint32_t> callers{};
    bool ends = false;  // a stack ends here
    bool differs() const { return callers.size() + (ends ? 1 : 0) > 1; }
  };
  uint32_t child(uint32_t node, const std::string& caller);
  std::string name_of(const SitePath& path) const;

  Naming naming_;
  std::vector<Node> nodes_{1};  // a tree of callers; the root's children are places
  std::vector<std::vector<std::string>> names_;
};

struct CallSite {
  std::string name{};
  uint64_t taken = 0, live = 0, count = 0;  // from Part
  // From Site.
  uint64_t allocations = 0, allocated_bytes = 0, releases = 0;
  uint64_t left_count = 0, left_bytes = 0;
  uint64_t most_live = 0;   // an upper bound: not all of it existed at the same time
  double lifetimes_ns = 0;  // sum over all allocations
};

// Unordered. Memory that belongs to no call has the name of its kind.
std::vector<CallSite> call_sites(const std::vector<Part>& parts, SiteNames& names,
                                 size_t which = 0);
std::vector<CallSite> call_sites(const std::vector<Site>& sites, SiteNames& names,
                                 size_t which = 0);

// The first `top` call sites by this number, the greatest first, without those at 0.
std::vector<CallSite> top_of(std::vector<CallSite> sites, uint64_t CallSite::*number, size_t top);

}  // namespace fracgpu::tools::report
