// Finds and starts HIP's releases; see amd_rig.h.
#include "tests/integration/amd_rig.h"

#include <dlfcn.h>
#include <unistd.h>

#include "tests/integration/parts.h"

namespace fracgpu::test {

void AmdRig::SetUp() {
  if (sanitized()) GTEST_SKIP() << "AMD's runtime is not instrumented";
  if (dlopen("libamdhip64.so.5", RTLD_LAZY) == nullptr) GTEST_SKIP() << "no libamdhip64.so.5 here";
}

bool AmdRig::use_release(const std::string& release, std::string* why) {
  std::string where;
  if (!have_part("hip-" + release, &where, why)) return false;
  const std::string libraries = first_match(where + "/usr/lib/*-linux-gnu");
  program_ = with_own_loader(where, TEST_HIP_PROGRAM);
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
