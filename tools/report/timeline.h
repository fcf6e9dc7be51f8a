// A limited number of time stretches: when there would be more, each becomes twice as long. Each
// stretch keeps its moment with the most memory taken.
#pragma once

#include <algorithm>
#include <cstdint>
#include <utility>
#include <vector>

#include "tools/report/analysis.h"

namespace fracgpu::tools::report {

// The order for choosing peaks. A pool takes memory a moment before it hands it to the program. So
// among moments with the same memory taken, the one with the most live memory wins.
inline bool is_greater(const Sums& one, const Sums& other) {
  return one.taken > other.taken || (one.taken == other.taken && one.live > other.live);
}

// The value at one moment, at the cost of one copy at its first change after that moment. The
// caller numbers the moments. Only the last moment can be queried.
template <typename Value>
class AtMoment {
 public:
  void before_change(uint64_t moment, const Value& now) {
    if (moment_ == moment) return;
    moment_ = moment;
    then_ = now;
  }
  const Value& at(uint64_t moment, const Value& now) const {
    return moment_ == moment ? then_ : now;
  }

 private:
  uint64_t moment_ = 0;
  Value then_{};
};

// `Stretch` is a Point or a Moment.
template <typename Stretch>
class Timeline {
 public:
  explicit Timeline(size_t most) : most_(std::max<size_t>(most, 2)) {}

  // The beginning and the end of the stretch that contains this time.
  uint64_t begin_of(uint64_t time_ns) const { return time_ns / width_ns_ * width_ns_; }
  uint64_t end_of(uint64_t time_ns) const { return begin_of(time_ns) + width_ns_; }

  // Call in order of time.
  void add(Stretch stretch) {
    stretches_.push_back(std::move(stretch));
    while (stretches_.size() > most_) merge_pairs();
  }

  std::vector<Stretch> take() { return std::move(stretches_); }

 private:
  void merge_pairs() {
    width_ns_ *= 2;
    size_t kept = 0;
    for (size_t i = 1; i < stretches_.size(); ++i) {
      Stretch& last = stretches_[kept];
      Stretch& next = stretches_[i];
      if (begin_of(last.time_ns) != begin_of(next.time_ns)) {
        if (++kept != i) stretches_[kept] = std::move(next);
      } else if (is_greater(next.sums, last.sums)) {
        last = std::move(next);
      }
    }
    stretches_.resize(kept + 1);
  }

  size_t most_;
  uint64_t width_ns_ = 1024;
  std::vector<Stretch> stretches_;
};

}  // namespace fracgpu::tools::report
