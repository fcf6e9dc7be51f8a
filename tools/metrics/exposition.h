// Prometheus' text format: families of samples and how they are written.
//
// Written here and not by prometheus-cpp: Debian has that as shared libraries only, and the command
// is one file that must start on every host and in every container, wherever it is copied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fracgpu::tools {

using Labels = std::vector<std::pair<const char*, std::string>>;

// All samples of one metric. One without samples is written too, so that it can be known.
class Family {
 public:
  enum class Type { gauge, counter };
  Family(const char* name, Type type, const char* help) : name_(name), type_(type), help_(help) {}

  // Of several with the same labels the first counts: Prometheus takes nothing at all from a page
  // that has one twice, and what others wrote into a ledger may be anything.
  void add(const Labels& labels, uint64_t value);
  void add(const Labels& labels, double value);

  std::string text() const;

 private:
  void add_sample(const Labels& labels, const std::string& value);

  const char* name_;
  Type type_;
  const char* help_;
  std::map<std::string, std::string> samples_{};  // by their labels, as written
};

}  // namespace fracgpu::tools
