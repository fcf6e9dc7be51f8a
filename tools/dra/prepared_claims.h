// What lies on the node for claims whose pods may start: the files that hold a container to its
// part, and the device by which a container engine brings them in. Knows nothing of Kubernetes'
// API and of gRPC.
//
// Of a claim there are, in the order in which they are made:
//   RUN/claims/UID/name                    the claim's own name, for people
//   RUN/claims/UID/limit.conf, tenant      the ceiling and the tenant's name, mounted read-only
//   /dev/shm/fracgpu-claim-UID             the ledger, mounted at the same place
//   CDI/fracgpu.dev-claim-UID.json         the device fracgpu.dev/claim=UID, which names all that
// and it goes in the opposite order. So a device that an engine finds has all that it mounts, at
// whatever moment this process is killed; both directions may be gone through again and again.
//
// Every pod of a claim gets the one ledger, so all of them are one tenant under one cap.
#pragma once

#include <string>
#include <vector>

#include "tools/cdi/spec.h"
#include "tools/dra/claim.h"
#include "tools/machine/claim_names.h"

namespace fracgpu::tools::dra {

struct ClaimPaths {
  cdi::NodePaths node;  // what is mounted beside: the library and its preload file
  std::string cdi = "/var/run/cdi";
  std::string run = kClaimsRun;
};

// Any thread, and several processes: a lock of the kernel's is held for as long as one prepares or
// unprepares, and dropped when it dies. All functions throw std::runtime_error with one line.
class PreparedClaims {
 public:
  explicit PreparedClaims(ClaimPaths paths);

  // Returns the device's name, "fracgpu.dev/claim=UID".
  std::string prepare(const Claim& claim);

  // Also where nothing was prepared, or a part.
  void unprepare(const std::string& uid);

  // The UIDs of those that are there, whole or in part.
  std::vector<std::string> uids() const;

  // "namespace/name"; empty where a prepare was cut short before it was written.
  std::string label(const std::string& uid) const;

 private:
  std::string folder(const std::string& uid) const;
  std::string spec_path(const std::string& uid) const;

  ClaimPaths paths_;
};

}  // namespace fracgpu::tools::dra
