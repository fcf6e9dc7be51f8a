"""run.py [--card MIB] [--gpus N] [--cap SIZE] [--release 535|550] BUILD PROGRAM ...: runs a program on a simulated GPU, by hand.

`client` stands for the scripted client, and `nvidia-smi` for the driver's. At the end the accounting is printed: the peak of
the GPU and of each process, in bytes. RMSIM_TRACE=FILE writes each request of the driver.
"""
import argparse
import os
import subprocess
import sys

import rig


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("build")
    parser.add_argument("--card", type=int, default=24576)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--cap")
    parser.add_argument("--release", choices=rig.RELEASES, default="535")
    parser.add_argument("program", nargs=argparse.REMAINDER)
    options = parser.parse_args()
    build = rig.Build(os.path.abspath(options.build), options.release)
    if build.missing() or not options.program:
        sys.exit(f"run.py: {build.missing()} is not there; prepare.sh makes it" if options.program else "run.py: which program?")
    name, *arguments = options.program
    command = {"client": rig.CLIENT, "nvidia-smi": [build.smi]}.get(name, [name])
    with rig.Gpu(build, options.card, options.gpus) as gpu:
        status = subprocess.run([*command, *arguments], env=gpu.environment(options.cap), check=False, timeout=3600).returncode
        for number in range(options.gpus):
            print(gpu.accounting(number), file=sys.stderr)
    sys.exit(status)


if __name__ == "__main__":
    main()
