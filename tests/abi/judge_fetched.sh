#!/bin/sh
# judge_fetched.sh CXX SOURCE TABLES PARTS: judges our NVML declarations by the nvml.h that the distribution has.
set -eu
cxx=$1 source=$2 tables=$3 part=$4/nvml-headers
"$source/tests/fetch.sh" nvml-headers "$part" || { echo "skipped: no nvml.h to be had"; exit 77; }
program=$(mktemp)
trap 'rm -f "$program"' EXIT
"$cxx" -std=c++20 -Wall -Wextra -Werror -I "$source" -I "$tables" -isystem "$part/usr/include" \
  -o "$program" "$source/tests/abi/nvml_abi.cc" || { echo "FAILED: our NVML declarations differ from nvml.h"; exit 1; }
"$program"
