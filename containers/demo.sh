#!/usr/bin/env bash
# Shows the main job in about a minute, plus downloads and building the first time: two tenants share one GPU, each is held to its own cap, a third on an AMD
# device too, and what a killed one held is free again. Installs and builds what is missing first. Exit status 0 only if what it showed was right.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ ${1-} == -h || ${1-} == --help ]]; then
  echo "usage: containers/demo.sh [--no-build]   (--no-build: use build/release as it is)"
  exit 0
fi

bold='' dim='' green='' red='' plain=''
if [[ -t 1 && -z ${NO_COLOR-} && ${TERM:-dumb} != dumb ]]; then
  bold=$'\e[1m' dim=$'\e[2m' green=$'\e[32m' red=$'\e[31m' plain=$'\e[0m'
fi
heading() { printf '\n%s%s%s\n' "$bold" "$1" "$plain"; }
say() { printf '  %s\n' "$1"; }

wrong=0
check() { # check TEXT CONDITION…: says whether what was shown is right
  local text=$1
  shift
  if (($*)); then
    say "${green}ok${plain}     $text"
  else
    say "${red}WRONG${plain}  $text"
    wrong=1
  fi
}
give_up() {
  echo "demo: $1" >&2
  exit 1
}

show_progress() { # Ninja's output on stdin: on a terminal one line says how far it is, elsewhere one every ten seconds
  local line last=$SECONDS
  while IFS= read -r line; do
    [[ $line =~ ^\[([0-9]+/[0-9]+)\] ]] || continue
    if [[ -t 1 ]]; then
      printf '\r  %sbuilt %s%s ' "$dim" "${BASH_REMATCH[1]}" "$plain"
    elif ((SECONDS >= last + 10)); then
      say "built ${BASH_REMATCH[1]}"
      last=$SECONDS
    fi
  done
  if [[ -t 1 ]]; then printf '\r%*s\r' 24 ''; fi
}

heading "Preparing"
build=$PWD/build/release
if [[ ${1-} != --no-build ]]; then
  containers/packages.sh demo
  log=$build.log
  mkdir -p build
  say "building what is not built yet; the first time takes about two minutes on two cores"
  if ! { cmake --preset release -Wno-dev &&
    NINJA_STATUS='[%f/%t] ' cmake --build --preset release --target fracgpu_shim fracgpu_command cuda_client \
      hip_program sim_cuda sim_nvml sim_hsa sim_kfd simnode; } 2>&1 </dev/null | tee "$log" | show_progress; then
    tail -n 30 "$log" >&2
    give_up "the build failed; all of its output is in $log"
  fi
fi
client=$build/tests/clients/cuda_client
library=$build/libfracgpu.so
[[ -x $client && -e $library ]] || give_up "nothing is built in $build"
say "libfracgpu.so is built; it is all that a container needs"

work=$(mktemp -d)
node=/dev/shm/fracgpu-demo-node-$$
declare -A pid=() to=() from=()
tenants=("team-a-$$" "team-b-$$")
amd=team-c-$$
declare -A cap=(["${tenants[0]}"]=8192 ["${tenants[1]}"]=4096 ["$amd"]=6144) # MiB
# shellcheck disable=SC2317 # called by the trap
cleanup() {
  for each in "${pid[@]}"; do kill -9 "$each" 2>/dev/null || true; done
  "$build/tests/sim/simnode" remove "$node" 2>/dev/null || true
  rm -rf "$work"
  for tenant in "${tenants[@]}" "$amd"; do rm -f "/dev/shm/fracgpu-$tenant"; done
}
trap cleanup EXIT
trap 'exit 1' INT TERM

# Everything below runs in one of two environments: as the host, or as a tenant with the library preloaded.
host=(env -u LD_PRELOAD -u FRACGPU_MEMORY_LIMIT -u FRACGPU_TENANT CUDA_DEVICE_ORDER=PCI_BUS_ID CUDA_VISIBLE_DEVICES=0)
kernel_driver='' # the simulated one, where it stands below NVIDIA's own libraries
smi=$(command -v nvidia-smi || true)
if nvidia-smi -L >/dev/null 2>&1; then
  say "GPU: $(nvidia-smi --query-gpu=name,driver_version --format=csv,noheader -i 0), a real one"
  (($(nvidia-smi --query-gpu=memory.free --format=csv,noheader,nounits -i 0) > 13000)) ||
    give_up "less than 13 GiB of GPU 0 are free: too little to show two tenants beside what runs there"
  "$build/tests/sim/simnode" create "$node" --profile mi210
elif say "fetching NVIDIA's libraries, if they are not here yet; the first time takes about two minutes" &&
  tests/kernel/nvidia/prepare.sh "$build" >"$work/prepare" 2>&1; then
  "$build/tests/sim/simnode" create "$node" --profile mi210
  rmsim=$build/kernel/nvidia/rmsim kernel_driver=$build/kernel/nvidia/librmsim.so
  version=$(PYTHONPATH=tests/kernel/nvidia python3 -B -c 'import rig; print(rig.RELEASES["535"])')
  "$rmsim" create "$work/gpu" 24576 "$version" 1
  parts=$build/parts/nvidia-driver-535/usr/lib
  smi=$parts/nvidia/current/nvidia-smi
  host+=("RMSIM=$rmsim" "RMSIM_STATE=$work/gpu" "LD_PRELOAD=$kernel_driver"
    "LD_LIBRARY_PATH=$parts/x86_64-linux-gnu/nvidia/current:$parts/x86_64-linux-gnu")
  say "GPU: none on this machine; NVIDIA's own libcuda and nvidia-smi $version run on a simulated kernel driver with 24 GiB"
else
  "$build/tests/sim/simnode" create "$node" --profile a100-40gb+mi210
  host+=("FRACGPU_SIM_NODE=$node" "LD_LIBRARY_PATH=$build/sim")
  say "GPU: none on this machine, and NVIDIA's libraries cannot be had ($(tail -n 1 "$work/prepare"));"
  say "     a simulated A100 with 40 GiB and a simulated libcuda stand in for it"
fi
say "AMD: a simulated MI210 with 64 GiB, under AMD's own HIP runtime"
as() { # as TENANT COMMAND…; with `instead=exec` before it, in place of this shell
  ${instead-} "${host[@]}" LD_PRELOAD="$library${kernel_driver:+:$kernel_driver}" FRACGPU_TENANT="$1" FRACGPU_MEMORY_LIMIT="${cap[$1]}MiB" "${@:2}"
}

# NVML's own answers, in MiB: total, used and free of GPU 0, or what the process with that PID has of it.
cat >"$work/nvml.py" <<'PYTHON'
import ctypes, sys

class Process(ctypes.Structure):  # nvmlProcessInfo_v2_t
    _fields_ = [("pid", ctypes.c_uint), ("used", ctypes.c_ulonglong), ("instances", ctypes.c_uint * 2)]

nvml = ctypes.CDLL("libnvidia-ml.so.1")
device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()  # total, free, used
count, processes = ctypes.c_uint(256), (Process * 256)()
assert nvml.nvmlInit_v2() == 0
assert nvml.nvmlDeviceGetHandleByIndex_v2(0, ctypes.byref(device)) == 0
if len(sys.argv) == 1:
    assert nvml.nvmlDeviceGetMemoryInfo(device, memory) == 0
    print(", ".join(str(memory[i] >> 20) for i in (0, 2, 1)))
else:
    assert nvml.nvmlDeviceGetComputeRunningProcesses_v2(device, ctypes.byref(count), processes) == 0
    used = [p.used >> 20 for p in processes[: count.value] if p.pid == int(sys.argv[1]) and p.used != 2**64 - 1]
    print(sum(used) if used else "-")
PYTHON
driver_says() { "${host[@]}" python3 "$work/nvml.py" "$1" || echo -; }

# What a tool sees of GPU 0: total, used, free. The real nvidia-smi where it can be had.
if [[ -z $smi ]] && tests/fetch.sh nvidia-smi-535 "$build/parts/nvidia-smi-535" 2>"$work/fetch"; then
  smi=$build/parts/nvidia-smi-535/run
fi
if [[ -n $smi ]]; then
  tool="nvidia-smi"
  look=("$smi" "--query-gpu=memory.total,memory.used,memory.free" "--format=csv,noheader,nounits" -i 0)
else
  tool="NVML (nvidia-smi cannot be had here: $(cat "$work/fetch"))"
  look=(python3 "$work/nvml.py")
fi
host_look() { "${host[@]}" "${look[@]}"; }

# The kernel's side of the simulated AMD device is a part of sysfs, which a second preload shows.
on_amd() { # as `as`, on the AMD device
  ${instead-} "${host[@]}" "FRACGPU_SIM_NODE=$node" "LD_LIBRARY_PATH=$build/sim" \
    LD_PRELOAD="$library:$build/sim/libsimkfd.so" FRACGPU_TENANT="$1" FRACGPU_MEMORY_LIMIT="${cap[$1]}MiB" "${@:2}"
}

start() { # start HOW TENANT COMMAND…: a program of the tenant, held by its "wait" commands; HOW is as or on_amd
  local tenant=$2
  mkfifo "$work/$tenant.in" "$work/$tenant.out"
  instead='exec' "$1" "${@:2}" <"$work/$tenant.in" >"$work/$tenant.out" 2>"$work/$tenant.err" &
  pid[$tenant]=$!
  local writer reader
  exec {writer}>"$work/$tenant.in" {reader}<"$work/$tenant.out"
  to[$tenant]=$writer from[$tenant]=$reader
}
go_on() { echo >&"${to[$1]}"; }
answers() { # answers TENANT: what the program printed until it waits again
  local line
  while IFS= read -r -t 60 -u "${from[$1]}" line; do
    [[ $line != ready ]] || return 0
    printf '%s\n' "$line"
  done
  give_up "${1%-*} ended too early: $(cat "$work/$1.err")"
}
field() { sed -n "s/^$1 .*\b$2=\([0-9]*\).*/\1/p" | tail -n 1; } # field COMMAND NAME, of answers on stdin

heading "Two tenants on one GPU, each allocates until it is told no"
before=$(host_look | awk -F', ' '{ print $2 }')
for tenant in "${tenants[@]}"; do
  start as "$tenant" "$client" --lookup=cudart init retain wait fill 256MiB fill 2MiB alloc 1GiB wait
done
for tenant in "${tenants[@]}"; do answers "$tenant" >"$work/$tenant.first"; done
for tenant in "${tenants[@]}"; do go_on "$tenant"; done # both at the same time from here
for tenant in "${tenants[@]}"; do
  answers "$tenant" >"$work/$tenant.second"
  big=$(sed -n 's/^fill 268435456 .*count=//p' "$work/$tenant.second")
  small=$(sed -n 's/^fill 2097152 .*count=//p' "$work/$tenant.second")
  result=$(field alloc rc <"$work/$tenant.second")
  say "${tenant%-*}, cap ${cap[$tenant]} MiB: got $big x 256 MiB and $small x 2 MiB; 1 GiB more: error $result"
  say "${dim}$(grep -m 1 -o 'cuMemAlloc refused.*' "$work/$tenant.err")${plain}"
  held=$((big * 256 + small * 2))
  check "it holds $held MiB and its context, no more than its cap" "$held > 0 && $held <= ${cap[$tenant]}"
  check "the refusal is an ordinary CUDA_ERROR_OUT_OF_MEMORY (2)" "$result == 2"
done

heading "What each sees with $tool, in MiB"
row() { printf '  %-10s %10s %10s %10s %18s\n' "$@"; }
row '' total used free 'the driver says'
right=1
for tenant in "${tenants[@]}"; do
  IFS=', ' read -r total used free < <(as "$tenant" "${look[@]}")
  driver=$(driver_says "${pid[$tenant]}")
  row "${tenant%-*}" "$total" "$used" "$free" "$driver"
  [[ $total == "${cap[$tenant]}" ]] && ((used <= total)) || right=0
  [[ $driver == - ]] || ((driver <= total)) || right=0
done
IFS=', ' read -r total used free < <(host_look)
row 'the host' "$total" "$used" "$free" "$used"
check "each tenant sees a GPU of the size of its cap, and the driver gave it no more" "$right"
check "the GPU gave $((used - before)) MiB since the start, no more than both caps together" \
  "$used - $before > 0 && $used - $before <= ${cap[${tenants[0]}]} + ${cap[${tenants[1]}]}"

heading "An AMD tenant beside them: HIP under a cap of ${cap[$amd]} MiB"
start on_amd "$amd" "$build/tests/clients/hip_program" init malloc 1GiB fill 256MiB malloc 1GiB meminfo wait
answers "$amd" >"$work/$amd.first"
count=$(field fill count <"$work/$amd.first")
total=$(field meminfo total <"$work/$amd.first")
result=$(field malloc rc <"$work/$amd.first")
say "${amd%-*}: got 1 GiB and $count x 256 MiB; 1 GiB more: error $result; hipMemGetInfo says $((total >> 20)) MiB in all"
say "${dim}$(grep -m 1 -o 'hipMalloc refused.*' "$work/$amd.err")${plain}"
check "it holds no more than its cap, and was refused nothing that fits" \
  "1024 + $count * 256 <= ${cap[$amd]} && 1024 + ($count + 1) * 256 + 64 > ${cap[$amd]}"
check "the refusal is an ordinary hipErrorOutOfMemory (2)" "$result == 2"
check "hipMemGetInfo shows a device of the size of its cap" "($total >> 20) == ${cap[$amd]}"

heading "Who holds what: fracgpu status"
"$build/fracgpu" status "${tenants[@]}" "$amd"
go_on "$amd"
wait "${pid[$amd]}" || check "${amd%-*} ends well by itself" 0
unset "pid[$amd]"

first=${tenants[0]}
heading "${first%-*} is killed: kill -9 ${pid[$first]}"
{ kill -9 "${pid[$first]}" && wait "${pid[$first]}"; } 2>/dev/null || true
unset "pid[$first]"
# The driver may need a moment; each look takes one.
for _ in {1..100}; do
  IFS=', ' read -r total now free < <(host_look)
  ((now >= used - 4096)) || break
done
say "used on the GPU: $used MiB before, $now MiB now"
check "its memory is back with the GPU" "$now < $used - 4096"
result=$(as "$first" "$client" init retain alloc 6GiB 2>/dev/null | field alloc rc)
check "a new program of ${first%-*} gets 6 GiB at once" "$result == 0"
go_on "${tenants[1]}"
result=0
wait "${pid[${tenants[1]}]}" || result=$?
unset "pid[${tenants[1]}]"
check "${tenants[1]%-*} never noticed, and ends well by itself" "$result == 0"

if [[ -n $kernel_driver ]]; then
  heading "What the simulated kernel driver counted by itself"
  peak=$("$rmsim" show "$work/gpu" | python3 -c 'import json, sys; print(json.load(sys.stdin)[0]["peak"])')
  both=$((cap[${tenants[0]}] + cap[${tenants[1]}]))
  say "$((peak >> 20)) MiB were taken at most, under caps of $both MiB together"
  check "the caps held, and were used" "peak <= both << 20 && peak > (both - 8) << 20"
fi

heading "$( ((wrong == 0)) && echo 'All of it was as it should be.' || echo 'Something was WRONG; see above.')"
exit "$wrong"
