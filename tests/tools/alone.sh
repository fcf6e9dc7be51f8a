#!/bin/sh
# alone.sh COMMAND ...: runs it with a /dev/shm of its own, where one may be made. What the fracgpu command shows is of
# all tenants of the machine, and other tests have theirs at the same time, on GPUs of the same names.
own_shm='mount -t tmpfs -o mode=1777 tmpfs /dev/shm'
if unshare --mount sh -c "$own_shm" 2>/dev/null; then
  exec unshare --mount sh -c "$own_shm"' && exec "$@"' sh "$@"
fi
exec "$@"
