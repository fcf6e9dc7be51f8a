#!/bin/sh
# oldest_glibc.sh CC LIBRARY FETCH PARTS: the library loads and caps on a real glibc 2.31, the oldest that is served.
# The machine's own programs are too new for it, so a small client and a driver are compiled here against that glibc,
# and its own loader starts them.
set -eu
cc=$1 library=$2 fetch=$3 part=$4/glibc-2.31
here=$(cd "$(dirname "$0")" && pwd)
[ "$(uname -m)" = x86_64 ] || { echo "skipped: the part is for x86_64"; exit 77; }
"$fetch" glibc-2.31 "$part" || { echo "skipped: no glibc 2.31 to test with"; exit 77; }
libc=$part/lib/x86_64-linux-gnu

tenant=gate-$$
work=$(mktemp -d)
trap 'rm -rf "$work" "/dev/shm/fracgpu-$tenant"' EXIT
"$cc" -O1 -fPIC -shared -nostdlib -Wl,-soname,libcuda.so.1 -o "$work/libcuda.so.1" "$here/old_driver.c"
"$cc" -O1 -nodefaultlibs -Wl,-rpath-link,"$libc" -o "$work/client" "$here/old_client.c" "$libc/libdl.so.2" "$libc/libc.so.6"

# run WHAT VARIABLE=VALUE…: the client's output must be exactly what stands on stdin.
run() {
  what=$1
  shift
  cat >"$work/expected"
  if ! env "$@" "$libc/ld-linux-x86-64.so.2" --library-path "$work:$libc" --preload "$library" "$work/client" \
      >"$work/output" 2>"$work/errors" || ! cmp -s "$work/output" "$work/expected"; then
    echo "FAILED on glibc 2.31, $what:"
    diff "$work/expected" "$work/output" || true
    cat "$work/errors"
    exit 1
  fi
}

run "without a cap" FRACGPU_TENANT=$tenant <<'EXPECTED'
glibc 2.31
total 4096 MiB
768 MiB: 0
512 MiB: 0
EXPECTED
[ ! -e "/dev/shm/fracgpu-$tenant" ] || { echo "FAILED on glibc 2.31: a ledger was made without a cap"; exit 1; }

run "with a cap of 1 GiB" FRACGPU_TENANT=$tenant FRACGPU_MEMORY_LIMIT=1GiB <<'EXPECTED'
glibc 2.31
total 1024 MiB
768 MiB: 0
512 MiB: 2
EXPECTED
grep -q 'cuMemAlloc' "$work/errors" || { echo "FAILED on glibc 2.31: the refusal was not explained on stderr"; exit 1; }
echo "loads and caps on glibc 2.31"
