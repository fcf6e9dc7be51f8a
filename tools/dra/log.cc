// See log.h.
#include "tools/dra/log.h"

#include <time.h>
#include <unistd.h>

namespace fracgpu::tools::dra {

void log(const char* level, const std::string& message, const Json& more) {
  timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  tm parts;
  gmtime_r(&now.tv_sec, &parts);
  char when[32];
  strftime(when, sizeof when, "%Y-%m-%dT%H:%M:%SZ", &parts);
  Json line = {{"time", when}, {"level", level}, {"message", message}};
  for (size_t i = 0; i < more.keys().size(); ++i) line[more.keys()[i]] = more.items()[i];
  const std::string text = line.dump_ascii(-1) + "\n";
  [[maybe_unused]] const ssize_t written = write(STDERR_FILENO, text.data(), text.size());
}

}  // namespace fracgpu::tools::dra
