// Where the API server is and how it knows this program.
#pragma once

#include <string>

namespace fracgpu::tools::dra {

struct Credentials {
  std::string server;                 // "https://10.0.0.1:443"
  std::string authority{};            // certificates as PEM
  std::string certificate{}, key{};   // of this program, likewise; may be empty
  std::string token{}, token_file{};  // either; the file is read each time, as it changes
};

// Those of a pod (its service account), where `kubeconfig` is empty, else those of the file's
// current context. It must be JSON, which kubectl writes: nothing here reads YAML. Throw
// std::runtime_error with one line.
Credentials find_credentials(const std::string& kubeconfig);

}  // namespace fracgpu::tools::dra
