#include "tests/hardware/report.h"

#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <istream>
#include <set>

namespace hardware {
namespace {

constexpr const char* kFormat = "fracgpu-hardware-report/1";
constexpr const char* kSealed = "\n \"seal\": ";

// FNV-1a.
std::string seal_of(std::string_view text) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  char digits[17];
  std::snprintf(digits, sizeof digits, "%016llx", static_cast<unsigned long long>(hash));
  return digits;
}

// A median for numbers; of other values that differ, all of them.
Json combined(const std::vector<Json>& values) {
  std::vector<double> numbers;
  for (const Json& value : values) {
    if (value.kind == Json::Kind::number) numbers.push_back(value.number);
  }
  if (numbers.empty()) return values.back();
  std::sort(numbers.begin(), numbers.end());
  Json middle;
  middle.kind = Json::Kind::number;
  const size_t half = numbers.size() / 2;
  middle.number = numbers.size() % 2 != 0 ? numbers[half] : (numbers[half - 1] + numbers[half]) / 2;
  return middle;
}

void add_ratios(Facts* facts) {
  static const std::string kWith = "time.library.", kWithout = "time.plain.";
  for (const auto& [key, value] : std::map<std::string, Json>(facts->value)) {
    if (key.rfind(kWith, 0) != 0) continue;
    std::string name = key.substr(kWith.size());
    const auto plain = facts->value.find(kWithout + name);
    name = "time." + name.substr(0, name.rfind("_us")) + "_ratio";
    if (plain == facts->value.end() || plain->second.number <= 0) {
      facts->reason[name] = "there is no time without the library";
      continue;
    }
    Json ratio;
    ratio.kind = Json::Kind::number;
    // Three digits: more is noise, and what is written must be read back as the same.
    ratio.number =
        static_cast<double>(static_cast<int64_t>(value.number / plain->second.number * 1000)) /
        1000;
    facts->value[name] = ratio;
  }
}

std::string in_units(const std::string& key, const Json& value) {
  if (value.kind != Json::Kind::number) return value.plain();
  const bool bytes = key.size() > 6 && key.compare(key.size() - 6, 6, "_bytes") == 0;
  const bool memory = bytes || key.rfind("memory.", 0) == 0;
  if (!memory || value.number < 1048576) return written(value.number);
  char text[40];
  std::snprintf(text, sizeof text, "%.1f MiB", value.number / 1048576);
  return text;
}

// A cell of a table holds no bar and no line's end.
std::string cell(std::string text) {
  for (char& c : text) {
    if (c == '|' || c == '\n') c = ' ';
  }
  return text;
}

struct Count {
  int as_assumed = 0, safe = 0, wrong = 0, not_measured = 0;
};

Count count(const Facts& facts) {
  Count found;
  for (const Assumption& assumption : assumptions()) {
    switch (judge(assumption, facts).kind) {
      case Verdict::Kind::as_assumed:
        ++found.as_assumed;
        break;
      case Verdict::Kind::safe:
        ++found.safe;
        break;
      case Verdict::Kind::wrong:
        ++found.wrong;
        break;
      case Verdict::Kind::not_measured:
        ++found.not_measured;
    }
  }
  return found;
}

std::string row(const Assumption& assumption, const Facts& facts, const Verdict& verdict) {
  const auto value = facts.value.find(assumption.key);
  const std::string measured =
      value != facts.value.end() ? in_units(assumption.key, value->second) : "";
  return "| " + cell(verdict.text()) + " | " + assumption.question + " (`" + assumption.key +
         "`) | " + cell(measured) + " | " + assumption.assumed + " | `" + assumption.where +
         "`: " + assumption.relies + " |\n";
}

constexpr const char* kHead =
    "| verdict | question | measured | assumed | who relies on it |\n|---|---|---|---|---|\n";

}  // namespace

Facts read_facts(std::istream& lines) {
  Facts facts;
  std::map<std::string, std::vector<Json>> values;
  for (std::string line; std::getline(lines, line);) {
    Json read;
    if (!parse_json(line, &read)) continue;
    const Json* key = read.find("key");
    const Json* value = read.find("value");
    const Json* reason = read.find("reason");
    if (key == nullptr || key->kind != Json::Kind::text) continue;
    if (value != nullptr) values[key->text].push_back(*value);
    if (reason != nullptr) facts.reason[key->text] = reason->plain();
  }
  for (const auto& [key, all] : values) {
    Json value = combined(all);
    // As it will be read back from the report.
    if (value.kind == Json::Kind::number) parse_json(written(value.number), &value);
    facts.value[key] = value;
    facts.reason.erase(key);
  }
  add_ratios(&facts);
  return facts;
}

std::string report_json(const Facts& facts) {
  const Count found = count(facts);
  std::string out =
      "{\"format\": " + quoted(kFormat) +
      ",\n \"summary\": {\"as assumed\": " + std::to_string(found.as_assumed) +
      ", \"safe\": " + std::to_string(found.safe) + ", \"WRONG\": " + std::to_string(found.wrong) +
      ", \"not measured\": " + std::to_string(found.not_measured) + "},\n \"facts\": {";
  const char* comma = "\n  ";
  for (const auto& [key, value] : facts.value) {
    out += comma + quoted(key) + ": " + written(value);
    comma = ",\n  ";
  }
  out += "},\n \"not_measured\": {";
  comma = "\n  ";
  for (const auto& [key, reason] : facts.reason) {
    out += comma + quoted(key) + ": " + quoted(reason);
    comma = ",\n  ";
  }
  out += "},\n \"verdicts\": {";
  comma = "\n  ";
  for (const Assumption& assumption : assumptions()) {
    out += comma + quoted(assumption.key) +
           ": {\"verdict\": " + quoted(judge(assumption, facts).text()) +
           ", \"assumed\": " + quoted(assumption.assumed) +
           ", \"safe\": " + quoted(assumption.safe) + ", \"where\": " + quoted(assumption.where) +
           "}";
    comma = ",\n  ";
  }
  out += "},";
  return out + kSealed + quoted(seal_of(out)) + "}\n";
}

std::string report_page(const Facts& facts) {
  const Count found = count(facts);
  const auto text = [&](const char* key) {
    const auto value = facts.value.find(key);
    return value != facts.value.end() ? in_units(key, value->second) : "not known";
  };
  std::string out = "# Acceptance run of fracgpu\n\n";
  if (facts.value.count("run.simulated") != 0) {
    out += "**On a simulated node**: this says nothing of real hardware.\n\n";
  }
  out += "| | |\n|---|---|\n";
  for (const auto& [label, key] : {std::pair{"time", "run.time"},
                                   {"GPU", "gpu.name"},
                                   {"driver", "driver.version"},
                                   {"CUDA", "driver.cuda_version"},
                                   {"kernel modules", "driver.module_flavour"},
                                   {"PID namespace", "pid_namespace"},
                                   {"AMD's kernel driver", "amd.kernel_driver"},
                                   {"cap", "run.cap_bytes"},
                                   {"processes on the GPU before", "gpu.processes_before"}}) {
    if (facts.value.count(key) != 0) {
      out += std::string("| ") + label + " | " + cell(text(key)) + " |\n";
    }
  }
  out += "\n" + std::to_string(found.wrong) + " WRONG, " + std::to_string(found.safe) + " safe, " +
         std::to_string(found.as_assumed) + " as assumed, " + std::to_string(found.not_measured) +
         " not measured. *As assumed*: the driver does what the library counts on. *Safe*: it does "
         "something else, and the cap and the program are none the worse. *WRONG*: the library "
         "must be changed.\n";
  const std::pair<Verdict::Kind, const char*> kParts[] = {
      {Verdict::Kind::wrong, "WRONG"},
      {Verdict::Kind::safe, "Safe"},
      {Verdict::Kind::as_assumed, "As assumed"},
      {Verdict::Kind::not_measured, "Not measured"}};
  std::set<std::string> judged;
  for (const auto& [kind, heading] : kParts) {
    std::string rows;
    for (const Assumption& assumption : assumptions()) {
      judged.insert(assumption.key);
      const Verdict verdict = judge(assumption, facts);
      if (verdict.kind == kind) rows += row(assumption, facts, verdict);
    }
    if (!rows.empty()) out += std::string("\n## ") + heading + "\n\n" + kHead + rows;
  }
  out += "\n## Also measured\n\n| | |\n|---|---|\n";
  for (const auto& [key, value] : facts.value) {
    if (judged.count(key) == 0) {
      out += "| `" + key + "` | " + cell(in_units(key, value)) + " |\n";
    }
  }
  for (const auto& [key, reason] : facts.reason) {
    if (judged.count(key) == 0 && facts.value.count(key) == 0) {
      out += "| `" + key + "` | not measured: " + cell(reason) + " |\n";
    }
  }
  return out;
}

int wrong_verdicts(const Facts& facts) {
  return count(facts).wrong;
}

bool read_report(const std::string& text, Facts* facts, std::string* why) {
  *facts = {};
  Json report;
  const Json* format = nullptr;
  *why = "it is no report of tests/hardware.sh";
  if (!parse_json(text, &report) || (format = report.find("format")) == nullptr) return false;
  if (format->plain() != kFormat) {
    *why = "its format is '" + format->plain() + "'; accepted: " + kFormat;
    return false;
  }
  const size_t sealed = text.rfind(kSealed);
  const Json* seal = report.find("seal");
  *why = "it was changed after it was made: its seal does not fit; run tests/hardware.sh again";
  if (sealed == text.npos || seal == nullptr || seal->plain() != seal_of(text.substr(0, sealed))) {
    return false;
  }
  const Json* measured = report.find("facts");
  const Json* missing = report.find("not_measured");
  const Json* verdicts = report.find("verdicts");
  *why = "it lacks facts or verdicts";
  if (measured == nullptr || missing == nullptr || verdicts == nullptr) return false;
  for (const auto& [key, value] : measured->members) facts->value[key] = value;
  for (const auto& [key, reason] : missing->members) facts->reason[key] = reason.plain();
  for (const Assumption& assumption : assumptions()) {
    const Json* verdict = verdicts->find(assumption.key);
    // A report of an older tree knows fewer of them.
    if (verdict == nullptr) continue;
    const Json* said = verdict->find("verdict");
    const Json* assumed = verdict->find("assumed");
    const Json* safe = verdict->find("safe");
    if (said == nullptr || assumed == nullptr || safe == nullptr) return false;
    if (assumed->plain() != assumption.assumed || safe->plain() != assumption.safe) continue;
    if (said->plain() == judge(assumption, *facts).text()) continue;
    *why = std::string("its verdict on ") + assumption.key + ", '" + said->plain() +
           "', is not that of its facts: '" + judge(assumption, *facts).text() + "'";
    return false;
  }
  return true;
}

}  // namespace hardware
