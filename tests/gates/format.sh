#!/bin/sh
# format.sh SOURCE: all C and C++ sources are formatted as .clang-format says. Judged by clang-format 14 alone,
# because other versions format some constructs differently.
set -eu
cd "$1"
for tool in clang-format-14 clang-format ''; do
  if [ -z "$tool" ]; then
    echo "skipped: only clang-format 14 judges, here is $(clang-format --version 2>/dev/null || echo none)"
    exit 77
  fi
  "$tool" --version 2>/dev/null | grep -q 'version 14\.' && break
done
wrong=$(find bench hooks include shim tests tools -name '*.cc' -o -name '*.c' -o -name '*.h' | sort |
  xargs "$tool" --dry-run 2>&1 | sed -n 's/^\([^:]*\):[0-9].*clang-format-violations.*/\1/p' | sort | uniq -c)
if [ -n "$wrong" ]; then
  echo "FAILED: not formatted (run '$tool -i' on them; places, file):"
  printf '%s\n' "$wrong"
  exit 1
fi
echo "all sources are formatted"
