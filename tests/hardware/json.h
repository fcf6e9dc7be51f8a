// The little of JSON that the acceptance run needs: lines of facts, the ledger as `fracgpu status
// --json` prints it, and the report.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace hardware {

struct Json {
  enum class Kind { null, boolean, number, text, list, object };

  Kind kind = Kind::null;
  bool boolean = false;
  double number = 0;
  std::string text;
  std::vector<std::pair<std::string, Json>> members;  // of a list without names

  // The member of this name, or null.
  const Json* find(std::string_view name) const;
  // A path of names and indices: at({"tenants", "0"}). Null when there is no such thing.
  const Json* at(std::initializer_list<std::string_view> path) const;
  // As the report and its rules write it: text as it is, whole numbers without a point.
  std::string plain() const;
};

// False when it is not one whole value of JSON.
bool parse_json(std::string_view text, Json* value);

std::string quoted(std::string_view text);
// A number as JSON and the rules write it.
std::string written(double number);
std::string written(const Json& value);

}  // namespace hardware
