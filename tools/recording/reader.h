// Reads a recording; format.h describes the format. Accepts any bytes: a file that is not a
// recording, has another version, was cut off or is damaged results in one line and never in more.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tools/recording/event.h"

namespace fracgpu::recording {

class Reader {
 public:
  // Throws std::runtime_error with one line if there is no recording: the file does not exist, is
  // not a recording, or has a newer version.
  explicit Reader(const std::string& path);
  ~Reader();
  Reader(const Reader&) = delete;
  Reader& operator=(const Reader&) = delete;

  const Header& header() const;

  // Calls `visit` with each event in the order of the file, and with the tables read so far. Every
  // index in the event is valid in them. May be called again. Memory does not grow with the number
  // of events.
  void for_each(const std::function<void(const Event&, const Tables&)>& visit);

  // After `for_each`: all tables, and the damage of the file in one line ("cut off at …", "damaged
  // at …"), empty if the file is whole.
  const Tables& tables() const;
  const std::string& damage() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace fracgpu::recording
