// Kubernetes' names of tenants' claims.
#pragma once

#include <string>

namespace fracgpu::tools {

// The default folder in which `fracgpu dra` keeps the data of claims. claims/UID in it belongs to
// one claim. The file `name` there holds "namespace/name".
inline constexpr char kClaimsRun[] = "/run/fracgpu";
inline constexpr char kClaimName[] = "name";

// "namespace/name" of the claim of the tenant claim-UID. Empty for any other tenant, and if this
// machine does not know the claim.
std::string claim_name_of(const std::string& tenant);

}  // namespace fracgpu::tools
