#include "user_memory.h"

#include <sys/uio.h>
#include <unistd.h>

namespace rmsim {

bool copy_from_user(void* to, const void* user, size_t size) {
  if (size == 0) return true;
  const iovec local{to, size}, remote{const_cast<void*>(user), size};
  return process_vm_readv(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

bool copy_to_user(void* user, const void* from, size_t size) {
  if (size == 0) return true;
  const iovec local{const_cast<void*>(from), size}, remote{user, size};
  return process_vm_writev(getpid(), &local, 1, &remote, 1, 0) == static_cast<ssize_t>(size);
}

}  // namespace rmsim
