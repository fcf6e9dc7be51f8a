"""versions.py TABLE SOURCE: compares the versions in a table's rows with what the vendor says about them.

SOURCE is a folder with CUDA's cudaTypedefs.h, whose names end in the version of each function (PFN_cuMemAlloc_v3020),
or a libamdhip64, whose symbols have the version that brought them (hipMallocAsync@@hip_5.1). An exact version must be
the vendor's; one that is not must not be older. What SOURCE lacks must be newer than SOURCE.
"""
import os
import re
import subprocess
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "../../hooks"))
import function_table

TYPEDEFS = ("cudaTypedefs.h", "cudaGLTypedefs.h", "cudaVDPAUTypedefs.h")


def cuda_versions(folder):
    """For each exported name, its version; and the headers' own. A name's exports, in order, are its generations."""
    generations = {}
    for header in TYPEDEFS:
        path = os.path.join(folder, header)
        if os.path.exists(path):
            with open(path, encoding="utf-8", errors="replace") as source:
                found = re.findall(r"\(CUDAAPI \*PFN_(cu\w+?)_v(\d+)(_ptsz|_ptds)?\)", source.read())
            for base, version, twin in found:
                generations.setdefault((base, twin), set()).add(int(version))
    versions = {}
    for (base, twin), found in generations.items():
        for number, version in enumerate(sorted(found), 1):
            versions[base + (f"_v{number}" if number > 1 else "") + twin] = version
    with open(os.path.join(folder, "cuda.h"), encoding="utf-8", errors="replace") as source:
        return versions, int(re.search(r"#define CUDA_VERSION (\d+)", source.read())[1])


def hip_versions(library):
    """For each exported name, its version; and the library's own."""
    symbols = subprocess.run(["nm", "-D", "--defined-only", library], check=True, capture_output=True, text=True).stdout
    found = re.findall(r" T (\w+)@@hip_(\d+)\.(\d+)$", symbols, flags=re.M)
    own = re.search(r"\.so\.(\d+)\.(\d+)\.", os.path.realpath(library))
    return {name: int(major) * 100 + int(minor) for name, major, minor in found}, int(own[1]) * 100 + int(own[2])


def main(table, source):
    rows = function_table.read(table)
    cuda = os.path.isdir(source)
    versions, own = cuda_versions(source) if cuda else hip_versions(source)
    if len(versions) < 300:
        sys.exit(f"FAILED: only {len(versions)} versions found in {source}: it is not read correctly")
    oldest = min(versions.values())
    wrong, compared = [], 0
    for row in rows:
        version = versions.get(row.name)
        if version is None:
            if row.since.version <= own:
                wrong.append(f"{row.place}: {row.name}: the row says {row.since.text}, but {own} does not have it")
            continue
        compared += 1
        # Symbol versions began with the oldest, so what has that one may be older.
        exact = cuda or version > oldest
        agrees = version == row.since.version if row.since.exact else version <= row.since.version
        if not agrees or (row.since.exact and not exact):
            vendors = version if exact else f"by({version})"
            wrong.append(f"{row.place}: {row.name}: the row says {row.since.text}, the vendor {vendors}")
    for line in wrong:
        print(line)
    print(f"{os.path.basename(source)} {own}: {compared} of {len(rows)} functions compared: "
          + (f"FAILED: {len(wrong)} of them wrong" if wrong else "they agree"))
    return 1 if wrong else 0


if __name__ == "__main__":
    try:
        sys.exit(main(*sys.argv[1:]))
    except function_table.BadTable as bad:
        sys.exit(f"FAILED: {bad}")
