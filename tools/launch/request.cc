// Reads --memory, --fraction, --count and --gpus; see request.h.
#include "tools/launch/request.h"

#include <fmt/core.h>
#include <stdlib.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <charconv>
#include <set>
#include <stdexcept>

#include "shim/config/ceiling.h"
#include "shim/config/environment_limits.h"
#include "shim/config/identity.h"
#include "shim/config/trusted_file.h"
#include "tools/cli/arguments.h"
#include "tools/cli/text_list.h"
#include "tools/launch/partition_mode.h"
#include "tools/machine/mig_driver.h"
#include "tools/machine/visible_gpus.h"

namespace fracgpu::tools {
namespace {

using claim_table_layout::kEighths;

constexpr size_t kMaxLimitItems = 32;  // the most that the library reads

[[noreturn]] void refuse(const std::string& line) {
  throw std::runtime_error(line);
}

std::string number_text(uint64_t whole, uint64_t billionths) {
  std::string text = fmt::format("{}.{:09}", whole, billionths);
  while (text.back() == '0' && text[text.size() - 2] != '.') text.pop_back();
  return text;
}

// Writes each amount in exactly one way.
std::string amount_text(const Amount& amount) {
  constexpr uint64_t kBillion = 1'000'000'000;
  if (amount.billionths != 0) {
    return number_text(amount.billionths / kBillion, amount.billionths % kBillion);
  }
  constexpr const char* kUnits[] = {"b", "KiB", "MiB", "GiB", "TiB"};
  uint64_t number = amount.bytes;
  size_t unit = 0;
  for (; number % 1024 == 0 && unit < 4; number /= 1024) ++unit;
  return fmt::format("{}{}", number, kUnits[unit]);
}

Amount amount_of(std::string_view text) {
  Amount amount;
  Message error;
  if (!parse_amount(text, amount, error)) refuse(error.c_str());
  return amount;
}

uint32_t eighths_of(std::string_view text) {
  const auto wrong = [&](std::string_view why) {
    refuse(
        fmt::format("fraction {} {}; accepted: 0.125, 0.25, 0.375, 0.5, 0.625, 0.75, "
                    "0.875 and 1, and --count for several whole GPUs",
                    fracgpu::quoted(text).view(), why));
  };
  const bool plain = !text.empty() && text.find_first_not_of("0123456789.") == text.npos &&
                     std::count(text.begin(), text.end(), '.') <= 1 && text != "." &&
                     text.size() < 32;
  if (!plain) wrong("is no fraction");
  // Eighths are exact in binary.
  const double eighths = std::stod(std::string(text)) * kEighths;
  if (eighths > kEighths) wrong("is more than one GPU");
  if (eighths < 1) wrong("is less than the smallest share");
  if (eighths != static_cast<double>(static_cast<uint32_t>(eighths)))
    wrong("is no multiple of 0.125");
  return static_cast<uint32_t>(eighths);
}

struct Item {
  std::string_view selector;  // empty: for all
  std::string_view value;
};

std::vector<Item> items_of(std::string_view text) {
  std::vector<Item> items;
  for (const std::string_view item : split(text, ',')) {
    const size_t equals = item.find('=');
    const bool general = equals == item.npos;
    items.push_back({general ? std::string_view() : trim(item.substr(0, equals)),
                     general ? item : trim(item.substr(equals + 1))});
  }
  return items;
}

}  // namespace

void add_request_options(Command command, RequestText& text) {
  command.add_option("--memory", text.memory,
                     "Cap on each GPU: 8GiB, 512MiB, 50%, or per GPU 0=8GiB,1=4GiB");
  command.add_option("--fraction", text.fraction,
                     "Claim a share of one GPU, in steps of 0.125, or of each that is named: "
                     "0=0.5,1=0.25");
  command.add_option("--count", text.count, "Claim so many whole GPUs");
  command.add_option("--gpus", text.gpus,
                     "Only these: 0,2-3, all, GPU-<uuid>, AMD-<gpu_id>, a bus id, 0:1, MIG-<uuid>");
  command.add_option("--mig", text.mig,
                     "Use of MIG: auto, never, only, existing instances, or a profile: 2g.20gb");
  command.add_option("--partition", text.partition, kPartitionHelp);
}

std::string fraction_text(uint32_t eighths) {
  return fmt::format("{}", static_cast<double>(eighths) / kEighths);
}

Request::Request(const RequestText& text, const std::vector<Gpu>& gpus)
    : Request(text, gpus, hidden_by_environment(gpus)) {}

Request::Request(const RequestText& text, const std::vector<Gpu>& gpus,
                 std::vector<std::string> hidden)
    : all_(gpus), hidden_(std::move(hidden)) {
  if (gpus.empty()) {
    refuse(
        "this machine shows no GPU: neither NVIDIA's driver (libnvidia-ml.so.1) nor AMD's "
        "(/sys/class/kfd) lists one");
  }
  const int kinds = !text.memory.empty() + !text.fraction.empty() + !text.count.empty();
  if (kinds > 1) refuse("--memory, --fraction and --count exclude each other; give one");
  read_mig(text.mig);
  restricted_ = !text.gpus.empty() && text.gpus != "all";
  if (restricted_) {
    usable_ = choose_gpus(text.gpus, all_);
    for (const size_t place : usable_) check_usable("--gpus", place);
  } else {
    const bool instances = mig_ == Mig::existing || environment_names_instances();
    for (size_t i = 0; i < all_.size(); ++i) {
      if (hidden_[i].empty() && (!all_[i].instance || instances)) usable_.push_back(i);
    }
  }
  usable_ = in_partition_mode(text.partition, all_, usable_);
  restricted_ = restricted_ || !text.partition.empty();
  amounts_.resize(all_.size());
  exact_.resize(all_.size());
  if (!text.memory.empty()) read_memory(text.memory);
  if (!text.fraction.empty()) read_fraction(text.fraction);
  if (!text.count.empty()) read_count(text.count);
  if (kinds == 0) asked_ = "the environment's caps";
  choose_instances(!text.count.empty());
  if (!restricted_) return;
  asked_ += " on";
  for (const size_t place : usable_) asked_ += " " + all_[place].key;
  for (const MigGpu& gpu : divided_) asked_ += " " + gpu.key;
}

// Refuses GPUs that the options name and that may not be used.
void Request::check_usable(const char* option, size_t place) const {
  if (!hidden_[place].empty()) {
    refuse(fmt::format("{} names {}, but {}", option, all_[place].label(), hidden_[place]));
  }
  if (std::find(usable_.begin(), usable_.end(), place) == usable_.end()) {
    refuse(fmt::format("{} names {}, which --gpus leaves out", option, all_[place].label()));
  }
}

void Request::check_any_usable() const {
  if (usable_.empty()) {
    refuse(fmt::format("there is no GPU to choose from; of {}: {}", all_[0].label(), hidden_[0]));
  }
}

void Request::read_memory(const std::string& text) {
  std::vector<size_t> named;
  asked_ = "memory";
  for (const Item& item : items_of(text)) {
    const Amount amount = amount_of(item.value);
    if (item.selector.empty()) {
      if (general_) refuse("--memory gives two amounts for all GPUs; name the GPU: 0=8GiB,1=4GiB");
      general_ = amount;
      continue;
    }
    for (const size_t place : choose_gpu(item.selector, all_)) {
      if (amounts_[place]) refuse(fmt::format("--memory names {} twice", all_[place].label()));
      check_usable("--memory", place);
      amounts_[place] = amount;
      named.push_back(place);
    }
  }
  if (!general_) {
    restricted_ = true;
    std::sort(named.begin(), named.end());
    usable_ = named;
  }
  for (const size_t place : usable_) {
    if (!amounts_[place]) amounts_[place] = general_;
  }
  if (general_) asked_ += " " + amount_text(*general_);
  for (const size_t place : named) {
    asked_ += fmt::format(" {}={}", all_[place].key, amount_text(*amounts_[place]));
  }
}

void Request::read_fraction(const std::string& text) {
  claims_ = true;
  asked_ = "fraction";
  const std::vector<Item> items = items_of(text);
  if (items.size() == 1 && items[0].selector.empty()) {
    check_any_usable();
    each_ = eighths_of(items[0].value);
    count_ = 1;
    asked_ += " " + fraction_text(each_);
    return;
  }
  for (const Item& item : items) {
    const uint32_t eighths = eighths_of(item.value);
    if (item.selector.empty()) {
      refuse("--fraction is one share, or one for each GPU that it names: 0=0.5,1=0.25");
    }
    for (const size_t place : choose_gpu(item.selector, all_)) {
      if (exact_[place] != 0) refuse(fmt::format("--fraction names {} twice", all_[place].label()));
      check_usable("--fraction", place);
      if (all_[place].divided) {
        refuse(
            fmt::format("--fraction names {}, which is in MIG mode and cannot be used itself; "
                        "name an instance, or write --fraction {} --gpus {}",
                        all_[place].label(), item.value, all_[place].number()));
      }
      exact_[place] = static_cast<uint8_t>(eighths);
    }
  }
  std::erase_if(usable_, [&](size_t place) { return exact_[place] == 0; });
  for (const size_t place : usable_) {
    asked_ += fmt::format(" {}={}", all_[place].key, fraction_text(exact_[place]));
  }
}

void Request::read_count(const std::string& text) {
  uint32_t count = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), count);
  if (error != std::errc() || *end != '\0' || count < 1 || count > claim_table_layout::kMaxGpus) {
    refuse(
        fmt::format("count {} is not accepted; accepted: 1 to {} whole GPUs, and --fraction for "
                    "less than one",
                    fracgpu::quoted(text).view(), claim_table_layout::kMaxGpus));
  }
  claims_ = true;
  each_ = kEighths;
  count_ = count;
  asked_ = fmt::format("count {}", count);
  std::erase_if(usable_, [&](size_t place) { return all_[place].divided; });
  check_any_usable();
  if (usable_.size() < count_) {
    const auto hidden = std::find_if(hidden_.begin(), hidden_.end(),
                                     [](const std::string& why) { return !why.empty(); });
    refuse(fmt::format(
        "{} GPUs are asked for, and there {} only {} to choose from{}", count_,
        usable_.size() == 1 ? "is" : "are", usable_.size(),
        hidden == hidden_.end() || restricted_
            ? ""
            : fmt::format("; of {}: {}",
                          all_[static_cast<size_t>(hidden - hidden_.begin())].label(), *hidden)));
  }
}

void Request::read_mig(const std::string& text) {
  if (text.empty() || text == "auto") return;
  if (text == "never" || text == "only" || text == "existing") {
    mig_ = text == "never" ? Mig::never : text == "only" ? Mig::only : Mig::existing;
  } else {
    mig_ = Mig::profile;
    profile_ = text;
  }
  if (std::none_of(all_.begin(), all_.end(), [](const Gpu& gpu) { return gpu.divided; })) {
    if (mig_ == Mig::never) return;
    refuse(
        fmt::format("--mig {}: no GPU here is in MIG mode; root switches it on where a GPU has it, "
                    "as with nvidia-smi -i 0 -mig 1",
                    fracgpu::quoted(text).view()));
  }
}

std::vector<size_t> Request::divided_places() const {
  std::vector<size_t> places;
  for (const size_t place : usable_) {
    if (all_[place].divided) places.push_back(place);
  }
  return places;
}

// Decides whether to make an instance, and of what size. Without an explicit request, only root
// makes one, and only outside of containers, because a container's instances were chosen for it.
// `whole`: whole GPUs are requested.
void Request::choose_instances(bool whole) {
  if (mig_ == Mig::existing) {
    std::erase_if(usable_, [&](size_t place) { return !all_[place].instance; });
    if (general_) {
      // It becomes a claim: otherwise several launches could get the same instance.
      std::erase_if(usable_, [&](size_t place) {
        return general_->billionths == 0 && all_[place].physical < general_->bytes;
      });
      claims_ = true;
      each_ = kEighths;
      count_ = 1;
      asked_ += " of an instance";
    }
    if (claims_) check_any_usable();
    return;
  }
  const std::vector<size_t> divided = divided_places();
  const bool told = mig_ == Mig::only || mig_ == Mig::profile;
  const bool may = told || (mig_ == Mig::automatic && geteuid() == 0 && !in_container());
  const bool named = !general_ && std::any_of(amounts_.begin(), amounts_.end(),
                                              [](const auto& each) { return each.has_value(); });
  const bool alone = divided.size() == usable_.size();  // there is nothing else to use
  MigWish wish;
  if (mig_ == Mig::profile) {
    if (claims_ || named) {
      refuse("--mig with a profile goes with --memory and one amount, as its cap, or stands alone");
    }
    wish = {.kind = MigWish::Kind::profile, .profile = profile_};
  } else if (general_ && !named && (told || alone)) {
    constexpr uint64_t kEighth = 1'000'000'000 / kEighths;
    wish = general_->billionths == 0
               ? MigWish{.kind = MigWish::Kind::memory, .amount = general_->bytes}
               : MigWish{.kind = MigWish::Kind::share,
                         .amount = (general_->billionths + kEighth - 1) / kEighth};
  } else if (claims_ && count_ == 1 && !whole) {
    wish = {.kind = MigWish::Kind::share, .amount = each_};
  }
  const bool any = wish.kind != MigWish::Kind::none && may && !divided.empty();
  if (told && !any) {
    refuse(divided.empty() && !whole
               ? "--mig: none of the GPUs that are left to choose from is in MIG mode"
               : "--mig makes an instance for one amount: --memory 10GiB, --fraction 0.25, or the "
                 "name of a profile");
  }
  if (claims_ || any) {
    // Programs can use only instances of these GPUs.
    std::erase_if(usable_, [&](size_t place) { return all_[place].divided || told; });
  }
  if (any) {
    for (MigGpu& gpu : mig_gpus()) {
      const bool mine = std::any_of(divided.begin(), divided.end(),
                                    [&](size_t place) { return all_[place].key == gpu.key; });
      if (mine) divided_.push_back(std::move(gpu));
    }
    want_instance(std::move(wish));
  }
  if (claims_ && usable_.empty() && divided_.empty()) {
    refuse(fmt::format(
        "{} is in MIG mode, where {}; name an instance with --gpus, as 0:0, or take "
        "one that is free with --mig existing",
        all_[divided[0]].label(),
        mig_ == Mig::never ? "--mig never leaves nothing to use" : "only root may make instances"));
  }
}

// Refuses a request that no GPU can ever serve.
void Request::want_instance(MigWish wish) {
  const bool possible = std::any_of(divided_.begin(), divided_.end(), [&](const MigGpu& gpu) {
    const auto profile = profile_for(gpu, wish);
    return profile && (!general_ || general_->billionths != 0 ||
                       gpu.profiles[*profile].memory >= general_->bytes);
  });
  if (!possible) {
    std::set<std::string> names;
    for (const MigGpu& gpu : divided_) {
      for (const MigProfile& each : gpu.profiles) {
        names.insert(fmt::format("{} ({})", each.name, human_bytes(each.memory).c_str()));
      }
    }
    std::string list;
    for (const std::string& name : names) list += (list.empty() ? "" : ", ") + name;
    if (mig_ == Mig::automatic && !usable_.empty()) return;  // other GPUs serve it
    if (names.empty()) {
      refuse(
          "the driver does not tell this user which MIG instances it could make; it takes root, "
          "and "
          "in a container NVIDIA_MIG_CONFIG_DEVICES=all");
    }
    refuse(fmt::format("no MIG instance here can have {}; there are {}",
                       wish.kind == MigWish::Kind::profile
                           ? fmt::format("profile {}{}", fracgpu::quoted(wish.profile).view(),
                                         general_ ? " and so much memory" : "")
                           : "so much memory",
                       list));
  }
  wish_ = std::move(wish);
  if (wish_.kind == MigWish::Kind::profile) asked_ += " mig " + wish_.profile;
  asked_ += usable_.empty() ? " as an instance" : " or an instance";
}

std::string Request::label_of(const Share& share) const {
  for (const Gpu& gpu : all_) {
    if (gpu.key == share.key) return gpu.label();
  }
  return share.key;
}

std::string Request::instance_text(const Share& share) const {
  for (const MigGpu& gpu : divided_) {
    for (const MigProfile& profile : gpu.profiles) {
      if (gpu.key != share.key || profile.id != share.instance->profile) continue;
      return fmt::format("{} at slice {}", profile.name, share.instance->start);
    }
  }
  return fmt::format("an instance at slice {}", share.instance->start);
}

uint32_t Request::slices_of_others(const std::string& gpu,
                                   const std::vector<Launch>& launches) const {
  for (const MigGpu& each : divided_) {
    if (each.key != gpu) continue;
    SliceMask occupied = each.occupied;
    for (const Launch& launch : launches) {
      for (const Share& share : launch.shares) {
        if (share.key == gpu && share.instance) occupied &= ~mask_of(*share.instance);
      }
    }
    return static_cast<uint32_t>(std::popcount(occupied));
  }
  return 0;
}

MigView Request::view() const {
  const bool any =
      std::any_of(all_.begin(), all_.end(), [](const Gpu& gpu) { return gpu.divided; });
  return any ? MigView(mig_gpus) : MigView();
}

std::optional<uint64_t> Request::instance_cap() const {
  if (!general_ || general_->billionths != 0) return std::nullopt;
  return general_->bytes;
}

void Request::check_capped() const {
  const bool capped = claims_ || general_ || may_be_instance() ||
                      std::any_of(amounts_.begin(), amounts_.end(),
                                  [](const auto& each) { return each.has_value(); });
  if (!capped && !limit_is_in_environment() && !trusted_file_is_there(kCeilingFile)) {
    refuse("how much may it have? Give --memory, --fraction or --count");
  }
}

ClaimRequest Request::claim_request() const {
  ClaimRequest wanted;
  wanted.asked = asked_;
  wanted.each = each_;
  wanted.count = count_;
  for (const size_t place : claims_ ? usable_ : std::vector<size_t>()) {
    wanted.gpus.push_back(all_[place].key);
    wanted.exact.push_back(exact_[place]);
  }
  wanted.mig = wish_;
  for (const MigGpu& gpu : divided_) wanted.mig_gpus.push_back(gpu.key);
  return wanted;
}

std::optional<std::vector<Share>> Request::shares_of(const std::vector<Gpu>& gpus) const {
  std::vector<Share> shares;
  for (const size_t place : claims_ ? usable_ : std::vector<size_t>()) {
    const bool there = std::any_of(gpus.begin(), gpus.end(),
                                   [&](const Gpu& gpu) { return gpu.key == all_[place].key; });
    if (!there && count_ == 0) return std::nullopt;
    if (!there || (count_ != 0 && shares.size() == count_)) continue;
    shares.push_back({all_[place].key, count_ != 0 ? each_ : exact_[place]});
  }
  if (shares.size() < count_) return std::nullopt;
  return shares;
}

std::vector<Gpu> Request::candidates() const {
  std::vector<Gpu> gpus;
  for (const size_t place : usable_) gpus.push_back(all_[place]);
  for (const Gpu& gpu : all_) {
    const bool divided = std::any_of(divided_.begin(), divided_.end(),
                                     [&](const MigGpu& each) { return each.key == gpu.key; });
    if (divided) gpus.push_back(gpu);
  }
  return gpus;
}

std::vector<Gpu> Request::granted(const std::vector<Share>& shares) const {
  std::vector<Gpu> gpus;
  for (const size_t place : usable_) {
    const bool shared = std::any_of(shares.begin(), shares.end(), [&](const Share& share) {
      return share.key == all_[place].key;
    });
    if (!claims_ || shared) gpus.push_back(all_[place]);
  }
  return gpus;
}

std::optional<Amount> Request::cap_on(const Gpu& gpu, const std::vector<Share>& shares) const {
  for (const Share& share : shares) {
    if (share.key != gpu.key || share.instance || general_) continue;
    return Amount{.billionths = uint64_t{1'000'000'000} / kEighths * share.eighths};
  }
  for (size_t place = 0; place < all_.size(); ++place) {
    if (all_[place].key == gpu.key) return amounts_[place];
  }
  return std::nullopt;
}

std::string Request::limit(const std::vector<Share>& shares) const {
  const std::vector<Gpu> gpus = granted(shares);
  if (gpus.empty()) return general_ ? amount_text(*general_) : "";  // the environment hides all
  std::vector<std::string> caps;
  for (const Gpu& gpu : gpus) {
    const auto cap = cap_on(gpu, shares);
    if (!cap) return {};
    caps.push_back(amount_text(*cap));
  }
  const bool alike = std::count(caps.begin(), caps.end(), caps[0]) == std::ssize(caps);
  const bool all = gpus.size() == all_.size();
  if (alike && (all || !hides_others() || gpus.size() >= kMaxLimitItems)) return caps[0];
  if (gpus.size() >= kMaxLimitItems) {
    refuse(fmt::format("caps can differ on {} GPUs at most", kMaxLimitItems - 1));
  }
  // Caps all other GPUs at next to nothing, in case the program undoes the choice of visible
  // devices.
  std::string text = all ? "" : "512b,";
  for (size_t i = 0; i < gpus.size(); ++i) text += gpus[i].key + "=" + caps[i] + ",";
  text.pop_back();
  return text;
}

}  // namespace fracgpu::tools
