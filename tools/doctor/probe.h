// What may hang or crash, because it calls a vendor's driver, is asked by a child with a deadline:
// this command, started again as one of its probes. It tells what it finds line by line, so that
// what it had told before its end is known, and what it was about to do.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/json.h"
#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {

// What a child told.
struct ProbeReport {
  enum class End { done, failed, crashed, hung } end = End::failed;
  int status = 0;              // failed: its exit status; crashed: the signal
  std::string step;            // the last thing it began
  std::string said;            // on stderr, its first line
  Json told = Json::object();  // its lines in one

  bool done() const { return end == End::done; }
  std::string trouble() const;  // "hung for 10 s in cuInit", "crashed (signal 11) in …"
};

// Runs the probe of this name in a changed environment.
ProbeReport run_probe(const std::string& name, const Changes& changes, int deadline_s);

// The names of the variables that set a limit.
std::vector<std::string> limit_variables();

// What makes a probe see the machine as it is: no library of ours, and no limit.
Changes without_library();

// The child's side.
class ProbeTeller {
 public:
  ProbeTeller();
  // About to do this, which may be the last thing.
  void step(const std::string& what);
  void tell(const std::string& field, const Json& value);

 private:
  void line(const Json& value);
  int fd_;
};

// Does what the probe of this name does; its exit status. In probes.cc.
int be_probe(const std::string& name);

}  // namespace fracgpu::tools
