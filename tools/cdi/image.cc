// See image.h. The check reads only names and bytes of an image's C libraries and runs nothing of
// the image. The image's links cannot lead elsewhere, because this process moves into the image.
#include "tools/cdi/image.h"

#include <errno.h>
#include <fmt/core.h>
#include <glob.h>
#include <string.h>
#include <unistd.h>

#include <stdexcept>
#include <vector>

#include "tools/cli/json.h"
#include "tools/cli/judged_file.h"

namespace fracgpu::tools::cdi {
namespace {

// glibc 2.31, which the library may need, added no version of its own: this one stands for both.
constexpr char kOldestVersion[] = "GLIBC_2.30";

// More than any C library or configuration has.
constexpr size_t kLargest = 64 << 20;

std::string whole(const std::string& path) {
  return read_judged(path, kLargest, Links::followed);
}

std::vector<std::string> matches(const char* pattern) {
  glob_t found = {};
  std::vector<std::string> paths;
  if (glob(pattern, 0, nullptr, &found) == 0) {
    paths.assign(found.gl_pathv, found.gl_pathv + found.gl_pathc);
  }
  globfree(&found);
  return paths;
}

std::vector<std::string> c_libraries() {
  std::vector<std::string> all;
  for (const char* const folder : {"/lib", "/lib64", "/usr/lib", "/usr/lib64"}) {
    for (const char* const below : {"", "/*-linux-gnu*"}) {
      const auto found = matches(fmt::format("{}{}/libc.so.6", folder, below).c_str());
      all.insert(all.end(), found.begin(), found.end());
    }
  }
  return all;
}

std::string bundle_of(const std::string& state) {
  try {
    return Json::parse(state).at("bundle").text();
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format(
        "no state of a container on standard input ({}); container engines call this by themselves",
        error.what()));
  }
}

std::string root_in(const std::string& bundle) {
  try {
    const Json config = Json::parse(whole(bundle + "/config.json"));
    const std::string& root = config.at("root").at("path").text();
    if (root.empty()) throw std::runtime_error("the name is empty");
    return root.starts_with('/') ? root : bundle + "/" + root;
  } catch (const std::runtime_error& error) {
    throw std::runtime_error(fmt::format(
        "{}/config.json does not name the container's root folder, or cannot be read here ({})",
        bundle, error.what()));
  }
}

}  // namespace

void check_image(const std::string& state) {
  const std::string root = root_in(bundle_of(state));
  if (chroot(root.c_str()) != 0 || chdir("/") != 0) {
    throw std::runtime_error(fmt::format("the container's root folder {} cannot be looked at: {}",
                                         root, strerror(errno)));
  }
  const std::vector<std::string> libraries = c_libraries();
  if (libraries.empty()) {
    if (matches("/lib/ld-musl-*.so.1").empty()) return;  // no loader that would load it
    throw std::runtime_error(
        "this image's C library is musl (Alpine Linux, for one), whose programs the cap would not "
        "hold: musl does not read /etc/ld.so.preload; use an image with glibc, or leave the "
        "fracgpu.dev device out");
  }
  for (const std::string& library : libraries) {
    if (whole(library).find(kOldestVersion) != std::string::npos) continue;
    throw std::runtime_error(
        fmt::format("this image's {} is older than glibc 2.31, and every program would end at once "
                    "if it had to load the library; use a newer image, or leave the fracgpu.dev "
                    "device out",
                    library));
  }
}

}  // namespace fracgpu::tools::cdi
