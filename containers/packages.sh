#!/bin/sh
# packages.sh build|demo|node|tests: installs the Debian packages that building, the demo, the image of nodes, or all
# tests need. This is the one list of them. Where nothing is missing nothing is asked of apt, so a machine without a
# network works too. Of those for tests alone none has to be there: what needs it is skipped.
set -eu

is_installed() {
  # shellcheck disable=SC2016 # dpkg-query expands it
  [ "$(dpkg-query --show --showformat '${db:Status-Status}' "$1" 2>/dev/null || true)" = installed ]
}
# Of packages that serve the same the one that is installed, else the first that apt knows, else the first.
one_of() {
  for each in "$@"; do
    if is_installed "$each"; then echo "$each" && return; fi
  done
  # A new container has no lists of packages yet. (g++ would be a pattern, which others match.)
  if [ "$(id -u)" = 0 ] && ! apt-cache show cmake >/dev/null 2>&1; then
    apt-get -qq update >/dev/null 2>&1 </dev/null || true
  fi
  for each in "$@"; do
    if apt-cache show "$each" >/dev/null 2>&1; then echo "$each" && return; fi
  done
  echo "$1"
}

# libunwind-N-dev is LLVM's: its static archive is position-independent, that of libunwind-dev is not.
libunwind=$(one_of libunwind-14-dev libunwind-15-dev libunwind-16-dev libunwind-17-dev libunwind-18-dev \
  libunwind-19-dev libunwind-20-dev libunwind-21-dev)
build="cmake ninja-build g++ libfmt-dev $libunwind libcli11-dev nlohmann-json3-dev libgtest-dev libzstd-dev python3"
# What names the frames of call stacks; of these, too, the command links archives.
build="$build libdw-dev libelf-dev zlib1g-dev libiberty-dev"
# AMD's own HIP runtime, and the headers of the HSA runtime that is simulated under it.
demo="$(one_of libamdhip64-5 libamdhip64-6 libamdhip64-7) libhsa-runtime-dev"
# What fracgpu-dra is linked with.
node="libgrpc++-dev libprotobuf-dev protobuf-compiler protobuf-compiler-grpc libcurl4-openssl-dev"
# Headers to judge our declarations by and what they include, a terminal to read what full-screen programs show and a
# reader of YAML, the benchmarks, the checker of the ledger's model, and the one version of clang-format that judges.
tests="git python3-pyte python3-yaml libbenchmark-dev libamdhip64-dev libdrm-dev clang-format-14 spin"
# What judges the man page, shells to complete in, and the tool that gives a program capabilities.
tests="$tests groff-base mandoc zsh fish libcap2-bin"
# What makes and runs real containers and packages; the keys of Debian's archive, which an Ubuntu does not have.
tests="$tests debian-archive-keyring mmdebstrap buildah podman runc musl rpm"
# What makes the keys of a Kubernetes API server, unpacks its archive, and gives its node a network of its own.
tests="$tests openssl zstd iproute2"
# A browser, for the page of a report.
tests="$tests chromium"
# What runs the tests that are written in Python.
tests="$tests python3-pytest"
# What looks at every access to memory.
tests="$tests valgrind"

optional=
case ${1-} in
  build) wanted=$build ;;
  demo) wanted="$build $demo" ;;
  node) wanted="$build $node" ;;
  tests) wanted=$build optional="$demo $node $tests" ;;
  *)
    echo "usage: $0 build|demo|node|tests" >&2
    exit 2
    ;;
esac

if ! command -v dpkg-query >/dev/null 2>&1; then
  echo "This is not Debian; these packages, or what they are called here, must be there: $wanted $optional" >&2
  exit 0
fi
missing_of() {
  for package in $1; do
    is_installed "$package" || printf ' %s' "$package"
  done
}
missing=$(missing_of "$wanted") unavailable=$(missing_of "$optional")
[ -n "$missing$unavailable" ] || exit 0

if [ "$(id -u)" != 0 ]; then
  if [ -n "$missing" ]; then
    echo "Packages are missing, and only root may install them: apt-get install$missing" >&2
    exit 1
  fi
  echo "What needs these is skipped, as only root may install them:$unavailable"
  exit 0
fi
echo "Installing$missing$unavailable"
export DEBIAN_FRONTEND=noninteractive
log=$(mktemp)
trap 'rm -f "$log"' EXIT
# A source that has nothing to do with us may fail to update; whether ours can be installed is what counts.
apt-get -qq update >"$log" 2>&1 </dev/null || true
install() {
  # shellcheck disable=SC2086 # a list of names
  apt-get -qq install --yes --no-install-recommends $1 >>"$log" 2>&1 </dev/null
}
if ! install "$missing$unavailable"; then
  # One that this release does not have keeps all others from being installed.
  if ! install "$missing"; then
    echo "These could not be installed:$missing. The last lines of apt-get:" >&2
    tail -n 15 "$log" >&2
    exit 1
  fi
  for package in $unavailable; do
    install "$package" || echo "What needs $package is skipped: it cannot be installed"
  done
fi
