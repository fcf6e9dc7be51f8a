// What the library assumes of a driver, as rows of assumptions.inc, and how a measured value is
// judged by them.
//
// A rule is a few words:
//   anything         every value
//   never            no value
//   is A or B        one of these texts
//   = N, <= N, >= N  a number
//   as KEY           the same as another fact
//   <= KEY           at most another fact
//   if KEY or KEY    one of these other facts was measured, and none is WRONG
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/hardware/json.h"

namespace hardware {

struct Assumption {
  const char* key;
  const char* assumed;  // the rule by which a value is "as assumed"
  const char* safe;     // else the one by which the cap and the program are safe nevertheless
  const char* question;
  const char* where;   // the file of the library that relies on it
  const char* relies;  // how
};

const std::vector<Assumption>& assumptions();

// All that was measured. A key that was measured several times has its median.
struct Facts {
  std::map<std::string, Json> value;
  // Of what was not measured. A key that ends in '*' stands for all that begin so.
  std::map<std::string, std::string> reason;
};

struct Verdict {
  enum class Kind { as_assumed, safe, wrong, not_measured };
  Kind kind = Kind::not_measured;
  std::string reason;  // of not_measured
  // "as assumed", "safe", "WRONG" or "not measured: …"
  std::string text() const;
};

Verdict judge(const Assumption& assumption, const Facts& facts);

}  // namespace hardware
