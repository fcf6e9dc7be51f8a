#!/usr/bin/env bash
# Installs what is missing, builds the release preset and runs every test. Without root it installs nothing and runs
# what it can. In CI warnings are errors; elsewhere the compiler may be one that nobody has tried. Ends with ctest's
# summary; exit status 0 only if all that could run here passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

presets=(release)
arguments=()
for argument in "$@"; do
  case $argument in
    --sanitizers) presets+=(asan tsan) ;;
    --campaign) export FRACGPU_CAMPAIGN=1 ;;
    --tidy) export FRACGPU_TIDY=1 ;;
    -h | --help)
      cat <<'USAGE'
usage: tests/run.sh [--sanitizers] [--campaign] [--tidy] [CTEST ARGUMENT ...]
  --sanitizers  also builds and tests the asan and tsan presets (several minutes each)
  --tidy        also runs clang-tidy (minutes)
  --campaign    gives the randomised tests more time and more rounds
USAGE
      exit 0
      ;;
    *) arguments+=("$argument") ;;
  esac
done

exec </dev/null
containers/packages.sh tests
if (($(id -u) != 0)); then
  echo "Not root: tests of containers, of packages and on other root filesystems will be skipped; each says why."
fi
status=0
for preset in "${presets[@]}"; do
  echo "== $preset"
  cmake --preset "$preset" -Wno-dev ${CI:+-DFRACGPU_WERROR=ON}
  cmake --build --preset "$preset" --parallel "$(nproc)"
  ctest --preset "$preset" --parallel "$(nproc)" "${arguments[@]}" || status=1
done
if [[ -z ${FRACGPU_KUBERNETES:-} && ! -d ../shared/kubernetes ]]; then
  echo "Skipped for want of an API server: the suites of Kubernetes. They run with FRACGPU_KUBERNETES=FOLDER, where the folder" \
    "has kube-apiserver or the server archive of a Kubernetes release (tests/README.md)."
fi
exit "$status"
