#!/bin/sh
# build.sh HEADERS OUTPUT [COMPILER]: builds OUTPUT/librmsim.so and OUTPUT/rmsim. HEADERS is the source package
# nvidia-open-gpu-kernel-modules, unpacked.
set -eu
headers=$1 output=$2 compiler=${3:-c++}
here=$(cd "$(dirname "$0")" && pwd)
sdk=$headers/src/common/sdk/nvidia/inc
rm -rf "$output/objects"
mkdir -p "$output/objects"

# Names for those who read a trace: {number, "NAME"}.
grep -rhE '^#define +NV[0-9A-Z_]+ +\(0x[0-9a-fA-F]+U?\).*MESSAGE_ID"' "$sdk/ctrl" |
  sed -E 's/^#define +([^ ]+) +\((0x[0-9a-fA-F]+)U?\).*/{\2u, "\1"},/' >"$output/control_names.inc"

# The headers are C for a kernel, so their warnings say nothing about this code.
flags="-std=c++20 -O2 -g1 -fPIC -fvisibility=hidden -fpermissive -w -D_GNU_SOURCE -U_FORTIFY_SOURCE"
includes="-I$output -isystem $sdk -isystem $headers/src/nvidia/arch/nvalloc/unix/include"
includes="$includes -isystem $headers/kernel-open/nvidia-uvm -isystem $headers/src/common/inc"
cd "$here"
for source in *.cc; do
  [ "$source" = rmsim.cc ] && continue
  echo "$compiler $flags $includes -c $source -o $output/objects/${source%.cc}.o"
done | xargs -P 2 -I{} sh -c '{}'
mv "$output/objects/attach.o" "$output/attach.o"  # which says why it is linked last
$compiler -shared -Wl,-z,initfirst -Wl,-z,defs -o "$output/librmsim.so" "$output"/objects/*.o "$output/attach.o" -lpthread
$compiler -std=c++20 -O2 -g1 -o "$output/rmsim" rmsim.cc accounting.cc -lpthread
