#!/bin/sh
# musl.sh CC LIBRARY FETCH PARTS: the library loads and caps where the C library is musl, as in Alpine's images, in the
# version of Debian 12 and in that of Debian 13. A small client and a driver stand for programs: there is no vendor's
# library for musl.
set -eu
cc=$1 library=$2 fetch=$3 parts=$4
here=$(cd "$(dirname "$0")" && pwd)
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the parts are for x86_64"; exit 77; }

tenant=gate-musl-$$
work=$(mktemp -d)
trap 'rm -rf "$work" "/dev/shm/fracgpu-$tenant"' EXIT

# run VERSION WHAT VARIABLE=VALUE…: the client's output must be exactly what stands on stdin.
run() {
  what="$1, $2"
  shift 2
  cat >"$work/expected"
  if ! env "$@" LD_LIBRARY_PATH="$work" LD_PRELOAD="$library" "$loader" "$work/client" \
      >"$work/output" 2>"$work/errors" || ! cmp -s "$work/output" "$work/expected"; then
    echo "FAILED on $what:"
    diff "$work/expected" "$work/output" || true
    cat "$work/errors"
    exit 1
  fi
}

tested=
for version in musl-1.2.3 musl-1.2.5; do
  "$fetch" $version "$parts/$version" || continue
  loader=$(find "$parts/$version" -name libc.so -type f)
  rm -f "/dev/shm/fracgpu-$tenant"
  "$cc" -O1 -U_FORTIFY_SOURCE -fPIC -shared -nostdlib -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" "$here/old_driver.c"
  "$cc" -O1 -U_FORTIFY_SOURCE -fno-stack-protector -nodefaultlibs -Wl,--dynamic-linker="$loader" -o "$work/client" "$here/old_client.c" \
    "$loader"
  run $version "without a cap" FRACGPU_TENANT=$tenant <<'EXPECTED'
no glibc
total 4096 MiB
768 MiB: 0
512 MiB: 0
EXPECTED
  [ ! -e "/dev/shm/fracgpu-$tenant" ] || { echo "FAILED on $version: a ledger was made without a cap"; exit 1; }
  run $version "with a cap of 1 GiB" FRACGPU_TENANT=$tenant FRACGPU_MEMORY_LIMIT=1GiB <<'EXPECTED'
no glibc
total 1024 MiB
768 MiB: 0
512 MiB: 2
EXPECTED
  grep -q 'cuMemAlloc' "$work/errors" || { echo "FAILED on $version: the refusal was not explained on stderr"; exit 1; }
  tested="$tested $version"
done
[ -n "$tested" ] || { echo "skipped: no musl to test with"; exit 77; }
echo "loads and caps on$tested"
