#include "tests/hardware/rules.h"

#include <cstdlib>
#include <sstream>

namespace hardware {
namespace {

constexpr int kDeepest = 8;  // of rules that rest on others

Verdict judge_at(const Assumption& assumption, const Facts& facts, int depth);

const Assumption* find(const std::string& key) {
  for (const Assumption& each : assumptions()) {
    if (key == each.key) return &each;
  }
  return nullptr;
}

// "1048576", or another fact.
bool number_of(const std::string& word, const Facts& facts, double* number) {
  char* end = nullptr;
  *number = std::strtod(word.c_str(), &end);
  if (end != word.c_str() && *end == '\0') return true;
  const auto found = facts.value.find(word);
  if (found == facts.value.end() || found->second.kind != Json::Kind::number) return false;
  *number = found->second.number;
  return true;
}

// The reason given for just this key, or for the longest beginning of it.
std::string reason_of(const std::string& key, const Facts& facts) {
  if (const auto own = facts.reason.find(key); own != facts.reason.end()) return own->second;
  std::string reason = "its step did not tell; the log has more";
  size_t longest = 0;
  for (const auto& [pattern, text] : facts.reason) {
    if (pattern.empty() || pattern.back() != '*' || pattern.size() <= longest) continue;
    if (key.compare(0, pattern.size() - 1, pattern, 0, pattern.size() - 1) != 0) continue;
    longest = pattern.size();
    reason = text;
  }
  return reason;
}

enum class Answer { yes, no, unknown };

Answer holds(const std::string& rule, const Json& value, const Facts& facts, int depth,
             std::string* why) {
  std::istringstream words(rule);
  std::string verb, word;
  words >> verb;
  if (verb == "anything") return Answer::yes;
  if (verb == "never") return Answer::no;
  if (verb == "is") {
    while (words >> word) {
      if (word != "or" && word == value.plain()) return Answer::yes;
    }
    return Answer::no;
  }
  words >> word;
  if (verb == "as") {
    const auto found = facts.value.find(word);
    *why = word + " was not measured";
    if (found == facts.value.end()) return Answer::unknown;
    return found->second.plain() == value.plain() ? Answer::yes : Answer::no;
  }
  if (verb == "if") {
    *why = "whether it is safe rests on " + word + ", which was not measured";
    Answer answer = Answer::unknown;
    do {
      const Assumption* other = find(word);
      if (other == nullptr || depth >= kDeepest) continue;
      const Verdict verdict = judge_at(*other, facts, depth + 1);
      if (verdict.kind == Verdict::Kind::wrong) return Answer::no;
      if (verdict.kind != Verdict::Kind::not_measured) answer = Answer::yes;
    } while (words >> word);
    return answer;
  }
  double bound = 0;
  *why = word + " was not measured";
  if (!number_of(word, facts, &bound)) return Answer::unknown;
  if (value.kind != Json::Kind::number) return Answer::no;
  const bool good = verb == "="    ? value.number == bound
                    : verb == "<=" ? value.number <= bound
                                   : verb == ">=" && value.number >= bound;
  return good ? Answer::yes : Answer::no;
}

Verdict judge_at(const Assumption& assumption, const Facts& facts, int depth) {
  const auto found = facts.value.find(assumption.key);
  if (found == facts.value.end()) {
    return {Verdict::Kind::not_measured, reason_of(assumption.key, facts)};
  }
  std::string why;
  for (const bool assumed : {true, false}) {
    const Answer answer =
        holds(assumed ? assumption.assumed : assumption.safe, found->second, facts, depth, &why);
    if (answer == Answer::unknown) return {Verdict::Kind::not_measured, why};
    if (answer == Answer::yes)
      return {assumed ? Verdict::Kind::as_assumed : Verdict::Kind::safe, ""};
  }
  return {Verdict::Kind::wrong, ""};
}

}  // namespace

const std::vector<Assumption>& assumptions() {
  static const std::vector<Assumption> all = {
#define ASSUME(key, assumed, safe, question, where, relies) \
  {key, assumed, safe, question, where, relies},
#include "tests/hardware/assumptions.inc"
#undef ASSUME
  };
  return all;
}

std::string Verdict::text() const {
  switch (kind) {
    case Kind::as_assumed:
      return "as assumed";
    case Kind::safe:
      return "safe";
    case Kind::wrong:
      return "WRONG";
    default:
      return "not measured: " + reason;
  }
}

Verdict judge(const Assumption& assumption, const Facts& facts) {
  return judge_at(assumption, facts, 0);
}

}  // namespace hardware
