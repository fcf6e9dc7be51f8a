#!/bin/sh
# judge_rm.sh CXX SOURCE HEADERS: compares hooks/cuda/rm.h with the headers of NVIDIA's kernel modules, unpacked in HEADERS.
set -eu
cxx=$1 source=$2
modules=$(echo "$3"/NVIDIA-kernel-module-source-*)
# The headers are C for a kernel, so their warnings say nothing about this code.
"$cxx" -std=c++20 -fsyntax-only -fpermissive -w -I "$source" -I "$source/include" -isystem "$modules/src/common/sdk/nvidia/inc" \
  -isystem "$modules/src/nvidia/arch/nvalloc/unix/include" -isystem "$modules/src/common/inc" "$source/tests/abi/rm_abi.cc" || {
  echo "FAILED: hooks/cuda/rm.h differs from the kernel modules' headers"
  exit 1
}
