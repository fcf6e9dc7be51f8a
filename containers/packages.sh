#!/bin/sh
# packages.sh build|demo|tests: installs the Debian packages that building, the demo, or all tests need. This is the one
# list of them. Where nothing is missing nothing is asked of apt, so a machine without a network works too.
set -eu

# libunwind-14-dev is LLVM's: its static archive is position-independent, that of libunwind-dev is not.
build="cmake ninja-build g++ libfmt-dev libunwind-14-dev libcli11-dev nlohmann-json3-dev libgtest-dev python3"
# AMD's own HIP runtime, and the headers of the HSA runtime that is simulated under it.
demo="libamdhip64-5 libhsa-runtime-dev"
# Headers to judge our declarations by and what they include, a terminal to read what full-screen programs show and a
# reader of YAML, the benchmarks, the checker of the ledger's model, and the one version of clang-format that judges.
tests="git python3-pyte python3-yaml libbenchmark-dev libamdhip64-dev libdrm-dev clang-format-14 spin"
# What judges the man page, shells to complete in, and the tool that gives a program capabilities.
tests="$tests groff-base mandoc zsh fish libcap2-bin"
# What makes and runs real containers and packages.
tests="$tests debootstrap buildah podman runc musl rpm"
# What looks at every access to memory.
tests="$tests valgrind"

case ${1-} in
  build) wanted=$build ;;
  demo) wanted="$build $demo" ;;
  tests) wanted="$build $demo $tests" ;;
  *)
    echo "usage: $0 build|demo|tests" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "This is not Debian; these packages, or what they are called here, must be there: $wanted" >&2
  exit 0
fi
missing=
for package in $wanted; do
  # shellcheck disable=SC2016 # dpkg-query expands it
  status=$(dpkg-query --show --showformat '${db:Status-Status}' "$package" 2>/dev/null || true)
  [ "$status" = installed ] || missing="$missing $package"
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" != 0 ]; then
  echo "Packages are missing, and only root may install them: apt-get install$missing" >&2
  exit 1
fi
echo "Installing$missing"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A source that has nothing to do with us may fail to update; whether ours can be installed is what counts.
apt-get -qq update >"$log" 2>&1 </dev/null || true
# shellcheck disable=SC2086 # a list of names
if ! apt-get -qq install --yes --no-install-recommends $missing >>"$log" 2>&1 </dev/null; then
  echo "These could not be installed:$missing. The last lines of apt-get:" >&2
  tail -n 15 "$log" >&2
  exit 1
fi
