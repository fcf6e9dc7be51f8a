#!/usr/bin/env bash
# The acceptance run, for whoever has a GPU of either vendor: asks the driver what the library assumes of it, fills a
# capped GPU on every path while the driver's own count is watched from outside, and writes hardware-report.md and
# hardware-report.json. It needs the built tree and nothing else, changes no setting of the card and ends within ten
# minutes. Exit status 0: nothing is WRONG; 1: something is; 2: it could not be run; 3: there is no GPU.
set -uo pipefail
tree=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)

usage() {
  cat <<'USAGE'
usage: tests/hardware.sh [--output DIR] [--seconds N] [--build DIR] [--library FILE] [--simulated PROFILE]
  --output DIR         where the report goes (default: the current directory)
  --seconds N          the time for all of it, 30 to 600 (default: 600)
  --build DIR          the built tree (default: build/release of this tree)
  --library FILE       the library to judge (default: libfracgpu.so of the built tree)
  --simulated PROFILE  on a simulated node, of those that simnode create knows; to test the run itself
USAGE
}
give_up() {
  echo "hardware.sh: $1" >&2
  exit "${2-2}"
}

output=. seconds=600 build=$tree/build/release library='' profile=''
while (($#)); do
  case $1 in
    -h | --help)
      usage
      exit 0
      ;;
    --output | --seconds | --build | --library | --simulated)
      if (($# < 2)) || [[ -z $2 ]]; then give_up "$1 needs a value; see --help"; fi
      case $1 in
        --output) output=$2 ;;
        --seconds) seconds=$2 ;;
        --build) build=$2 ;;
        --library) library=$2 ;;
        --simulated) profile=$2 ;;
      esac
      shift 2
      ;;
    *) give_up "unknown argument '$1'; see --help" ;;
  esac
done
if ! [[ $seconds =~ ^[1-9][0-9]{1,2}$ ]] || ((seconds < 30 || seconds > 600)); then
  give_up "--seconds $seconds: accepted are 30 to 600"
fi
build=$(cd "$build" 2>/dev/null && pwd) || give_up "nothing is built: cmake --preset release && cmake --build --preset release"
library=${library:-$build/libfracgpu.so}
library=$(realpath -e -- "$library" 2>/dev/null) || give_up "there is no such library; --library needs a file"
probe=$build/tests/hardware/hardware_probe
judge=$build/tests/hardware/hardware_judge
simnode=$build/tests/sim/simnode
for each in "$probe" "$judge" "$build/fracgpu"; do
  [[ -x $each ]] || give_up "$each is missing: cmake --build --preset release"
done
mkdir -p "$output"
[[ -w $output ]] || give_up "cannot write into $output"

work=$(mktemp -d) || give_up "no temporary folder can be made"
node=/dev/shm/simnode-acceptance-$$
tenant=acceptance-$$
# shellcheck disable=SC2317 # called by the trap
cleanup() {
  # The status of what was ended must not end this.
  if [[ -n $running ]] && kill "$running" 2>/dev/null; then wait "$running" || true; fi
  if [[ -n $profile ]]; then "$simnode" remove "$node" 2>/dev/null; fi
  rm -rf "$work"
  rm -f /dev/shm/fracgpu-"$tenant"-*
}
running=''
trap cleanup EXIT
trap 'exit 2' INT TERM

# What the probes run in: nothing of a cap, nothing preloaded, and the compiler's cache of the driver in our own folder.
unset LD_PRELOAD HARDWARE_UUID FRACGPU_MEMORY_LIMIT FRACGPU_TENANT FRACGPU_LOG FRACGPU_LOG_FILE
export CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_CACHE_PATH=$work/cache HARDWARE_COMMAND=$build/fracgpu
plain=''
if [[ -n $profile ]]; then
  "$simnode" create "$node" --profile "$profile" || give_up "no simulated node can be made"
  export FRACGPU_SIM_NODE=$node LD_LIBRARY_PATH=$build/sim${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
  plain=$build/sim/libsimkfd.so # shows the kernel drivers' files
fi
export HARDWARE_PLAIN_PRELOAD=$plain
preload=$library${plain:+:$plain}

facts=$work/facts log=$work/log
touch "$facts" "$log"
say() { # say KEY JSON: a fact of our own
  printf '{"key":"%s","value":%s}\n' "$1" "$2" >>"$facts"
}
skip() { # skip KEY REASON
  printf '{"key":"%s","reason":"%s"}\n' "$1" "$2" >>"$facts"
}

# All that may take time is run by `bounded`: no longer than its own limit and what is left of the whole. In the
# background, so that an interrupt ends it at once.
last=$((SECONDS + seconds - 10))
bounded() { # bounded SECONDS COMMAND…: 124 when it was not over in time, 125 when no time was left
  local limit=$1 status=0
  ((limit <= last - SECONDS)) || limit=$((last - SECONDS))
  ((limit > 0)) || return 125
  shift
  timeout --kill-after=2 "$limit" "$@" </dev/null &
  running=$!
  wait "$running" || status=$?
  running=''
  return "$status"
}
step() { # step NAME SECONDS COMMAND…: its facts are added
  local name=$1 limit=$2 status=0 vendor
  shift 2
  [[ ! -t 2 ]] || printf '\r\e[K%s (%d s left) ' "$name" "$((last - SECONDS))" >&2
  echo "== $name" >>"$log"
  for vendor in "${!used[@]}"; do
    bounded 15 env ${plain:+LD_PRELOAD="$plain"} "$probe" settle --vendor "$vendor" --used "${used[$vendor]}" 2>>"$log"
  done
  bounded "$limit" "$@" >>"$facts" 2>>"$log" || status=$?
  case $status in
    0) return ;;
    124 | 137) skip "step.$name" "not over in time: at most $limit s, and no more than was left" ;;
    125) skip "step.$name" "no time was left" ;;
    *) skip "step.$name" "exit status $status" ;;
  esac
  echo "== $name: exit status $status" >>"$log"
}
bare() { # bare NAME SECONDS PROBE …: without the library
  step "$1" "$2" env ${plain:+LD_PRELOAD="$plain"} "$probe" "${@:3}"
}
under() { # under NAME SECONDS PROBE …: with it, under the cap, in a tenant of its own
  step "$1" "$2" env LD_PRELOAD="$preload" FRACGPU_TENANT="$tenant-$1" FRACGPU_MEMORY_LIMIT="$((cap >> 20))MiB" \
    "$probe" "${@:3}" --cap "$cap"
}
watched() { # watched KEY SECONDS VENDOR list|device COMMAND…: with it, while that count of the driver's is watched
  step "$1" "$2" env ${plain:+LD_PRELOAD="$plain"} "$probe" watch --key "$1" --vendor "$3" --judge "$4" \
    --cap "$cap" --preload "$preload" --tenant "$tenant-$1" -- "${@:5}"
}

# Into a file, so that the probe is ours to end: one that outlived the node would make it again.
declare -A free=() used=()
bounded 60 env ${plain:+LD_PRELOAD="$plain"} "$probe" find >"$work/found" 2>>"$log" || true
while read -r vendor bytes before uuid; do
  free[$vendor]=$bytes used[$vendor]=$before
  [[ -z $uuid ]] || export HARDWARE_UUID=$uuid
done <"$work/found"
((${#free[@]})) || give_up "there is no GPU here: neither libcuda.so.1 nor /sys/class/kfd shows one" 3

# The cap: enough for a context and some chunks, and little enough for a GPU that others use too.
least=${free[nvidia]-${free[amd]}}
if [[ -n ${free[amd]-} ]] && ((free[amd] < least)); then least=${free[amd]}; fi
cap=$((least * 4 / 10 >> 21 << 21))
((cap <= 4 << 30)) || cap=$((4 << 30))
((cap >= 256 << 20)) || give_up "only $((least >> 20)) MiB of the GPU are free: at least 640 MiB are needed"
say run.time "\"$(date -u +%Y-%m-%dT%H:%M:%SZ)\""
say run.cap_bytes "$cap"
[[ -z $profile ]] || say run.simulated "\"$profile\""

# In a PID namespace of its own, with its own /proc, where that is allowed.
namespace=(unshare --pid --fork --kill-child --mount-proc)
"${namespace[@]}" true 2>/dev/null || namespace=(unshare --user --map-root-user --pid --fork --kill-child --mount-proc)
"${namespace[@]}" true 2>/dev/null || namespace=()

nvidia() {
  local path round with way judge
  bare identity 30 identity
  bare process-list 60 process-list
  if ((${#namespace[@]})); then
    step private-namespace 30 env ${plain:+LD_PRELOAD="$plain"} "${namespace[@]}" "$probe" private-namespace
    watched cap.namespace 30 nvidia list "${namespace[@]}" "$probe" fill --path namespace --cap "$cap"
  else
    for way in named_as bytes_missing; do
      skip "list.private_namespace.$way" "no PID namespace can be made here (unshare)"
    done
  fi
  for path in alloc thread managed pool vmm array graph module; do
    # No list counts managed memory: it belongs to a driver of its own (UVM).
    judge=list && [[ $path != managed ]] || judge=device
    watched "cap.$path" 40 nvidia "$judge" "$probe" fill --path "$path" --cap "$cap"
  done
  watched cap.ipc 40 nvidia device "$probe" fill --path ipc --cap "$cap"
  bare contexts 30 contexts --with plain
  under contexts-library 30 contexts --with library
  bare sweep 40 sweep --with plain
  under sweep-library 90 sweep --with library
  under pool-reuse 30 pool-reuse
  under graphs 30 graphs
  bare capture 30 capture --with plain
  under capture-library 30 capture --with library
  bare entry-points 20 entry-points --with plain
  under entry-points-library 20 entry-points --with library
  for way in ipc vmm pool; do bare "sharing-$way" 30 sharing --way "$way"; done
  bare death 60 death
  for round in 1 2 3; do
    for with in plain library; do
      # Whatever else the machine does meets both alike.
      ((round % 2)) || with=$([[ $with == plain ]] && echo library || echo plain)
      if [[ $with == plain ]]; then
        bare "times-$round" 30 times --with plain
      else
        under "times-library-$round" 30 times --with library
      fi
    done
  done
}

amd() {
  local path
  bare amd 90 amd
  under amd-books 30 amd-books
  for path in hip hsa vmm; do
    watched "cap.amd_$path" 40 amd list "$probe" fill-amd --path "$path" --cap "$cap"
  done
  watched cap.amd_ipc 40 amd device "$probe" fill-amd --path ipc --cap "$cap"
}

framework() { # framework KEY VENDOR MODULE [NAME=VALUE…]: where python3 has the module
  local key=framework.$1 vendor=$2 module=$3
  shift 3
  if ! bounded 60 python3 -c "import $module" >/dev/null 2>&1; then
    skip "$key.over_cap_bytes" "python3 cannot import $module"
    skip "$key.refused_cleanly" "python3 cannot import $module"
    return
  fi
  watched "$key" 90 "$vendor" list env "$@" python3 "$tree/tests/hardware/frameworks.py" "${key#framework.}" "$cap"
}

runtimes() { # CUDA's runtime in both forms and its compiler, where nvcc is installed
  local form key
  for form in cudart_shared cudart_static nvrtc; do
    key=framework.$form
    local options=(-cudart "${form#cudart_}")
    [[ $form != nvrtc ]] || options=(-DWITH_NVRTC -lnvrtc -lcuda)
    if ! command -v nvcc >/dev/null; then
      skip "$key.over_cap_bytes" "there is no nvcc in PATH"
      skip "$key.refused_cleanly" "there is no nvcc in PATH"
    elif ! bounded 60 nvcc -std=c++17 "${options[@]}" -o "$work/$form" "$tree/tests/hardware/runtime_fill.cu" \
      >>"$log" 2>&1; then
      skip "$key.over_cap_bytes" "nvcc cannot build the program"
      skip "$key.refused_cleanly" "nvcc cannot build the program"
    else
      watched "$key" 60 nvidia list "$work/$form" "$key" "$cap"
    fi
  done
}

frameworks() { # frameworks VENDOR
  local key model=${HARDWARE_LLAMA_MODEL-}
  framework torch_native "$1" torch
  framework torch_expandable "$1" torch PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True \
    PYTORCH_ALLOC_CONF=expandable_segments:True
  framework torch_async "$1" torch PYTORCH_CUDA_ALLOC_CONF=backend:cudaMallocAsync \
    PYTORCH_ALLOC_CONF=backend:cudaMallocAsync
  framework jax "$1" jax XLA_PYTHON_CLIENT_PREALLOCATE=false
  framework cupy "$1" cupy
  framework rmm "$1" rmm
  framework nccl "$1" torch.distributed
  framework vllm "$1" vllm VLLM_NO_USAGE_STATS=1 HF_HUB_OFFLINE=1
  key=framework.llama_cpp
  if ! command -v llama-bench >/dev/null; then
    skip "$key.over_cap_bytes" "there is no llama-bench in PATH"
    skip "$key.refused_cleanly" "there is no llama-bench in PATH"
  elif [[ ! -r $model ]]; then
    skip "$key.over_cap_bytes" "HARDWARE_LLAMA_MODEL names no model file"
    skip "$key.refused_cleanly" "HARDWARE_LLAMA_MODEL names no model file"
  else
    watched "$key" 90 "$1" list llama-bench -m "$model" -ngl 99 -p 64 -n 16
    # It loads and runs, or says that there is no memory and ends by itself.
    if grep -q "\"$key.exit_status\",\"value\":[01]}" "$facts"; then say "$key.refused_cleanly" true; fi
  fi
}

if [[ -n ${free[nvidia]-} ]]; then nvidia; else skip '*' "there is no NVIDIA GPU"; fi
if [[ -n ${free[amd]-} ]]; then
  amd
else
  skip 'amd.*' "there is no AMD GPU"
  skip 'cap.amd_*' "there is no AMD GPU"
fi
if [[ -n ${free[nvidia]-} ]]; then
  runtimes
  frameworks nvidia
else
  frameworks amd
fi
[[ ! -t 2 ]] || printf '\r\e[K' >&2

say run.seconds "$SECONDS"
"$judge" "$output" <"$facts"
status=$?
((status < 2)) || give_up "the report could not be written"
cp "$log" "$output/hardware-report.log" 2>/dev/null
echo "hardware.sh: the report is $output/hardware-report.md; what the programs said is hardware-report.log beside it"
exit "$status"
