// A simulated node that behaves as a report of the acceptance run (tests/hardware.sh) says of real
// hardware, as far as the simulated node can vary.
#pragma once

#include <string>
#include <utility>
#include <vector>

namespace sim {

struct ReportedProfile {
  std::vector<std::string> create;                             // arguments of `simnode create`
  std::vector<std::pair<std::string, std::string>> variables;  // of programs on the node
  std::vector<std::string> differing;  // what the node does otherwise, a line for each
};

// False and why when the file is no report, was changed after it was made, or says what cannot be.
bool profile_from(const std::string& report, ReportedProfile* profile, std::string* error);

}  // namespace sim
