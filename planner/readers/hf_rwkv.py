"""RWKV, versions 4, 6 and 7: no attention, a state of constant size a layer."""

from __future__ import annotations

from planner.readers.hf_common import layers, start
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import BF16_BYTES, FP32_BYTES, Shape

RWKV_STATE_FP32, RWKV_STATE_BF16 = 3, 2
"""Vectors a layer of version 4 keeps in each dtype (`pypi:transformers==5.24.0`, RwkvModel: numerator, denominator, maximum; inputs)."""
WIDE_HIDDEN = 4096
"""From this hidden size on version 6 doubles its low ranks (github.com/BlinkDL/RWKV-LM, RWKV-v5/src/model.py, x060)."""


def rwkv(k: Keys) -> Shape:
    """RWKV-4: no attention; five vectors a layer are kept for a sequence."""
    s = start(k)
    h = s.hidden_size
    width, size = k.count("attention_hidden_size", default=h), k.count("intermediate_size", default=4 * h)
    s.add_norms(has_bias=True)
    for _ in range(layers(k)):
        s.counts["recurrent"] += 4 * h * width + 2 * width + 3 * h
        s.counts["mlp"] += 2 * h * size + h * h + 2 * h
        s.add_linear(RWKV_STATE_BF16 * h * BF16_BYTES + RWKV_STATE_FP32 * width * FP32_BYTES)
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s


def _matrix_state(heads: int, width: int, hidden: int) -> int:
    """Return the bytes a layer keeps since version 5: a matrix a head in fp32, and the last input of each half in 16 bit."""
    return heads * width * width * FP32_BYTES + RWKV_STATE_BF16 * hidden * BF16_BYTES


def rwkv6(k: Keys) -> Shape:
    """RWKV-6 (Finch): five square matrices, token shifts and decay through low ranks, a feed-forward part 3.5 times as wide."""
    s = start(k)
    h = s.hidden_size
    width = k.count("head_size", default=64)
    inner, size = k.count("attention_hidden_size", default=h), k.count("intermediate_size", default=max(7 * h // 2, 1))
    mix, decay = (64, 128) if h >= WIDE_HIDDEN else (32, 64)
    s.add_norms(has_bias=True)
    for _ in range(layers(k)):
        s.counts["recurrent"] += 5 * h * inner + 6 * h + 2 * 5 * mix * h + 2 * decay * inner + 2 * inner + 2 * inner
        s.counts["mlp"] += 2 * h * size + h * h + 2 * h
        s.add_linear(_matrix_state(max(inner // width, 1), width, h))
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s


def rwkv7(k: Keys) -> Shape:
    """RWKV-7 (Goose): four square matrices, gates through low ranks; the first layer has no value residual."""
    s = start(k)
    h, width = s.hidden_size, k.count("head_dim", default=64)
    size = k.count("intermediate_size", default=4 * h)
    ranks = [k.count(f"{name}_low_rank_dim") for name in ("decay", "a", "gate")]
    value = k.count("v_low_rank_dim")
    s.add_norms(has_bias=True)
    for i in range(layers(k)):
        s.counts["recurrent"] += 4 * h * h + 6 * h + 2 * h + 2 * h * sum(ranks) + 3 * h + 2 * h
        s.counts["recurrent"] += 2 * h * value + h if i else 0
        s.counts["mlp"] += 2 * h * size + h
        s.add_linear(_matrix_state(k.count("num_heads", default=max(h // width, 1)), width, h))
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s
