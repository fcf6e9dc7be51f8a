// See json.h.
#include "tools/cli/json.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <stdexcept>
#include <utility>

namespace fracgpu::tools {
Json::Json(std::nullptr_t) {}
Json::Json(bool value) : type_(Type::boolean), bits_(value) {}
Json::Json(double value) : type_(Type::real), real_(value) {}
Json::Json(const char* text) : type_(Type::string), text_(text) {}
Json::Json(std::string_view text) : type_(Type::string), text_(text) {}
Json::Json(std::string text) : type_(Type::string), text_(std::move(text)) {}

Json::Json(std::initializer_list<Member> members) : type_(Type::object) {
  for (const Member& member : members) {
    keys_.emplace_back(member.key);
    items_.push_back(member.value);
  }
}

Json Json::object() {
  Json object;
  object.type_ = Type::object;
  return object;
}

Json Json::array() {
  Json array;
  array.type_ = Type::array;
  return array;
}

Json Json::array(std::initializer_list<Json> items) {
  Json all = array();
  all.items_ = items;
  return all;
}

Json Json::array(const std::vector<std::string>& texts) {
  Json all = array();
  for (const std::string& text : texts) all.push_back(text);
  return all;
}

Json::Json(const Json& other) = default;
Json::Json(Json&& other) noexcept = default;
Json& Json::operator=(const Json& other) = default;
Json& Json::operator=(Json&& other) noexcept = default;
Json::~Json() = default;

void Json::push_back(Json item) {
  items_.push_back(std::move(item));
}

Json& Json::operator[](std::string_view key) {
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  if (found != keys_.end()) return items_[static_cast<size_t>(found - keys_.begin())];
  keys_.emplace_back(key);
  return items_.emplace_back();
}

const Json& Json::operator[](std::string_view key) const {
  static const Json kNull;
  const auto found = std::find(keys_.begin(), keys_.end(), key);
  return found == keys_.end() ? kNull : items_[static_cast<size_t>(found - keys_.begin())];
}

bool Json::contains(std::string_view key) const {
  return std::find(keys_.begin(), keys_.end(), key) != keys_.end();
}

std::string Json::value(std::string_view key, std::string_view otherwise) const {
  const Json& member = (*this)[key];
  return member.is_string() ? member.text_ : std::string(otherwise);
}

bool Json::value(std::string_view key, bool otherwise) const {
  const Json& member = (*this)[key];
  return member.type_ == Type::boolean ? member.bits_ != 0 : otherwise;
}

const Json& Json::at(std::string_view key) const {
  if (contains(key)) return (*this)[key];
  throw std::runtime_error("key '" + std::string(key) + "' not found");
}

const std::string& Json::text() const {
  if (is_string()) return text_;
  throw std::runtime_error("type must be string");
}

struct Json::Library {
  using Value = nlohmann::ordered_json;

  static Json from(const Value& value) {
    switch (value.type()) {
      case Value::value_t::boolean:
        return value.get<bool>();
      case Value::value_t::number_integer:
        return value.get<int64_t>();
      case Value::value_t::number_unsigned:
        return value.get<uint64_t>();
      case Value::value_t::number_float:
        return value.get<double>();
      case Value::value_t::string:
        return value.get_ref<const std::string&>();
      case Value::value_t::array: {
        Json all = array();
        for (const Value& item : value) all.push_back(from(item));
        return all;
      }
      case Value::value_t::object: {
        Json all = object();
        for (const auto& [key, member] : value.items()) all[key] = from(member);
        return all;
      }
      default:
        return nullptr;
    }
  }

  static Value to(const Json& json) {
    switch (json.type_) {
      case Type::boolean:
        return json.bits_ != 0;
      case Type::negative_too:
        return static_cast<int64_t>(json.bits_);
      case Type::natural:
        return json.bits_;
      case Type::real:
        return json.real_;
      case Type::string:
        return json.text_;
      case Type::array: {
        Value all = Value::array();
        for (const Json& item : json.items_) all.push_back(to(item));
        return all;
      }
      case Type::object: {
        Value all = Value::object();
        for (size_t i = 0; i < json.items_.size(); ++i) {
          all.push_back({json.keys_[i], to(json.items_[i])});
        }
        return all;
      }
      case Type::null:
        break;
    }
    return nullptr;
  }
};

Json Json::parse(std::string_view text) {
  try {
    return Library::from(Library::Value::parse(text));
  } catch (const nlohmann::json::exception& error) {
    throw std::runtime_error(error.what());
  }
}

std::string Json::dump() const {
  return Library::to(*this).dump(2);
}

std::string Json::dump_ascii(int indent) const {
  return Library::to(*this).dump(indent, ' ', true, Library::Value::error_handler_t::replace);
}

}  // namespace fracgpu::tools
