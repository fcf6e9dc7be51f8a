// Asks the machine; see offers.h.
#include "tools/manual/offers.h"

#include <ctype.h>
#include <unistd.h>

#include <algorithm>
#include <vector>

#include "tools/machine/amd_partitions.h"
#include "tools/machine/gpus.h"
#include "tools/machine/mig_driver.h"
#include "tools/machine/visible_gpus.h"

namespace fracgpu::tools {
namespace {

using Words = std::vector<std::string>;

// Chosen: longer than a working driver takes, and not so long that a shell seems dead.
constexpr unsigned kPatience_s = 5;

void add(Words& words, const std::string& word) {
  if (!word.empty() && std::ranges::find(words, word) == words.end()) words.push_back(word);
}

// Short names come first, because people type those; numbers that GPUs of two vendors share are
// left out. For a launch, only the GPUs that the environment shows are offered.
void add_names(Words& words, bool of_launch) {
  const std::vector<Gpu> gpus = list_gpus();
  const Words hidden = of_launch ? hidden_by_environment(gpus) : Words(gpus.size());
  for (size_t i = 0; i < gpus.size(); ++i) {
    const std::string number = gpus[i].number();
    const bool tells = std::ranges::count(gpus, number, &Gpu::number) == 1;
    if (hidden[i].empty() && tells) add(words, number);
  }
  for (size_t i = 0; i < gpus.size(); ++i) {
    if (hidden[i].empty()) add(words, gpus[i].key);
  }
}

Words words_for(const std::string& what) {
  Words words;
  if (what == "gpus") {
    words = {"all"};
    add_names(words, true);
  } else if (what == "gpu") {
    add_names(words, false);
  } else if (what == "mig") {
    words = {"auto", "never", "only", "existing"};
    for (const MigGpu& gpu : mig_gpus()) {
      for (const MigProfile& profile : gpu.profiles) add(words, profile.name);
    }
  }
  if (!words.empty()) return words;
  for (const Board& board : amd_boards(list_gpus())) {
    if (what == "board") add(words, std::to_string(board.number));
    if (what == "partition") {
      std::string now = board.modes.compute;
      std::ranges::transform(now, now.begin(), tolower);
      add(words, now);
    }
    const Words none;
    const Words& modes = what == "compute"  ? board.modes.all_compute
                         : what == "memory" ? board.modes.all_memory
                                            : none;
    for (const std::string& mode : modes) add(words, mode);
  }
  return words;
}

}  // namespace

std::vector<std::string> offers_for(const std::string& what) {
  alarm(kPatience_s);  // a shell waits for this
  return words_for(what);
}

}  // namespace fracgpu::tools
