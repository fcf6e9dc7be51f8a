// The node's files for claims whose pods may start: the files that cap a container, and the device
// through which a container engine mounts them. Nothing here depends on Kubernetes' API or gRPC.
//
// A claim has these files, made in this order:
//   RUN/claims/UID/name                    the claim's own name, for people
//   RUN/claims/UID/limit.conf, tenant      the ceiling and the tenant's name, mounted read-only
//   /dev/shm/fracgpu-claim-UID             the ledger, mounted at the same place
//   CDI/fracgpu.dev-claim-UID.json         the device fracgpu.dev/claim=UID, which names them all
// They are removed in the opposite order. So a device that an engine finds always has all its
// mounts, even if this process is killed at any moment. Both directions may be repeated.
//
// Every pod of a claim gets the same ledger, so all of them are one tenant under one cap.
#pragma once

#include <string>
#include <vector>

#include "tools/cdi/spec.h"
#include "tools/dra/claim.h"
#include "tools/machine/claim_names.h"

namespace fracgpu::tools::dra {

struct ClaimPaths {
  cdi::NodePaths node;  // also mounted: the library and its preload file
  std::string cdi = "/var/run/cdi";
  std::string run = kClaimsRun;
};

// Any thread and several processes may use it: a kernel lock is held during each prepare and
// unprepare, and released if the process dies. All functions throw std::runtime_error with one
// line.
class PreparedClaims {
 public:
  explicit PreparedClaims(ClaimPaths paths);

  // Returns the device's name, "fracgpu.dev/claim=UID".
  std::string prepare(const Claim& claim);

  // Also works if nothing, or only a part, was prepared.
  void unprepare(const std::string& uid);

  // The UIDs of the claims with files, complete or partial.
  std::vector<std::string> uids() const;

  // "namespace/name"; empty if a prepare ended before it was written.
  std::string label(const std::string& uid) const;

 private:
  std::string folder(const std::string& uid) const;
  std::string spec_path(const std::string& uid) const;

  ClaimPaths paths_;
};

}  // namespace fracgpu::tools::dra
