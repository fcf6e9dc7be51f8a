// Limits: what a user may write to cap a device, and what it comes to on a given device.
//
// Grammar, items separated by commas:
//   item     = [selector "="] amount
//   selector = device index, as nvidia-smi numbers them | "GPU-" uuid | "MIG-" uuid
//   amount   = number unit          8GiB 8gb 1.5G 512MiB   (all units are powers of 1024)
//            | number "%"           50%  12.5%             of the device's own memory
//            | fraction             0.5  0.125  1.0        of the device's own memory
// A fraction is written with a point; a bare integer is refused, because nobody can tell whether
// 8 is bytes or GiB.
#pragma once

#include <cstdint>
#include <string_view>

#include "shim/text.h"

namespace fracgpu {

// An amount of memory, absolute or relative to the device.
struct Amount {
  uint64_t bytes = 0;       // absolute, when `billionths` is 0
  uint64_t billionths = 0;  // of the device's memory, 1 … 1,000,000,000

  // Bytes on a device of `physical` bytes, rounded down to the ledger's unit; never above it.
  uint64_t of(uint64_t physical) const;
};

class Limits {
 public:
  // Reads `text`. On failure returns false, leaves the limits empty and says in `error` which
  // text was wrong and what is accepted. Empty text is a failure.
  bool parse(std::string_view text, Message& error);

  bool empty() const { return count_ == 0; }

  // The cap in bytes for a device, or UINT64_MAX where no item covers it. An item with a selector
  // beats one without; of several selectors of one device the lowest counts. `index` is the
  // device's number as nvidia-smi counts, or -1 if not known.
  uint64_t cap_for(std::string_view uuid, int index, uint64_t physical) const;

  // Some item selects a device by index (so the index must be known to apply the limits).
  bool selects_by_index() const;

  // The first selector that `exists(uuid, index)` knows no device for, or empty.
  template <typename Exists>
  std::string_view unknown_selector(Exists exists) const {
    for (int i = 0; i < count_; ++i) {
      const Item& item = items_[i];
      if (item.any) continue;
      if (!exists(item.uuid.view(), item.index)) return item.selector.view();
    }
    return {};
  }

 private:
  struct Item {
    bool any = true;    // no selector: every device
    int index = -1;     // selector is an index
    Text<64> uuid;      // selector is a UUID, lower-case but for its prefix
    Text<64> selector;  // as written, for messages
    Amount amount;
  };
  bool parse_item(std::string_view text, Message& error);

  static constexpr int kMaxItems = 32;
  Item items_[kMaxItems];
  int count_ = 0;
};

// Reads one amount, the right-hand side of the grammar above. False with `error` set if malformed.
bool parse_amount(std::string_view text, Amount& amount, Message& error);

}  // namespace fracgpu
