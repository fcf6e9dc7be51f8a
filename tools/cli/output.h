// What every subcommand prints by.
#pragma once

#include <stdio.h>

#include <stdexcept>
#include <string>

#include "shim/base/held_signals.h"

namespace fracgpu::tools {

// A line, or a line and a list below it, for stderr. Where nobody reads it, it is lost, and no
// signal ends the command for it.
// What could steer a terminal, and came from others, becomes '?'.
inline void complain(std::string text) {
  for (char& c : text) {
    if ((c < ' ' && c != '\n') || c > '~') c = '?';
  }
  const HeldSignals held;
  const bool ended = !text.empty() && text.back() == '\n';
  fprintf(stderr, "fracgpu: %s%s", text.c_str(), ended ? "" : "\n");
}

// To stdout, all of it or an exception.
inline void print(const std::string& text) {
  if (fputs(text.c_str(), stdout) == EOF || fflush(stdout) != 0) {
    throw std::runtime_error("cannot write to standard output");
  }
}

}  // namespace fracgpu::tools
