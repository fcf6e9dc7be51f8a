// See kubelet_server.h.
#include "tools/dra/kubelet_server.h"

#include <fmt/core.h>
#include <grpcpp/grpcpp.h>
#include <sys/stat.h>
#include <unistd.h>

#include <chrono>
#include <filesystem>
#include <stdexcept>
#include <vector>

#include "claim_service.grpc.pb.h"
#include "health_service.grpc.pb.h"
#include "registration.grpc.pb.h"
#include "tools/dra/log.h"

namespace fracgpu::tools::dra {
namespace {

namespace wire = k8s::io::kubelet::pkg::apis::dra::v1;

constexpr auto kMercy = std::chrono::seconds(2);  // kubelet retries

// The answer for one claim, with `error` set if `body` throws: no exception may pass into gRPC.
template <typename Answer, typename Body>
Answer answer_of(Body body) {
  Answer answer;
  try {
    body(answer);
  } catch (const std::exception& error) {
    answer.set_error(error.what());
  }
  return answer;
}

class ClaimService final : public wire::DRAPlugin::Service {
 public:
  explicit ClaimService(Driver& driver) : driver_(driver) {}

  grpc::Status NodePrepareResources(grpc::ServerContext*,
                                    const wire::NodePrepareResourcesRequest* request,
                                    wire::NodePrepareResourcesResponse* response) override {
    using Answer = wire::NodePrepareResourceResponse;
    for (const wire::Claim& claim : request->claims()) {
      (*response->mutable_claims())[claim.uid()] = answer_of<Answer>([&](Answer& answer) {
        const Driver::Ready ready = driver_.prepare(claim.namespace_(), claim.name(), claim.uid());
        for (const Allocated& each : ready.claim.devices) {
          wire::Device& device = *answer.add_devices();
          device.add_request_names(each.request);
          device.set_pool_name(each.pool);
          device.set_device_name(each.device);
          device.add_cdi_device_ids(each.cdi);
          device.add_cdi_device_ids(ready.cdi);
          if (!each.share_id.empty()) device.set_share_id(each.share_id);
        }
      });
    }
    return grpc::Status::OK;
  }

  grpc::Status NodeUnprepareResources(grpc::ServerContext*,
                                      const wire::NodeUnprepareResourcesRequest* request,
                                      wire::NodeUnprepareResourcesResponse* response) override {
    using Answer = wire::NodeUnprepareResourceResponse;
    for (const wire::Claim& claim : request->claims()) {
      (*response->mutable_claims())[claim.uid()] =
          answer_of<Answer>([&](Answer&) { driver_.unprepare(claim.uid()); });
    }
    return grpc::Status::OK;
  }

 private:
  Driver& driver_;
};

// Without this service, kubelet retries forever and logs a line each time. A silent stream takes no
// thread.
class HealthService final : public v1alpha1::DRAResourceHealth::CallbackService {
 public:
  grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse>* NodeWatchResources(
      grpc::CallbackServerContext*, const v1alpha1::NodeWatchResourcesRequest*) override {
    struct Silence final : grpc::ServerWriteReactor<v1alpha1::NodeWatchResourcesResponse> {
      void OnCancel() override { Finish(grpc::Status::CANCELLED); }
      void OnDone() override { delete this; }
    };
    return new Silence;
  }
};

class RegistrationService final : public pluginregistration::Registration::Service {
 public:
  RegistrationService(Driver& driver, std::string endpoint)
      : driver_(driver), endpoint_(std::move(endpoint)) {}

  grpc::Status GetInfo(grpc::ServerContext*, const pluginregistration::InfoRequest*,
                       pluginregistration::PluginInfo* info) override {
    info->set_type("DRAPlugin");
    info->set_name(kDriver);
    info->set_endpoint(endpoint_);
    info->add_supported_versions("v1.DRAPlugin");
    return grpc::Status::OK;
  }

  grpc::Status NotifyRegistrationStatus(grpc::ServerContext*,
                                        const pluginregistration::RegistrationStatus* status,
                                        pluginregistration::RegistrationStatusResponse*) override {
    driver_.set_registered(status->plugin_registered() ? ""
                           : status->error().empty()   ? "it gives no reason"
                                                       : status->error());
    return grpc::Status::OK;
  }

 private:
  Driver& driver_;
  const std::string endpoint_;
};

std::unique_ptr<grpc::Server> serve(const std::vector<grpc::Service*>& services,
                                    const std::string& path) {
  std::error_code error;
  std::filesystem::create_directories(std::filesystem::path(path).parent_path(), error);
  unlink(path.c_str());
  grpc::ServerBuilder builder;
  builder.AddListeningPort("unix:" + path, grpc::InsecureServerCredentials());
  builder.SetSyncServerOption(grpc::ServerBuilder::NUM_CQS, 1);
  builder.SetSyncServerOption(grpc::ServerBuilder::MAX_POLLERS, 2);
  for (grpc::Service* const each : services) builder.RegisterService(each);
  std::unique_ptr<grpc::Server> server = builder.BuildAndStart();
  if (server == nullptr) throw std::runtime_error(fmt::format("cannot listen on {}", path));
  chmod(path.c_str(), 0600);  // kubelet is root
  return server;
}

}  // namespace

struct KubeletServer::Servers {
  Servers(Driver& driver, const std::string& kubelet)
      : claim_path(fmt::format("{}/plugins/{}/dra.sock", kubelet, kDriver)),
        registration_path(fmt::format("{}/plugins_registry/{}-reg.sock", kubelet, kDriver)),
        claims(driver),
        registration(driver, claim_path),
        claim_server(serve({&claims, &health}, claim_path)),
        registration_server(serve({&registration}, registration_path)) {}

  const std::string claim_path, registration_path;
  ClaimService claims;
  HealthService health;
  RegistrationService registration;
  std::unique_ptr<grpc::Server> claim_server, registration_server;
};

KubeletServer::KubeletServer(Driver& driver, const std::string& kubelet)
    : servers_(std::make_unique<Servers>(driver, kubelet)) {}

KubeletServer::~KubeletServer() {
  // Kubelet forgets this driver when the first server ends, and sends no more calls to the other
  // one. Its watch of our health stays until it is ended.
  unlink(servers_->registration_path.c_str());
  const auto until = std::chrono::system_clock::now() + kMercy;
  servers_->registration_server->Shutdown(until);
  servers_->claim_server->Shutdown(until);
  unlink(servers_->claim_path.c_str());
}

}  // namespace fracgpu::tools::dra
