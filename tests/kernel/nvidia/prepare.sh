#!/bin/sh
# prepare.sh BUILD [COMPILER]: fetches NVIDIA's driver and builds the simulator into BUILD/kernel/nvidia. 77: cannot be had.
set -eu
build=$(cd "$1" && pwd) compiler=${2:-c++}
here=$(cd "$(dirname "$0")" && pwd)
for part in nvidia-driver-535 nvidia-kernel-headers-535; do
  "$here/../../fetch.sh" "$part" "$build/parts/$part"
done
"$here/../../fetch.sh" nvidia-driver-550 "$build/parts/nvidia-driver-550" || true  # its tests are skipped
output=$build/kernel/nvidia
# Made anew when a source is newer, or was made by an interrupted run.
if [ -x "$output/rmsim" ] && [ -z "$(find "$here/simulator" -newer "$output/rmsim" -print -quit)" ]; then
  exit 0
fi
"$here/simulator/build.sh" "$build"/parts/nvidia-kernel-headers-535/NVIDIA-kernel-module-source-* "$output" "$compiler"
