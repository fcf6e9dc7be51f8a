"""hostile.py control COMMAND: asks RM for one control, with 8 bytes, and prints its status.
hostile.py uvm NUMBER: asks UVM for one ioctl, and prints its error.
hostile.py storm SEED: ioctls of all numbers with sizes that are too short or too long, and pointers that lead nowhere."""
import ctypes
import fcntl
import os
import random
import struct
import sys

LIBC = ctypes.CDLL(None, use_errno=True)  # whose ioctl takes any pointer
MAGIC = ord("F")
RM_ALLOC, RM_CONTROL, XFER = 0x2b, 0x2a, 211
BAD_POINTERS = [0, 1, 0xdead0000, 0x7fff_ffff_f000, 1 << 47, (1 << 64) - 4096]


def request(number, size):
    return 3 << 30 | size << 16 | MAGIC << 8 | number


def new_client(fd):
    made = bytearray(struct.pack("<IIIIQII", 0, 0, 0, 0, 0, 0, 0))
    fcntl.ioctl(fd, request(RM_ALLOC, len(made)), made)
    return struct.unpack_from("<I", made, 8)[0]


def control(fd, command):
    client = new_client(fd)
    room = bytearray(8)
    address = struct.unpack("<Q", struct.pack("<Q", id(room)))[0]  # of the object, whose memory may be read and written
    asked = bytearray(struct.pack("<IIIIQII", client, client, command, 0, address, 8, 0))
    fcntl.ioctl(fd, request(RM_CONTROL, len(asked)), asked)
    print(hex(struct.unpack_from("<I", asked, 28)[0]))


def uvm(fd, number):
    LIBC.ioctl(fd, ctypes.c_ulong(number), bytes(4096))
    print(ctypes.get_errno())


def storm(seed):
    random.seed(seed)
    files = {name: os.open(f"/dev/{name}", os.O_RDWR) for name in ("nvidiactl", "nvidia0", "nvidia-uvm")}
    client = new_client(files["nvidiactl"])
    for _ in range(6000):
        name, fd = random.choice(list(files.items()))
        size = random.choice((0, 1, 4, 8, 16, 24, 28, 32, 40, 48, 56, 64, 72, 100, 144, 176, 200, 1000))
        number = random.choice((*range(0x27, 0x60), *range(200, 220), random.randrange(256)))
        code = request(number, size) if name != "nvidia-uvm" else random.choice((*range(80), 0x30000001, 0x30000002))
        try:
            if random.random() < 0.3:
                LIBC.ioctl(fd, ctypes.c_ulong(code), ctypes.c_void_p(random.choice(BAD_POINTERS)))
                continue
            words = [random.choice((0, 1, client, 0x41, 0x40, 0x3e, 0x71, 0xc56f, 0x20800102, 0x2080018e, random.getrandbits(32)))
                     for _ in range(1000)]
            for i in range(0, 1000, 2):  # no number of it is a good address
                if random.random() < 0.2:
                    words[i:i + 2] = struct.unpack("<II", struct.pack("<Q", random.choice(BAD_POINTERS)))
            fcntl.ioctl(fd, code, bytearray(struct.pack("<1000I", *words) * 4))  # no parameters are larger
        except OSError:
            pass
    for fd in files.values():
        os.close(fd)


if __name__ == "__main__":
    if sys.argv[1] == "control":
        control(os.open("/dev/nvidiactl", os.O_RDWR), int(sys.argv[2], 0))
    elif sys.argv[1] == "uvm":
        uvm(os.open("/dev/nvidia-uvm", os.O_RDWR), int(sys.argv[2], 0))
    else:
        storm(int(sys.argv[2]))
