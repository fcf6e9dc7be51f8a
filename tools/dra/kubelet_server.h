// The driver's two sockets for kubelet, served by gRPC: one for registration, and one for the
// calls.
#pragma once

#include <memory>
#include <string>

#include "tools/dra/driver.h"

namespace fracgpu::tools::dra {

class KubeletServer {
 public:
  // Listens below kubelet's folder, in plugins/fracgpu.dev and plugins_registry. Replaces the
  // sockets of an earlier process. Throws std::runtime_error with one line.
  KubeletServer(Driver& driver, const std::string& kubelet);
  // Ends running calls after a moment, and removes the sockets.
  ~KubeletServer();

 private:
  struct Servers;
  std::unique_ptr<Servers> servers_;
};

}  // namespace fracgpu::tools::dra
