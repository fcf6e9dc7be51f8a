// Cleans texts and looks names up; see plain_text.h.
#include "tools/cli/plain_text.h"

#include <pwd.h>
#include <string.h>

#include <fstream>
#include <map>

namespace fracgpu::tools {

std::string clean(const char* text, size_t size) {
  std::string out(text, strnlen(text, size));
  for (char& c : out) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return out;
}

std::string command_of(uint32_t pid) {
  std::ifstream file("/proc/" + std::to_string(pid) + "/comm");
  std::string name;
  std::getline(file, name);
  return name.empty() ? "?" : clean(name.c_str(), name.size());
}

std::string user_name(uint32_t uid) {
  // Cached, because a query may read files or contact a server.
  static thread_local std::map<uint32_t, std::string> known;
  const auto [place, is_new] = known.try_emplace(uid);
  if (is_new) {
    const passwd* const user = getpwuid(uid);
    place->second =
        user == nullptr ? std::to_string(uid) : clean(user->pw_name, strlen(user->pw_name));
  }
  return place->second;
}

}  // namespace fracgpu::tools
