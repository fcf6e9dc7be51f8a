// Makes and removes the files of claims; see prepared_claims.h.
#include "tools/dra/prepared_claims.h"

#include <errno.h>
#include <fcntl.h>
#include <fmt/core.h>
#include <string.h>
#include <sys/file.h>
#include <unistd.h>

#include <filesystem>
#include <stdexcept>

#include "shim/base/text.h"
#include "shim/config/ceiling.h"
#include "shim/config/identity.h"
#include "shim/ledger/ledger_file.h"
#include "shim/ledger/ledger_path.h"
#include "tools/cli/descriptor.h"
#include "tools/cli/judged_file.h"
#include "tools/cli/replace_file.h"

namespace fracgpu::tools::dra {
namespace {

constexpr size_t kLargest = 1 << 20;  // of the files that are made here

[[noreturn]] void fail(const char* what, const std::string& path, int error) {
  throw std::runtime_error(fmt::format("cannot {} {}: {}", what, path, strerror(error)));
}

void make_folder(const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(path, error);
  if (error) fail("make", path, error.value());
}

void remove_file(const std::string& path) {
  if (unlink(path.c_str()) != 0 && errno != ENOENT && errno != ENOTDIR) {
    fail("remove", path, errno);
  }
}

// A temporary name until the file is complete. Leftovers of a killed process are removed.
std::string unfinished(const std::string& path) {
  return path + ".new";
}

// Engines watch their folder, so a file with the same text stays untouched.
void put(const std::string& path, const std::string& text) {
  if (read_judged(path, kLargest, Links::refused) == text) return;
  remove_file(unfinished(path));
  replace_file(path, text, unfinished(path));
}

void remove_put(const std::string& path) {
  remove_file(path);
  remove_file(unfinished(path));
}

Descriptor lock(const std::string& run) {
  const std::string path = run + "/claims.lock";
  Descriptor file(open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW, 0600));
  if (file.get() < 0) fail("open", path, errno);
  while (flock(file.get(), LOCK_EX) != 0) {
    if (errno != EINTR) fail("lock", path, errno);
  }
  return file;
}

std::string tenant_of(const std::string& uid) {
  std::string tenant = std::string(kClaimTenant) + uid;
  // The tenant's name becomes part of paths.
  if (!uid.empty() && is_tenant_name(tenant)) return tenant;
  throw std::runtime_error(
      fmt::format("{} is not the UID of a claim", fracgpu::quoted(uid).view()));
}

std::string ceiling_text(const Claim& claim) {
  std::string text = fmt::format(
      "# What the claim {} has of its devices, and of any other one: nothing, as the least amount\n"
      "# that can be said.\n",
      claim.label());
  for (const auto& [key, bytes] : claim.caps) text += fmt::format("{}={}B\n", key, bytes);
  return text + fmt::format("{}B\n", layout::kUnit);
}

}  // namespace

PreparedClaims::PreparedClaims(ClaimPaths paths) : paths_(std::move(paths)) {
  make_folder(paths_.run + "/claims");
  make_folder(paths_.cdi);
}

std::string PreparedClaims::folder(const std::string& uid) const {
  return fmt::format("{}/claims/{}", paths_.run, uid);
}

std::string PreparedClaims::spec_path(const std::string& uid) const {
  return fmt::format("{}/fracgpu.dev-claim-{}.json", paths_.cdi, uid);
}

std::string PreparedClaims::prepare(const Claim& claim) {
  const std::string tenant = tenant_of(claim.uid), here = folder(claim.uid);
  const Descriptor locked = lock(paths_.run);
  make_folder(here);
  put(fmt::format("{}/{}", here, kClaimName), claim.label() + "\n");
  put(here + "/limit.conf", ceiling_text(claim));
  put(here + "/tenant", tenant + "\n");
  LedgerFile ledger;
  Message error;
  if (ledger.open_or_create(tenant.c_str(), error) != LedgerFile::Result::ok) {
    throw std::runtime_error(error.c_str());
  }
  const std::string file = layout::kFilePrefix + tenant;
  const Json mounts = Json::array({cdi::mount(here + "/limit.conf", kCeilingFile, cdi::Access::ro),
                                   cdi::mount(here + "/tenant", kTenantFile, cdi::Access::ro),
                                   cdi::mount(file, file, cdi::Access::rw)});
  Json edits = {{"mounts", mounts}};
  for (const auto& [name, value] : claim.environment) {
    if (!edits.contains("env")) edits["env"] = Json::array();
    edits["env"].push_back(fmt::format("{}={}", name, value));
  }
  const Json device = {{"name", claim.uid}, {"containerEdits", edits}};
  put(spec_path(claim.uid),
      cdi::spec_of("claim", paths_.node, Json::array({device})).dump() + "\n");
  return fmt::format("{}/claim={}", kDriver, claim.uid);
}

void PreparedClaims::unprepare(const std::string& uid) {
  const std::string tenant = tenant_of(uid);
  const Descriptor locked = lock(paths_.run);
  remove_put(spec_path(uid));
  remove_file(layout::kFilePrefix + tenant);
  remove_put(folder(uid) + "/tenant");
  remove_put(folder(uid) + "/limit.conf");
  remove_put(fmt::format("{}/{}", folder(uid), kClaimName));
  if (rmdir(folder(uid).c_str()) != 0 && errno != ENOENT) fail("remove", folder(uid), errno);
}

std::string PreparedClaims::label(const std::string& uid) const {
  const Descriptor locked = lock(paths_.run);  // otherwise it may be about to be written
  const std::string text =
      read_judged(fmt::format("{}/{}", folder(uid), kClaimName), kLargest, Links::refused);
  return text.substr(0, text.find('\n'));
}

std::vector<std::string> PreparedClaims::uids() const {
  std::vector<std::string> all;
  std::error_code error;
  for (std::filesystem::directory_iterator entry(paths_.run + "/claims", error), end; entry != end;
       entry.increment(error)) {
    all.push_back(entry->path().filename().string());
  }
  return all;
}

}  // namespace fracgpu::tools::dra
