// Calls into a vendor's driver may hang or crash. So a child with a deadline makes them: this
// command, started again as one of its probes. The child reports its results line by line. So after
// its end, its earlier results and its last step are known.
#pragma once

#include <string>
#include <vector>

#include "tools/cli/json.h"
#include "tools/launch/launch_tree.h"

namespace fracgpu::tools {

// A child's report.
struct ProbeReport {
  enum class End { done, failed, crashed, hung } end = End::failed;
  int status = 0;              // failed: its exit status; crashed: the signal
  std::string step;            // the last step that it began
  std::string said;            // the first line on stderr
  Json told = Json::object();  // its lines, merged

  bool done() const { return end == End::done; }
  std::string trouble() const;  // "hung in cuInit and was given up", "crashed in … (signal 11)"
};

// Runs the probe of this name in a changed environment.
ProbeReport run_probe(const std::string& name, const Changes& changes, int deadline_s);

// The names of the variables that set a limit.
std::vector<std::string> limit_variables();

// Changes that let a probe see the machine itself: without our library, and without a limit.
Changes without_library();

// The child's side of a probe.
class ProbeTeller {
 public:
  ProbeTeller();
  // Reports the next step, which may be the last one.
  void step(const std::string& what);
  void tell(const std::string& field, const Json& value);

 private:
  void line(const Json& value);
  int fd_;
};

// Runs the probe of this name, and returns its exit status. In probes.cc.
int be_probe(const std::string& name);

}  // namespace fracgpu::tools
