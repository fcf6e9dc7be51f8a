"""The packages install on clean systems, work there and go again."""
import glob
import os
import shutil
import subprocess
import tempfile

import pytest

from rig import BUILD, GIB, RELEASES, Host, debian, finished, output

pytestmark = pytest.mark.usefixtures("containers")
# As ls lists them.
FILES = ["/usr/bin/fracgpu", "/usr/lib/libfracgpu.so", "/usr/lib/systemd/system/fracgpu-gc.service",
         "/usr/lib/systemd/system/fracgpu-gc.timer", "/usr/lib/systemd/system/fracgpu-metrics.service",
         "/usr/share/bash-completion/completions/fracgpu", "/usr/share/doc/fracgpu/copyright",
         "/usr/share/fish/vendor_completions.d/fracgpu.fish", "/usr/share/man/man1/fracgpu.1",
         "/usr/share/zsh/site-functions/_fracgpu"]


def packed(kind, folder):
    """The package of that kind, made in the folder."""
    made = output(["cpack", "-G", kind, "--config", f"{BUILD}/CPackConfig.cmake", "-B", folder])
    found = glob.glob(f"{folder}/*.{kind.lower()}")
    assert len(found) == 1, made
    return found[0]


def test_deb_on_clean_debians():
    with tempfile.TemporaryDirectory() as folder, Host("a100-40gb") as host:
        package = packed("DEB", folder)
        assert output(["dpkg-deb", "-f", package, "Depends"]) == "libc6 (>= 2.31)\n"
        for release in (11, 12, 13):
            # Under the cap by hand, as after a first installation, where the simulated driver runs.
            client = ("LD_PRELOAD=libfracgpu.so FRACGPU_MEMORY_LIMIT=8GiB /client init retain meminfo;"
                      " fracgpu run --memory 4GiB -- /client init retain meminfo;") if release in RELEASES else ""
            status, out, err = host.container(
                debian(release), "sh", "-ec",
                f"dpkg -i /fracgpu.deb >/dev/null; ls {' '.join(FILES)}; dpkg --verify fracgpu; fracgpu --version;"
                f"LD_PRELOAD=libfracgpu.so true; {client} fracgpu cdi generate --output - --memory 1gb | grep -m 1 hostPath;"
                "dpkg --purge fracgpu >/dev/null 2>&1;"
                f"for f in {' '.join(FILES)}; do test ! -e $f; done", options=["-v", f"{package}:/fracgpu.deb:ro"])
            assert status == 0 and err == "", f"Debian {release}: {status} {out} {err}"
            lines = out.splitlines()
            assert lines[:len(FILES)] == FILES and lines[len(FILES)].startswith("fracgpu "), out
            assert '"/usr/lib/libfracgpu.so"' in lines[-1], out
            assert release not in RELEASES or f"total={8 * GIB}" in out and f"total={4 * GIB}" in out, out
        # Where the C library is too old, dpkg itself says so.
        status, out, err = host.container(
            debian(11), "sh", "-c", "sed -i 's/^Version: 2.31-/Version: 2.30-/' /var/lib/dpkg/status;"
            "dpkg -i /fracgpu.deb", options=["-v", f"{package}:/fracgpu.deb:ro"])
        assert status != 0 and "fracgpu depends on libc6 (>= 2.31)" in err, f"{status} {out} {err}"


def test_rpm():
    if shutil.which("rpmbuild") is None:
        pytest.skip("rpmbuild is not on this machine")
    with tempfile.TemporaryDirectory() as folder:
        package = packed("RPM", folder)
        listed = output(["rpm", "-qpl", package]).split()
        # Some versions of rpmbuild compress what is in a folder of manual pages.
        files = [f"{file}.gz" if "/man/" in file and file not in listed else file for file in FILES]
        assert set(files) <= set(listed), listed
        newest = max(tuple(map(int, each.split("GLIBC_")[1].split(")")[0].split(".")))
                     for each in output(["rpm", "-qpR", package]).splitlines() if "GLIBC_" in each)
        assert newest <= (2, 31), newest
        # There is no other distribution here: into an empty root, where what it depends on is not looked at.
        root = f"{folder}/root"
        os.mkdir(root)
        rpm = ["rpm", "--root", root, "--dbpath", "/var/lib/rpm"]
        output([*rpm, "--install", "--nodeps", package])
        for file in files:
            assert os.path.isfile(root + file), file
        status, out, err = finished([f"{root}/usr/bin/fracgpu", "cdi", "generate", "--output", "-", "--memory=1gb"])
        assert status == 0 and f'"{root}/usr/lib/libfracgpu.so"' in out, f"{status} {out} {err}"
        output([*rpm, "--erase", "fracgpu"])
        for file in files:
            assert not os.path.exists(root + file), file


def test_units():
    if shutil.which("systemd-analyze") is None:
        pytest.skip("systemd-analyze is not on this machine")
    with tempfile.TemporaryDirectory() as folder:
        units = []
        for unit in sorted(glob.glob(f"{os.path.dirname(os.path.abspath(__file__))}/../../containers/package/*.[st]*")):
            with open(unit, encoding="ascii") as file:
                text = file.read()
            # Where the command lies on this machine.
            units.append(f"{folder}/{os.path.basename(unit)}")
            with open(units[-1], "w", encoding="ascii") as file:
                file.write(text.replace("/usr/bin/fracgpu", f"{BUILD}/fracgpu"))
        assert len(units) == 3, units
        for unit in units:
            done = subprocess.run(["systemd-analyze", "verify", unit], capture_output=True, text=True, check=False)
            said = [line for line in done.stderr.splitlines() if "fracgpu" in line]
            assert not said, said
