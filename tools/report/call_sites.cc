// See call_sites.h.
#include "tools/report/call_sites.h"

#include <fmt/core.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "tools/cli/plain_text.h"
#include "tools/report/names.h"

namespace fracgpu::tools::report {
namespace {

// Memory of these kinds comes as a level, for which no single call stands.
bool is_level(recording::MemoryKind kind) {
  using recording::MemoryKind;
  return kind == MemoryKind::chunks || kind == MemoryKind::reserved || kind == MemoryKind::graph ||
         kind == MemoryKind::overhead || kind == MemoryKind::code || kind == MemoryKind::unknown;
}

class Groups {
 public:
  explicit Groups(SiteNames& names) : names_(names) {}

  CallSite& of(uint32_t stack, recording::MemoryKind kind) {
    const std::string name =
        stack == 0 && is_level(kind) ? fmt::format("({})", kind_name(kind)) : names_.of(stack);
    const auto [place, is_new] = numbers_.try_emplace(name, groups_.size());
    if (is_new) groups_.emplace_back().name = name;
    return groups_[place->second];
  }

  std::vector<CallSite> take() { return std::move(groups_); }

 private:
  SiteNames& names_;
  std::unordered_map<std::string, size_t> numbers_;
  std::vector<CallSite> groups_;
};

}  // namespace

const std::string& SiteNames::of(uint32_t stack) {
  const auto [place, is_new] = names_.try_emplace(stack);
  if (is_new) {
    const std::string name = site_name(tables_, stack, symbols_);
    place->second = clean(name.c_str(), name.size());
  }
  return place->second;
}

std::vector<CallSite> call_sites(const std::vector<Part>& parts, SiteNames& names) {
  Groups groups(names);
  for (const Part& part : parts) {
    CallSite& site = groups.of(part.stack, part.kind);
    site.taken += part.taken;
    site.live += part.live;
    site.count += part.count;
  }
  return groups.take();
}

std::vector<CallSite> call_sites(const std::vector<Site>& sites, SiteNames& names) {
  Groups groups(names);
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
