#!/bin/sh
# environment.sh SOURCE: one file of the library reads the environment, and says there when it may be read.
set -eu
cd "$1"
if grep -rnE '\b(secure_)?getenv\(|\b(__)?environ\b' shim hooks | grep -v '^shim/base/environment\.cc:'; then
  echo "FAILED: only shim/base/environment.cc reads the environment"
  exit 1
fi
echo "the environment is read in one place"
