// Reads a recording; the format is in format.h. Takes any bytes: what is no recording, is of
// another version, was cut off or damaged gives a line and never more.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::recording {

class Reader {
 public:
  // Throws std::runtime_error with one line where there is no recording: no such file, not one, of
  // a newer version.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const Header& header() const;

  // Calls `visit` with each event in the order of the file, and what the tables have by then; every
  // index in the event is valid in them. May be called again. Memory does not grow with the number
  // of events.
  void for_each(const std::function<void(const Event&, const Tables&)>& visit);

  // After `for_each`: all tables; and what is wrong with the file, in one line: cut off at …,
  // damaged at …; empty when it is whole.
  const Tables& tables() const;
  const std::string& damage() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::recording
