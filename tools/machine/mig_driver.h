// MIG through NVML: what GPUs offer and have, and making and destroying instances of them. Nothing
// here decides; see claims/mig_placement.h. Switching the mode itself is nobody's business here.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fracgpu/claim_table_layout.h"
#include "tools/claims/mig_placement.h"

namespace fracgpu::tools {

using claim_table_layout::MigGrant;

// GPUs in MIG mode. Empty where there are none, or NVML does not tell.
std::vector<MigGpu> mig_gpus();

// How it went, as far as who asked has a choice.
struct MigResult {
  enum class State {
    done,
    no_room,  // instances that somebody else made are in the way
    in_use,   // a process has it still
    refused,  // by the driver, for the reason in `why`
  } state = State::done;
  std::string why{};  // one line; empty: done
  uint32_t instance = 0;
};

// A GPU instance of the grant's profile at its place with one compute instance over all of it; what
// is there of it already, from somebody who was killed half-way, is used. To be called with the
// GPU's lock of the claim table; takes up to seconds.
MigResult make_instance(const std::string& gpu, const MigGrant& grant);

// The opposite, of the instance that the grant tells: done, too, where it is not there any more,
// or another one is in its place.
MigResult destroy_instance(const std::string& gpu, const MigGrant& grant);

}  // namespace fracgpu::tools
