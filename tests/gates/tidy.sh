#!/bin/sh
# tidy.sh SOURCE BUILD: clang-tidy finds nothing in the library and the command. Minutes long, so tests/run.sh runs it
# only with --tidy.
set -eu
[ -n "${FRACGPU_TIDY-}" ] || { echo "skipped: tests/run.sh --tidy runs it"; exit 77; }
cd "$1"
# Version 14 finds nothing; a newer one may know more to find.
for tool in clang-tidy-14 clang-tidy clang-tidy-19 clang-tidy-18 clang-tidy-17 clang-tidy-16 clang-tidy-15 ''; do
  [ -n "$tool" ] || { echo "skipped: no clang-tidy here"; exit 77; }
  "$tool" --version >/dev/null 2>&1 && break
done
# GCC's commands, less the one option that Clang does not know.
commands=$(mktemp -d)
trap 'rm -r "$commands"' EXIT
sed 's/ -fno-tree-loop-distribute-patterns//' "$2/compile_commands.json" >"$commands/compile_commands.json"
# Of what is built here: tools/dra needs packages that are not everywhere.
found=$(find shim hooks tools -name '*.cc' | sort |
  while read -r file; do ! grep -qF "/$file\"" "$commands/compile_commands.json" || echo "$file"; done |
  xargs -n 4 -P "$(nproc)" "$tool" -p "$commands" --quiet 2>/dev/null | grep -E '(error|warning):' | sort -u || true)
if [ -n "$found" ]; then
  echo "FAILED: clang-tidy found"
  printf '%s\n' "$found"
  exit 1
fi
echo "clang-tidy finds nothing"
