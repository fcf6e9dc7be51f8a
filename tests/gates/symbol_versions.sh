#!/bin/sh
# symbol_versions.sh READELF FILE: no symbol of the library or the command may need a glibc newer than 2.31
# (Ubuntu 20.04), or any version of a library that is linked in. One too new in the library, and every process of an
# older container exits with status 1.
set -eu
newest=2.31
versions=$("$1" --version-info --wide "$2" | sed -n '/^Version needs/,$ s/.*Name: \([^ ]*\).*/\1/p' | sort -uV)
[ -n "$versions" ] || { echo "FAILED: $2 has no version needs at all; is it the right file?"; exit 1; }
for version in $versions; do
  number=${version#GLIBC_}
  case $number in
    *[!0-9.]*) highest= ;; # GLIBCXX_…, GCC_…, GLIBC_PRIVATE, GLIBC_ABI_…
    *) highest=$(printf '%s\n%s\n' "$number" "$newest" | sort -V | tail -n 1) ;;
  esac
  if [ "$highest" != "$newest" ]; then
    echo "FAILED: $2 needs $version; the newest allowed is GLIBC_$newest"
    exit 1
  fi
done
echo "needs: $(printf '%s' "$versions" | tr '\n' ' ')"
