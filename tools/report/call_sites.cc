// See call_sites.h.
#include "tools/report/call_sites.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <unordered_map>
#include <utility>

#include "tools/cli/plain_text.h"
#include "tools/report/names.h"

namespace fracgpu::tools::report {
namespace {

// Memory of these kinds is recorded as a level, which belongs to no single call.
bool is_level(recording::MemoryKind kind) {
  using recording::MemoryKind;
  return kind == MemoryKind::chunks || kind == MemoryKind::reserved || kind == MemoryKind::graph ||
         kind == MemoryKind::overhead || kind == MemoryKind::code || kind == MemoryKind::unknown;
}

class Groups {
 public:
  Groups(SiteNames& names, size_t which) : names_(names), which_(which) {}

  CallSite& of(uint32_t stack, recording::MemoryKind kind) {
    const std::string name = stack == 0 && is_level(kind) ? fmt::format("({})", kind_name(kind))
                                                          : names_.of(stack, which_);
    const auto [place, is_new] = numbers_.try_emplace(name, groups_.size());
    if (is_new) groups_.emplace_back().name = name;
    return groups_[place->second];
  }

  std::vector<CallSite> take() { return std::move(groups_); }

 private:
  SiteNames& names_;
  size_t which_;
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<CallSite> groups_;
};

}  // namespace

SiteNames::SiteNames(std::vector<const recording::Tables*> tables, recording::Symbols& symbols,
                     const Naming& naming)
    : naming_(naming) {
  std::vector<std::vector<SitePath>> paths;
  for (const recording::Tables* each : tables) {
    std::vector<SitePath>& of_table = paths.emplace_back();
    for (uint32_t stack = 0; stack < each->stacks.size(); ++stack) {
      const SitePath& path = of_table.emplace_back(site_path(*each, stack, symbols));
      uint32_t node = child(0, path.place);
      for (const std::string& caller : path.callers) node = child(node, caller);
      nodes_[node].ends = true;
    }
  }
  for (const std::vector<SitePath>& of_table : paths) {
    std::vector<std::string>& names = names_.emplace_back();
    for (const SitePath& path : of_table) {
      const std::string name = name_of(path);
      names.push_back(clean(name.c_str(), name.size()));
    }
  }
}

uint32_t SiteNames::child(uint32_t node, const std::string& caller) {
  const auto next = static_cast<uint32_t>(nodes_.size());
  const auto [place, is_new] = nodes_[node].callers.try_emplace(caller, next);
  const uint32_t found = place->second;
  if (is_new) nodes_.emplace_back();
  return found;
}

std::string SiteNames::name_of(const SitePath& path) const {
  switch (naming_.by) {
    case Naming::By::function:
      return path.function;
    case Naming::By::module:
      return path.module.empty() ? path.function : path.module;
    default:
      break;
  }
  const auto wanted = static_cast<size_t>(naming_.callers);
  std::string name = path.place;
  if (naming_.by == Naming::By::stack) {
    for (const std::string& caller : path.callers) name += " < " + caller;
    return name;
  }
  // The callers that distinguish this stack from others.
  std::vector<size_t> telling;
  uint32_t node = nodes_[0].callers.at(path.place);
  for (size_t i = 0; i < path.callers.size() && telling.size() < wanted; ++i) {
    if (nodes_[node].differs()) telling.push_back(i);
    node = nodes_[node].callers.at(path.callers[i]);
  }
  size_t shown = 0, next = 0;
  const auto show = [&](size_t caller) {
    // Stands for several callers that distinguish nothing.
    if (caller > next + 1) name += " < ...";
    if (caller == next + 1) name += " < " + path.callers[next];
    name += " < " + path.callers[caller];
    next = caller + 1;
    ++shown;
  };
  if (wanted == 0) return name;
  for (const size_t caller : telling) show(caller);
  while (shown < wanted && next < path.callers.size()) show(next);
  return name;
}

const std::string& SiteNames::of(uint32_t stack, size_t which) {
  return names_[which][stack];
}

std::vector<CallSite> call_sites(const std::vector<Part>& parts, SiteNames& names, size_t which) {
  Groups groups(names, which);
  for (const Part& part : parts) {
    CallSite& site = groups.of(part.stack, part.kind);
    site.taken += part.taken;
    site.live += part.live;
    site.count += part.count;
  }
  return groups.take();
}

std::vector<CallSite> call_sites(const std::vector<Site>& sites, SiteNames& names, size_t which) {
  Groups groups(names, which);
  for (const Site& each : sites) {
    CallSite& site = groups.of(each.stack, each.kind);
    site.allocations += each.allocations;
    site.allocated_bytes += each.allocated_bytes;
    site.releases += each.releases;
    site.left_count += each.left_count;
    site.left_bytes += each.left_bytes;
    site.most_live += each.most_live;
    site.lifetimes_ns +=
        static_cast<double>(each.mean_lifetime_ns) * static_cast<double>(each.allocations);
  }
  return groups.take();
}

std::vector<CallSite> top_of(std::vector<CallSite> sites, uint64_t CallSite::*number, size_t top) {
  std::erase_if(sites, [&](const CallSite& site) { return site.*number == 0; });
  std::sort(sites.begin(), sites.end(), [&](const CallSite& one, const CallSite& other) {
    return std::tie(other.*number, one.name) < std::tie(one.*number, other.name);
  });
  if (sites.size() > top) sites.resize(top);
  return sites;
}

}  // namespace fracgpu::tools::report
