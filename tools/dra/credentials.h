// The API server's address, and this program's credentials.
#pragma once

#include <string>

namespace fracgpu::tools::dra {

struct Credentials {
  std::string server;                 // "https://10.0.0.1:443"
  std::string authority{};            // certificates as PEM
  std::string certificate{}, key{};   // of this program, also PEM; may be empty
  std::string token{}, token_file{};  // either; the file is read each time, because it changes
};

// The credentials of a pod (its service account) if `kubeconfig` is empty. Otherwise those of the
// file's current context. The file must be JSON, which kubectl can write: nothing here reads YAML.
// Throws std::runtime_error with one line.
Credentials find_credentials(const std::string& kubeconfig);

}  // namespace fracgpu::tools::dra
