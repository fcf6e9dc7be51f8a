// hardware_judge DIR < FACTS: writes hardware-report.md and hardware-report.json into the folder
// and a line for each WRONG to stdout. Exit status 0: none is WRONG; 1: some are; 2: nothing
// written.
#include <cstdio>
#include <fstream>
#include <iostream>

#include "tests/hardware/report.h"

int main(int argc, char** argv) {
  using namespace hardware;
  if (argc != 2) {
    std::fprintf(stderr, "usage: hardware_judge DIR < FACTS\n");
    return 2;
  }
  const Facts facts = read_facts(std::cin);
  const std::string folder = argv[1];
  for (const auto& [name, text] : {std::pair{"/hardware-report.md", report_page(facts)},
                                   std::pair{"/hardware-report.json", report_json(facts)}}) {
    std::ofstream file(folder + name);
    file << text;
    file.close();
    if (!file) {
      std::fprintf(stderr, "hardware_judge: cannot write %s%s\n", folder.c_str(), name);
      return 2;
    }
  }
  for (const Assumption& assumption : assumptions()) {
    if (judge(assumption, facts).kind != Verdict::Kind::wrong) continue;
    std::printf("WRONG: %s: %s is %s; assumed: %s (%s)\n", assumption.question, assumption.key,
                facts.value.at(assumption.key).plain().c_str(), assumption.assumed,
                assumption.where);
  }
  return wrong_verdicts(facts) == 0 ? 0 : 1;
}
