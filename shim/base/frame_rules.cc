// Interprets call frame information as far as functions on x86-64 use it; see frame_rules.h. The
// forms are those of DWARF 5, section 6.4, and of the Linux Standard Base's .eh_frame.
#include "shim/base/frame_rules.h"

#include <string.h>

#include "shim/base/hash_table.h"

namespace fracgpu {
namespace {

constexpr uint64_t kRbp = 6, kRsp = 7, kReturnAddress = 16;  // DWARF's numbers

// Reads on within an entry. Bytes behind its end read as zero.
class Bytes {
 public:
  Bytes(const unsigned char* at, const unsigned char* end) : at_(at), end_(end) {}

  bool done() const { return at_ >= end_; }
  template <typename Number>
  uint64_t fixed() {
    Number number = 0;
    if (static_cast<size_t>(end_ - at_) < sizeof number) {
      at_ = end_;
      return 0;
    }
    memcpy(&number, at_, sizeof number);
    at_ += sizeof number;
    return static_cast<uint64_t>(number);
  }
  uint64_t unsigned_leb() {
    uint64_t value = 0;
    for (unsigned shift = 0; !done(); shift += 7) {
      const unsigned char byte = *at_++;
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      if ((byte & 0x80) == 0) break;
    }
    return value;
  }
  int64_t signed_leb() {
    uint64_t value = 0;
    unsigned shift = 0;
    unsigned char byte = 0x80;
    while (!done() && (byte & 0x80) != 0) {
      byte = *at_++;
      if (shift < 64) value |= static_cast<uint64_t>(byte & 0x7f) << shift;
      shift += 7;
    }
    if (shift < 64 && (byte & 0x40) != 0) value |= ~uint64_t{0} << shift;
    return static_cast<int64_t>(value);
  }
  void skip(uint64_t size) {
    at_ += size < static_cast<uint64_t>(end_ - at_) ? size : static_cast<uint64_t>(end_ - at_);
  }
  const unsigned char* at() const { return at_; }
  const unsigned char* end() const { return end_; }

 private:
  const unsigned char* at_;
  const unsigned char* end_;
};

// The bytes of an entry behind its length.
Bytes entry_at(const unsigned char* at) {
  uint32_t size = 0;
  memcpy(&size, at, sizeof size);
  // Entries of more than 4 GiB begin differently; no compiler makes any.
  return size == 0xffffffff ? Bytes(at, at) : Bytes(at + 4, at + 4 + size);
}

// The part of a common information entry that holds for all entries that refer to it.
struct Common {
  bool known = false;
  uint64_t code_alignment = 1;
  int64_t data_alignment = 1;
  bool has_augmentation = false;
  unsigned char encoding = 0;  // of addresses in the entries
  Bytes rules{nullptr, nullptr};
};

Common read_common(const unsigned char* at) {
  Common common;
  Bytes bytes = entry_at(at);
  const bool is_common = bytes.fixed<uint32_t>() == 0;
  const uint64_t version = bytes.fixed<uint8_t>();
  const auto* const augmentation = reinterpret_cast<const char*>(bytes.at());
  const size_t length = strnlen(augmentation, static_cast<size_t>(bytes.end() - bytes.at()));
  bytes.skip(length + 1);
  if (!is_common || (version != 1 && version != 3) || bytes.done()) return common;
  common.code_alignment = bytes.unsigned_leb();
  common.data_alignment = bytes.signed_leb();
  const uint64_t return_register = version == 1 ? bytes.fixed<uint8_t>() : bytes.unsigned_leb();
  if (return_register != kReturnAddress) return common;
  common.known = true;
  if (length > 0) {
    // "zR" and "zPLR", as every compiler writes them. "S" marks a signal's frame, which has other
    // rules.
    common.known = augmentation[0] == 'z';
    common.has_augmentation = true;
    Bytes data = bytes;
    const uint64_t size = data.unsigned_leb();
    bytes = Bytes(data.at(), data.end());
    bytes.skip(size);
    for (size_t i = 1; i < length; ++i) {
      switch (augmentation[i]) {
        case 'R':
          common.encoding = static_cast<unsigned char>(data.fixed<uint8_t>());
          break;
        case 'L':
          data.fixed<uint8_t>();
          break;
        case 'P': {
          const uint64_t encoding = data.fixed<uint8_t>() & 0x0f;
          // sdata4 and udata4, sdata8 and udata8, and the native form.
          data.skip(encoding == 0x0b || encoding == 0x03 ? 4 : 8);
          break;
        }
        default:
          common.known = false;
      }
    }
  }
  common.rules = bytes;
  return common;
}

struct State {
  uint64_t cfa_register = kRsp;
  int64_t cfa_offset = 0;
  bool cfa_is_complex = false, saves_rbp = false, rbp_is_complex = false;
  bool return_is_complex = false, is_outermost = false;
  int64_t rbp_offset = 0;

  void forget(uint64_t number, const State& initial) {
    if (number == kRbp) {
      saves_rbp = initial.saves_rbp;
      rbp_is_complex = initial.rbp_is_complex;
      rbp_offset = initial.rbp_offset;
    }
    if (number == kReturnAddress) return_is_complex = initial.return_is_complex;
  }
  void save(uint64_t number, int64_t offset) {
    if (number == kRbp) {
      saves_rbp = true;
      rbp_is_complex = false;
      rbp_offset = offset;
    }
    if (number == kReturnAddress) return_is_complex = offset != -8;
  }
  void complicate(uint64_t number) {
    if (number == kRbp) rbp_is_complex = true;
    if (number == kReturnAddress) return_is_complex = true;
    if (number == kRsp) cfa_is_complex = true;
  }
};

// Runs the instructions until they concern code behind `address`. False if one is not understood.
bool run(Bytes bytes, const Common& common, uint64_t function, uint64_t address, State& state) {
  constexpr int kDeepest = 8;
  State remembered[kDeepest];
  const State initial = state;
  int depth = 0;
  uint64_t at = function;
  while (!bytes.done() && at <= address) {
    const uint64_t code = bytes.fixed<uint8_t>();
    const uint64_t low = code & 0x3f;
    switch (code & 0xc0) {
      case 0x40:  // advance_loc
        at += low * common.code_alignment;
        continue;
      case 0x80:  // offset
        state.save(low, static_cast<int64_t>(bytes.unsigned_leb()) * common.data_alignment);
        continue;
      case 0xc0:  // restore
        state.forget(low, initial);
        continue;
      default:
        break;
    }
    switch (code) {
      case 0x00:  // nop
        break;
      case 0x02:  // advance_loc1, 2, 4
        at += bytes.fixed<uint8_t>() * common.code_alignment;
        break;
      case 0x03:
        at += bytes.fixed<uint16_t>() * common.code_alignment;
        break;
      case 0x04:
        at += bytes.fixed<uint32_t>() * common.code_alignment;
        break;
      case 0x05: {  // offset_extended
        const uint64_t number = bytes.unsigned_leb();
        state.save(number, static_cast<int64_t>(bytes.unsigned_leb()) * common.data_alignment);
        break;
      }
      case 0x11: {  // offset_extended_sf
        const uint64_t number = bytes.unsigned_leb();
        state.save(number, bytes.signed_leb() * common.data_alignment);
        break;
      }
      case 0x06:  // restore_extended
        state.forget(bytes.unsigned_leb(), initial);
        break;
      case 0x07: {  // undefined: of the return address, this is the outermost function
        const uint64_t number = bytes.unsigned_leb();
        if (number == kReturnAddress) state.is_outermost = true;
        if (number == kRbp) state.forget(number, {});
        break;
      }
      case 0x08:  // same_value
        state.forget(bytes.unsigned_leb(), {});
        break;
      case 0x0a:  // remember_state
        if (depth == kDeepest) return false;
        remembered[depth++] = state;
        break;
      case 0x0b:  // restore_state
        if (depth == 0) return false;
        state = remembered[--depth];
        break;
      case 0x0c:  // def_cfa
        state.cfa_register = bytes.unsigned_leb();
        state.cfa_offset = static_cast<int64_t>(bytes.unsigned_leb());
        state.cfa_is_complex = false;
        break;
      case 0x12:  // def_cfa_sf
        state.cfa_register = bytes.unsigned_leb();
        state.cfa_offset = bytes.signed_leb() * common.data_alignment;
        state.cfa_is_complex = false;
        break;
      case 0x0d:  // def_cfa_register
        state.cfa_register = bytes.unsigned_leb();
        break;
      case 0x0e:  // def_cfa_offset
        state.cfa_offset = static_cast<int64_t>(bytes.unsigned_leb());
        break;
      case 0x13:  // def_cfa_offset_sf
        state.cfa_offset = bytes.signed_leb() * common.data_alignment;
        break;
      case 0x0f:  // def_cfa_expression
        state.cfa_is_complex = true;
        bytes.skip(bytes.unsigned_leb());
        break;
      case 0x10:    // expression
      case 0x16: {  // val_expression
        state.complicate(bytes.unsigned_leb());
        bytes.skip(bytes.unsigned_leb());
        break;
      }
      case 0x2e:  // GNU_args_size
        bytes.unsigned_leb();
        break;
      default:
        return false;
    }
  }
  return true;
}

bool fits(int64_t offset) {
  return offset >= -(1 << 20) && offset < 1 << 20;
}

}  // namespace

FrameRule read_frame_rule(const unsigned char* entry, uint64_t function, uint64_t address) {
  const FrameRule complex{.form = FrameRule::Form::complex};
  Bytes bytes = entry_at(entry);
  const unsigned char* const self = bytes.at();
  const uint64_t back = bytes.fixed<uint32_t>();
  if (back == 0 || bytes.done()) return complex;
  const Common common = read_common(self - back);
  if (!common.known) return complex;
  // The function's first address and its size, which the caller knows.
  const unsigned form = common.encoding & 0x0f;
  bytes.skip(form == 0x0b || form == 0x03 ? 8 : 16);
  if (common.has_augmentation) bytes.skip(bytes.unsigned_leb());
  State state;
  if (!run(common.rules, common, function, address, state)) return complex;
  // A restored register gets the common entry's rule.
  if (!run(bytes, common, function, address, state)) return complex;
  if (state.is_outermost) return {};
  if (state.cfa_is_complex || state.return_is_complex || state.rbp_is_complex ||
      (state.cfa_register != kRsp && state.cfa_register != kRbp) || !fits(state.cfa_offset) ||
      !fits(state.rbp_offset)) {
    return complex;
  }
  return {.form = state.cfa_register == kRsp ? FrameRule::Form::by_rsp : FrameRule::Form::by_rbp,
          .cfa_offset = static_cast<int32_t>(state.cfa_offset),
          .saves_rbp = state.saves_rbp,
          .rbp_offset = static_cast<int32_t>(state.rbp_offset)};
}

// From the lowest bit: a bit that is set in every rule, the form, whether rbp is saved, and the
// offsets, each of 24 bits.
uint64_t FrameRules::encode(const FrameRule& rule) {
  return 1 | static_cast<uint64_t>(rule.form) << 1 | static_cast<uint64_t>(rule.saves_rbp) << 3 |
         static_cast<uint64_t>(rule.cfa_offset & 0xffffff) << 16 |
         static_cast<uint64_t>(rule.rbp_offset & 0xffffff) << 40;
}

FrameRule FrameRules::decode(uint64_t word) {
  const auto offset = [&](int shift) {
    return static_cast<int32_t>(static_cast<uint32_t>(word >> shift) << 8) >> 8;
  };
  return {.form = static_cast<FrameRule::Form>(word >> 1 & 3),
          .cfa_offset = offset(16),
          .saves_rbp = (word & 8) != 0,
          .rbp_offset = offset(40)};
}

bool FrameRules::find(uint64_t address, FrameRule& rule) const {
  size_t at = hash_of(address) % kPlaces;
  for (size_t tries = 0; tries < kTries; ++tries, at = (at + 1) % kPlaces) {
    const uint64_t there = places_[at].address.load(std::memory_order_acquire);
    if (there == 0) return false;
    if (there != address) continue;
    const uint64_t word = places_[at].rule.load(std::memory_order_relaxed);
    if (word == 0) return false;
    rule = decode(word);
    return true;
  }
  return false;
}

void FrameRules::enter(uint64_t address, const FrameRule& rule) {
  size_t at = hash_of(address) % kPlaces;
  for (size_t tries = 0; tries < kTries; ++tries, at = (at + 1) % kPlaces) {
    uint64_t there = 0;
    if (places_[at].address.compare_exchange_strong(there, address, std::memory_order_acq_rel)) {
      places_[at].rule.store(encode(rule), std::memory_order_relaxed);
      return;
    }
    if (there == address) return;
  }
}

}  // namespace fracgpu
