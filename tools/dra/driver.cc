// See driver.h.
#include "tools/dra/driver.h"

#include <fmt/core.h>

#include <algorithm>
#include <stdexcept>
#include <utility>

#include "shim/base/clock.h"
#include "tools/dra/claim_status.h"
#include "tools/dra/log.h"

namespace fracgpu::tools::dra {
namespace {

// Kubernetes' names become part of an API path.
void check_name(const std::string& name) {
  const bool good = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-' || c == '.';
  });
  if (!good) throw std::runtime_error("the claim's name or namespace is not one of Kubernetes'");
}

std::string path_of(const std::string& space, const std::string& name) {
  check_name(space);
  check_name(name);
  return fmt::format("/apis/resource.k8s.io/v1/namespaces/{}/resourceclaims/{}", space, name);
}

// Kubelet seldom loses a claim, and each check costs the API server a request.
constexpr uint64_t kSweep_ms = 3600'000;

}  // namespace

std::vector<Device> Driver::devices() const {
  const std::lock_guard lock(mutex_);
  return devices_;
}

bool Driver::look() {
  std::string fault;
  try {
    std::vector<Device> found = ask_for_devices();
    const std::lock_guard lock(mutex_);
    if (found != devices_) stale_ = true;
    devices_ = std::move(found);
    listed_ = true;
  } catch (const std::exception& error) {
    fault = error.what();  // published devices stay
  }
  note(listing_fault_, fault);
  const bool published = fault.empty() && keep_published();
  if (published && coarse_now_ms() >= next_sweep_ms_ && remove_forgotten()) {
    next_sweep_ms_ = coarse_now_ms() + kSweep_ms;
  }
  return published;
}

bool Driver::remove_forgotten() {
  bool all = true;
  for (const std::string& uid : claims_.uids()) {
    try {
      if (is_gone(claims_.label(uid), uid)) unprepare(uid);
    } catch (const std::exception& error) {
      log("warning", error.what(), {{"uid", uid}});
      all = false;
    }
  }
  return all;
}

bool Driver::is_gone(const std::string& label, const std::string& uid) const {
  if (label.empty()) return true;  // only begun, by a driver that was killed
  const size_t slash = label.find('/');
  if (slash == label.npos) throw std::runtime_error("its file \"name\" does not say whose it is");
  constexpr long kNotFound = 404;
  try {
    const Json object = api_.get(path_of(label.substr(0, slash), label.substr(slash + 1)));
    return object.at("metadata").at("uid").text() != uid;
  } catch (const ApiError& error) {
    if (error.status != kNotFound) throw;
    return true;
  }
}

bool Driver::keep_published() {
  if (!knows_devices() || !stale_.exchange(false)) return true;
  std::string fault;
  try {
    const std::vector<Device> all = devices();
    if (publisher_.publish(all)) {
      ++published_;
      log("info", "published devices", {{"devices", all.size()}});
    }
  } catch (const std::exception& error) {
    fault = error.what();
    stale_ = true;
  }
  note(publishing_fault_, fault);
  return fault.empty();
}

void Driver::note(std::string& place, const std::string& fault) {
  if (!fault.empty()) {
    ++failed_looks_;
    log("error", fault);
  }
  const std::lock_guard lock(mutex_);
  place = fault;
}

bool Driver::knows_devices() const {
  const std::lock_guard lock(mutex_);
  return listed_;
}

Driver::Ready Driver::prepare(const std::string& space, const std::string& name,
                              const std::string& uid) {
  std::string path;
  Json object;
  try {
    path = path_of(space, name);
    object = api_.get_again(path);
    Ready ready{.claim = read_claim(object, uid, devices()), .cdi = {}};
    ready.cdi = claims_.prepare(ready.claim);
    ++prepared_;
    Json caps = Json::object();
    for (const auto& [key, bytes] : ready.claim.caps) caps[key] = bytes;
    log("info", "prepared", {{"claim", ready.claim.label()}, {"uid", uid}, {"caps_bytes", caps}});
    tell(path, object, "");
    return ready;
  } catch (const std::exception& error) {
    ++refused_;
    log("warning", error.what(), {{"claim", space + "/" + name}, {"uid", uid}});
    if (std::as_const(object)["metadata"].value("uid", "") == uid) tell(path, object, error.what());
    throw;
  }
}

void Driver::tell(const std::string& path, const Json& object, const std::string& fault) {
  const auto status = status_of(object, fault);
  if (!status) return;
  try {
    api_.apply(path + "/status", *status);
  } catch (const ApiError& error) {
    log("warning", error.what());
  }
  try {
    const Json event = event_of(object, *status, node_);
    api_.create(
        fmt::format("/api/v1/namespaces/{}/events", event["metadata"].value("namespace", "")),
        event);
  } catch (const ApiError& error) {
    constexpr long kConflict = 409;  // the event exists
    if (error.status != kConflict) log("warning", error.what());
  }
}

void Driver::unprepare(const std::string& uid) {
  try {
    claims_.unprepare(uid);
    ++unprepared_;
    log("info", "unprepared", {{"uid", uid}});
  } catch (const std::exception& error) {
    log("error", error.what(), {{"uid", uid}});
    throw;
  }
}

void Driver::set_registered(const std::string& fault) {
  log(fault.empty() ? "info" : "error",
      fault.empty() ? "registered with kubelet" : "kubelet refuses this driver: " + fault);
  const std::lock_guard lock(mutex_);
  registration_fault_ = fault;
}

std::string Driver::readiness() const {
  const std::lock_guard lock(mutex_);
  for (const std::string* fault : {&listing_fault_, &publishing_fault_, &registration_fault_}) {
    if (!fault->empty()) throw std::runtime_error(*fault);
  }
  return "ok\n";
}

std::string Driver::metrics() const {
  std::string text;
  const auto add = [&](const char* name, const char* kind, const char* help, uint64_t value) {
    text += fmt::format(
        "# HELP fracgpu_dra_{0} {2}\n# TYPE fracgpu_dra_{0} {1}\n"
        "fracgpu_dra_{0} {3}\n",
        name, kind, help, value);
  };
  add("devices", "gauge", "Devices that this node offers.", devices().size());
  add("claims", "gauge", "Claims that are prepared.", claims_.uids().size());
  add("prepared_total", "counter", "Claims that were prepared, again and again included.",
      prepared_);
  add("refused_total", "counter", "Claims that could not be prepared.", refused_);
  add("unprepared_total", "counter", "Claims that were unprepared.", unprepared_);
  add("published_total", "counter", "Times that the published devices were changed.", published_);
  add("failed_looks_total", "counter", "Looks at devices and slices that failed.", failed_looks_);
  return text;
}

}  // namespace fracgpu::tools::dra
