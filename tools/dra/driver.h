// What the driver does, whoever asks: it knows the node's devices, keeps them published, and
// prepares claims.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

#include "tools/dra/api_client.h"
#include "tools/dra/prepared_claims.h"
#include "tools/dra/publisher.h"

namespace fracgpu::tools::dra {

// Any thread.
class Driver {
 public:
  Driver(const ApiClient& api, PreparedClaims claims, const std::string& node)
      : api_(api), node_(node), claims_(std::move(claims)), publisher_(api, node) {}

  // Looks at the devices and publishes what changed, and now and then removes claims that are
  // forgotten; what fails is logged and known until it does not fail any more. Returns whether the
  // devices are published. One thread.
  bool look();
  // The second half of it, where somebody has said that the slices may be others.
  bool keep_published();
  void slices_changed() { stale_ = true; }
  bool knows_devices() const;  // they were listed once

  // A claim that is ready for its pods, with the names of all that its containers need.
  struct Ready {
    Claim claim;
    std::string cdi;  // beside those of its devices
  };
  // Throws std::runtime_error with one line, for the claim's event.
  Ready prepare(const std::string& space, const std::string& name, const std::string& uid);
  void unprepare(const std::string& uid);

  void set_registered(const std::string& fault);  // empty: kubelet knows this driver

  // "ok"; throws, with what is wrong, where pods cannot be served.
  std::string readiness() const;
  // Prometheus' text.
  std::string metrics() const;

 private:
  std::vector<Device> devices() const;
  // Unprepares the claims that the API server has no more: kubelet, which does so, may have lost
  // what it knew of them. What runs in them keeps its files. False where not all could be judged.
  bool remove_forgotten();
  bool is_gone(const std::string& label, const std::string& uid) const;
  // Keeps, and logs, what is wrong in `place`; empty: nothing.
  void note(std::string& place, const std::string& fault);
  // Says in a claim's status, and by an event, how it went. It goes without: pods do not wait for
  // it.
  void tell(const std::string& path, const Json& object, const std::string& fault);

  const ApiClient& api_;
  const std::string node_;
  PreparedClaims claims_;
  const Publisher publisher_;
  mutable std::mutex mutex_;  // of what stands below it; held for no call
  bool listed_ = false;
  std::vector<Device> devices_;
  std::string listing_fault_ = "the GPUs were not listed yet";
  std::string publishing_fault_ = "nothing was published yet";
  std::string registration_fault_ = "kubelet has not registered this driver yet";
  std::atomic<bool> stale_{true};  // what is published
  uint64_t next_sweep_ms_ = 0;
  std::atomic<uint64_t> prepared_{0}, refused_{0}, unprepared_{0}, published_{0}, failed_looks_{0};
};

}  // namespace fracgpu::tools::dra
