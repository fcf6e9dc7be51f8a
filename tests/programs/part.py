"""Programs of another Debian suite, fetched with all they need (fetch.sh)."""
import glob
import os

import machine


class Part:
    """The packages of one part, unpacked. `folders`: of libraries, besides the usual ones; absolute or in the usual one."""

    def __init__(self, name, *folders):
        self.root = machine.part(name)
        self.libraries = f"{self.root}/usr/lib/x86_64-linux-gnu"
        folders = [*folders, "", "blas", "lapack", "nvidia/current", f"{self.root}/usr/lib"]
        self.paths = ":".join(os.path.join(self.libraries, folder) for folder in folders)

    def program(self, name):
        """The path of a program, by a pattern."""
        return glob.glob(f"{self.root}/usr/bin/{name}")[0]

    def command(self, *words):
        """Starts a program with the part's own loader and C library."""
        return [glob.glob(f"{self.root}/lib64/ld-linux-*")[0], "--library-path", self.paths, *words]
