// The Damerau-Levenshtein distance, in the variant that changes no letter twice; see spelling.h.
#include "tools/cli/spelling.h"

#include <algorithm>

namespace fracgpu::tools {
namespace {

size_t distance(std::string_view a, std::string_view b) {
  std::vector<size_t> before_last, last(b.size() + 1), now(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    now[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      now[j] = std::min({last[j] + 1, now[j - 1] + 1, last[j - 1] + (a[i - 1] != b[j - 1])});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        now[j] = std::min(now[j], before_last[j - 2] + 1);
      }
    }
    before_last = last;
    last = now;
  }
  return last[b.size()];
}

}  // namespace

std::string nearest(std::string_view word, const std::vector<std::string>& words) {
  // At most a third of the letters: "hlep" is help, but "ls" is not gc.
  constexpr size_t kLettersPerChange = 3, kLongest = 40;
  std::string found;
  size_t least = std::min(word.size(), kLongest) / kLettersPerChange + 1;
  if (word.size() > kLongest) return found;
  for (const std::string& each : words) {
    if (const size_t changes = distance(word, each); changes < least) {
      least = changes;
      found = each;
    }
  }
  return found;
}

}  // namespace fracgpu::tools
