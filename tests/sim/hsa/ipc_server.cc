// One connection, one address, one descriptor; see ipc_server.h. Served by one thread for the
// process's whole life.
#include "sim/hsa/ipc_server.h"

#include <pthread.h>
#include <sys/socket.h>
#include <sys/un.h>
#include <unistd.h>

#include <atomic>
#include <cstdio>
#include <cstring>

#include "sim/hsa/signal.h"

namespace sim {
namespace {

std::atomic<pid_t> served_by{0};
int (*descriptors)(uint64_t) = nullptr;
int listening = -1;

sockaddr_un name_of(pid_t pid) {
  sockaddr_un name{};
  name.sun_family = AF_UNIX;
  std::snprintf(name.sun_path + 1, sizeof name.sun_path - 1, "simhsa%d", static_cast<int>(pid));
  return name;
}

union Control {
  char bytes[CMSG_SPACE(sizeof(int))];
  cmsghdr align;
};

void serve(void*) {
  for (;;) {
    const int asking = accept4(listening, nullptr, nullptr, SOCK_CLOEXEC);
    if (asking < 0) continue;
    uint64_t address = 0;
    const bool asked = read(asking, &address, sizeof address) == sizeof address;
    const int fd = asked ? descriptors(address) : -1;
    if (fd >= 0) {
      char byte = 'y';
      iovec data{&byte, 1};
      Control control{};
      msghdr message{};
      message.msg_iov = &data;
      message.msg_iovlen = 1;
      message.msg_control = control.bytes;
      message.msg_controllen = sizeof control.bytes;
      cmsghdr* const header = CMSG_FIRSTHDR(&message);
      header->cmsg_level = SOL_SOCKET;
      header->cmsg_type = SCM_RIGHTS;
      header->cmsg_len = CMSG_LEN(sizeof fd);
      std::memcpy(CMSG_DATA(header), &fd, sizeof fd);
      if (sendmsg(asking, &message, MSG_NOSIGNAL) < 0) std::perror("simulated HSA runtime: IPC");
      close(fd);
    }
    close(asking);
  }
}

}  // namespace

bool serve_descriptors(int (*descriptor_of)(uint64_t address)) {
  if (served_by.load() == getpid()) return true;
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un name = name_of(getpid());
  if (fd < 0 || bind(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) != 0 ||
      listen(fd, 64) != 0) {
    if (fd >= 0) close(fd);
    return false;
  }
  descriptors = descriptor_of;
  listening = fd;
  pthread_t thread;
  start_thread(serve, nullptr, &thread);
  pthread_detach(thread);
  served_by.store(getpid());
  return true;
}

int descriptor_from(pid_t exporter, uint64_t address) {
  const int fd = socket(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0);
  const sockaddr_un name = name_of(exporter);
  char byte = 0;
  iovec data{&byte, 1};
  Control control{};
  msghdr message{};
  message.msg_iov = &data;
  message.msg_iovlen = 1;
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof control.bytes;
  int given = -1;
  if (fd >= 0 && connect(fd, reinterpret_cast<const sockaddr*>(&name), sizeof name) == 0 &&
      write(fd, &address, sizeof address) == sizeof address &&
      recvmsg(fd, &message, MSG_CMSG_CLOEXEC) == 1) {
    if (const cmsghdr* header = CMSG_FIRSTHDR(&message)) {
      std::memcpy(&given, CMSG_DATA(header), sizeof given);
    }
  }
  if (fd >= 0) close(fd);
  return given;
}

}  // namespace sim
