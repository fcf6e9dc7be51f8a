"""What programs do that have nothing to do with GPUs: runtimes, allocators, sanitizers, tracers, sandboxes, life cycles.

Each is a shell's command. It is left out where one of the programs or files that it needs is not on the machine.
$MADE is a folder with what MAKE has compiled, $LIBRARIES that of the system's libraries.
"""

# Compiled before, without the library: name, compiler, options, source.
MAKE = [
    ("plain", "cc", "", "threads"),
    ("gcc_asan", "gcc", "-fsanitize=address -static-libasan", "threads"),
    ("gcc_ubsan", "gcc", "-fsanitize=undefined", "threads"),
    ("gcc_tsan", "gcc", "-fsanitize=thread -static-libtsan", "threads"),
    ("clang_asan", "clang", "-fsanitize=address", "threads"),
    ("clang_msan", "clang", "-fsanitize=memory", "threads"),
    ("clang_tsan", "clang", "-fsanitize=thread", "threads"),
    ("walker", "cc", "-shared -fPIC", "walker"),
]

SOURCES = {
    "threads": r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static void* work(void* unused) {
  for (int i = 0; i < 100; ++i) {
    char* text = malloc(1000);
    memset(text, i, 1000);
    free(text);
  }
  return unused;
}
int main(void) {
  pthread_t threads[4];
  for (int i = 0; i < 4; ++i) pthread_create(&threads[i], NULL, work, NULL);
  for (int i = 0; i < 4; ++i) pthread_join(threads[i], NULL);
  void* const math = dlopen("libm.so.6", RTLD_NOW);
  printf("%d %d %d\n", math != NULL, dlsym(math, "cos") != NULL, dlsym(RTLD_DEFAULT, "no_such_name") == NULL);
  fflush(stdout);
  if (fork() == 0) _exit(7);
  int status = 0;
  wait(&status);
  printf("%d\n", WEXITSTATUS(status));
  return 3;
}
""",
    "walker": r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <link.h>
int dl_iterate_phdr(int (*visit)(struct dl_phdr_info*, size_t, void*), void* data) {
  static int (*real)(int (*)(struct dl_phdr_info*, size_t, void*), void*);
  if (real == 0) real = (int (*)(int (*)(struct dl_phdr_info*, size_t, void*), void*))dlsym(RTLD_NEXT, "dl_iterate_phdr");
  return real(visit, data);
}
""",
}

PYTHON_CHILDREN = ("import subprocess, multiprocessing as m, threading as t, os; "
                   "print(subprocess.run(['echo', 'x'], capture_output=True).stdout); "
                   "x = t.Thread(target=print, args=('thread',)); x.start(); x.join(); "
                   "c = m.get_context('fork'); q = c.Queue(); p = c.Process(target=q.put, args=(4,)); p.start(); "
                   "print(q.get()); p.join(); print(p.exitcode, sorted(os.listdir('/proc/self/fd')))")

# Name, what it needs, command.
LIVES = [
    ("descriptors", "ls", "ls /proc/self/fd | tr '\\n' ' '; ls -l /proc/self/fd | wc -l"),
    ("children", "python3", f'python3 -c "{PYTHON_CHILDREN}"'),
    ("python threads and modules", "python3", "python3 -c 'import ctypes, ssl, sqlite3; print(ctypes.CDLL(None).getpid() > 0)'"),
    ("ctypes", "python3", "python3 -c 'import ctypes; print(ctypes.CDLL(\"libm.so.6\").abs(-3)); ctypes.CDLL(\"libnone.so\")' 2>&1 | tail -1"),
    ("perl", "perl", "perl -e 'my $p = fork; if (!$p) { exit 5 } waitpid $p, 0; print $? >> 8, qq(\\n)'"),
    ("node", "node", "node -e 'console.log(require(\"child_process\").execSync(\"echo x\").toString())'"),
    ("java", "java", "java -version 2>&1"),
    ("tcl", "tclsh", "echo 'puts [exec echo x]' | tclsh"),
    ("loops of a shell", "bash", "bash -c 'for i in {1..20}; do echo $(echo $i | cat); done; (exit 9)'; echo $?"),
    ("compiler", "gcc", "echo 'int main(){return 4;}' | gcc -x c - -o made && ./made; echo $?"),
    ("make", "make", "printf 'all: a b\\n\\techo c\\na b:\\n\\techo $@\\n' | make -j2 -O -f - all | sort"),
    ("git", "git", "git init -q . && git status --short && git log; echo $?"),
    ("cmake", "cmake", "cmake -E echo x && cmake -E capabilities | wc -l"),
    # Allocators and other preloaded libraries, in both orders.
    *[(f"{name} {order}", library, command)
      for name, library in (("jemalloc", "libjemalloc.so.2"), ("tcmalloc", "libtcmalloc_minimal.so.4"),
                            ("mimalloc", "libmimalloc.so.2"))
      for order, command in (("before", f"LD_PRELOAD={library}:$LD_PRELOAD $MADE/plain; echo $?"),
                             ("behind", f"LD_PRELOAD=$LD_PRELOAD:{library} $MADE/plain; echo $?"))],
    ("walker before", "made:walker", "LD_PRELOAD=$MADE/walker:$LD_PRELOAD $MADE/plain; echo $?"),
    ("walker behind", "made:walker", "LD_PRELOAD=$LD_PRELOAD:$MADE/walker $MADE/plain; echo $?"),
    *[(f"built: {name}", f"made:{name}", f"$MADE/{name}; echo $?")
      for name, _, _, source in MAKE if source == "threads"],
    ("stdbuf", "stdbuf", "stdbuf -o0 echo x; stdbuf -oL sh -c 'echo y; echo z >&2'"),
    ("fakeroot", "fakeroot", "fakeroot sh -c 'touch f && chown 7:8 f && stat -c %u:%g f && id -u'"),
    ("fakechroot", "fakechroot", "fakechroot sh -c 'echo x; ls / >/dev/null; echo $?'"),
    ("fakechroot in fakeroot", "fakechroot fakeroot", "fakechroot fakeroot sh -c 'id -u; $MADE/plain'; echo $?"),
    ("faketime", "faketime", "faketime '2020-01-01 00:00:00' date +%Y"),
    # Tracers and sandboxes.
    ("strace", "strace", "strace -f -o /dev/null $MADE/plain; echo $?"),
    ("gdb", "gdb", "gdb -nx -q -batch -ex run -ex 'info registers rip' $MADE/plain </dev/null 2>/dev/null | grep -E '^[17] '"),
    ("valgrind", "valgrind", "valgrind -q --error-exitcode=99 $MADE/plain; echo $?"),
    ("unshare", "unshare", "unshare -U -r sh -c 'id -u; echo x'"),
    ("unshare of PIDs", "unshare", "unshare -U -r -p -f sh -c 'echo $$; sh -c \"exit 3\"; echo $?'"),
    ("bubblewrap", "bwrap", "bwrap --ro-bind / / --unshare-all sh -c 'echo x; id -u'"),
    ("setpriv", "setpriv", "setpriv --no-new-privs sh -c 'echo x'"),
    ("chroot", "chroot", "chroot / sh -c 'echo x'; chroot /nowhere true; echo $?"),
    # Life cycles.
    ("timeout", "timeout", "timeout 0.2 sleep 5; echo $?; timeout -s KILL 0.2 sleep 5; echo $?"),
    ("setsid", "setsid", "setsid -w sh -c 'echo x; exit 6'; echo $?"),
    ("nohup", "nohup", "nohup sh -c 'echo x; exit 6' 2>&1; echo $?"),
    ("nice", "nice", "nice -n 3 nice; chrt -o 0 echo x; taskset -c 0 echo y"),
    ("flock", "flock", "flock lock sh -c 'echo x'; flock -n lock true; echo $?"),
    ("script", "script", "script -q -e -c 'echo x; exit 3' /dev/null; echo $?"),
    ("xargs", "xargs", "seq 40 | xargs -n 1 -P 4 echo | sort -n | tail -2"),
    ("exec chain", "sh", "exec sh -c 'exec sh -c \"exec echo x\"'"),
    ("daemon", "sh", "(setsid sh -c 'sleep 0.1; echo late > late' >/dev/null 2>&1 &) ; sleep 0.5; cat late"),
    *[(f"signal {name}", "sh", f"sh -c 'kill -{name} $$'; echo $?")
      for name in ("TERM", "KILL", "SEGV", "ABRT", "PIPE", "USR1", "HUP")],
    ("broken pipe", "yes", "yes | head -1; sh -c 'while echo x; do :; done' 2>/dev/null | head -1"),
    ("full device", "echo", "sh -c 'echo x' >/dev/full; echo $?"),
    ("no stdin", "cat", "cat <&-; echo $?"),
    ("no stdout", "ls", "ls / >&-; echo $?"),
    ("no stderr", "ls", "ls /nowhere 2>&-; echo $?"),
    ("none of the three", "sh", "sh -c 'exec 3>three; (ls /nowhere; echo $? >&3) <&- >&- 2>&-'; cat three"),
    ("descriptor 2 is a file", "sh", "sh -c 'echo data >&2' 2>file; cat file"),
    ("few descriptors", "sh", "ulimit -n 4; sh -c 'echo x'; ls / >/dev/null; echo $?"),
    ("little memory", "sh", "ulimit -v 200000; sh -c 'echo x'; $MADE/plain; echo $?"),
    ("no files", "sh", "ulimit -f 0; sh -c 'echo x'; echo y | cat"),
    ("little stack", "sh", "ulimit -s 256; sh -c 'echo x'; $MADE/plain; echo $?"),
    ("no processes", "sh", "sh -c 'ulimit -u 1; echo x'"),
    ("empty environment", "env", "env -i LD_PRELOAD=$LD_PRELOAD $MADE/plain; echo $?"),
    ("relative and missing folder", "sh", "mkdir gone; cd gone; rmdir ../gone; /bin/sh -c 'echo x'; $MADE/plain; echo $?"),
    ("many at once", "sh", "for i in 1 2 3 4 5 6 7 8 9 10; do sh -c 'exit 1' & done; wait; echo done"),
    ("vfork", "python3", "python3 -c 'import os; print(os.waitpid(os.posix_spawn(\"/bin/true\", [\"true\"], {}), 0)[1])'"),
    ("closefrom", "python3", "python3 -c 'import os; os.closerange(3, 1000); print(os.popen(\"echo x\").read())'"),
]
