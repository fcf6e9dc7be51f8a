#include "tests/hardware/json.h"

#include <cmath>
#include <cstdio>
#include <cstdlib>

namespace hardware {
namespace {

constexpr int kDeepest = 64;

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) {}

  bool whole(Json* value) {
    if (!read(value, 0)) return false;
    skip();
    return at_ == text_.size();
  }

 private:
  void skip() {
    while (at_ < text_.size() && std::string_view(" \t\r\n").find(text_[at_]) != text_.npos) ++at_;
  }

  bool take(std::string_view word) {
    skip();
    if (text_.substr(at_, word.size()) != word) return false;
    at_ += word.size();
    return true;
  }

  bool read(Json* value, int depth) {
    if (depth > kDeepest) return false;
    if (take("{")) return read_members(value, Json::Kind::object, '}', depth);
    if (take("[")) return read_members(value, Json::Kind::list, ']', depth);
    skip();
    if (at_ < text_.size() && text_[at_] == '"') {
      value->kind = Json::Kind::text;
      return read_text(&value->text);
    }
    if (take("null")) return true;
    for (const bool truth : {true, false}) {
      if (!take(truth ? "true" : "false")) continue;
      value->kind = Json::Kind::boolean;
      value->boolean = truth;
      return true;
    }
    return read_number(value);
  }

  bool read_members(Json* value, Json::Kind kind, char end, int depth) {
    value->kind = kind;
    const std::string_view close(&end, 1);
    if (take(close)) return true;
    do {
      std::string name;
      skip();
      if (kind == Json::Kind::object && (!read_text(&name) || !take(":"))) return false;
      Json member;
      if (!read(&member, depth + 1)) return false;
      value->members.emplace_back(std::move(name), std::move(member));
    } while (take(","));
    return take(close);
  }

  bool read_text(std::string* out) {
    if (at_ >= text_.size() || text_[at_] != '"') return false;
    for (++at_; at_ < text_.size() && text_[at_] != '"'; ++at_) {
      char next = text_[at_];
      if (static_cast<unsigned char>(next) < 0x20) return false;
      if (next == '\\') {
        if (++at_ >= text_.size()) return false;
        static constexpr std::string_view kNames = "\"\\/bfnrt", kMeant = "\"\\/\b\f\n\r\t";
        if (text_[at_] == 'u') {
          // Only what quoted() writes: control characters.
          if (at_ + 4 >= text_.size()) return false;
          next = static_cast<char>(
              std::strtoul(std::string(text_.substr(at_ + 1, 4)).c_str(), nullptr, 16));
          at_ += 4;
        } else {
          const size_t which = kNames.find(text_[at_]);
          if (which == kNames.npos) return false;
          next = kMeant[which];
        }
      }
      *out += next;
    }
    return at_++ < text_.size();
  }

  bool read_number(Json* value) {
    const size_t end = text_.find_first_not_of("+-.0123456789eE", at_);
    const std::string digits(text_.substr(at_, end == text_.npos ? text_.npos : end - at_));
    char* stop = nullptr;
    value->kind = Json::Kind::number;
    value->number = std::strtod(digits.c_str(), &stop);
    at_ += digits.size();
    return !digits.empty() && *stop == '\0' && std::isfinite(value->number);
  }

  std::string_view text_;
  size_t at_ = 0;
};

}  // namespace

const Json* Json::find(std::string_view name) const {
  for (const auto& [key, member] : members) {
    if (key == name) return &member;
  }
  return nullptr;
}

const Json* Json::at(std::initializer_list<std::string_view> path) const {
  const Json* here = this;
  for (const std::string_view step : path) {
    if (here->kind == Kind::list) {
      const size_t index = std::strtoul(std::string(step).c_str(), nullptr, 10);
      here = index < here->members.size() ? &here->members[index].second : nullptr;
    } else {
      here = here->find(step);
    }
    if (here == nullptr) return nullptr;
  }
  return here;
}

std::string Json::plain() const {
  return kind == Kind::text ? text : written(*this);
}

bool parse_json(std::string_view text, Json* value) {
  *value = {};
  return Parser(text).whole(value);
}

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (static_cast<unsigned char>(c) < 0x20) {
      char escape[8];
      std::snprintf(escape, sizeof escape, "\\u%04x", static_cast<unsigned>(c));
      out += escape;
    } else {
      if (c == '"' || c == '\\') out += '\\';
      out += c;
    }
  }
  return out + "\"";
}

std::string written(double number) {
  char text[40];
  const bool whole = number == std::floor(number) && std::fabs(number) < 1e15;
  std::snprintf(text, sizeof text, whole ? "%.0f" : "%.6g", number);
  return text;
}

std::string written(const Json& value) {
  switch (value.kind) {
    case Json::Kind::boolean:
      return value.boolean ? "true" : "false";
    case Json::Kind::number:
      return written(value.number);
    case Json::Kind::text:
      return quoted(value.text);
    default:
      return "null";
  }
}

}  // namespace hardware
