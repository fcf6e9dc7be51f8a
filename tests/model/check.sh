#!/bin/sh
# check.sh MODEL holds|broken [-DNAME=VALUE ...]: lets spin search all states of the model. `holds` passes when the search
# is complete and finds nothing wrong; `broken` passes when it finds something, so that we know that it would. Exit
# status 77: spin or a C compiler is not here.
set -eu
model=$1 expected=$2
shift 2
for tool in spin cc; do
  command -v "$tool" >/dev/null || { echo "skipped: no $tool here"; exit 77; }
done
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
spin -a "$@" "$model"
cc -O2 -w -DSAFETY -DCOLLAPSE -o pan pan.c
./pan -m200000 -w24 >found || true
grep -E 'errors:|states, stored|elapsed time|assertion violated|invalid end state|max search depth' found || true
if grep -q 'max search depth too small' found; then
  echo "FAILED: the search was cut off"
  exit 1
fi
case $expected in
  holds) grep -q 'errors: 0' found ;;
  broken) grep -q -E 'assertion violated|invalid end state' found && grep -q 'errors: 1' found ;;
  *) exit 2 ;;
esac || { echo "FAILED: expected that it is: $expected"; exit 1; }
