#!/bin/sh
# run.sh BUILD [SCRIPT ARGUMENT…]: judges the Kubernetes files, or runs that script of this folder. What judges them
# comes from the npm registry, once; one of those who want it at a time fetches it.
set -eu
build=$(cd "$1" && pwd)
shift
here=$(cd "$(dirname "$0")" && pwd)
for tool in node npm kubectl; do
  command -v "$tool" >/dev/null 2>&1 || { echo "skipped: $tool is not on this machine"; exit 77; }
done
folder=$build/parts/npm-kubernetes
mkdir -p "$folder"
exec 9>"$folder.lock"
flock 9
if ! cmp -s "$here/package.json" "$folder/package.json" || [ ! -d "$folder/node_modules" ]; then
  cp "$here/package.json" "$folder/package.json.new"
  mv "$folder/package.json.new" "$folder/package.json"
  (cd "$folder" && npm install --no-audit --no-fund --ignore-scripts >npm.log 2>&1) ||
    { rm -f "$folder/package.json"; echo "skipped: the npm registry cannot be had: $(tail -n 1 "$folder/npm.log")"; exit 77; }
fi
exec 9>&-
export NPM_FOLDER="$folder" FRACGPU="$build/fracgpu"
if [ $# -gt 0 ]; then
  cd "$here"
  exec node "$@"
fi
exec node --test "$here"
