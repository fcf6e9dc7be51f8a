// The one place where fmt is compiled for the library; see text.h.
//
// Compiles fmt from its headers, which leave out what is not used. fmt's own sources would bring
// along the locale machinery and exceptions, which the library must not have (runtime.cc).
#define FMT_HEADER_ONLY
#include "shim/base/text.h"

#include <fmt/format.h>

namespace fracgpu {

size_t format_into(char* to, size_t room, fmt::string_view pattern, fmt::format_args arguments) {
  const auto end = fmt::vformat_to_n(to, room, pattern, arguments);
  return end.size < room ? end.size : room;
}

}  // namespace fracgpu
