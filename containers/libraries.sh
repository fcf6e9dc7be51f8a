#!/bin/sh
# libraries.sh PROGRAM FOLDER: copies the shared libraries that a program needs into a folder, but for those of glibc,
# which every image has itself.
set -eu
program=$1 folder=$2
mkdir -p "$folder"
ldd "$program" | awk '$2 == "=>" && $3 ~ /^\// { print $3 }' |
  grep -Ev '/(libc|libm|libdl|librt|libpthread|libresolv)\.so\.[0-9]+$' |
  while read -r library; do
    cp -L "$library" "$folder/"
  done
