// Compares our declarations with a vendor's at compile time.
//
// The vendor's header is included inside a namespace whose surroundings declare every judged name
// once more, as something Absent: a name that this version of the header lacks is then found out
// there, and is counted instead of being an error.
#pragma once

#include <algorithm>
#include <array>
#include <cstddef>
#include <cstdio>
#include <limits>
#include <string_view>
#include <type_traits>

namespace fracgpu::abi {

struct Absent {};

template <typename T>
inline constexpr bool is_absent = std::is_base_of_v<Absent, std::remove_cv_t<T>>;

// Which versions of a vendor's header must declare a function, as the column of its row says; the
// forms are explained in hooks/function_table.py. The unit is the header's own version number.
struct Since {
  int first;          // the version that brought it, or the oldest known to have it
  bool exact = true;  // false: older ones may have it too
  int declared_from = first;
  int gone_from = std::numeric_limits<int>::max();

  constexpr Since(int version) : first(version) {}  // a row holds a bare number
  constexpr Since declared(int version) const {
    Since result = *this;
    result.declared_from = version;
    return result;
  }
  constexpr Since undeclared() const { return declared(std::numeric_limits<int>::max()); }
  constexpr Since until(int version) const {
    Since result = *this;
    result.gone_from = version;
    return result;
  }
};
constexpr Since since(int version) {
  return version;
}
constexpr Since by(int version) {
  Since result = version;
  result.exact = false;
  return result;
}

// A type or a constant that not every served version of the header has, and one that has it.
struct Later {
  std::string_view name;
  int version;
};

template <typename T>
inline constexpr bool is_number = std::is_integral_v<T> || std::is_enum_v<T>;

// Integers must agree in signedness too, except where the vendor has an enum: for those we write
// int.
template <typename Ours, typename Theirs>
constexpr bool same_number() {
  if constexpr (!is_number<Ours> || !is_number<Theirs>) {
    return false;
  } else if constexpr (std::is_enum_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs);
  } else {
    return sizeof(Ours) == sizeof(Theirs) && std::is_signed_v<Ours> == std::is_signed_v<Theirs>;
  }
}

template <typename T>
concept Complete = requires {
  sizeof(T);
};

// Whether a value of one type is passed and stored as the other is. Our `void*` may stand for any
// pointer, and our incomplete structs for any handle.
template <typename Ours, typename Theirs>
constexpr bool same_value() {
  if constexpr (std::is_void_v<Ours> && std::is_void_v<Theirs>) {
    return true;
  } else if constexpr (std::is_const_v<Ours> != std::is_const_v<Theirs>) {
    return false;
  } else if constexpr (std::is_pointer_v<Ours> && std::is_pointer_v<Theirs>) {
    using OurTarget = std::remove_pointer_t<Ours>;
    using TheirTarget = std::remove_pointer_t<Theirs>;
    if constexpr (std::is_void_v<OurTarget>) {
      return std::is_const_v<OurTarget> == std::is_const_v<TheirTarget>;
    } else {
      return same_value<OurTarget, TheirTarget>();
    }
  } else if constexpr (std::is_array_v<Ours> && std::is_array_v<Theirs>) {
    return sizeof(Ours) == sizeof(Theirs) &&
           same_value<std::remove_extent_t<Ours>, std::remove_extent_t<Theirs>>();
  } else if constexpr ((std::is_class_v<Ours> && std::is_class_v<Theirs>) ||
                       (std::is_union_v<Ours> && std::is_union_v<Theirs>)) {
    if constexpr (Complete<Ours> && Complete<Theirs>) {
      return sizeof(Ours) == sizeof(Theirs) && alignof(Ours) == alignof(Theirs);
    } else {
      return !Complete<Ours>;
    }
  } else {
    return same_number<std::remove_cv_t<Ours>, std::remove_cv_t<Theirs>>();
  }
}

// Instantiated per type, so that the compiler's message names both.
template <typename Ours, typename Theirs>
constexpr bool type_agrees() {
  static_assert(same_value<Ours, Theirs>(), "our type differs from the vendor's");
  return same_value<Ours, Theirs>();
}

template <typename OurResult, typename... Ours, typename TheirResult, typename... Theirs>
constexpr bool functions_agree(OurResult (*)(Ours...), TheirResult (*)(Theirs...)) {
  static_assert(sizeof...(Ours) == sizeof...(Theirs), "the vendor's has more or fewer parameters");
  if constexpr (sizeof...(Ours) == sizeof...(Theirs)) {
    return type_agrees<OurResult, TheirResult>() && (type_agrees<Ours, Theirs>() && ... && true);
  }
  return false;
}

// What has become of one name of ours.
enum class Verdict { agrees, absent, differs, absent_unexpectedly, early };

template <typename Ours, typename Theirs>
constexpr Verdict judge_function(const Theirs& theirs) {
  if constexpr (is_absent<Theirs>) {
    return Verdict::absent;
  } else {
    return functions_agree(static_cast<Ours*>(nullptr), &theirs) ? Verdict::agrees
                                                                 : Verdict::differs;
  }
}

template <typename Ours, typename Theirs>
constexpr Verdict judge_constant(Ours ours, Theirs theirs) {
  if constexpr (is_absent<Theirs>) {
    return Verdict::absent;
  } else {
    return static_cast<Ours>(theirs) == ours ? Verdict::agrees : Verdict::differs;
  }
}

template <typename Ours, typename Theirs>
constexpr Verdict judge_type() {
  if constexpr (is_absent<Theirs>) {
    return Verdict::absent;
  } else {
    return type_agrees<Ours, Theirs>() ? Verdict::agrees : Verdict::differs;
  }
}

// The version says whether a name may be absent, so that a misspelt one is not passed over, and
// whether it may be there already, so that the row's version is judged too.
constexpr Verdict explained(Verdict verdict, int version, const Since& since) {
  if (verdict != Verdict::absent) {
    return since.exact && version < since.first ? Verdict::early : verdict;
  }
  const bool expected = version < since.declared_from || version >= since.gone_from;
  return expected ? Verdict::absent : Verdict::absent_unexpectedly;
}

// The same of a type or a constant, which is in every served version unless `later` has it.
template <size_t N>
constexpr Verdict explained(Verdict verdict, int version, std::string_view name,
                            const std::array<Later, N>& later) {
  const auto found =
      std::find_if(later.begin(), later.end(), [&](const Later& row) { return row.name == name; });
  return explained(verdict, version,
                   by(found == later.end() ? std::numeric_limits<int>::min() : found->version));
}

struct Row {
  const char* kind;
  const char* name;
  Verdict verdict;
};

// Says what was judged. Differences never get here: they do not compile.
template <size_t N>
int report(const char* header, const Row (&rows)[N]) {
  const auto absent =
      std::count_if(rows, rows + N, [](const Row& row) { return row.verdict == Verdict::absent; });
  std::printf("%s: %zu declarations agree, %zu are absent from this version\n", header,
              N - static_cast<size_t>(absent), static_cast<size_t>(absent));
  for (const Row& row : rows) {
    if (row.verdict == Verdict::absent) std::printf("  absent: %s %s\n", row.kind, row.name);
  }
  return 0;
}

}  // namespace fracgpu::abi

// The text of a name after the preprocessor had it: another one where a header renames by macro.
#define ABI_TEXT(name) ABI_TEXT_OF(name)
#define ABI_TEXT_OF(name) #name
