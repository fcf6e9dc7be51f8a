// Prometheus' text format: families of samples and how they are written.
//
// Written here instead of using prometheus-cpp: Debian has that as shared libraries only, and the
// command is one file that must start on every host and in every container, wherever it is copied.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace fracgpu::tools {

using Labels = std::vector<std::pair<const char*, std::string>>;

// All samples of one metric. A family without samples is written too, so that readers see that the
// metric exists.
class Family {
 public:
  enum class Type { gauge, counter };
  Family(const char* name, Type type, const char* help) : name_(name), type_(type), help_(help) {}

  // If several samples have the same labels, the first one counts: Prometheus rejects a whole page
  // that has one twice, and other programs may write anything into a ledger.
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
