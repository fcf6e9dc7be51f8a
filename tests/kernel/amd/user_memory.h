// Accesses the calling process's memory as a kernel does: a bad address is an error, not a signal.
#pragma once

#include <sys/uio.h>
#include <unistd.h>

#include <atomic>
#include <cstdint>

namespace kfd {

inline bool copy_from_user(void* to, uint64_t from, size_t bytes) {
  if (bytes == 0) return true;
  const iovec local{to, bytes}, remote{reinterpret_cast<void*>(from), bytes};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

inline bool copy_to_user(uint64_t to, const void* from, size_t bytes) {
  if (bytes == 0) return true;
  const iovec local{const_cast<void*>(from), bytes}, remote{reinterpret_cast<void*>(to), bytes};
  return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(bytes);
}

inline bool is_readable(uint64_t address, size_t bytes) {
  char byte;
  return bytes != 0 && address + bytes > address && copy_from_user(&byte, address, 1) &&
         copy_from_user(&byte, address + bytes - 1, 1);
}

// A word that the program and the device both change. The address must be mapped.
template <typename Value>
std::atomic_ref<Value> shared_with_program(uint64_t address) {
  return std::atomic_ref<Value>(*reinterpret_cast<Value*>(address));
}

}  // namespace kfd
