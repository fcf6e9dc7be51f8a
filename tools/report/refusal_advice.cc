// See refusal_advice.h.
#include "tools/report/refusal_advice.h"

#include <fmt/core.h>

#include <algorithm>

#include "tools/report/names.h"
#include "tools/ui/drawing.h"

namespace fracgpu::tools::report {
namespace {

using recording::RefusalReason;

class Advisor {
 public:
  Advisor(const Analysis& analysis, const Refusal& refusal)
      : analysis_(analysis),
        refusal_(refusal),
        cap_(refusal.event.cap),
        wanted_(std::max(refusal.event.taken, refusal.event.bytes)),
        free_(cap_ - std::min(cap_, refusal.event.held)),
        missing_(wanted_ - std::min(wanted_, free_)) {}

  std::vector<std::string> take() {
    switch (refusal_.event.reason) {
      case RefusalReason::cap:
        of_cap();
        break;
      case RefusalReason::driver:
        pools();
        say("more free memory on the GPU: the cap had room, and the driver had none");
        break;
      case RefusalReason::runtime:
        say("a smaller request: the vendor's runtime refused by itself what is more than the GPU "
            "has, as it is shown");
        break;
      case RefusalReason::ledger:
        say("a working ledger and a cap that is understood: fracgpu doctor says what is wrong");
        break;
    }
    return std::move(lines_);
  }

 private:
  template <typename... Args>
  void say(fmt::format_string<Args...> pattern, Args&&... args) {
    lines_.push_back(fmt::format(pattern, std::forward<Args>(args)...));
  }

  void of_cap() {
    if (cap_ == 0) return;
    const uint64_t physical = refusal_.event.device < analysis_.tables.devices.size()
                                  ? analysis_.tables.devices[refusal_.event.device].physical
                                  : 0;
    const uint64_t whole = refusal_.event.held + wanted_;
    if (physical != 0 && whole > physical) {
      say("no cap: with what was in use it is {}, and the GPU has {}", bytes(whole),
          bytes(physical));
    } else {
      say("a cap of {}: {} more", amount_text(whole), bytes(whole - std::min(whole, cap_)));
    }
    pools();
    if (free_ > 0) say("a request of at most {}", bytes_at_most(free_));
    if (refusal_.largest.taken > 0) {
      say("freeing some of what {} had: {}, the most",
          process_name(analysis_.tables, refusal_.largest.process), bytes(refusal_.largest.taken));
    }
  }

  // Memory that pools hold and do not use.
  void pools() {
    if (refusal_.unused_own > 0) {
      say("trimming its own pools (cuMemPoolTrimTo, cudaMemPoolTrimTo, hipMemPoolTrimTo): they "
          "held {} unused{}",
          bytes(refusal_.unused_own), enough(refusal_.unused_own));
    }
    if (refusal_.unused_others > 0) {
      say("trimming the pools of other processes: they held {} unused{}",
          bytes(refusal_.unused_others), enough(refusal_.unused_others));
    }
  }
  const char* enough(uint64_t amount) const {
    const bool is = refusal_.event.reason == RefusalReason::cap && amount >= missing_;
    return is ? ", which is enough" : "";
  }

  const Analysis& analysis_;
  const Refusal& refusal_;
  uint64_t cap_, wanted_, free_, missing_;
  std::vector<std::string> lines_;
};

}  // namespace

std::vector<std::string> advice(const Analysis& analysis, const Refusal& refusal) {
  return Advisor(analysis, refusal).take();
}

}  // namespace fracgpu::tools::report
