// Fetches parts and finds their files; see parts.h.
#include "tests/integration/parts.h"

#include <fcntl.h>
#include <glob.h>
#include <gnu/libc-version.h>
#include <string.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fracgpu::test {

std::string first_match(const std::string& pattern) {
  glob_t found = {};
  std::string path;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) path = found.gl_pathv[0];
  globfree(&found);
  return path;
}

bool have_part(const std::string& part, std::string* where, std::string* why) {
  *where = std::string(TEST_PARTS) + "/" + part;
  mkdir(TEST_PARTS, 0777);
  // Tests run side by side, and one of them at a time may fetch.
  const int lock = open((*where + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  flock(lock, LOCK_EX);
  const Outcome fetched = run({TEST_FETCH, part, *where}, {{"PATH", getenv("PATH")}});
  close(lock);
  *why = fetched.err;
  return fetched.status == 0;
}

std::vector<std::string> with_own_loader(const std::string& where, const std::string& program) {
  std::string libraries =
      first_match(where + "/usr/lib/*-linux-gnu") + ":" + first_match(where + "/lib/*-linux-gnu");
  std::string loader = first_match(where + "/lib64/ld-linux-*.so.*");
  // "ld.so (Debian GLIBC 2.36-9) stable release version 2.36."
  const std::string said = run({loader, "--version"}, {}).out;
  const size_t version = said.find(" version ");
  if (version == std::string::npos ||
      strverscmp(said.c_str() + version + 9, gnu_get_libc_version()) < 0) {
    loader = first_match("/lib64/ld-linux-*.so.*");
    libraries = first_match("/usr/lib/*-linux-gnu") + ":" + libraries;
  }
  return {loader, "--library-path", std::string(TEST_SIM_DIR) + ":" + libraries, program};
}

}  // namespace fracgpu::test
