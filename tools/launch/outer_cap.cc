// Finds the outer cap and holds launches to it; see outer_cap.h.
#include "tools/launch/outer_cap.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <memory>
#include <stdexcept>

#include "shim/base/text.h"
#include "shim/config/cap_configured.h"
#include "shim/config/ceiling.h"
#include "shim/config/environment_limits.h"
#include "shim/config/identity.h"
#include "shim/config/trusted_file.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/text_list.h"
#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {
namespace {

constexpr int kDeepest = 4096;  // ancestors; a longer chain has changed while it was read

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

struct HeldRow {
  std::string file;  // "/proc/<pid>/fd/<n>"
  uint32_t row = 0;
};

// The row of the claim table that this open file has locked, from the kernel's line "lock: 1:
// OFDLCK ADVISORY READ -1 00:1a:5 1073741825 1073741825".
std::optional<uint32_t> locked_row(const std::string& fdinfo) {
  std::ifstream file(fdinfo);
  for (std::string line; std::getline(file, line);) {
    const bool held = line.starts_with("lock:") && line.find("OFDLCK") != line.npos &&
                      line.find("READ") != line.npos;
    if (!held) continue;
    const size_t last = line.find_last_not_of(" \t");
    const size_t start = line.find_last_of(" \t", last);
    const unsigned long long at = strtoull(line.c_str() + start, nullptr, 10);
    const auto first = static_cast<unsigned long long>(claim_table_layout::claim_lock(0));
    if (at >= first && at - first < claim_table_layout::kMaxClaims) {
      return static_cast<uint32_t>(at - first);
    }
  }
  return std::nullopt;
}

// Whether the file is a claim table: other files have locks too.
bool is_claim_table(const std::string& file) {
  const Descriptor claim_table(open(file.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
  uint64_t magic = 0;
  return pread(claim_table.get(), &magic, sizeof magic, 0) == sizeof magic &&
         magic == claim_table_layout::kMagic;
}

std::optional<HeldRow> row_held_by(const std::string& process) {
  std::error_code error;
  // A process that ends meanwhile, or that may not be inspected, has none.
  for (std::filesystem::directory_iterator entry(process + "/fd", error), end; entry != end;
       entry.increment(error)) {
    const std::filesystem::path path = entry->path();
    const std::string number = path.filename().string();
    const auto row = locked_row(fmt::format("{}/fdinfo/{}", process, number));
    if (row && is_claim_table(path.string())) return HeldRow{path.string(), *row};
  }
  return std::nullopt;
}

// 0 if no parent is visible.
int parent_of(int pid) {
  std::ifstream file(fmt::format("/proc/{}/status", pid));
  for (std::string line; std::getline(file, line);) {
    if (line.starts_with("PPid:")) return atoi(line.c_str() + 5);
  }
  return 0;
}

std::optional<HeldRow> row_of_this_tree() {
  int pid = getpid();
  for (int depth = 0; pid > 0 && depth < kDeepest; ++depth, pid = parent_of(pid)) {
    if (auto row = row_held_by(fmt::format("/proc/{}", pid))) return row;
  }
  return std::nullopt;
}

// The request that a row of the claim table stands for; see Request::asked.
Request request_of(const Launch& launch, const std::vector<Gpu>& gpus) {
  RequestText text;
  for (const Share& share : launch.shares) {
    text.fraction += fmt::format("{}{}={}", text.fraction.empty() ? "" : ",", share.key,
                                 fraction_text(share.eighths));
  }
  if (launch.shares.empty()) {
    std::string* to = &text.memory;
    const std::vector<std::string_view> words = split(launch.asked, ' ');
    if (words[0] != "memory" || launch.asked.find("...") != launch.asked.npos) {
      refuse(
          fmt::format("this is inside the launch {}, whose caps are too many to be told from {}; "
                      "start it outside",
                      launch.tenant, fracgpu::quoted(launch.asked).view()));
    }
    for (size_t i = 1; i < words.size(); ++i) {
      if (words[i] == "on") {
        to = &text.gpus;
      } else {
        *to += fmt::format("{}{}", to->empty() ? "" : ",", words[i]);
      }
    }
  }
  return Request(text, gpus, std::vector<std::string>(gpus.size()));
}

EnvironmentLimits limits_of_environment() {
  EnvironmentLimits limits;
  Message error;
  if (!limits.read(error)) refuse(error.c_str());
  return limits;
}

OuterCap cap_of_environment(const std::string& tenant) {
  Limits ceiling;
  Message error;
  if (!read_ceiling(kCeilingFile, ceiling, error)) refuse(error.c_str());
  return {
      .tenant = tenant,
      .claim_table = {},
      .asked = {},
      .on = [asked = limits_of_environment(), ceiling](const Gpu& gpu) -> std::optional<uint64_t> {
        return std::min(asked.cap_for(gpu.name(), gpu.physical),
                        ceiling.cap_for(gpu.name(), gpu.physical));
      }};
}

// The whole instance that was made for the launch, or the amount of it that the launch requested.
OuterCap cap_of_instance(const Launch& launch, const Share& share, const std::string& claim_table) {
  const std::vector<std::string_view> words = split(launch.asked, ' ');
  Amount amount{.billionths = 1'000'000'000};
  Message error;
  if (words.size() > 1 && words[0] == "memory") parse_amount(words[1], amount, error);
  return {.tenant = launch.tenant,
          .claim_table = claim_table,
          .asked = launch.asked,
          .on = [share, amount](const Gpu& gpu) -> std::optional<uint64_t> {
            const bool mine = gpu.instance && gpu.instance->parent == share.key &&
                              gpu.instance->gpu_instance == share.instance->instance;
            if (!mine) return std::nullopt;
            return amount.billionths != 0 ? gpu.physical : amount.of(gpu.physical);
          }};
}

OuterCap cap_of_row(const HeldRow& held, const std::vector<Gpu>& gpus) {
  std::error_code error;
  const std::string claim_table = std::filesystem::read_symlink(held.file, error).string();
  struct stat open_file = {}, named = {};
  const bool is_there = stat(held.file.c_str(), &open_file) == 0 &&
                        lstat(claim_table.c_str(), &named) == 0 &&
                        open_file.st_ino == named.st_ino && open_file.st_dev == named.st_dev;
  const std::optional<Launch> launch =
      is_there ? ClaimTable(claim_table).launch_in(held.row) : std::optional<Launch>();
  if (!launch || !is_tenant_name(launch->tenant)) {
    refuse(fmt::format("this is inside a launch that {} does not know any more; start it outside",
                       fracgpu::quoted(claim_table).view()));
  }
  if (launch->shares.empty() && launch->asked.starts_with("the environment's caps")) {
    OuterCap cap = cap_of_environment(launch->tenant);
    cap.claim_table = claim_table;
    cap.asked = launch->asked;
    return cap;
  }
  for (const Share& share : launch->shares) {
    if (share.instance) return cap_of_instance(*launch, share, claim_table);
  }
  const auto request = std::make_shared<Request>(request_of(*launch, gpus));
  const std::vector<Share> shares = launch->shares;
  return {.tenant = launch->tenant,
          .claim_table = claim_table,
          .asked = launch->asked,
          .on = [request, shares](const Gpu& gpu) -> std::optional<uint64_t> {
            const std::vector<Gpu> granted = request->granted(shares);
            const bool mine = std::any_of(granted.begin(), granted.end(),
                                          [&](const Gpu& each) { return each.key == gpu.key; });
            if (!mine) return std::nullopt;
            const auto cap = request->cap_on(gpu, shares);
            return cap ? cap->of(gpu.physical) : UINT64_MAX;
          },
          .limit = request->limit(shares)};
}

// Whether the library is loaded into this process, and so applies its cap here.
bool library_is_here() {
  return dlopen(kLibrary, RTLD_LAZY | RTLD_NOLOAD) != nullptr;
}

}  // namespace

std::optional<OuterCap> find_outer_cap(const std::vector<Gpu>& gpus) {
  if (const auto held = row_of_this_tree()) return cap_of_row(*held, gpus);
  // A container with its own ceiling is one tenant, whatever its name is. The environment may lower
  // its cap.
  const bool one_tenant = in_container() && trusted_file_is_there(kCeilingFile);
  if (!one_tenant && (!library_is_here() || !look_for_cap())) return std::nullopt;
  TenantName name;
  Message error;
  if (!tenant_name(name, error)) refuse(error.c_str());
  // The library has just generated this process's name: there is no outer tenant.
  if (name.view().starts_with(fmt::format("tree-{}-", getpid()))) return std::nullopt;
  OuterCap cap = cap_of_environment(name.c_str());
  cap.may_be_lowered = one_tenant;
  return cap;
}

Inside place_inside(const OuterCap& outer, const std::string& tenant, const Request& request) {
  if (!tenant.empty() && tenant != outer.tenant) {
    refuse(
        fmt::format("this is inside tenant {}, which is the tenant of all that is started there; "
                    "leave --tenant out, or start it outside",
                    outer.tenant));
  }
  std::vector<Gpu> all;
  for (const Gpu& gpu : request.candidates()) {
    if (outer.on(gpu)) all.push_back(gpu);
  }
  const std::optional<std::vector<Share>> shares = request.shares_of(all);
  Inside inside{.gpus = shares ? request.granted(*shares) : std::vector<Gpu>(),
                .hides_others = request.hides_others()};
  for (const Gpu& gpu : inside.gpus) {
    const std::optional<uint64_t> cap = outer.on(gpu);
    if (!cap && !request.hides_others()) continue;
    if (!cap) {
      refuse(
          fmt::format("this is inside tenant {}, which may not use {}", outer.tenant, gpu.label()));
    }
    const auto asked = request.cap_on(gpu, *shares);
    const uint64_t bytes = asked ? asked->of(gpu.physical) : *cap;
    const auto text = [](uint64_t amount) { return std::string(human_bytes(amount).view()); };
    if (bytes < *cap && !outer.may_be_lowered) {
      refuse(fmt::format(
          "this is inside tenant {}, whose cap on {}, {}, is that of all that is "
          "started there: {} cannot be kept; ask for no cap, or start it outside",
          outer.tenant, gpu.label(), *cap == UINT64_MAX ? "none" : text(*cap), text(bytes)));
    }
    if (bytes > *cap && inside.notice.empty()) {
      inside.notice = fmt::format("inside tenant {} its cap on {} holds, {}, and not {}",
                                  outer.tenant, gpu.label(), text(*cap), text(bytes));
    }
  }
  if (inside.gpus.empty() && request.hides_others()) {
    refuse(fmt::format("this is inside tenant {}, which does not have the GPUs that are asked for",
                       outer.tenant));
  }
  return inside;
}

}  // namespace fracgpu::tools
