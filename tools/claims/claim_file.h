// The claim table's file: finding, making and trusting it, its lock, and reading and writing it.
//
// The file is read and written, not mapped: a mapping would be SIGBUS if somebody cut the file. A
// row lies within one page, and is written by one call that a kill does not divide.
#pragma once

#include <memory>
#include <string>

#include "fracgpu/claim_table_layout.h"
#include "tools/cli/descriptor.h"

namespace fracgpu::tools {

class ClaimFile {
 public:
  // Finds the file, making it when there is none. Throws std::runtime_error, as everything here
  // does, when it cannot be had.
  ClaimFile();
  // This one, which must be there.
  explicit ClaimFile(const std::string& path);

  // Whether there is one.
  static bool exists();

  const std::string& path() const { return path_; }
  // Its bytes as last read.
  claim_table_layout::ClaimTable& table() const { return *table_; }

  // Held while rows change. Polled, not waited for in the kernel: somebody who is stopped while he
  // has it must not stop everybody for ever. The file is opened for each time, so that no child
  // that is forked meanwhile keeps what its parent had.
  class Lock {
   public:
    explicit Lock(const ClaimFile& file);
    // Of another byte that says what is being changed beside the rows.
    Lock(const ClaimFile& file, int64_t byte, uint64_t timeout_ms);
    int fd() const { return file_.get(); }

   private:
    Descriptor file_;  // closing it unlocks
  };

  // Reads all that is in use.
  void load(const Lock& lock) const;
  // Writes this range of table().
  void write(const Lock& lock, const void* field, size_t size) const;
  // Reads this part of it by another descriptor of the file, without the lock.
  void look(int fd, void* field, size_t size) const;

  // Opens the file once more, for a row's lock that lives as long as this descriptor and its
  // copies.
  Descriptor open_for_life() const;
  void lock_row(int fd, uint32_t row) const;
  // The row's lock alone, if nobody has it. `fd` is of a lock that writes.
  static bool lock_row_alone(int fd, uint32_t row);
  // A descriptor for that.
  Descriptor open_to_lock_alone() const;
  // Whether somebody has a row's lock.
  static bool is_row_locked(const Lock& lock, uint32_t row);

  [[noreturn]] void fail(const char* what, int code) const;

 private:
  Descriptor open_checked() const;
  off_t offset_of(const void* field) const;

  std::string path_;
  std::unique_ptr<claim_table_layout::ClaimTable> table_;
};

}  // namespace fracgpu::tools
