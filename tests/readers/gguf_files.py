"""Small GGUF files written by hand for tests: shapes of real families at invented sizes, tensor data all zero."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np

Shapes = dict[str, tuple[tuple[int, ...], str]]
Tensors = Mapping[str, tuple[tuple[int, ...], str]]
"""Name → (dimensions, innermost first, type)."""


def write_gguf(path: Path, arch: str, keys: Mapping[str, Any], tensors: Tensors, **more: Any) -> Path:
    """Write a file: `keys` without the architecture's prefix, `more` as they are (dots as double underscores)."""
    writer = gguf.GGUFWriter(path, arch, endianess=more.pop("endianess", gguf.GGUFEndian.LITTLE))
    for key, value in {**{f"{arch}.{k}": v for k, v in keys.items()}, **{k.replace("__", "."): v for k, v in more.items()}}.items():
        if isinstance(value, list):
            writer.add_array(key, value)
        elif isinstance(value, str):
            writer.add_string(key, value)
        elif isinstance(value, bool):
            writer.add_bool(key, value)
        elif isinstance(value, float):
            writer.add_float32(key, value)
        else:
            writer.add_uint32(key, value)
    for name, (dims, kind) in tensors.items():
        quant = gguf.GGMLQuantizationType[kind]
        block, size = gguf.GGML_QUANT_SIZES[quant]
        rows = int(np.prod(dims[1:])) if len(dims) > 1 else 1
        shape = (*reversed(dims[1:]), dims[0] // block * size)
        writer.add_tensor(name, np.zeros(rows * dims[0] // block * size, dtype=np.uint8).reshape(shape), raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def dense_layer(i: int, d: int, q: int, kv: int, ff: int, kind: str = "Q4_K", v_kind: str | None = None) -> Shapes:
    """Return the tensors of a layer with grouped heads and a gated MLP."""
    b = f"blk.{i}."
    return {
        b + "attn_norm.weight": ((d,), "F32"), b + "attn_q.weight": ((d, q), kind), b + "attn_k.weight": ((d, kv), kind),
        b + "attn_v.weight": ((d, kv), v_kind or kind), b + "attn_output.weight": ((q, d), kind), b + "ffn_norm.weight": ((d,), "F32"),
        b + "ffn_gate.weight": ((d, ff), kind), b + "ffn_up.weight": ((d, ff), kind), b + "ffn_down.weight": ((ff, d), v_kind or kind),
    }


def llama(path: Path, layers: int = 2, kind: str = "Q4_K", v_kind: str = "Q6_K", **more: Any) -> Path:
    """Write a llama of width 512, 8 heads of 64, 2 KV heads, MLP 1,024, 1,000 words, Q4_K_M unless another kind is named."""
    tensors: Shapes = {
        "token_embd.weight": ((512, 1000), kind), "output_norm.weight": ((512,), "F32"), "output.weight": ((512, 1000), v_kind),
    }
    for i in range(layers):
        tensors |= dense_layer(i, 512, 512, 128, 1024, kind, v_kind)
    keys = {
        "block_count": layers, "context_length": 8192, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8,
        "attention.head_count_kv": 2,
    }
    return write_gguf(path, "llama", keys, tensors, **{"general__file_type": 15, **more})
