#!/usr/bin/env python3
"""frameworks.py NAME CAP: fills the GPU by a framework until it is refused, under the library and a cap in bytes.

Run by tests/hardware.sh, where the framework is installed, while the driver's count is watched. Prints facts as lines of
JSON. A refusal is clean when it is the framework's own error of no memory, and the framework works on after it.
"""
import json
import os
import sys
import tempfile

NAME, CAP = sys.argv[1], int(sys.argv[2])
CHUNK = 64 << 20
MOST = (CAP + (256 << 20)) // CHUNK


def fact(key, value):
    print(json.dumps({"key": f"framework.{NAME}.{key}", "value": value}, separators=(",", ":")), flush=True)


def look():
    print("look", flush=True)
    sys.stdin.readline()


def fill(take, refusals, text=""):
    """Takes chunks until one of these errors, which must say `text`; returns the chunks and whether it was refused."""
    held = []
    while len(held) < MOST:
        try:
            held.append(take())
        except refusals as error:
            return held, text in str(error)
    return held, False


def judge(take, refusals, work, text=""):
    try:
        held, refused = fill(take, refusals, text)
    except BaseException:
        look()  # the traceback still holds the chunks
        raise
    fact("granted_bytes", len(held) * CHUNK)
    look()
    held.clear()
    fact("refused_cleanly", bool(refused and work()))


def torch_():
    import torch
    error = getattr(torch, "OutOfMemoryError", torch.cuda.OutOfMemoryError)
    fact("version", torch.__version__)
    judge(lambda: torch.empty(CHUNK, dtype=torch.uint8, device="cuda"), error,
          lambda: torch.ones(1024, device="cuda").sum().item() == 1024)


def nccl():
    import torch
    import torch.distributed as group
    with tempfile.TemporaryDirectory() as folder:
        group.init_process_group("nccl", init_method=f"file://{folder}/store", rank=0, world_size=1)
        one = torch.ones(1024, device="cuda")
        group.all_reduce(one)
        judge(lambda: torch.empty(CHUNK, dtype=torch.uint8, device="cuda"), torch.cuda.OutOfMemoryError,
              lambda: one.sum().item() == 1024)
        group.destroy_process_group()


def jax_():
    import jax
    import jax.numpy as numpy
    fact("version", jax.__version__)
    judge(lambda: numpy.zeros(CHUNK, dtype=numpy.uint8).block_until_ready(), Exception,
          lambda: float(numpy.ones(1024).sum()) == 1024, "RESOURCE_EXHAUSTED")


def cupy_():
    import cupy
    fact("version", cupy.__version__)
    judge(lambda: cupy.empty(CHUNK, dtype=cupy.uint8), cupy.cuda.memory.OutOfMemoryError,
          lambda: float(cupy.ones(1024).sum()) == 1024)


def rmm_():
    import rmm
    fact("version", rmm.__version__)
    judge(lambda: rmm.DeviceBuffer(size=CHUNK), MemoryError, lambda: rmm.DeviceBuffer(size=1024).size == 1024)


def vllm_():
    """A small model of random weights: nothing is fetched."""
    from vllm import LLM, SamplingParams
    config = {"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_size": 256, "intermediate_size": 512,
              "num_attention_heads": 4, "num_hidden_layers": 2, "num_key_value_heads": 4, "vocab_size": 1024,
              "max_position_embeddings": 512, "rms_norm_eps": 1e-6, "torch_dtype": "float16", "hidden_act": "silu",
              "bos_token_id": 1, "eos_token_id": 2}
    with tempfile.TemporaryDirectory() as folder:
        with open(os.path.join(folder, "config.json"), "w", encoding="utf-8") as file:
            json.dump(config, file)
        model = LLM(model=folder, skip_tokenizer_init=True, load_format="dummy", gpu_memory_utilization=0.8,
                    enforce_eager=True, max_model_len=256)
        out = model.generate([{"prompt_token_ids": [1, 5, 9]}], SamplingParams(max_tokens=8, detokenize=False))
        look()
        # It takes its share of what it sees, and is refused nothing.
        fact("refused_cleanly", len(out[0].outputs[0].token_ids) > 0)


FRAMEWORKS = {"torch_native": torch_, "torch_expandable": torch_, "torch_async": torch_, "nccl": nccl, "jax": jax_,
              "cupy": cupy_, "rmm": rmm_, "vllm": vllm_}
FRAMEWORKS[NAME]()
