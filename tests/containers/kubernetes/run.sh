#!/bin/sh
# run.sh BUILD: judges the Kubernetes files. What judges them comes from the npm registry, once.
set -eu
build=$(cd "$1" && pwd)
here=$(cd "$(dirname "$0")" && pwd)
for tool in node npm kubectl; do
  command -v "$tool" >/dev/null 2>&1 || { echo "skipped: $tool is not on this machine"; exit 77; }
done
folder=$build/parts/npm-kubernetes
mkdir -p "$folder"
if ! cmp -s "$here/package.json" "$folder/package.json" || [ ! -d "$folder/node_modules" ]; then
  cp "$here/package.json" "$folder/package.json.new"
  mv "$folder/package.json.new" "$folder/package.json"
  (cd "$folder" && npm install --no-audit --no-fund --ignore-scripts >npm.log 2>&1) ||
    { rm -f "$folder/package.json"; echo "skipped: the npm registry cannot be had: $(tail -n 1 "$folder/npm.log")"; exit 77; }
fi
NPM_FOLDER=$folder FRACGPU=$build/fracgpu node --test "$here"
