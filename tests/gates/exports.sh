#!/bin/sh
# exports.sh NM LIBRARY LIST...: the library exports the hooked functions of the tables and the dlsym interposer's three
# trampolines, no more and no less; the command LIST prints them. One name too many is preloaded over every program's
# own; one too few is a way round the cap.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --dynamic --defined-only --format=posix "$2" | cut -d' ' -f1 | sort -u >"$work/exported"
shift 2
"$@" >"$work/names"
sort "$work/names" >"$work/listed"

fail() { # fail WHAT, with the names on stdin
  names=$(tr '\n' ' ')
  [ -z "$names" ] || { echo "FAILED: $1: $names"; touch "$work/failed"; }
}
comm -23 "$work/exported" "$work/listed" | fail "exported, but in no functions.inc"
comm -13 "$work/exported" "$work/listed" | fail "hooked in functions.inc, but not exported"
[ ! -e "$work/failed" ] || exit 1
echo "exports exactly the $(wc -l <"$work/listed") names of the tables"
