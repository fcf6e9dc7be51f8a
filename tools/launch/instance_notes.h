// Root's own notes of the MIG instances that it makes for launches. Every user may write to the
// claim table. A user must not be able to make root destroy another program's instance by naming it
// there. So only instances with a note are destroyed.
//
// A note is an empty file in the folder CLAIM_TABLE.instances. Only root may use that folder, and
// it exists only while it has notes. A note is written before its instance is made and removed
// after the instance is destroyed.
#pragma once

#include <string>

#include "fracgpu/claim_table_layout.h"

namespace fracgpu::tools {

// Any thread or process that holds the GPU's lock of the claim table may call these. All throw
// std::runtime_error with one line if the folder cannot be used or other users may use it.
class InstanceNotes {
 public:
  explicit InstanceNotes(const std::string& claim_table) : folder_(claim_table + ".instances") {}

  void add(const std::string& gpu, const claim_table_layout::MigGrant& instance) const;
  bool has(const std::string& gpu, const claim_table_layout::MigGrant& instance) const;
  void remove(const std::string& gpu, const claim_table_layout::MigGrant& instance) const;

 private:
  const std::string folder_;
};

}  // namespace fracgpu::tools
