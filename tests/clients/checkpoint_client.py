#!/usr/bin/env python3
"""Orders a process's checkpoint, as cuda-checkpoint does, and has no context of its own.

usage: checkpoint_client.py PID STEP...   each step is lock, checkpoint, restore, unlock or state, and prints one line

A step may have an argument, the first byte of its structure: checkpoint:1.
"""
import ctypes
import sys


def main():
    cuda = ctypes.CDLL("libcuda.so.1")
    assert cuda.cuInit(0) == 0
    pid = int(sys.argv[1])
    for step in sys.argv[2:]:
        if step == "state":
            state = ctypes.c_int(-1)
            print(f"state rc={cuda.cuCheckpointProcessGetState(pid, ctypes.byref(state))} state={state.value}")
        else:
            name, _, first = step.partition(":")
            arguments = (ctypes.c_ubyte * 64)(int(first)) if first else None
            print(f"{name} rc={getattr(cuda, 'cuCheckpointProcess' + name.capitalize())(pid, arguments)}")


if __name__ == "__main__":
    main()
