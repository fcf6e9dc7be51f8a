#!/bin/sh
# simnode_options.sh SIMNODE: what looks like an option is never taken for a node's path.
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
fail() {
    echo "$1" >&2
    exit 1
}

"$1" create --help | grep -q '^usage: simnode create PATH' || fail "create --help does not say its usage"
for words in "create --profile" "create -x --profile a30" "show -h" "remove -f" "profile-from report -y"; do
    # shellcheck disable=SC2086  # words apart
    if "$1" $words >said 2>&1; then fail "simnode $words succeeds"; fi
    [ "$(wc -l <said)" = 1 ] || fail "simnode $words says more than a line: $(cat said)"
    grep -q "begins with '-'" said || fail "simnode $words: $(cat said)"
done
rm said
[ -z "$(ls -A)" ] || fail "a file was made: $(ls -A)"
