# Every image of the matrix: docker buildx bake -f containers/docker-bake.hcl (buildx 0.13 or later), one of them by its
# name, as ... fracgpu-u22-cu12-3-8gb, and a part by its group, as ... cuda or rocm. REGISTRY=registry.example/team/ goes
# before the names.
variable "REGISTRY" { default = "" }

group "default" { targets = ["cuda", "rocm", "library", "node"] }

# What the vendors publish.
variable "CUDA_IMAGES" {
  default = {
    "u20-cu11.7" = "nvidia/cuda:11.7.1-base-ubuntu20.04"
    "u22-cu11.7" = "nvidia/cuda:11.7.1-base-ubuntu22.04"
    "u20-cu12.3" = "nvidia/cuda:12.3.2-base-ubuntu20.04"
    "u22-cu12.3" = "nvidia/cuda:12.3.2-base-ubuntu22.04"
    "u22-cu13.0" = "nvidia/cuda:13.0.2-base-ubuntu22.04"
    "u24-cu13.0" = "nvidia/cuda:13.0.2-base-ubuntu24.04"
  }
}
variable "ROCM_IMAGES" {
  default = {
    "u22-rocm6.4" = "rocm/dev-ubuntu-22.04:6.4.4"
    "u24-rocm6.4" = "rocm/dev-ubuntu-24.04:6.4.4"
    "u22-rocm7.2" = "rocm/dev-ubuntu-22.04:7.2"
    "u24-rocm7.2" = "rocm/dev-ubuntu-24.04:7.2"
  }
}
# Where NVIDIA has no image of a CUDA for an Ubuntu: the one for its neighbour is put on it.
variable "MOVED_CUDA" {
  default = {
    "u24-cu11.7" = { ubuntu = "ubuntu:24.04", cuda = "nvidia/cuda:11.7.1-base-ubuntu22.04" }
    "u24-cu12.3" = { ubuntu = "ubuntu:24.04", cuda = "nvidia/cuda:12.3.2-base-ubuntu22.04" }
    "u20-cu13.0" = { ubuntu = "ubuntu:20.04", cuda = "nvidia/cuda:13.0.2-base-ubuntu22.04" }
  }
}

target "capped" {
  dockerfile = "containers/Dockerfile"
}

target "cuda" {
  inherits = ["capped"]
  name     = "fracgpu-${os}-${replace(cuda, ".", "-")}-${gb}gb"
  matrix = {
    os   = ["u20", "u22", "u24"]
    cuda = ["cu11.7", "cu12.3", "cu13.0"]
    gb   = ["2", "4", "8", "12", "24", "48"]
  }
  tags     = ["${REGISTRY}fracgpu:${os}-${cuda}-${gb}gb"]
  args     = { BASE = lookup(CUDA_IMAGES, "${os}-${cuda}", "moved-cuda"), MEMORY_GB = gb }
  contexts = contains(keys(MOVED_CUDA), "${os}-${cuda}") ? { moved-cuda = "target:moved-${os}-${replace(cuda, ".", "-")}" } : {}
}

target "rocm" {
  inherits = ["capped"]
  name     = "fracgpu-${os}-${replace(rocm, ".", "-")}-${gb}gb"
  matrix = {
    os   = ["u22", "u24"]
    rocm = ["rocm6.4", "rocm7.2"]
    gb   = ["2", "4", "8", "12", "24"]
  }
  tags = ["${REGISTRY}fracgpu:${os}-${rocm}-${gb}gb"]
  args = { BASE = ROCM_IMAGES["${os}-${rocm}"], MEMORY_GB = gb }
}

target "moved" {
  name       = "moved-${replace(at, ".", "-")}"
  matrix     = { at = keys(MOVED_CUDA) }
  dockerfile = "containers/moved-cuda.Dockerfile"
  args       = { UBUNTU = MOVED_CUDA[at].ubuntu, CUDA = MOVED_CUDA[at].cuda }
}

# The library and the command alone, for COPY --from, and what runs on the nodes of a cluster.
target "library" {
  inherits = ["capped"]
  target   = "library"
  tags     = ["${REGISTRY}fracgpu:library"]
}
target "node" {
  inherits = ["capped"]
  target   = "node"
  tags     = ["${REGISTRY}fracgpu:node"]
}
