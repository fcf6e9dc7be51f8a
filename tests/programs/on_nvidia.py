"""Compares a program under a cap with the same program on a card of that size, on NVIDIA's own driver 550."""
import os
import sys

sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "kernel", "nvidia"))
import rig  # noqa: E402 # pylint: disable=wrong-import-position

MIB = rig.MIB
BUILD = rig.Build(release="550")
DRIVER = [os.path.abspath(folder) for folder in BUILD.driver]


def compare(mib, command, printed, gpus=1, **environment):
    """Returns the result on the card. `printed(result)`: the lines that must be equal. `mib` and the cap are each GPU's."""
    def end(card_mib, cap):
        with rig.Gpu(BUILD, card_mib, gpus) as gpu:
            result = gpu.run(command, cap, seconds=280, **environment)
            assert gpu.unknown() == ""
            return result, max(gpu.accounting(number)["peak"] for number in range(gpus))
    BUILD.needs()
    bare, bare_peak = end(mib, None)
    capped, peak = end(2 * mib, f"{mib}MiB")
    print(f"{mib} MiB: exit status {bare.returncode}, {len(printed(bare))} lines; RM at most {bare_peak / MIB:.0f} MiB on a "
          f"card of that size, {peak / MIB:.0f} under the cap")
    assert bare_peak > 0, bare.stderr
    assert peak <= mib * MIB, "RM's count passed the cap"
    assert printed(capped) == printed(bare), f"{bare.stderr}\n-- under the cap:\n{capped.stderr}"
    assert capped.returncode == bare.returncode, capped.stderr
    return bare
