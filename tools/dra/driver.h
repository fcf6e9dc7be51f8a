// The driver's work, independent of the caller: it knows the node's devices, keeps them published,
// and prepares claims.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tools/dra/api_client.h"
#include "tools/dra/prepared_claims.h"
#include "tools/dra/publisher.h"

namespace fracgpu::tools::dra {

// Any thread may use it.
class Driver {
 public:
  Driver(const ApiClient& api, PreparedClaims claims, const std::string& node)
      : api_(api), node_(node), claims_(std::move(claims)), publisher_(api, node) {}

  // Lists the devices and publishes changes. From time to time, also removes forgotten claims. Logs
  // failures, and keeps each fault until it is resolved. Returns whether the devices are published.
  // Only one thread may call it.
  bool look();
  // Only the publishing part, after a report that the slices may have changed.
  bool keep_published();
  void slices_changed() { stale_ = true; }
  bool knows_devices() const;  // listed at least once

  // A claim that is ready for its pods, with the names of everything that its containers need.
  struct Ready {
    Claim claim;
    std::string cdi;  // in addition to those of its devices
  };
  // Throws std::runtime_error with one line, for the claim's event.
  Ready prepare(const std::string& space, const std::string& name, const std::string& uid);
  void unprepare(const std::string& uid);

  void set_registered(const std::string& fault);  // empty: registered with kubelet

  // "ok". Throws with the reason if pods cannot be served.
  std::string readiness() const;
  // The metrics in Prometheus' text format.
  std::string metrics() const;

 private:
  std::vector<Device> devices() const;
  // Unprepares the claims that no longer exist on the API server: kubelet normally does that, but
  // may have lost its state. Containers that still run keep their mounted files. False if some
  // claims could not be checked.
  bool remove_forgotten();
  bool is_gone(const std::string& label, const std::string& uid) const;
  // Stores and logs a fault in `place`; empty: none.
  void note(std::string& place, const std::string& fault);
  // Reports the outcome in the claim's status and by an event. Failures to report are only logged:
  // pods do not wait for the report.
  void tell(const std::string& path, const Json& object, const std::string& fault);

  const ApiClient& api_;
  const std::string node_;
  PreparedClaims claims_;
  const Publisher publisher_;
  mutable std::mutex mutex_;  // guards the members below; not held during calls
  bool listed_ = false;
  std::vector<Device> devices_;
  std::string listing_fault_ = "the GPUs were not listed yet";
  std::string publishing_fault_ = "nothing was published yet";
  std::string registration_fault_ = "kubelet has not registered this driver yet";
  std::atomic<bool> stale_{true};  // whether the published slices may be outdated
  uint64_t next_sweep_ms_ = 0;
  std::atomic<uint64_t> prepared_{0}, refused_{0}, unprepared_{0}, published_{0}, failed_looks_{0};
};

}  // namespace fracgpu::tools::dra
