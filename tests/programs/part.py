"""Programs of another Debian suite, fetched with all they need (fetch.sh), on NVIDIA's own driver 550."""
import glob
import os
import re
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "kernel", "nvidia"))
import rig  # noqa: E402 # pylint: disable=wrong-import-position

MIB = rig.MIB


class Part:
    """The packages of one part, unpacked. `folders`: where it has libraries, besides the usual ones."""

    def __init__(self, build, name, folders=()):
        self.build, self.name = build, name
        self.root = os.path.abspath(f"{build.folder}/parts/{name}")
        self.libraries = f"{self.root}/usr/lib/x86_64-linux-gnu"
        folders = [*folders, "", "blas", "lapack", "nvidia/current", f"{self.root}/usr/lib"]
        self.paths = [*map(os.path.abspath, build.driver), *(os.path.join(self.libraries, folder) for folder in folders)]

    def require(self, megabytes):
        """Fetches it as a campaign. Otherwise, skips the test if it is missing."""
        if "FRACGPU_CAMPAIGN" in os.environ:
            subprocess.run([f"{HERE}/../fetch.sh", self.name, self.root], check=False)
        if not os.path.exists(f"{self.root}/.fetched-{self.name}"):
            raise rig.unittest.SkipTest(f"{self.name} is missing. FRACGPU_CAMPAIGN=1 fetches it ({megabytes} MB)")

    def command(self, program, *arguments):
        """Runs `program`, a pattern, with the part's own loader and C library."""
        return [glob.glob(f"{self.root}/lib64/ld-linux-*")[0], "--library-path", ":".join(self.paths),
                glob.glob(f"{self.root}/usr/bin/{program}")[0], *arguments]


class Comparison(rig.unittest.TestCase):
    """A program ends the same under a cap as on a card of that size, and prints the same."""

    def compare(self, build, mib, command, printed, **environment):
        """`printed(result)`: the lines that must be equal."""
        def end(card_mib, cap):
            with rig.Gpu(build, card_mib) as gpu:
                result = gpu.run(command, cap, seconds=280, **environment)
                self.assertEqual(gpu.unknown(), "")
                return result, gpu.accounting()["peak"]
        bare, bare_peak = end(mib, None)
        capped, peak = end(2 * mib, f"{mib}MiB")
        print(f"{mib} MiB: exit status {bare.returncode}, {len(printed(bare))} lines; RM at most {bare_peak / MIB:.0f} MiB on a "
              f"card of that size, {peak / MIB:.0f} under the cap", file=sys.stderr)
        self.assertGreater(bare_peak, 0, bare.stderr)
        self.assertLessEqual(peak, mib * MIB, "RM's count passed the cap")
        self.assertEqual(printed(capped), printed(bare), f"{bare.stderr}\n-- under the cap:\n{capped.stderr}")
        self.assertEqual(capped.returncode, bare.returncode, capped.stderr)
        return bare


def undefined(pattern, *libraries):
    """The names of functions that shared libraries need from elsewhere."""
    symbols = subprocess.run(["nm", "-D", "--undefined-only", *libraries], capture_output=True, text=True, check=True).stdout
    return sorted(set(re.findall(rf" U ({pattern})", symbols)))
