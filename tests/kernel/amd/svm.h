// Shared virtual memory: ranges of a program's own memory that can move to a card.
#pragma once

#include <linux/kfd_ioctl.h>

#include "ioctl.h"

namespace kfd {

long svm(Caller& caller, kfd_ioctl_svm_args& args, size_t bytes);

}  // namespace kfd
