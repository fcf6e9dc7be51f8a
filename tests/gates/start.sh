#!/bin/sh
# start.sh READELF LIBRARY: what the library costs each program of a container at its start does not grow unseen. Time
# is no judge of it on a busy machine (tests/containers/start_cost.py measures it); what it is spent on can be counted.
set -eu
readelf=$1 library=$2
fail() { echo "FAILED: $1"; exit 1; }

# The toolchain's own and shim/interpose/start.cc: a static object that needs code makes another one.
size=$("$readelf" --section-headers --wide "$library" | sed -n 's/.* \.init_array  *INIT_ARRAY  *[^ ]* [^ ]* \([^ ]*\) .*/\1/p')
[ -n "$size" ] || fail "no .init_array in $library; is it the right file?"
[ $((0x$size / 8)) -le 2 ] || fail "$((0x$size / 8 - 2)) static initialisers run in every program; make those objects constinit"

# Pages that the loader writes: one that is read-only afterwards, and one that is not.
writable=$("$readelf" --program-headers --wide "$library" | awk '$1 == "LOAD" && $7 == "RW" { print $5 }')
[ $((writable)) -le 8192 ] || fail "$((writable)) bytes of the file are written at each start, where 8192 are meant to do:
offsets and numbers need no relocation, and zeros no place in the file"

"$readelf" --dyn-syms --wide "$library" | grep -qE ' UND (time|gettimeofday)(@|$)' &&
  fail "time() and gettimeofday() are bound by a search of the vDSO at each start; clock_gettime() is not"
echo "one constructor, $((writable)) bytes written by the loader"
