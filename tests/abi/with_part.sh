#!/bin/sh
# with_part.sh FETCH PARTS PART COMMAND...: fetches a part to PARTS/PART and runs the command, which is skipped where
# the part cannot be had.
set -eu
"$1" "$3" "$2/$3" || exit 77
shift 3
exec "$@"
