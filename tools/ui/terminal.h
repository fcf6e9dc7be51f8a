// The terminal for a full-screen program: the alternate screen, keys as they are pressed, and the
// old state again when the program ends, by whatever signal that can be caught.
#pragma once

#include <signal.h>
#include <termios.h>

#include <string>
#include <vector>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

// Keys that are no characters.
enum Key : int { kUp = 256, kDown, kPageUp, kPageDown, kHome, kEnd };

class Terminal {
 public:
  // Throws std::runtime_error if standard input or output is no terminal.
  Terminal();
  ~Terminal();
  Terminal(const Terminal&) = delete;
  Terminal& operator=(const Terminal&) = delete;

  struct Size {
    int rows = 24, columns = 80;
  };
  Size size() const;

  // Shows these lines, which must fit, and nothing else. They may hold colours.
  void draw(const std::vector<std::string>& lines);

  struct Event {
    enum class Kind { nothing, key, resized, gone, signal } kind = Kind::nothing;
    int number = 0;  // of the key or the signal that asks to end
  };
  // Waits for the next event; returns `nothing` after this time. On Ctrl-Z the process stops and
  // goes on by itself, and then this returns `resized`.
  Event wait(int timeout_ms);

 private:
  void enter();
  void leave();
  // False if not all bytes were taken: the terminal is gone, a signal came, or the time is over
  // (-1: no limit).
  bool send(const std::string& bytes, int timeout_ms);
  int take_key();

  // A descriptor of its own, not blocking: the shell's stays as it is.
  Descriptor tty_;
  Descriptor signals_;
  sigset_t old_mask_ = {};
  termios old_mode_ = {};
  std::string typed_;
  bool gone_ = false;
};

}  // namespace fracgpu::tools
