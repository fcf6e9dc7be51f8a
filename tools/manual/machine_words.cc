// What completions offer of this machine; see command_line.h.
#include <set>

#include "tools/machine/amd_partitions.h"
#include "tools/machine/gpus.h"
#include "tools/machine/mig_driver.h"
#include "tools/manual/command_line.h"

namespace fracgpu::tools {
namespace {

std::set<std::string> names_of_gpus() {
  std::set<std::string> names = {"all"};
  for (const Gpu& gpu : list_gpus()) {
    names.insert(gpu.number());
    names.insert(gpu.key);
  }
  return names;
}

std::set<std::string> uses_of_mig() {
  std::set<std::string> names = {"auto", "never", "only", "existing"};
  for (const MigGpu& gpu : mig_gpus()) {
    for (const MigProfile& profile : gpu.profiles) names.insert(profile.name);
  }
  return names;
}

std::set<std::string> numbers_of_boards() {
  std::set<std::string> names;
  for (const Board& board : amd_boards(list_gpus())) names.insert(std::to_string(board.number));
  return names;
}

}  // namespace

std::string machine_words(const std::string& what) {
  std::string words;
  for (const std::string& name : what == "gpus"  ? names_of_gpus()
                                 : what == "mig" ? uses_of_mig()
                                                 : numbers_of_boards()) {
    words += (words.empty() ? "" : " ") + name;
  }
  return words;
}

}  // namespace fracgpu::tools
