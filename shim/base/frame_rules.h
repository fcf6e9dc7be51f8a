// How to find a function's caller on the stack, for each code address that was met. The rules are
// those that compilers write for unwinding (DWARF's call frame information, in .eh_frame).
//
// An unwinder looks up a rule and interprets it for each frame, which takes about a microsecond.
// Call stacks that are taken again and again go through the same few thousand addresses, and nearly
// all their rules have one form. So this table keeps rules of that form, by the address.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

namespace fracgpu {

// Registers of x86-64: the frame's address (CFA) is one of these plus an offset. The return address
// is below it, and so is the caller's frame pointer if it was saved.
struct FrameRule {
  enum class Form : uint8_t {
    none,     // the outermost function; or there is no rule at all
    by_rsp,   // CFA = rsp + offset
    by_rbp,   // CFA = rbp + offset
    complex,  // of another form, which only an unwinder can interpret
  } form = Form::none;
  int32_t cfa_offset = 0;
  bool saves_rbp = false;
  int32_t rbp_offset = 0;  // from the CFA, if it is saved
};

// The rule at a code address, from a frame description entry of .eh_frame. `function`: the
// beginning of the entry's function. Complex if anything in it is not understood.
FrameRule read_frame_rule(const unsigned char* entry, uint64_t function, uint64_t address);

// Rules by address. Any thread may call any function at any time; no rule is ever replaced. All
// zero is an empty table.
class FrameRules {
 public:
  // False: not known.
  bool find(uint64_t address, FrameRule& rule) const;
  // Does nothing if the table has no room left.
  void enter(uint64_t address, const FrameRule& rule);

 private:
  static constexpr size_t kPlaces = 1u << 14, kTries = 16;
  struct Place {
    std::atomic<uint64_t> address;
    std::atomic<uint64_t> rule;  // 0: being entered
  };
  static uint64_t encode(const FrameRule& rule);
  static FrameRule decode(uint64_t word);

  Place places_[kPlaces];
};

}  // namespace fracgpu
