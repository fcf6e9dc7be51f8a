// Root's own notes of the MIG instances that it makes for launches. Everybody may write into the
// claim table, and shall not have root destroy an instance that somebody else has made by naming it
// there: only what has a note is destroyed.
//
// A note is an empty file in the folder CLAIM_TABLE.instances, which is root's alone and there only
// while it has notes. It is written before the instance is made, and goes after it.
#pragma once

#include <string>

#include "fracgpu/claim_table_layout.h"

namespace fracgpu::tools {

// Any thread and process that has the GPU's lock of the claim table. All throw std::runtime_error
// with one line where the folder cannot be had or is not this user's alone.
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
