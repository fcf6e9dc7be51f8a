#!/bin/sh
# cancellation_points.sh NM LIBRARY: the library calls no function of the C library in which a thread may be cancelled.
# A hook may not add such a point to a driver's function, and who ends there leaves our locks behind. Left out are
# fcntl, which is one only where it waits for a lock, and stdio, by which libunwind says why it aborts.
set -eu
points='accept|clock_nanosleep|close|connect|creat|fdatasync|fsync|msync|nanosleep|open|openat|pause|poll|ppoll|pread|preadv
pselect|pthread_cond_timedwait|pthread_cond_wait|pthread_join|pthread_testcancel|pwrite|pwritev|read|readv|recv|recvfrom|recvmsg
select|send|sendmsg|sendto|sigsuspend|sigtimedwait|sigwait|sigwaitinfo|sleep|system|tcdrain|usleep|wait|waitid|waitpid|write|writev'
undefined=$("$1" --dynamic --undefined-only --format=posix "$2" | sed 's/[@ ].*//')
[ -n "$undefined" ] || { echo "FAILED: $2 needs no function at all; is it the right file?"; exit 1; }
found=$(printf '%s\n' "$undefined" | sed 's/64$//' | grep -xE "$(printf '%s' "$points" | tr '\n' '|')" | tr '\n' ' ' || true)
[ -z "$found" ] || { echo "FAILED: cancellation points: $found(shim/base/descriptor.h and clock.h have others)"; exit 1; }
echo "no cancellation point among $(printf '%s\n' "$undefined" | wc -l) functions"
