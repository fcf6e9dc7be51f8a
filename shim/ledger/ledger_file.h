// The ledger's file: finding, making and trusting `/dev/shm/fracgpu-<tenant>`, and its locks.
//
// Knows paths, descriptors and the kernel's open-file-description locks. Knows no bytes beyond the
// header. No descriptor stays open: a mapping keeps the file, and a lock taken through a mapped
// description lives exactly as long as the process's memory does.
#pragma once

#include <sys/types.h>

#include <cstdint>
#include <string_view>

#include "fracgpu/ledger_layout.h"
#include "shim/base/text.h"

namespace fracgpu {

class LedgerFile {
 public:
  enum class Result { ok, absent, failed };

  LedgerFile() = default;
  LedgerFile(const LedgerFile&) = delete;
  LedgerFile& operator=(const LedgerFile&) = delete;
  ~LedgerFile() { close(); }

  // Maps the tenant's file for reading and writing. Makes it if it does not exist. `failed` sets
  // `error` to one line: /dev/shm absent, full or read-only; something else at the path; wrong
  // size, magic or layout version.
  Result open_or_create(const char* tenant, Message& error);

  // Maps an existing file, for tools. `absent` if there is none.
  enum class Access { read, write };
  Result open_existing(const char* tenant, Access access, Message& error);

  void close();

  layout::Ledger* map() const { return map_; }
  const char* path() const { return path_.c_str(); }
  std::string_view tenant() const { return path_.view().substr(sizeof layout::kFilePrefix - 1); }
  // Whether open_or_create has made the file. It then contains only what other processes have
  // written since.
  bool is_made() const { return made_; }

  // Opens the mapped file again, close-on-exec. Returns -1 and sets `error` if the path no longer
  // leads to the mapped file or no descriptor is free. The caller closes it.
  int reopen(Message& error) const;

  // Whether the path still leads to the mapped file.
  bool is_current() const;

  // Locks the slot's byte for as long as this process's memory lives: until it exits, execs or is
  // killed. fork does not inherit the lock, and closefrom does not drop it. False if another
  // process holds the byte.
  bool lock_slot_for_life(uint32_t slot, Message& error);

  // Gives memory to `size` bytes of the mapped ledger from `part` on, which no process has touched
  // yet. False with `error` set if there is no memory. `fd` comes from reopen().
  bool back(int fd, const void* part, size_t size, Message& error) const;

  // Whether a living process holds the slot. `fd` comes from reopen().
  static bool slot_is_alive(int fd, uint32_t slot);
  static bool any_slot_is_alive(int fd, uint32_t first = 0, uint32_t end = layout::kMaxSlots);
  // The same for a tenant's file that is not mapped, in three system calls. False if there is no
  // file.
  static bool is_lived_in(const char* tenant);

 private:
  Result map_file(int fd, bool writable, Message& error);

  Text<128> path_;
  layout::Ledger* map_ = nullptr;
  void* life_ = nullptr;  // mapping that keeps the description of lock_slot_for_life
  dev_t device_ = 0;
  ino_t inode_ = 0;
  uint64_t root_inode_ = 0;  // of "/" when the file was opened
  bool made_ = false;
};

}  // namespace fracgpu
