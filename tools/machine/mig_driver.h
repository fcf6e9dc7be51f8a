// MIG through NVML: lists what GPUs offer and have, and makes and destroys their instances. Nothing
// here decides; see claims/mig_placement.h. This code does not switch the MIG mode.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "fracgpu/claim_table_layout.h"
#include "tools/claims/mig_placement.h"

namespace fracgpu::tools {

using claim_table_layout::MigGrant;

// The GPUs in MIG mode. Empty if there are none, or if NVML does not report them.
std::vector<MigGpu> mig_gpus();

// The result, as far as callers distinguish it.
struct MigResult {
  enum class State {
    done,
    no_room,  // another program's instances are in the way
    in_use,   // a process still uses it
    refused,  // by the driver, for the reason in `why`
  } state = State::done;
  std::string why{};  // one line; empty: done
  uint32_t instance = 0;
};

// Makes a GPU instance of the grant's profile at its place, with one compute instance over all of
// it. If a killed process left a part of it, uses that part. The caller holds the GPU's lock of the
// claim table. Takes up to seconds.
MigResult make_instance(const std::string& gpu, const MigGrant& grant);

// Destroys the instance of the grant. Also done if it no longer exists, or if another one is in its
// place.
MigResult destroy_instance(const std::string& gpu, const MigGrant& grant);

}  // namespace fracgpu::tools
