// The driver's two sockets for kubelet, served by gRPC: one by which it is found, and one for the
// calls themselves.
#pragma once

#include <memory>
#include <string>

#include "tools/dra/driver.h"

namespace fracgpu::tools::dra {

class KubeletServer {
 public:
  // Listens below kubelet's folder, in plugins/fracgpu.dev and plugins_registry, in the place of
  // what an earlier one left there. Throws std::runtime_error with one line.
  KubeletServer(Driver& driver, const std::string& kubelet);
  // Ends calls that are under way after a moment, and takes the sockets away.
  ~KubeletServer();

 private:
  struct Servers;
  std::unique_ptr<Servers> servers_;
};

}  // namespace fracgpu::tools::dra
