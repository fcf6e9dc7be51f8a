#!/bin/sh
# exports.sh NM LIBRARY HOOKS: the library exports the hooked functions of the tables and the three doors, no more
# and no less. One name too many is preloaded over every program's own; one too few is a way round the cap.
set -eu
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$1" --dynamic --defined-only --format=posix "$2" | cut -d' ' -f1 | sort -u >"$work/exported"
{
  printf '%s\n' dlopen dlsym dlvsym
  cat "$3"/*/functions.inc "$3"/*/*/functions.inc | sed -nE 's/^FRACGPU_(HOOKED|NAMED)\( *([A-Za-z0-9_]*) *,.*/\2/p'
} | sort >"$work/listed"

fail() { # fail WHAT, with the names on stdin
  names=$(tr '\n' ' ')
  [ -z "$names" ] || { echo "FAILED: $1: $names"; touch "$work/failed"; }
}
uniq -d "$work/listed" | fail "listed more than once in functions.inc"
comm -23 "$work/exported" "$work/listed" | fail "exported, but in no functions.inc"
comm -13 "$work/exported" "$work/listed" | fail "hooked in functions.inc, but not exported"
[ ! -e "$work/failed" ] || exit 1
echo "exports exactly the $(wc -l <"$work/listed") names of the tables"
