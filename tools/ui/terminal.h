// The terminal as a full-screen program has it: the alternate screen, keys as they are pressed, and
// everything as it was when the program ends, by whatever signal that can be caught.
#pragma once

#include <signal.h>
#include <termios.h>

#include <string>
#include <vector>

#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

// What is no character.
enum Key : int { kUp = 256, kDown, kPageUp, kPageDown, kHome, kEnd };

class Terminal {
 public:
  // Throws std::runtime_error where standard input and output are no terminal.
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
  // What happens next, or `nothing` after this time. Stops and goes on by itself on Ctrl-Z, and
  // says `resized` then.
  Event wait(int timeout_ms);

 private:
  void enter();
  void leave();
  // False when not all of it was taken: a signal came, or the time is over (-1: it never is).
  bool send(const std::string& bytes, int timeout_ms);
  int take_key();

  // Of its own, not blocking: the one that the shell has stays as it is.
  Descriptor tty_;
  Descriptor signals_;
  sigset_t old_mask_ = {};
  termios old_mode_ = {};
  std::string typed_;
  bool gone_ = false;
};

}  // namespace fracgpu::tools
