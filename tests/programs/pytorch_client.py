"""pytorch_client.py WAY: uses GPU memory in one of the ways below, and prints one line of JSON about each step.

Kernels do not compute on the simulated kernel driver, so no step looks at a tensor's values.
"""
import json
import os
import sys

import torch

MIB = 1 << 20


def report(**step):
    print(json.dumps(step), flush=True)


def take(mib):
    return torch.empty(mib * MIB, dtype=torch.uint8, device="cuda")


def fill(mib):
    """Tensors of that size until PyTorch has no memory for another."""
    kept = []
    while True:
        try:
            kept.append(take(mib))
        except torch.OutOfMemoryError as error:
            report(filled=len(kept), mib=mib, error=str(error).split(".")[0])
            return kept


def memory():
    free, total = torch.cuda.mem_get_info()
    report(total_mib=total / MIB, free_mib=free / MIB, reserved_mib=torch.cuda.memory_reserved() / MIB,
           properties_mib=torch.cuda.get_device_properties(0).total_memory / MIB)


def allocator():
    """Fills the device, recovers from the error and fills it again."""
    memory()
    kept = fill(64)
    memory()
    kept += fill(3)
    memory()
    del kept[::2]
    torch.cuda.empty_cache()
    memory()
    kept += fill(20)
    kept.clear()
    torch.cuda.empty_cache()
    memory()
    kept = fill(200)
    memory()


def fraction():
    """The program's own limit within the device."""
    torch.cuda.set_per_process_memory_fraction(0.5)
    kept = fill(16)
    memory()
    report(kept=len(kept))


def model():
    return torch.nn.Sequential(*[layer for _ in range(6) for layer in (torch.nn.Linear(1024, 1024), torch.nn.ReLU())])


def training():
    """Batches grow until one does not fit. Then the program goes on with the last that did."""
    net = model().cuda()
    optimizer = torch.optim.Adam(net.parameters())

    def step(batch):
        optimizer.zero_grad()
        net(torch.empty(batch, 1024, device="cuda")).sum().backward()
        optimizer.step()
    batch = 1024
    for _ in range(20):
        try:
            step(batch)
        except torch.OutOfMemoryError:
            report(too_large=batch)
            break
        batch *= 2
    torch.cuda.empty_cache()
    step(batch // 2)
    report(peak_mib=torch.cuda.max_memory_allocated() / MIB)
    memory()


def server():
    """Sizes a cache as vLLM does: a run shows the peak, then one allocation takes 90 % of the free memory."""
    net = model().cuda()
    with torch.no_grad():
        net(torch.empty(4096, 1024, device="cuda"))
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        free, _ = torch.cuda.mem_get_info()
        cache = take(int(free * 0.9) // MIB)
        report(free_mib=free / MIB, cache_mib=cache.numel() / MIB)
        net(torch.empty(4096, 1024, device="cuda"))
    memory()


def graphs():
    """Captures a forward pass again and again, until memory is out."""
    net, batch = model().cuda(), torch.empty(2048, 1024, device="cuda")
    kept = []
    with torch.no_grad():
        net(batch)  # creates cuBLAS's handle, which cannot be created during a capture
        try:
            while True:
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph):
                    result = net(batch)
                graph.replay()
                kept.append((graph, result))
        except torch.OutOfMemoryError:
            report(graphs=len(kept))
    kept.clear()
    torch.cuda.empty_cache()
    memory()


def nccl():
    """A group of one, whose buffers are NCCL's."""
    os.environ.update(MASTER_ADDR="127.0.0.1", NCCL_SOCKET_IFNAME="lo")
    store = torch.distributed.HashStore()
    torch.distributed.init_process_group("nccl", store=store, rank=0, world_size=1)
    tensor = take(16)
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    memory()
    kept = fill(16)
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    report(kept=len(kept))


def two_gpus():
    """A group of two in one process."""
    tensors = [torch.empty(16 * MIB, dtype=torch.uint8, device=f"cuda:{gpu}") for gpu in range(2)]
    torch.cuda.nccl.all_reduce(tensors)
    for gpu in range(2):
        torch.cuda.synchronize(gpu)
    kept = []
    for gpu in range(2):
        with torch.cuda.device(gpu):
            memory()
            kept += fill(16)
    torch.cuda.nccl.all_reduce(tensors)
    report(kept=len(kept))


def rank(number, output):
    """One of a group of two."""
    os.dup2(output, 1)
    os.environ.update(MASTER_ADDR="127.0.0.1", NCCL_SOCKET_IFNAME="lo")
    store = torch.distributed.FileStore(f"{os.environ['HOME']}/ranks", 2)
    torch.cuda.set_device(number)
    torch.distributed.init_process_group("nccl", store=store, rank=number, world_size=2)
    tensor = take(16)
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    store.set(f"reduced {number}", "")
    store.wait(["reduced 0", "reduced 1"])
    memory()
    kept = fill(16)
    torch.distributed.all_reduce(tensor)
    torch.cuda.synchronize()
    report(kept=len(kept))
    os._exit(0)


def ranks():
    """Two processes, each with a GPU of its own."""
    ends = []
    for number in range(2):
        read, write = os.pipe()
        if os.fork() == 0:
            rank(number, write)
        os.close(write)
        ends.append(open(read, encoding="ascii"))
    for number, end in enumerate(ends):
        report(rank=number, printed=end.read())
    report(ended=[os.wait()[1] for _ in ends])


def libraries():
    """Handles, workspaces and plans of cuBLAS and cuFFT."""
    matrix = torch.empty(1024, 1024, device="cuda")
    torch.matmul(matrix, matrix)
    memory()
    torch.fft.fft2(torch.empty(2048, 2048, dtype=torch.complex64, device="cuda"))
    memory()
    kept = fill(16)
    report(kept=len(kept))


if __name__ == "__main__":
    globals()[sys.argv[1]]()
