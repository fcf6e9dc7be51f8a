#!/usr/bin/env bash
# Runs tests/run.sh in a root of another release of Debian or Ubuntu, with this machine's kernel. The root and what was
# built in it stay in build/roots, so a second run builds only what has changed. Exit status as of tests/run.sh; 77: no
# such root can be had here.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

usage="usage: tests/other_release.sh debian-12|debian-13|ubuntu-24.04 [ARGUMENT OF tests/run.sh ...]"
case ${1-} in
  debian-12 | debian-13 | ubuntu-24.04) release=$1 && shift ;;
  -h | --help) echo "$usage" && exit ;;
  *) echo "$usage" >&2 && exit 2 ;;
esac
if (($(id -u) != 0)); then
  echo "Only root can make a root of $release." >&2
  exit 77
fi

root=$PWD/build/roots/$release
if [[ ! -f $root/.complete ]]; then
  tests/fetch.sh "$release" "$PWD/build/parts/$release"
  rm -rf "$root" && mkdir -p "$root"
  tar -C "$root" -xf "build/parts/$release/rootfs.tar"
  touch "$root/.complete"
fi
# What git does not ignore. What is the same keeps its time, so that nothing of it is built again.
mkdir -p "$root/fracgpu-tree"
find "$root/fracgpu-tree" -mindepth 1 -maxdepth 1 ! -name build -exec rm -rf {} +
git ls-files -z --cached --others --exclude-standard |
  tar --null --files-from=- --ignore-failed-read --create | tar -C "$root/fracgpu-tree" --extract
cp /etc/resolv.conf /etc/hosts "$root/etc/"
# The mirror is this machine's, and so is the way to it: proxies, and whether a mirror that stands still is good.
apt-config dump | sed -nE '/^Acquire::(https?::|Check-).*"[^"]/p' >"$root/etc/apt/apt.conf.d/99machine"

# The new root is the root of a mount namespace, and not a chroot, in which no container could be made.
export root
# shellcheck disable=SC2016 # the shell in the new namespace expands it
exec unshare --mount --propagation private bash -euc '
  mount --bind "$root" "$root"
  mount -t proc proc "$root/proc"
  mount --rbind /sys "$root/sys"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/dev/shm"
  mkdir -p "$root/.old"
  cd "$root"
  pivot_root . .old
  umount --lazy /.old
  cd /fracgpu-tree
  export HOME=/root PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8
  exec tests/run.sh "$@"' bash "$@"
