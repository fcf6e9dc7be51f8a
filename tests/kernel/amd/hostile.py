"""Asks /dev/kfd and a render node for everything, with everything: hostile.py SEED COUNT. Prints how many were refused."""
import ctypes
import os
import random
import sys

seed, count = int(sys.argv[1]), int(sys.argv[2])
random.seed(seed)
libc = ctypes.CDLL(None, use_errno=True)
kfd = os.open("/dev/kfd", os.O_RDWR | os.O_CLOEXEC)
render = os.open("/dev/dri/renderD128", os.O_RDWR | os.O_CLOEXEC)
with open("/sys/class/kfd/kfd/topology/nodes/1/gpu_id", encoding="ascii") as file:
    gpu_id = int(file.read())

room = ctypes.create_string_buffer(1 << 14)
WAIT_EVENTS, TIMEOUT_WORD = 0x0c, 4
WORDS = [0, 1, 2, 0xffffffff, 1 << 31, gpu_id, kfd, render, 4096, 1 << 20, (1 << 32) - 4096]
POINTERS = [0, 1, 4096, ctypes.addressof(room), 1 << 47, (1 << 64) - 1, (1 << 63) + 8]
# Of each device's ioctls, numbers and true sizes (linux/kfd_ioctl.h, amdgpu_drm.h).
KNOWN = [(kfd, "K", {0x02: 88, 0x03: 8, 0x06: 400, 0x07: 24, 0x08: 32, 0x09: 8, 0x0c: 24, 0x12: 40, 0x14: 16, 0x15: 8, 0x16: 40,
                     0x17: 8, 0x18: 24, 0x19: 24, 0x1c: 32, 0x1d: 24, 0x1f: 8, 0x20: 24 + 5 * 8, 0x23: 16, 0x24: 16, 0x80: 48,
                     0x81: 32}),
         (render, "d", {0x00: 64, 0x09: 8, 0x2d: 12, 0x2e: 12, 0x40: 32, 0x41: 8, 0x42: 16, 0x44: 24, 0x45: 32, 0x46: 288, 0x47: 16,
                        0x48: 40, 0x49: 32, 0x50: 16, 0xbf: 8, 0xc0: 8, 0xc4: 16, 0xc5: 16, 0xcb: 24, 0xcc: 32, 0xcd: 24})]
VRAM, WRITABLE = 1, 1 << 31


def ask(fd, kind, number, size, words, address=ctypes.addressof(room), direction=3):
    """Whether it was refused."""
    if number == WAIT_EVENTS:
        words[TIMEOUT_WORD] = 0  # a wait for ever is what the driver promises
    data = b"".join(word.to_bytes(4, "little") for word in words)
    ctypes.memmove(room, data, len(data))
    request = direction << 30 | size << 16 | ord(kind) << 8 | number
    failed = libc.ioctl(fd, ctypes.c_ulong(request), ctypes.c_void_p(address)) != 0
    assert not failed or ctypes.get_errno() != 0, hex(request)
    return failed


def halves(number):
    return [number & 0xffffffff, number >> 32]


refused = 0
for _ in range(count):
    fd, kind, sizes = random.choice(KNOWN)
    number = random.choice(list(sizes))
    size, address, direction = sizes[number], ctypes.addressof(room), 3
    if random.random() < 0.2:  # of another device, unknown, of another size
        fd, number = random.choice([kfd, render]), random.randrange(256)
        size = random.choice([0, 1, 4, 8, 16, 24, 40, 64, 400, 16383])
        direction = random.randrange(4)
        address = random.choice([address, *POINTERS])
    words = [random.choice(WORDS) if random.random() < 0.7 else random.getrandbits(32) for _ in range(32)]
    for at in range(0, 32, 2):
        if random.random() < 0.3:
            words[at:at + 2] = halves(random.choice(POINTERS))
    refused += ask(fd, kind, number, size, words, address, direction)
    # What would be right but for a word or two.
    words = [*halves(0), *halves(1 << 20), 0, 0, 0, 0, gpu_id, VRAM | WRITABLE] + [0] * 22
    for _ in range(random.randrange(3)):
        words[random.randrange(10)] = random.choice(WORDS)
    refused += ask(kfd, "K", 0x16, 40, words)
print(f"refused={refused}", flush=True)
