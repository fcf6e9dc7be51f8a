// Reads the ceiling file; see ceiling.h.
#include "shim/config/ceiling.h"

#include <string.h>

#include <algorithm>

#include "shim/config/trusted_file.h"

namespace fracgpu {
namespace {

// Joins the items of the ceiling file by commas, in the file's place, without comments and blank
// lines.
std::string_view join_items(TrustedText& text) {
  std::string_view file = text.view();
  size_t size = 0;
  while (!file.empty()) {
    const size_t newline = std::min(file.find('\n'), file.size());
    std::string_view line = file.substr(0, newline);
    file.remove_prefix(std::min(newline + 1, file.size()));
    line = line.substr(0, line.find('#'));
    while (!line.empty() && (line.back() == ' ' || line.back() == '\t' || line.back() == '\r')) {
      line.remove_suffix(1);
    }
    if (line.find_first_not_of(" \t") == line.npos) continue;
    if (size > 0) text.bytes[size++] = ',';
    memmove(text.bytes + size, line.data(), line.size());
    size += line.size();
  }
  return {text.bytes, size};
}

}  // namespace

bool read_ceiling(const char* path, Limits& ceiling, Message& error) {
  if (!trusted_file_is_there(path)) return true;
  TrustedText text;
  if (!read_trusted_file(path, text, error)) return false;
  Message why;
  if (ceiling.parse(join_items(text), why)) return true;
  error.format("{}: {}", path, why.view());
  return false;
}

}  // namespace fracgpu
