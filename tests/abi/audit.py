"""audit.py TABLE LEFT_ALONE SOURCE: looks for functions of the CUDA driver that nobody has decided about.

SOURCE is a folder with a cuda.h, a libcuda.so.1, or a list of names (.txt), one a line, with '#' before remarks. Every
function of it that by its name may allocate, map, bind, import, free or report memory, begin or end a capture, or hand
out entry points must be hooked (TABLE, which is functions.inc) or be left alone for a reason (LEFT_ALONE). One that the
table only calls is left alone as far as programs are concerned, and needs its reason as well.
"""
import os
import re
import subprocess
import sys

from coverage import entry_of, read_left_alone, read_rows

# Wide on purpose: a name too many costs a word in LEFT_ALONE, one too few is a hole in the cap. cuMemcpy* and cuMemset*
# work on memory that exists; "Mem" is looked for as a word of its own.
MEMORY = re.compile(
    r"Mem(?![a-z])|Memory|Alloc|Free|Reserve|Commit|Evict|Pin(?![a-z])|Array|Pool|Heap|Buffer|Resource|Sparse|Managed|"
    r"Prefetch|Discard|Advi[sc]e|Map|Unmap|[Bb]ind|Attach|Detach|PeerAccess|AccessPeer|Ipc|Fabric|Import|Export|"
    r"External|Shar(?:e|ing)|[Rr]egist|Multicast|LogicalEndpoint|Checkpoint|Create|Destroy|Retain|Release|Reset|Trim|"
    r"Limit|Load|Unload|Launch|Instantiate|Upload|Graph(?:Add|Clone|ExecUpdate|\w*NodeSetParams)|Module|Library|Link|"
    r"Green|GetFunction|ProcAddress|EntryPoint|Pointer|Device(?:GetAttribute|GetProperties)|Tex|Surf|Graphics|"
    r"Info(?![a-z])|Usage|Budget|[Cc]aptur|cu(?:GL|EGL|VDPAU|D3D|WGL|NvSci)|Init$")

HEADERS = ("cuda.h", "cudaGL.h", "cudaEGL.h", "cudaVDPAU.h", "cudaProfiler.h")
OLDEST = 11080  # the oldest header that LEFT_ALONE was compared with


def exported(header):
    """The symbols that programs compiled with a header may want: what it declares, and what its macros rename to."""
    text = re.sub(r"/\*.*?\*/", "", header, flags=re.S)
    names = set(re.findall(r"\bCUDAAPI\s+(cu[A-Z]\w*)\s*\(", text))
    for target in re.findall(r"^[ \t]*#[ \t]*define[ \t]+cu[A-Z]\w*[ \t]+(\S.*?)[ \t]*$", text, flags=re.M):
        if wrapped := re.fullmatch(r"__CUDA_API_(PTSZ|PTDS)\((cu[A-Z]\w*)\)", target):
            names |= {wrapped[2], f"{wrapped[2]}_{wrapped[1].lower()}"}
        elif re.fullmatch(r"cu[A-Z]\w*", target):
            names.add(target)
        else:
            sys.exit(f"FAILED: cuda.h renames a function to '{target}', which is not understood")
    return names


def read_headers(folder):
    """The names, the version where all headers are there to judge by, and what was read."""
    texts = []
    for header in HEADERS:
        if os.path.exists(os.path.join(folder, header)):
            with open(os.path.join(folder, header), encoding="utf-8", errors="replace") as source:
                texts.append(source.read())
    version = int(re.search(r"#define CUDA_VERSION (\d+)", texts[0])[1])
    names = set().union(*map(exported, texts))
    what = f"cuda.h {version // 1000}.{version % 1000 // 10}"
    return names, version if len(texts) == len(HEADERS) else None, what


def read_library(path):
    symbols = subprocess.run(["nm", "-D", "--defined-only", path], check=True, capture_output=True, text=True).stdout
    names = {line.split()[-1].split("@")[0] for line in symbols.splitlines()}
    return {name for name in names if re.match(r"cu[A-Z]", name)}, None, os.path.basename(os.path.realpath(path))


def read_list(path):
    with open(path, encoding="utf-8") as lines:
        names = {line.split("#")[0].strip() for line in lines} - {""}
    if not names:
        sys.exit(f"FAILED: {path} names no function")
    return names


def read_names(source):
    """The names, the version where they can be compared with it, and what was read."""
    if source.endswith(".txt"):
        return read_list(source), None, os.path.basename(source)
    names, version, what = read_headers(source) if os.path.isdir(source) else read_library(source)
    if len(names) < 400:  # CUDA 11.2 had 499
        sys.exit(f"FAILED: only {len(names)} functions found in {what}: it is not read correctly")
    return names, version, what


def report(what, names, suspects, wrong):
    """Prints the verdict on a source; the program's exit status."""
    for line in wrong:
        print(line)
    verdict = f"FAILED: {len(wrong)} of them wrong" if wrong else "each is hooked or explained"
    print(f"{what}: {len(names)} functions, {len(suspects)} of them looked at: {verdict}")
    return 1 if wrong else 0


def audit(table, left_alone, source):
    rows = read_rows(table)
    hooked = [row.name for row in rows if row.exported]
    called = {row.name for row in rows if not row.exported}
    listed = read_left_alone(left_alone)
    names, version, what = read_names(source)

    wrong = []
    suspects = sorted(filter(MEMORY.search, names))
    for name in suspects:
        if name not in hooked and entry_of(name, listed) is None:
            how = "only called" if name in called else "not in the table"
            wrong.append(f"{name} is {how}, and not listed as left alone")
    for name in hooked:
        if entry := entry_of(name, listed):
            wrong.append(f"{entry} is listed as left alone, but {name} is hooked")
    if version is not None and version >= OLDEST:
        alive = {entry_of(name, listed) for name in names}
        for name, entry in listed.items():
            if entry.in_headers and entry.since <= version and name not in alive:
                wrong.append(f"{name} is listed as left alone, but {what} does not have it")

    return report(what, names, suspects, wrong)


if __name__ == "__main__":
    sys.exit(audit(*sys.argv[1:]))
