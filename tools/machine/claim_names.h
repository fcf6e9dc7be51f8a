// Kubernetes' names of the claims that tenants stand for.
#pragma once

#include <string>

namespace fracgpu::tools {

// Where `fracgpu dra` keeps what claims need, unless it is told another folder: claims/UID in it is
// a claim's, and the file `name` there says "namespace/name".
inline constexpr char kClaimsRun[] = "/run/fracgpu";
inline constexpr char kClaimName[] = "name";

// "namespace/name" of the claim that the tenant claim-UID is for; empty for any other tenant, and
// where this machine does not know it.
std::string claim_name_of(const std::string& tenant);

}  // namespace fracgpu::tools
