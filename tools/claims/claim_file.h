// The claim table's file: how to find, make, trust, lock, read and write it.
//
// The file is read and written, not mapped: a mapping would raise SIGBUS if another process cut the
// file. A row lies within one page, and one system call writes it, which a kill does not divide.
#pragma once

#include <memory>
#include <string>

#include "fracgpu/claim_table_layout.h"
#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class ClaimFile {
 public:
  // Finds the file, and makes it if there is none. Throws std::runtime_error if that fails, as all
  // functions here do.
  ClaimFile();
  // Uses this file, which must exist.
  explicit ClaimFile(const std::string& path);

  // Whether the file exists.
  static bool exists();

  const std::string& path() const { return path_; }
  // The table's bytes as last read.
  claim_table_layout::ClaimTable& table() const { return *table_; }

  // Held while rows change. The lock is polled, with a timeout: a holder that is stopped must not
  // block all others for ever. Each lock opens the file again, so that a child that is forked
  // meanwhile does not keep its parent's lock.
  class Lock {
   public:
    explicit Lock(const ClaimFile& file);
    // Locks another byte, which stands for something else that changes beside the rows.
    Lock(const ClaimFile& file, int64_t byte, uint64_t timeout_ms);
    int fd() const { return file_.get(); }

   private:
    Descriptor file_;  // closing it unlocks
  };

  // Reads all parts in use.
  void load(const Lock& lock) const;
  // Writes this range of table().
  void write(const Lock& lock, const void* field, size_t size) const;
  // Reads this part of table() by another descriptor of the file, without the lock.
  void look(int fd, void* field, size_t size) const;

  // Opens the file again, for a row's lock. The lock lives as long as this descriptor and its
  // copies.
  Descriptor open_for_life() const;
  void lock_row(int fd, uint32_t row) const;
  // Takes the row's lock exclusively, if no process holds it. `fd` must be open for writing.
  static bool lock_row_alone(int fd, uint32_t row);
  // A descriptor for lock_row_alone.
  Descriptor open_to_lock_alone() const;
  // Whether any process holds a row's lock.
  static bool is_row_locked(const Lock& lock, uint32_t row);

  [[noreturn]] void fail(const char* what, int code) const;

 private:
  Descriptor open_checked() const;
  off_t offset_of(const void* field) const;

  std::string path_;
  std::unique_ptr<claim_table_layout::ClaimTable> table_;
};

}  // namespace fracgpu::tools
