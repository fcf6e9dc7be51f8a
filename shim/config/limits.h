// Limits: what a user may write to cap a device, and the resulting cap in bytes on a device.
//
// Grammar, items separated by commas:
//   item     = [selector "="] amount
//   selector = device index, as nvidia-smi, rocm-smi and amd-smi number them
//            | "GPU-" uuid | "MIG-" uuid | "AMD-" gpu_id       the device's key in the ledger
//                                     ("GPU-" and index of a GPU in MIG mode: each of its
//                                     instances)
//            | [domain ":"] bus ":" device "." function ["/" partition]
//   amount   = number unit          8GiB 8gb 8Gi 1.5G 512MiB (all units are powers of 1024)
//            | number "%"           50%  12.5%             of the device's own memory
//            | fraction             0.5  0.125  1.0        of the device's own memory
// A fraction is written with a point; a bare integer is refused, because 8
// could be bytes or GiB.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/base/lazy_array.h"
#include "shim/base/text.h"
#include "shim/config/device_name.h"

namespace fracgpu {

// An amount of memory, absolute or relative to the device.
struct Amount {
  uint64_t bytes = 0;       // absolute, if `billionths` is 0
  uint64_t billionths = 0;  // of the device's memory, 1 … 1,000,000,000

  // Bytes on a device of `physical` bytes, rounded down to the ledger's unit; never above it.
  uint64_t of(uint64_t physical) const;
};

class Limits {
 public:
  // Reads `text`. On failure returns false, leaves the limits empty, and `error` states which text
  // was wrong and what is accepted. Empty text is a failure.
  bool parse(std::string_view text, Message& error);

  bool empty() const { return count_ == 0; }

  // The cap in bytes for a device, or UINT64_MAX if no item covers it. An item with a selector
  // takes precedence over one without. If several selectors cover a device, the lowest cap counts.
  uint64_t cap_for(const DeviceName& device, uint64_t physical) const;

  // Whether an item selects devices by this kind of name. The name of a device must then be known
  // before the limits can be applied to it.
  bool selects_by(Selector::Kind kind) const;

  // The first selector for which `exists(const Selector&)` finds no device, or empty.
  template <typename Exists>
  std::string_view unknown_selector(Exists exists) const {
    for (size_t i = 0; i < count_; ++i) {
      const Selector& selector = items_[i].selector;
      if (selector.kind != Selector::Kind::any && !exists(selector)) return selector.text.view();
    }
    return {};
  }

 private:
  struct Item {
    Selector selector;
    Amount amount;
  };
  bool parse_item(std::string_view text, Message& error);

  // Twice as many as a tenant has devices.
  static constexpr int kMaxItems = 256;
  LazyArray<Item, kMaxItems> items_;
  size_t count_ = 0;
};

// Reads one amount, the right-hand side of the grammar above. False with `error` set if malformed.
bool parse_amount(std::string_view text, Amount& amount, Message& error);

}  // namespace fracgpu
