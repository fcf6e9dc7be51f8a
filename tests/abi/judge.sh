#!/bin/sh
# judge.sh CXX SOURCE TABLES API INCLUDE: judges our declarations of an API (cuda, nvml, hip, hsa, amdsmi, rocmsmi) by its header in INCLUDE.
set -eu
cxx=$1 source=$2 tables=$3 api=$4 include=$5
program=$(mktemp)
trap 'rm -f "$program"' EXIT
# What a vendor calls deprecated must be under the cap as long as it is there.
"$cxx" -std=c++20 -Wall -Wextra -Werror -Wno-deprecated-declarations -I "$source" -I "$source/include" -I "$tables" -isystem "$include" \
  -o "$program" "$source/tests/abi/${api}_abi.cc" || {
  echo "FAILED: our $api declarations differ from $api.h"
  exit 1
}
"$program"
