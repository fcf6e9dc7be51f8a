#!/bin/sh
# Fetches real vendor parts for tests and unpacks them beside the system: fetch.sh PART DEST.
# The mirror's address comes from the machine's own apt configuration; suite, component, lists and cache are private
# and temporary, so the system's package state is never touched. Exit status 0: DEST is complete; 77: it cannot be had
# here (one line says why); 2: wrong usage.
set -u

usage() {
  echo "usage: $0 PART DEST, where PART is nvidia-smi-535, nvidia-smi-550, nvml-headers, cuda-headers-11.8," \
    "cuda-headers-12.4, libcuda1-535, libcuda1-550, nvidia-driver-470, nvidia-driver-550, nvidia-driver-535, nvidia-graphics-550, nvidia-kernel-headers-535, nvidia-kernel-headers-550, nvidia-kernel-headers-555, opencl, pocl-3.1, vulkan-535, mesa-22.3, mesa-25.0, python-gpu-bookworm, pytorch-2.6, llama-cpp, llama-cpp-hip, hip-5.7.1, hip-6.4.3, hip-7.2.4, rocblas-6.4.4, hip-headers-5.7," \
    "hip-headers-6.4, hip-headers-7.2, amd-smi-6.1.2, amd-smi-10.1, rocm-smi-5.2.3, rocm-smi-6.4.1, rocm-smi-7.2.4, librocm-smi64-5.2.3," \
    "amd-smi-headers-6.1, amd-smi-headers-10.1, rocm-smi-headers-5.2, rocm-smi-headers-6.4, rocm-smi-headers-7.2," \
    "nvtop-3.0, nvtop-3.2, promtool-2.42, etcd-3.5, sprig-3.2, kubectl-1.36, containerd-2, glibc-2.31, musl-1.2.3, musl-1.2.5, docker-buildx, debian-11, debian-12, debian-13 or ubuntu-24.04" >&2
  exit 2
}

skip() {
  echo "fetch.sh: $part: $1" >&2
  exit 77
}

[ $# -eq 2 ] || usage
part=$1
dest=$2

# Every part: suite, component, packages, and one file that proves the part is there. Of a package with a digest only
# the headers that it starts with are wanted, of one with patterns the files that they match; a package with a base suite comes with everything it depends on, from
# both suites, except what `provided` names.
# A part without packages is a root filesystem of that suite, as an archive.
digest=
base=
source=
wanted=
provided=
case $part in
  nvidia-smi-535) suite=bookworm component=non-free packages=nvidia-smi proof=usr/lib/nvidia/current/nvidia-smi ;;
  nvidia-smi-550) suite=sid component=non-free packages=nvidia-smi proof=usr/lib/nvidia/current/nvidia-smi ;;
  nvml-headers) suite=bookworm component=non-free packages=libnvidia-ml-dev proof=usr/include/nvml.h ;;
  cuda-headers-11.8)
    suite=bookworm component=non-free packages=nvidia-cuda-dev proof=usr/include/cuda.h
    digest=1b45780b3bf1e94451de56a0e8004c811689e6a63151bf235011f50c295ee92e
    ;;
  cuda-headers-12.4)
    suite=trixie component=non-free packages=nvidia-cuda-dev proof=usr/include/cuda.h
    digest=59f6882785931346079b5ec8aee50ae9718f68f44638ca95046d3a41676ca2f4
    ;;
  libcuda1-535) suite=bookworm component=non-free packages=libcuda1 proof=usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1 ;;
  libcuda1-550) suite=trixie component=non-free packages=libcuda1 proof=usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.1 ;;
  # NVIDIA's driver as programs see it, and the public headers of its kernel interface, a source package.
  nvidia-driver-535)
    suite=bookworm component=non-free proof='usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.535.*'
    packages='libcuda1 libnvidia-ml1 nvidia-smi libnvidia-ptxjitcompiler1 nvidia-opencl-icd libcudart11.0'
    ;;
  nvidia-driver-550)
    suite=trixie component=non-free proof='usr/lib/x86_64-linux-gnu/nvidia/current/libcuda.so.550.*'
    packages='libcuda1 libnvidia-ml1 nvidia-smi libnvidia-ptxjitcompiler1'
    ;;
  # Debian packages this release under names of its own, for old cards.
  nvidia-driver-470)
    suite=bookworm component=non-free proof='usr/lib/x86_64-linux-gnu/nvidia/tesla-470/libcuda.so.470.*'
    packages='libnvidia-tesla-470-cuda1 libnvidia-tesla-470-ml1 nvidia-tesla-470-smi libnvidia-tesla-470-ptxjitcompiler1'
    ;;
  # Its libraries for OpenCL, Vulkan and OpenGL, for the loaders and other libraries of the parts opencl and vulkan-535.
  nvidia-graphics-550)
    suite=trixie component=non-free proof='usr/lib/x86_64-linux-gnu/nvidia/current/libGLX_nvidia.so.550.*'
    packages='libglx-nvidia0 libegl-nvidia0 libnvidia-glcore libnvidia-eglcore libnvidia-glvkspirv libnvidia-gpucomp'
    packages="$packages nvidia-opencl-icd libnvidia-nvvm4"
    ;;
  nvidia-kernel-headers-535 | nvidia-kernel-headers-550 | nvidia-kernel-headers-555)
    case $part in *-535) suite=bookworm ;; *-550) suite=trixie ;; *) suite=experimental ;; esac
    component=contrib packages=nvidia-open-gpu-kernel-modules source=yes
    proof="NVIDIA-kernel-module-source-${part##*-}.*/src/common/sdk/nvidia/inc/nvos.h"
    ;;
  # A loader of OpenCL, what shows its devices, and NVIDIA's compiler; and an implementation for the CPU.
  opencl)
    suite=bookworm component='main non-free' packages='ocl-icd-libopencl1 clinfo libnvidia-nvvm4'
    proof=usr/lib/x86_64-linux-gnu/libOpenCL.so.1
    ;;
  # Without the compiler, and with those of the libraries it needs that few machines have.
  pocl-3.1)
    suite=bookworm component=main proof=etc/OpenCL/vendors/pocl.icd
    packages='pocl-opencl-icd libpocl2 libpocl2-common libclang-cpp15 libllvm15 libz3-4 libhwloc15'
    ;;
  # NVIDIA's Vulkan, the loader, what shows its devices, and those of the libraries they need that few machines have.
  vulkan-535)
    suite=bookworm component='main contrib non-free' proof='usr/lib/x86_64-linux-gnu/nvidia/current/libGLX_nvidia.so.535.*'
    packages='libglx-nvidia0 libegl-nvidia0 libnvidia-glcore libnvidia-eglcore libnvidia-glvkspirv libvulkan1 vulkan-tools'
    packages="$packages libegl1 libglvnd0 libx11-6 libxext6 libxcb1 libxau6 libxdmcp6 libbsd0 libmd0 libwayland-client0 libffi8"
    ;;
  # Mesa's drivers for AMD's GPUs (Vulkan, OpenGL, VA-API), the loaders, and what shows their devices.
  mesa-22.3 | mesa-25.0)
    suite=bookworm
    [ "$part" = mesa-22.3 ] || suite=trixie
    component=main base=$suite proof=usr/lib/x86_64-linux-gnu/libvulkan_radeon.so
    packages='mesa-vulkan-drivers libvulkan1 vulkan-tools libegl1 libegl-mesa0 libgl1-mesa-dri mesa-va-drivers libva-drm2'
    ;;
  # Python programs for Debian's own interpreter, with the libraries that few machines have.
  python-gpu-bookworm)
    suite=bookworm component='main contrib non-free' proof=usr/lib/python3/dist-packages/numba/cuda/__init__.py
    packages='python3-numba python3-llvmlite python3-numpy python3-pkg-resources libllvm14 libblas3 liblapack3 libgfortran5 python3-pynvml'
    ;;
  # PyTorch is linked with cuDNN, which Debian does not have.
  pytorch-2.6)
    suite=trixie component='main contrib non-free' base=trixie provided=nvidia-cudnn
    packages='python3-torch-cuda libnvrtc12 libcufft11 libcublas12 libcusolver11 libcusparse12 libcurand10 libnccl2'
    proof=usr/lib/python3/dist-packages/torch/__init__.py
    ;;
  llama-cpp) suite=sid component='main contrib non-free' base=sid packages='llama.cpp-tools libggml0-backend-cuda' proof=usr/bin/llama-bench ;;
  llama-cpp-hip) suite=sid component=main base=sid packages='llama.cpp-tools libggml0-backend-hip' proof=usr/bin/llama-bench ;;
  promtool-2.42) suite=bookworm component=main packages=prometheus proof=usr/bin/promtool ;;
  glibc-2.31) suite=bullseye component=main packages=libc6 proof=lib/x86_64-linux-gnu/libc.so.6 ;;
  musl-1.2.3) suite=bookworm component=main packages=musl proof='lib/x86_64-linux-musl/libc.so' ;;
  musl-1.2.5) suite=trixie component=main packages=musl proof='usr/lib/x86_64-linux-musl/libc.so' ;;
  # A suite of Debian carries one version: where that is another one by now, the part cannot be had.
  hip-5.7.1) suite=trixie component=main base=trixie packages=libamdhip64-5 proof='usr/lib/x86_64-linux-gnu/libamdhip64.so.5.7*' ;;
  hip-6.4.3) suite=sid component=main base=sid packages=libamdhip64-6 proof='usr/lib/x86_64-linux-gnu/libamdhip64.so.6.4*' ;;
  hip-7.2.4) suite=experimental component=main base=sid packages=libamdhip64-7 proof='usr/lib/x86_64-linux-gnu/libamdhip64.so.7.2*' ;;
  # Of 4 GB the code for one card and for matrices of one type.
  rocblas-6.4.4)
    suite=sid component=main packages='librocblas4 libroctx64-4' proof='usr/lib/x86_64-linux-gnu/librocblas.so.4.4*'
    wanted='*/librocblas.so* */libroctx64.so* *_Type_SS_*gfx90a* *_Type_SS_*fallback.dat *_lazy_gfx90a.dat *Kernels.so-*gfx90a*'
    ;;
  nvtop-3.0) suite=bookworm component='contrib main' base=bookworm packages=nvtop proof=usr/bin/nvtop ;;
  nvtop-3.2) suite=trixie component=main base=trixie packages=nvtop proof=usr/bin/nvtop ;;
  etcd-3.5) suite=sid component=main packages=etcd-server proof=usr/bin/etcd ;;
  # With the compiler, and what it needs to compile Sprig.
  sprig-3.2)
    suite=bookworm component=main proof=usr/lib/go-1.19/bin/go
    packages="golang-1.19-go golang-1.19-src golang-gopkg-yaml.v3-dev golang-golang-x-crypto-dev"
    for name in google-uuid huandu-xstrings imdario-mergo masterminds-goutils masterminds-semver masterminds-sprig \
      mitchellh-copystructure mitchellh-reflectwalk shopspring-decimal spf13-cast; do
      packages="$packages golang-github-$name-dev"
    done
    ;;
  containerd-2) suite=sid component=main packages='containerd containernetworking-plugins' proof=usr/bin/containerd ;;
  kubectl-1.36) suite=sid component=main packages=kubectl proof=usr/bin/kubectl ;;
  hip-headers-5.7) suite=trixie component=main packages='libamdhip64-dev libhsa-runtime-dev' proof=usr/include/hip/hip_runtime_api.h ;;
  hip-headers-6.4) suite=sid component=main packages='libamdhip64-dev libhsa-runtime-dev' proof=usr/include/hip/hip_runtime_api.h ;;
  hip-headers-7.2) suite=experimental component=main packages='libamdhip64-dev libhsa-runtime-dev' proof=usr/include/hip/hip_runtime_api.h ;;
  # AMD's command-line tools are Python over ctypes, and any Python that this machine has runs them. Their libraries are
  # left behind.
  amd-smi-6.1.2) suite=trixie component=main packages='amd-smi python3-yaml python3-argcomplete' proof='usr/share/amd_smi/amdsmi/amdsmi_wrapper.py' ;;
  amd-smi-10.1) suite=sid component=main packages='amd-smi python3-yaml python3-argcomplete' proof='usr/share/amd_smi/amdsmi/amdsmi_wrapper.py' ;;
  rocm-smi-5.2.3) suite=bookworm component=main packages=rocm-smi proof=usr/libexec/rocm_smi/rocm_smi.py ;;
  librocm-smi64-5.2.3) suite=bookworm component=main packages=librocm-smi64-1 proof=usr/lib/librocm_smi64.so.1 ;;
  rocm-smi-6.4.1) suite=sid component=main packages=rocm-smi proof=usr/libexec/rocm_smi/rocm_smi.py ;;
  rocm-smi-7.2.4) suite=experimental component=main packages=rocm-smi proof=usr/libexec/rocm_smi/rocm_smi.py ;;
  amd-smi-headers-6.1) suite=trixie component=main packages=libamd-smi-dev proof=usr/include/amd_smi/amdsmi.h ;;
  amd-smi-headers-10.1) suite=sid component=main packages=libamd-smi-dev proof=usr/include/amd_smi/amdsmi.h ;;
  rocm-smi-headers-5.2) suite=bookworm component=main packages=librocm-smi-dev proof=usr/include/rocm_smi/rocm_smi.h ;;
  rocm-smi-headers-6.4) suite=sid component=main packages=librocm-smi-dev proof=usr/include/rocm_smi/rocm_smi.h ;;
  rocm-smi-headers-7.2) suite=experimental component=main packages=librocm-smi-dev proof=usr/include/rocm_smi/rocm_smi.h ;;
  docker-buildx) suite=trixie component=main packages=docker-buildx proof=usr/libexec/docker/cli-plugins/docker-buildx ;;
  debian-11) suite=bullseye packages= proof=rootfs.tar ;;
  debian-12) suite=bookworm packages= proof=rootfs.tar ;;
  debian-13) suite=trixie packages= proof=rootfs.tar ;;
  ubuntu-24.04) suite=noble packages= proof=rootfs.tar ;;
  *) usage ;;
esac

# The stamp is written last, so an interrupted run is repeated and a complete one costs nothing.
stamp=$dest/.fetched-$part
[ -f "$stamp" ] && exit 0

for tool in apt-get dpkg dpkg-deb mktemp; do
  command -v "$tool" >/dev/null 2>&1 || skip "$tool is not on this machine"
done

# apt itself reads both its formats; where it will not say, the files are read here.
mirrors() {
  apt-get indextargets --format '$(REPO_URI) $(RELEASE)' 2>/dev/null
  for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
    [ -f "$file" ] && sed -n 's/^deb  *\(\[[^]]*\]  *\)\{0,1\}\([^ ]*\)  *\([^ ]*\).*/\2 \3/p' "$file"
  done
  for file in /etc/apt/sources.list.d/*.sources; do
    [ -f "$file" ] && awk 'BEGIN { RS = ""; FS = "\n" } {
      uri = suite = "";
      for (i = 1; i <= NF; i++) {
        n = split($i, word, /[ \t]+/);
        if (tolower(word[1]) == "uris:") uri = word[2];
        if (tolower(word[1]) == "suites:") suite = word[2];
      }
      if (uri != "" && suite != "") print uri, suite;
    }' "$file"
  done
}

mirror_of() { # mirror_of debian|ubuntu
  mirrors | awk -v archive="$1" '$1 ~ archive "/?$" && $2 !~ /security/ { print $1; exit }'
}
mirror=$(mirror_of debian)
[ -n "$mirror" ] || skip "no Debian mirror in this machine's apt configuration"

work=$(mktemp -d) || skip "no temporary directory"
trap 'rm -rf "$work"' EXIT
trap 'exit 77' INT TERM
mkdir -p "$work/lists/partial" "$work/cache/archives/partial" "$work/empty" "$work/debs"
cat >"$work/apt.conf" <<CONF
Dir::Etc::SourceList "$work/sources.list";
Dir::Etc::SourceParts "$work/empty";
Dir::Etc::Preferences "/dev/null";
Dir::Etc::PreferencesParts "$work/empty";
Dir::State::Lists "$work/lists";
Dir::State::status "$work/status";
Dir::Cache "$work/cache";
APT::Sandbox::User "";
Acquire::Languages "none";
Acquire::Retries "2";
CONF
: >"$work/status"

keyring=/usr/share/keyrings/debian-archive-keyring.gpg
signed=""
[ -f "$keyring" ] && signed="[signed-by=$keyring] "

look_into() { # look_into SUITE COMPONENT [BASE SUITE]
  from="$1/$2"
  echo "deb ${signed}$mirror $1 $2" >"$work/sources.list"
  [ "${3-$1}" = "$1" ] || echo "deb ${signed}$mirror $3 $2" >>"$work/sources.list"
  APT_CONFIG=$work/apt.conf apt-get -qq update >"$work/log" 2>&1 || skip "the mirror has no usable $from"
}

fetch() { # fetch SUITE COMPONENT DESTINATION PACKAGE...
  look_into "$1" "$2"
  suite_of_all=$1 to=$3
  shift 3
  rm -f "$work"/debs/*.deb
  # By its suite: the machine may know of a version with a higher number, from elsewhere.
  # shellcheck disable=SC2046 # a list of names
  (cd "$work/debs" && APT_CONFIG=$work/apt.conf apt-get -qq download $(printf "%s/$suite_of_all " "$@") >>"$work/log" 2>&1) ||
    skip "no $* in $from"
  for deb in "$work"/debs/*.deb; do
    if [ -z "$wanted" ]; then
      dpkg -x "$deb" "$to" || skip "$* does not unpack"
    else
      # It complains of what is in another package; the proof is looked for below.
      # shellcheck disable=SC2046 # a list of patterns, for tar alone
      (set -f && dpkg-deb --fsys-tarfile "$deb" | tar -x -C "$to" --wildcards $(printf '%s ' "$wanted") 2>/dev/null)
    fi
  done
}

# Only the upstream archive is unpacked: nothing is built, so Debian's changes are not wanted.
fetch_source() { # fetch_source SUITE COMPONENT DESTINATION PACKAGE
  echo "deb-src ${signed}$mirror $1 $2" >"$work/sources.list"
  APT_CONFIG=$work/apt.conf apt-get -qq update >"$work/log" 2>&1 || skip "the mirror has no sources of $1/$2"
  (cd "$work/debs" && APT_CONFIG=$work/apt.conf apt-get -qq source --download-only --tar-only "$4" >>"$work/log" 2>&1) ||
    skip "no source of $4 in $1/$2"
  tar -C "$3" -xf "$work"/debs/*.orig.tar.* || skip "the source of $4 does not unpack"
}

# Nothing counts as installed, so the loader and the C library come too and the part runs on a machine of any age.
fetch_closure() { # fetch_closure SUITE BASE COMPONENT DESTINATION PACKAGE...
  look_into "$1" "$3" "$2"
  target=$1 to=$4
  shift 4
  for package in $provided; do
    printf 'Package: %s\nStatus: install ok installed\nArchitecture: amd64\nVersion: 99\nMaintainer: none\nDescription: none\n\n' "$package"
  done >"$work/status"
  APT_CONFIG=$work/apt.conf apt-get -qq install --download-only --no-install-recommends --yes --target-release "$target" \
    "$@" >>"$work/log" 2>&1 || skip "no $* with all they need in $from"
  for deb in "$work"/cache/archives/*.deb; do
    dpkg -x "$deb" "$to" || skip "$deb does not unpack"
  done
  # Of the links between the root's folders and those of /usr, which another package makes, the loader's are needed.
  for folder in lib lib64; do
    [ -e "$to/$folder" ] || ln -s "usr/$folder" "$to/$folder"
  done
  # An absolute link would lead to this machine's own loader, which may not fit the part's C library.
  for loader in "$to"/lib64/ld-linux-*; do
    case $(readlink "$loader") in /*) ln -sf "..$(readlink "$loader")" "$loader" ;; esac
  done
}

# CUDA's headers are the first files of a package of 770 MB, so only its first MiB is read. The mirror's signature does
# not cover a beginning, so the headers are trusted for being what they were when this was written.
fetch_headers() { # fetch_headers SUITE COMPONENT DESTINATION PACKAGE DIGEST
  command -v python3 >/dev/null 2>&1 || skip "python3 is not on this machine"
  look_into "$1" "$2"
  to=$3 package=$4 expected=$5
  uri=$(APT_CONFIG=$work/apt.conf apt-get -qq download --print-uris "$package" 2>>"$work/log" | cut -d"'" -f2)
  [ -n "$uri" ] || skip "no $package in $from"
  eval "$(apt-config shell http_proxy Acquire::http::Proxy https_proxy Acquire::https::Proxy)"
  export http_proxy="${http_proxy-}" https_proxy="${https_proxy-}"
  python3 -c 'import sys, urllib.request as web
request = web.Request(sys.argv[1], headers={"Range": "bytes=0-1048575"})
sys.stdout.buffer.write(web.urlopen(request, timeout=60).read(1048576))' "$uri" >"$work/start" 2>>"$work/log" ||
    skip "the start of $package cannot be read"
  set -- cuda.h cudaEGL.h cudaGL.h cudaProfiler.h cudaVDPAU.h
  # Both complain, because the package ends early.
  # shellcheck disable=SC2046 # a list of names
  dpkg-deb --fsys-tarfile "$work/start" 2>/dev/null |
    tar -x -C "$to" $(printf ' ./usr/include/%s' "$@") 2>/dev/null
  found=$(cd "$to/usr/include" && cat "$@" 2>/dev/null | sha256sum)
  [ "$found" = "$expected  -" ] || skip "$package has other headers now"
}

# Made beside where it goes, since /tmp may forbid devices. In a root of Ubuntu the parts come
# from Debian too: apt does not use what is disabled, and mirrors() reads it.
make_root() { # make_root SUITE DESTINATION
  command -v mmdebstrap >/dev/null 2>&1 || skip "mmdebstrap is not on this machine"
  [ "$(id -u)" = 0 ] || skip "only root can make a root filesystem"
  export TMPDIR="$2"
  case $part in
    ubuntu-*)
      keys=/usr/share/keyrings/ubuntu-archive-keyring.gpg
      if [ ! -f "$keys" ]; then
        fetch trixie main "$work/keys" ubuntu-keyring
        keys=$work/keys$keys
        chmod 755 "$work"  # apt reads the keys as another user
      fi
      printf 'Enabled: no\nTypes: deb\nURIs: %s\nSuites: sid\nComponents: main\n' "$mirror" >"$work/debian.sources"
      # shellcheck disable=SC2046 # if it is empty, mmdebstrap uses its default
      mmdebstrap --variant=minbase --components=main,universe --keyring="$keys" \
        --customize-hook="copy-in $work/debian.sources /etc/apt/sources.list.d" "$1" "$2/rootfs.tar" $(mirror_of ubuntu)
      ;;
    *) mmdebstrap --variant=minbase "$1" "$2/rootfs.tar" "$mirror" ;;
  esac >"$work/log" 2>&1 || skip "mmdebstrap cannot make $1"
}

mkdir -p "$dest" || skip "cannot write the destination"
if [ -z "$packages" ]; then
  make_root "$suite" "$dest"
elif [ -n "$digest" ]; then
  fetch_headers "$suite" "$component" "$dest" "$packages" "$digest"
elif [ -n "$source" ]; then
  fetch_source "$suite" "$component" "$dest" "$packages"
elif [ -n "$base" ]; then
  # shellcheck disable=SC2086 # a list of names
  fetch_closure "$suite" "$base" "$component" "$dest" $packages
else
  # shellcheck disable=SC2086 # a list of names
  fetch "$suite" "$component" "$dest" $packages
fi
# shellcheck disable=SC2086 # a pattern
ls -d "$dest"/$proof >"$work/found" 2>&1 || skip "$proof is not in the package"

# A binary from a newer suite may need a newer C library than this machine has: that suite's own one is put beside it
# and a wrapper, DEST/run, starts the program with it. Elsewhere DEST/run starts it directly.
case $part in
  nvidia-smi-*)
    if "$dest/$proof" --help >"$work/log" 2>&1 || ! grep -q 'GLIBC_' "$work/log"; then
      printf '#!/bin/sh\nexec "${0%%/*}/%s" "$@"\n' "$proof" >"$dest/run"
    else
      fetch "$suite" main "$dest/libc" libc6 libgcc-s1
      loader=$(cd "$dest/libc" && find . -name 'ld-linux-*.so.*' -type f -o -name 'ld-linux-*.so.*' -type l | head -n 1)
      folder=$(cd "$dest/libc" && dirname "$(find . -name libc.so.6 | head -n 1)")
      [ -n "$loader" ] && [ -n "$folder" ] || skip "no loader in the C library's package"
      {
        echo '#!/bin/sh'
        echo 'here=$(cd "${0%/*}" && pwd)'
        echo "exec \"\$here/libc/$loader\" --library-path \"\$here/libc/$folder\${LD_LIBRARY_PATH:+:\$LD_LIBRARY_PATH}\" \\"
        echo "  \"\$here/$proof\" \"\$@\""
      } >"$dest/run"
    fi
    chmod 755 "$dest/run"
    ;;
esac

: >"$stamp"
exit 0
