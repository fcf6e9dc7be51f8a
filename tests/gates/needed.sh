#!/bin/sh
# needed.sh READELF FILE: the library and the command may ask the loader only for libc's own parts. Anything else would
# be missing in some container, and a preloaded library that cannot be loaded ends every program there. The library does
# without glibc's loader too, which musl has not: it would be needed for __tls_get_addr.
set -eu
needed=$("$1" --dynamic --wide "$2" | sed -n 's/.*(NEEDED).*\[\(.*\)\]/\1/p')
allowed='libc\.so\.6|libm\.so\.6|libdl\.so\.2|libpthread\.so\.0'
case $2 in *.so) ;; *) allowed="$allowed|ld-linux[-_a-z0-9]*\.so\.[0-9]" ;; esac
foreign=$(printf '%s\n' "$needed" | grep -vxE "$allowed" || true)
if [ -n "$foreign" ]; then
  echo "FAILED: $2 needs more than libc: $(printf '%s' "$foreign" | tr '\n' ' ')"
  exit 1
fi
echo "needs only: $(printf '%s' "$needed" | tr '\n' ' ')"
