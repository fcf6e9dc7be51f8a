/* Stands for a library of NVIDIA's that requests device memory from RM: it makes the requests that
 * a test gives it, by its own import of ioctl. */
#include <sys/ioctl.h>

int request_of_rm(int fd, unsigned long request, void* argument) {
  return ioctl(fd, request, argument);
}
