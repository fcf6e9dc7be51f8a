// Pieces of what people are shown: amounts, moments, bars, colour.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tools/machine/ledger_reader.h"
#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

// How the place looks that the text is written to.
struct Style {
  bool utf8 = false;
  bool colour = false;

  // As standard output has it: the locale's character set, and colour only on a terminal.
  static Style of_stdout();
};

inline constexpr const char* kRed = "31";
inline constexpr const char* kGreen = "32";
inline constexpr const char* kYellow = "33";
inline constexpr const char* kBold = "1";
inline constexpr const char* kDim = "2";

std::string painted(const Style& style, const char* colour, std::string_view text);

// "12.0 GiB"
std::string bytes(uint64_t amount);
// The same, never more than there is: for what is offered.
std::string bytes_at_most(uint64_t amount);

// An amount as fracgpu limit takes it, at least so large: whole GiB where that is not much more.
std::string amount_text(uint64_t amount);

// The time of day for today, else the date; "?" for 0.
std::string moment(uint64_t unix_s);

// "today at 15:04:05", or "on 2026-11-21 at 15:04:05".
std::string full_moment(uint64_t unix_s);

// A bar of so many columns, of which a share is filled: never full unless it is, and never empty
// when something is used. Green, yellow or red by how full.
std::string bar(const Style& style, double share, int columns);

// One for a GPU's memory: what is used, what else is claimed, what else tenants may take under
// their caps, and the rest; and the signs that it is drawn with.
struct Signs {
  const char *used, *claimed, *capped, *rest;
};
Signs signs(const Style& style);
std::string gpu_bar(const Style& style, const GpuState& gpu, int columns);

double share_of(uint64_t amount, uint64_t whole);

// "4000", or, in parentheses, a PID that only the process's own container knows.
std::string pid_text(uint32_t host_pid, uint32_t pid);

// Since when, or why its memory counts or does not.
std::string standing(const ProcessUse& process);

// "GPU 0", or "MIG" and the like where no driver numbers it.
std::string number_text(const GpuState& gpu);

// How a GPU is divided, or what part of one it is: "in MIG mode", "2g.20gb", "SPX/NPS1", or
// "CPX/NPS4 of 0000:18:00.0". Empty for others.
std::string division_text(const GpuState& gpu);

}  // namespace fracgpu::tools
