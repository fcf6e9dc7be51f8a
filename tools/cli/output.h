// The output functions of every subcommand.
#pragma once

#include <stdio.h>

#include <stdexcept>
#include <string>

#include "shim/base/held_signals.h"

namespace fracgpu::tools {

// Prints a line, or a line with a list below it, to stderr. If the other end is closed, the text is
// lost, and no signal ends the command. Characters that could control a terminal, and may come from
// others, become '?'.
inline void complain(std::string text) {
  for (char& c : text) {
    if ((c < ' ' && c != '\n') || c > '~') c = '?';
  }
  const HeldSignals held;
  const bool ended = !text.empty() && text.back() == '\n';
  fprintf(stderr, "fracgpu: %s%s", text.c_str(), ended ? "" : "\n");
}

// Prints the whole text to stdout, or throws.
inline void print(const std::string& text) {
  if (fputs(text.c_str(), stdout) == EOF || fflush(stdout) != 0) {
    throw std::runtime_error("cannot write to standard output");
  }
}

}  // namespace fracgpu::tools
