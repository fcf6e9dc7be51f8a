// fmt's own code for the command, compiled once. With its headers alone, every file would compile
// it again. The packaged libfmt is a shared library, which the command must not need on other
// machines.
#include <fmt/format-inl.h>

FMT_BEGIN_NAMESPACE
namespace detail {

// The definitions that the headers declare `extern template` and every program may use (as fmt's
// src/format.cc).
template FMT_API auto dragonbox::to_decimal(float) noexcept -> dragonbox::decimal_fp<float>;
template FMT_API auto dragonbox::to_decimal(double) noexcept -> dragonbox::decimal_fp<double>;
template FMT_API auto thousands_sep_impl(locale_ref) -> thousands_sep_result<char>;
template FMT_API auto decimal_point_impl(locale_ref) -> char;
template FMT_API void buffer<char>::append(const char*, const char*);

}  // namespace detail
FMT_END_NAMESPACE
