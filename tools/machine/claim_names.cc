// See claim_names.h.
#include "tools/machine/claim_names.h"

#include <fmt/core.h>

#include "shim/ledger/ledger_path.h"
#include "tools/cli/judged_file.h"
#include "tools/cli/plain_text.h"

namespace fracgpu::tools {
namespace {

constexpr size_t kLongest = 512;  // Kubernetes' names have at most 63 and 253 characters

}  // namespace

std::string claim_name_of(const std::string& tenant) {
  if (!tenant.starts_with(kClaimTenant) || tenant.find('/') != tenant.npos) return "";
  const std::string text = read_judged(
      fmt::format("{}/claims/{}/{}", kClaimsRun, tenant.substr(kClaimTenant.size()), kClaimName),
      kLongest, Links::refused);
  return clean(text.c_str(), text.find('\n') == text.npos ? text.size() : text.find('\n'));
}

}  // namespace fracgpu::tools
