#!/bin/sh
# prepare.sh BUILD [COMPILER]: fetches NVIDIA's driver and builds the simulator into BUILD/kernel/nvidia. 77: cannot be had.
set -eu
build=$(cd "$1" && pwd) compiler=${2:-c++}
here=$(cd "$(dirname "$0")" && pwd)
for part in nvidia-driver-535 nvidia-kernel-headers-535; do
  "$here/../../fetch.sh" "$part" "$build/parts/$part"
done
for part in nvidia-driver-470 nvidia-driver-550 nvidia-graphics-550 opencl pocl-3.1 vulkan-535; do
  "$here/../../fetch.sh" "$part" "$build/parts/$part" || true  # its tests are skipped
done
output=$build/kernel/nvidia
# Made anew when a source is newer, or was made by an interrupted run.
if [ -x "$output/rmsim" ] && [ -z "$(find "$here/simulator" -newer "$output/rmsim" -print -quit)" ]; then
  exit 0
fi
"$here/simulator/build.sh" "$build"/parts/nvidia-kernel-headers-535/NVIDIA-kernel-module-source-* "$output" "$compiler"
