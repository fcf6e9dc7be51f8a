// A program that uses the real libamdhip64 (tests/clients/hip_client.c), driven line by line over
// the simulated HSA runtime.
#pragma once

#include <sys/types.h>

#include <ostream>
#include <string>
#include <vector>

namespace simtest {

// One release of the HIP runtime: the system's own, or one that is fetched beside it.
struct HipRelease {
  const char* name;  // "5.2.3"
  int number;        // 502
  const char* profile;
  bool fetched;
};
inline void PrintTo(const HipRelease& release, std::ostream* out) {
  *out << release.name;
}

// The command line that runs the client on this release. Empty, with a reason, where it cannot be
// had.
std::vector<std::string> hip_command(const HipRelease& release, std::string* why);

class HipClient {
 public:
  explicit HipClient(const std::vector<std::string>& command);
  ~HipClient();
  HipClient(const HipClient&) = delete;
  HipClient& operator=(const HipClient&) = delete;

  // What it answers, in words; the first is the call's result.
  std::vector<std::string> ask(const std::string& line);
  int result(const std::string& line);
  // The place of what a call made, which must go well.
  std::string make(const std::string& line);
  unsigned long long number(const std::string& line, size_t word);
  void kill();
  // Ends it; true if it went well.
  bool finish();
  pid_t pid() const { return pid_; }

 private:
  pid_t pid_ = -1;
  int in_ = -1, out_ = -1;
};

}  // namespace simtest
