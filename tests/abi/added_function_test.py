"""Adds a made-up function to the CUDA driver by following "Adding a
function" in hooks/README.md to the letter, and finds it hooked.

Every code block of the page is in the file that it names. Each is copied under another name, behind the original, in a
copy of hooks/ and of the simulated driver; what has read the tables is compiled again, and linked with the other
objects of the build. A program then calls the new function through its PLT, dlsym and cuGetProcAddress, with the new
library preloaded and without.
"""
import concurrent.futures
import json
import os
import re
import shutil
import subprocess
import sys

from machine import BUILD

REAL, MADE_UP = "cuMemAllocManaged", "cuMemAllocMadeUp"

PROGRAM = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdint.h>
#include <stdio.h>

typedef int Allocate(unsigned long long*, size_t, unsigned);
typedef int Find(const char*, void**, int, uint64_t, int*);
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
Allocate cuMemAllocMadeUp;

static void allocate(const char* way, Allocate* call) {
  unsigned long long address = 0;
  const int small = call == NULL ? -1 : call(&address, 1 << 20, 1);
  const int large = call == NULL ? -1 : call(&address, 512 << 20, 1);
  printf("%s %d %d\n", way, small, large);
}

int main(void) {
  void* context = NULL;
  void* found = NULL;
  int status = 0;
  if (cuInit(0) != 0 || cuDevicePrimaryCtxRetain(&context, 0) != 0 || cuCtxSetCurrent(context) != 0) return 1;
  void* driver = dlopen("libcuda.so.1", RTLD_NOW);
  Find* find = (Find*)dlsym(driver, "cuGetProcAddress_v2");
  if (find == NULL || find("cuMemAllocMadeUp", &found, 12000, 0, &status) != 0) return 2;
  allocate("PLT", cuMemAllocMadeUp);
  allocate("dlsym", (Allocate*)dlsym(driver, "cuMemAllocMadeUp"));
  allocate("RTLD_DEFAULT", (Allocate*)dlsym(RTLD_DEFAULT, "cuMemAllocMadeUp"));
  allocate("cuGetProcAddress", (Allocate*)found);
  return 0;
}
"""


def run(*command, **options):
    result = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, **options)
    said = result.stdout[-4000:]
    assert result.returncode == 0, f"{' '.join(command[:4])}... ended with {result.returncode}:\n{said}"
    return result.stdout


def follow(walk, source, copy):
    """Adds the made-up function to the copy by the walk-through's blocks of C++, each of which is for the file that the
    text before it names last. Returns the files changed."""
    changed, before = [], ""
    for text, code in re.findall(r"(.*?)```cpp\n(.*?)```", walk, re.S):
        before += text
        path = re.findall(r"`([\w/]+/\w+\.\w+)`", before)[-1]
        place = os.path.join(copy if REAL in code else source, path)
        with open(place, encoding="utf-8") as file:
            original = file.read()
        assert code in original, f"the page shows what is not in {path}:\n{code}"
        if REAL in code:
            gap = "\n" if code.endswith("}\n") else ""
            with open(place, "w", encoding="utf-8") as file:
                file.write(original.replace(code, code + gap + code.replace(REAL, MADE_UP), 1))
            changed.append(path)
    return changed


def test_added_function(tmp_path, monkeypatch):
    with open(f"{BUILD}/tests/abi/added_function.json", encoding="utf-8") as described:
        build = json.load(described)
    source = build["source"]
    directory = str(tmp_path)
    os.makedirs(os.path.join(directory, "objects"))
    for folder in ("hooks", "tests/sim/cuda", "tests/abi"):
        shutil.copytree(os.path.join(source, folder), os.path.join(directory, folder))
    with open(os.path.join(source, "hooks/README.md"), encoding="utf-8") as page:
        walk = page.read().partition("## Adding a function\n")[2].partition("\n## ")[0]
    changed = follow(walk, source, directory)
    assert changed == ["hooks/cuda/functions.inc", "hooks/cuda/memory.cc", "tests/sim/cuda/symbols.inc",
                       "tests/sim/cuda/memory.cc"], f"the page changes {changed}"

    # What the page says to run.
    monkeypatch.chdir(directory)
    commands = re.findall(r"```sh\n(.*?)```", walk, re.S)
    assert commands, "the page shows no command"
    for command in commands:
        run("sh", "-c", command.replace("python3 ", f"{sys.executable} -B "))
    with open("hooks/cuda/COVERAGE.md", encoding="utf-8") as coverage:
        assert f"| `{MADE_UP}` | 6.0 | hooked, linear memory: [memory.cc](memory.cc) |" in coverage.read(), \
           "COVERAGE.md does not have the new function"
    run(sys.executable, "-B", "hooks/function_table.py", "exports-map", "hooks", "exports.map")

    # The folder of the copy comes first on the include path, so that what is in it hides the original.
    ours = re.compile(r"fracgpu_hooks\.dir/(?:\./)?(cuda/|vendors\.cc)")
    simulated = re.compile(r"sim_cuda\.dir/(?:\./)?cuda/(memory|symbols)\.cc")
    library = [file for file in build["library"] if not ours.search(file)]
    driver = [file for file in build["driver"] if not simulated.search(file)]
    assert len(library) < len(build["library"]) and len(driver) == len(build["driver"]) - 2, \
           "the objects have other names than this test expects"
    compile_one = [*build["compiler"], "-std=c++20", "-O0", "-fPIC", "-fvisibility=hidden", "-c"]
    jobs = []
    for file in sorted(os.listdir("hooks/cuda")) + ["../vendors.cc"]:
        if file.endswith(".cc"):
            library.append(f"objects/hooks_{os.path.basename(file)}.o")
            jobs.append([*compile_one, *build["options"], "-I.", f"-I{source}", f"-I{source}/include",
                         f"hooks/cuda/{file}", "-o", library[-1]])
    for file in ("memory.cc", "symbols.cc"):
        driver.append(f"objects/sim_{file}.o")
        jobs.append([*compile_one, "-Itests", f"-I{source}/tests", f"tests/sim/cuda/{file}", "-o", driver[-1]])
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda job: run(*job), jobs))
    shared = [*build["compiler"], "-shared", "-fPIC"]
    link = [option for option in build["link_options"] if "--version-script" not in option]
    run(*shared, *link, "-Wl,--version-script=exports.map", *library, build["libunwind"], "-o", "libfracgpu.so")
    run(*shared, "-static-libstdc++", "-static-libgcc", "-Wl,-soname,libcuda.so.1", "-Wl,-Bsymbolic",
        "-Wl,--exclude-libs,ALL", f"-Wl,--version-script={source}/tests/sim/cuda/exports.map", *driver,
        build["sim_node"], "-o", "libcuda.so.1")
    with open("program.c", "w", encoding="utf-8") as program:
        program.write(PROGRAM)
    run(*build["c_compiler"], "-O1", "program.c", "libcuda.so.1", "-ldl", "-o", "program")

    assert f" T {MADE_UP}\n" in run("nm", "-D", "--defined-only", "libfracgpu.so"), f"{MADE_UP} is not exported"
    print(run(sys.executable, "-B", "tests/abi/simulated.py", "hooks", ".", "tests/sim").splitlines()[0])

    node = os.path.join(directory, "node")
    run(build["simnode"], "create", node, "--profile", "tiny", "--context-mib", "64")
    tenant = f"added-function-{os.getpid()}"
    environment = {**os.environ, "LD_LIBRARY_PATH": f"{directory}:{build['sim']}", "FRACGPU_SIM_NODE": node,
                   "FRACGPU_SIM_TENANT": tenant}
    try:
        bare = run("./program", env=environment)
        capped = run("./program", env={**environment, "LD_PRELOAD": os.path.join(directory, "libfracgpu.so"),
                                       "FRACGPU_MEMORY_LIMIT": "256MiB", "FRACGPU_TENANT": tenant})
    finally:
        run(build["simnode"], "remove", node)
        if os.path.exists(build["ledger_prefix"] + tenant):
            os.remove(build["ledger_prefix"] + tenant)
    # Alone the driver has room for the first large one; under the cap there is none for any.
    assert "PLT 0 0\n" in bare, f"the simulated driver does not answer:\n{bare}"
    for way in ("PLT", "dlsym", "RTLD_DEFAULT", "cuGetProcAddress"):
        assert f"{way} 0 2\n" in capped, f"through {way} it is not hooked:\n{capped}"
    assert f"{MADE_UP} refused" in capped, f"the refusal does not name it:\n{capped}"
    print(f"{MADE_UP} is exported, and hooked through the PLT, dlsym and cuGetProcAddress")
