#!/bin/sh
# tree_is_portable.sh SOURCE BUILD: no file of the tree may hold a path of the machine that it was written on, or the
# host name of a package mirror: both work here and nowhere else. Nor may the top level hold what nobody meant to keep.
set -eu
cd "$1"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# Brackets keep this file from finding itself.
paths='(^|[^A-Za-z0-9_.])(/wor[k]/|/hom[e]/[a-z]|/roo[t]/[A-Za-z.])'
hosts='(de[b]|ft[p]|securit[y]|snapsho[t]|archiv[e]|port[s]|mirror[s]?)(\.[a-z0-9-]+)*\.(debian|ubuntu)\.(org|com)'
# Where this tree and its build lie, and what this machine's package manager asks, whatever that is called.
# shellcheck disable=SC2016 # apt-get expands it
{
  printf '%s/\n' "$1" "$2"
  apt-get indextargets --format '$(REPO_URI)' 2>/dev/null |
    sed -n 's,^[a-z+]*://\([^/]*\.[^/]*\)/.*,\1,p' | grep -v '^127\.' || true
} | sort -u >"$work/here"

if git ls-files >/dev/null 2>&1; then
  git ls-files -z --cached --others --exclude-standard >"$work/files"
else
  find . \( -path ./build -o -path ./.git \) -prune -o -type f -print0 >"$work/files"
fi
{
  xargs -0 grep -HsInE -e "$paths" -e "$hosts" <"$work/files" || true
  xargs -0 grep -HsInF -f "$work/here" <"$work/files" || true
} | cut -c1-200 | sort -u >"$work/found"
if [ -s "$work/found" ]; then
  echo "FAILED: a path of this machine or a package mirror's name is in the tree:"
  head -n 20 "$work/found"
  exit 1
fi
# What a program left where it was called, and somebody added with everything else.
known='bench|containers|hooks|include|shim|tests|tools|\.ci|CMakeLists\.txt|CMakePresets\.json|README\.md|LICENSE'
known="$known|docs|CONTRIBUTING\.md|CHANGELOG\.md|\.clang-format|\.clang-tidy|\.dockerignore|\.editorconfig|\.github|\.gitignore"
known="$known|\.pre-commit-config\.yaml"
tr '\0' '\n' <"$work/files" | sed 's,^\./,,; s,/.*,,' | sort -u | grep -vxE -e "$known" >"$work/strays" || true
if [ -s "$work/strays" ]; then
  echo "FAILED: the top level has what does not belong there:"
  cat "$work/strays"
  exit 1
fi
echo "$(tr -dc '\0' <"$work/files" | wc -c) files name no machine and no mirror"
