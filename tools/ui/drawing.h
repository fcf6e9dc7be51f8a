// Pieces of the text for people: amounts, moments, bars, colour.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>

#include "tools/machine/ledger_reader.h"
#include "tools/machine/machine_state.h"

namespace fracgpu::tools {

// What the output can show: the terminal or file that the text goes to.
struct Style {
  bool utf8 = false;
  bool colour = false;

  // The style of standard output: the locale's character set, and colour only on a terminal.
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
// The same, but never more than the amount, for suggestions.
std::string bytes_at_most(uint64_t amount);

// An amount in the form that fracgpu limit accepts, never less: whole GiB if that is not much more.
std::string amount_text(uint64_t amount);

// The time of day for today, else the date; "?" for 0.
std::string moment(uint64_t unix_s);

// "today at 15:04:05", or "on 2026-11-21 at 15:04:05".
std::string full_moment(uint64_t unix_s);

// A bar of `columns` columns, filled by `share`. It is full only if the share is, and never empty
// if something is used. Its colour is green, yellow or red, by how full it is.
std::string bar(const Style& style, double share, int columns);

// A bar for a GPU's memory: the used memory, what else is claimed, what else tenants may take under
// their caps, and the rest; and the signs that draw them.
struct Signs {
  const char *used, *claimed, *capped, *rest;
};
Signs signs(const Style& style);
std::string gpu_bar(const Style& style, const GpuState& gpu, int columns);

double share_of(uint64_t amount, uint64_t whole);

// "4000", or, in parentheses, a PID that only the process's own container knows.
std::string pid_text(uint32_t host_pid, uint32_t pid);

// Since when a process has lived, or why its memory counts or does not.
std::string standing(const ProcessUse& process);

// "GPU 0"; "MIG instance" or "GPU not seen here" if no driver numbers it.
std::string number_text(const GpuState& gpu);

// How a GPU is divided, or which part of one it is: "in MIG mode", "2g.20gb", "SPX/NPS1", or
// "CPX/NPS4 of 0000:18:00.0". Empty for others.
std::string division_text(const GpuState& gpu);

}  // namespace fracgpu::tools
