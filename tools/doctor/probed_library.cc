// Opens a library and looks up one of its functions in every way; see probed_library.h.
#include "tools/doctor/probed_library.h"

#include <algorithm>
#include <string_view>

#include "tools/doctor/mapped_library.h"

namespace fracgpu::tools {

ProbedLibrary::ProbedLibrary(ProbeTeller& teller, const std::vector<const char*>& names)
    : teller_(teller) {
  std::string why;
  for (const char* const name : names) {
    teller_.step(fmt::format("loading {}", name));
    handle_ = dlopen(name, RTLD_LAZY | RTLD_GLOBAL);
    if (handle_ != nullptr) {
      teller_.tell("library", name);
      return;
    }
    const char* const error = dlerror();
    if (why.empty() && error != nullptr) why = error;
  }
  teller_.tell("missing", why);
}

void ProbedLibrary::add_lookups(const char* function, void* linked) {
  add("link", function, linked);
  add("dlsym", function, dlsym(handle_, function));
  add("RTLD_DEFAULT", function, dlsym(RTLD_DEFAULT, function));
  // This finds nothing without the preloaded library: of the vendors' functions, only HIP's have
  // versions.
  if (void* const found = dlvsym(handle_, function, "ANY_1.0")) add("dlvsym", function, found);
}

void ProbedLibrary::add(const std::string& lookup, const char* function, void* address) {
  lookups_.push_back({lookup, function, address});
}

void ProbedLibrary::add_getter(const char* getter, const char* function, const char* name,
                               int version) {
  const auto get = find<int(const char*, void**, int, uint64_t, void*)>(getter);
  void* found = nullptr;
  int status[4] = {};  // some versions write one number there
  const bool knows = get != nullptr && get(name, &found, version, 0, status) == 0;
  const std::string_view name_of_getter = getter;  // without its version number
  add(std::string(name_of_getter.substr(0, name_of_getter.find('_'))), function,
      knows ? found : nullptr);
}

void ProbedLibrary::add_total(const std::string& key, uint64_t bytes) {
  totals_.push_back({{"key", key}, {"total", bytes}});
}

// The total by each lookup, in their order.
std::vector<ProbedLibrary::Total> ProbedLibrary::ask_all(const std::function<Total(void*)>& ask) {
  std::vector<Total> totals;
  for (const Lookup& lookup : lookups_) {
    teller_.step(fmt::format("{} by {}", lookup.function, lookup.name));
    totals.push_back(lookup.address == nullptr ? Total() : ask(lookup.address));
  }
  return totals;
}

void ProbedLibrary::tell(const std::string& version, const std::function<Total(void*)>& ask) {
  std::vector<Total> totals = ask_all(ask);
  // The tenant's last process may have ended in between, and with it a cap in percent.
  if (std::adjacent_find(totals.begin(), totals.end(), [](const Total& one, const Total& other) {
        return one && other && *one != *other;
      }) != totals.end()) {
    totals = ask_all(ask);
  }
  Json found = Json::array();
  for (size_t i = 0; i < lookups_.size(); ++i) {
    const Lookup& lookup = lookups_[i];
    Dl_info info = {};
    const bool known = lookup.address != nullptr && dladdr(lookup.address, &info) != 0;
    const std::string_view file = known && info.dli_fname != nullptr ? info.dli_fname : "";
    const bool hooked = file.substr(file.rfind('/') + 1).starts_with(kLibrary);
    found.push_back({{"lookup", lookup.name},
                     {"function", lookup.function},
                     {"found", lookup.address != nullptr},
                     {"hooked", hooked},
                     {"total", totals[i] ? Json(*totals[i]) : Json(nullptr)}});
  }
  teller_.tell("version", version);
  teller_.tell("lookups", found);
  teller_.tell("totals", totals_);
}

std::string version_text(int number, int major_unit, int minor_unit) {
  return fmt::format("{}.{}", number / major_unit, number % major_unit / minor_unit);
}

ProbedLibrary::Total total_of_number(void* address, int device) {
  size_t bytes = 0;
  const auto ask = reinterpret_cast<int (*)(size_t*, int)>(address);
  return ask(&bytes, device) == 0 ? ProbedLibrary::Total(bytes) : std::nullopt;
}

}  // namespace fracgpu::tools
