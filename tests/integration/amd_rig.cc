// Finds and starts HIP's releases; see amd_rig.h.
#include "tests/integration/amd_rig.h"

#include <dlfcn.h>
#include <fcntl.h>
#include <glob.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

namespace fracgpu::test {
namespace {

std::string first_match(const std::string& pattern) {
  glob_t found = {};
  std::string path;
  if (glob(pattern.c_str(), 0, nullptr, &found) == 0) path = found.gl_pathv[0];
  globfree(&found);
  return path;
}

// Tests run side by side, and one of them at a time may fetch.
Outcome fetch(const std::string& part, const std::string& where) {
  mkdir(TEST_PARTS, 0777);
  const int lock = open((where + ".lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0666);
  flock(lock, LOCK_EX);
  const Outcome outcome = run({TEST_FETCH, part, where}, {{"PATH", getenv("PATH")}});
  close(lock);
  return outcome;
}

}  // namespace

void AmdRig::SetUp() {
  if (sanitized()) GTEST_SKIP() << "AMD's runtime is not instrumented";
  if (dlopen("libamdhip64.so.5", RTLD_LAZY) == nullptr) GTEST_SKIP() << "no libamdhip64.so.5 here";
}

bool AmdRig::use_release(const std::string& release, std::string* why) {
  const std::string part = "hip-" + release, where = std::string(TEST_PARTS) + "/" + part;
  const Outcome fetched = fetch(part, where);
  *why = fetched.err;
  if (fetched.status != 0) return false;
  const std::string libraries = first_match(where + "/usr/lib/*-linux-gnu");
  program_ = {first_match(where + "/lib64/ld-linux-*.so.*"), "--library-path",
              std::string(TEST_SIM_DIR) + ":" + libraries, TEST_HIP_PROGRAM};
  const std::string library = first_match(libraries + "/libamdhip64.so.?");
  // hipGetProcAddress looks for the name without a version, which is in the development package.
  [[maybe_unused]] const int linked =
      symlink(library.c_str(), (libraries + "/libamdhip64.so").c_str());
  release_ = {{"HIP_LIBRARY", library}};
  return true;
}

std::unique_ptr<Program> AmdRig::start(const std::string& limit, const std::string& commands,
                                       const Environment& extra) const {
  std::vector<std::string> args = program_;
  for (const std::string& word : words(commands)) args.push_back(word);
  return std::make_unique<Program>(args, capped(limit) + release_ + extra);
}

}  // namespace fracgpu::test
