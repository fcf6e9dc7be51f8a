"""Makes a language model for llama.cpp, of zeros: only its size matters where kernels do not compute.

The format is GGUF 3, as ggml's documentation describes it (docs/gguf.md).
"""
import struct

UINT32, FLOAT32, STRING = 4, 6, 8  # types of metadata
F32, F16 = 0, 1                    # types of tensors
ALIGNMENT = 32


def text(value):
    return struct.pack("<Q", len(value)) + value.encode()


def entry(key, kind, value):
    packed = text(value) if kind == STRING else struct.pack("<I" if kind == UINT32 else "<f", value)
    return text(key) + struct.pack("<I", kind) + packed


def padded(size):
    return -(-size // ALIGNMENT) * ALIGNMENT


def make(path, layers, embedding=1024, feed_forward=4096, heads=8, vocabulary=32000):
    """A sparse file: the tensors take no room on the disk."""
    metadata = [
        entry("general.architecture", STRING, "llama"), entry("general.file_type", UINT32, F16),
        entry("llama.context_length", UINT32, 4096), entry("llama.embedding_length", UINT32, embedding),
        entry("llama.block_count", UINT32, layers), entry("llama.feed_forward_length", UINT32, feed_forward),
        entry("llama.attention.head_count", UINT32, heads), entry("llama.attention.head_count_kv", UINT32, heads),
        entry("llama.attention.layer_norm_rms_epsilon", FLOAT32, 1e-5), entry("llama.vocab_size", UINT32, vocabulary),
        entry("tokenizer.ggml.model", STRING, "no_vocab")]
    square, row = (embedding, embedding), (embedding,)
    tensors = [("token_embd", (embedding, vocabulary)), ("output_norm", row), ("output", (embedding, vocabulary))]
    for i in range(layers):
        tensors += [(f"blk.{i}.{name}", shape) for name, shape in (
            ("attn_norm", row), ("attn_q", square), ("attn_k", square), ("attn_v", square), ("attn_output", square),
            ("ffn_norm", row), ("ffn_gate", (embedding, feed_forward)), ("ffn_up", (embedding, feed_forward)),
            ("ffn_down", (feed_forward, embedding)))]
    infos, offset = b"", 0
    for name, shape in tensors:
        kind = F32 if len(shape) == 1 else F16
        infos += text(f"{name}.weight") + struct.pack(f"<I{len(shape)}QIQ", len(shape), *shape, kind, offset)
        elements = shape[0] * (shape[1] if len(shape) == 2 else 1)
        offset += padded(elements * (4 if kind == F32 else 2))
    head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(metadata)) + b"".join(metadata) + infos
    with open(path, "wb") as file:
        file.write(head)
        file.truncate(padded(len(head)) + offset)
