// A JSON value: subcommands build it for programs, and read it from probes and container engines.
// Only json.cc includes nlohmann-json, which writes and parses the text. Building values with its
// templates would cost each file seconds of compilation.
#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <string_view>
#include <vector>

namespace fracgpu::tools {

class Json {
 public:
  struct Member;

  Json(std::nullptr_t = nullptr);
  Json(bool value);
  Json(double value);
  Json(const char* text);
  Json(std::string_view text);
  Json(std::string text);
  template <std::integral Number>
  Json(Number number)
      : type_(std::signed_integral<Number> ? Type::negative_too : Type::natural),
        bits_(static_cast<uint64_t>(number)) {}
  // An object; the members keep their order: {{"tenant", name}, {"used_bytes", used}}.
  Json(std::initializer_list<Member> members);

  static Json object();
  static Json array();
  static Json array(std::initializer_list<Json> items);
  static Json array(const std::vector<std::string>& texts);

  Json(const Json& other);
  Json(Json&& other) noexcept;
  Json& operator=(const Json& other);
  Json& operator=(Json&& other) noexcept;
  ~Json();

  bool is_null() const { return type_ == Type::null; }
  bool is_array() const { return type_ == Type::array; }
  bool is_object() const { return type_ == Type::object; }
  bool is_string() const { return type_ == Type::string; }

  // The items of an array, or the values of an object.
  const std::vector<Json>& items() const { return items_; }
  std::vector<Json>::const_iterator begin() const { return items_.begin(); }
  std::vector<Json>::const_iterator end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  // The keys of an object, in the order of its values.
  const std::vector<std::string>& keys() const { return keys_; }

  void push_back(Json item);                           // to an array
  Json& back() { return items_.back(); }               // of one that is not empty
  Json& operator[](std::string_view key);              // of an object; adds null if there is none
  const Json& operator[](std::string_view key) const;  // null if there is none
  bool contains(std::string_view key) const;

  // A member of an object, or `otherwise` if there is no member of this type.
  std::string value(std::string_view key, std::string_view otherwise) const;
  std::string value(std::string_view key, const char* otherwise) const {
    return value(key, std::string_view(otherwise));  // which the compiler would convert to bool
  }
  bool value(std::string_view key, bool otherwise) const;
  template <std::integral Number>
  Number value(std::string_view key, Number otherwise) const {
    const Json& member = (*this)[key];
    return member.is_integer() ? member.as<Number>() : otherwise;
  }

  // The value of an integer; 0 for anything else.
  template <std::integral Number>
  Number as() const {
    return static_cast<Number>(bits_);
  }

  // Throw std::runtime_error with one line if there is no such member, or if it is not a text.
  const Json& at(std::string_view key) const;
  const std::string& text() const;

  // Throws std::runtime_error, with the place of the error, if the text is not JSON.
  static Json parse(std::string_view text);

  // Indented by two blanks. Throws if a text is not UTF-8.
  std::string dump() const;
  // Only ASCII, with replacements if a text is not UTF-8. `indent` < 0: on one line.
  std::string dump_ascii(int indent) const;

 private:
  enum class Type { null, boolean, negative_too, natural, real, string, array, object };
  struct Library;  // the nlohmann-json side

  bool is_integer() const { return type_ == Type::negative_too || type_ == Type::natural; }

  Type type_ = Type::null;
  uint64_t bits_ = 0;  // a boolean or an integer, in two's complement
  double real_ = 0;
  std::string text_{};
  std::vector<Json> items_{};
  std::vector<std::string> keys_{};
};

struct Json::Member {
  std::string_view key;
  Json value;
};

}  // namespace fracgpu::tools
