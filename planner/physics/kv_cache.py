"""The cache one attention group keeps: bytes a token, whole pages, windows, replication over ranks."""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.physics.parallelism import kv_heads_per_gpu
from planner.schema.llm import AttentionGroup


def kv_bytes_per_tok(layer_count: int, kv_head_count: int, head_dim: int, bytes_per_value: float, v_head_dim: int | None = None) -> float:
    """Return the KV cache one token keeps in `layer_count` layers: a key and a value per KV head and layer (bytes).

    >>> kv_bytes_per_tok(layer_count=80, kv_head_count=8, head_dim=128, bytes_per_value=2)   # Llama 70B, GQA
    327680
    """
    return layer_count * kv_head_count * (head_dim + (head_dim if v_head_dim is None else v_head_dim)) * bytes_per_value


def mla_bytes_per_tok(layer_count: int, kv_lora_rank: int, rope_dim: int, bytes_per_value: float) -> float:
    """Return the latent one token keeps under MLA: one vector and its rotary key a layer, not doubled (bytes).

    >>> mla_bytes_per_tok(layer_count=61, kv_lora_rank=512, rope_dim=64, bytes_per_value=2)   # DeepSeek-V3
    70272
    """
    return layer_count * (kv_lora_rank + rope_dim) * bytes_per_value


def paged_tok(token_count: int, block_tok: int) -> int:
    """Return the tokens that whole pages hold for `token_count` tokens.

    >>> paged_tok(8193, 16)
    8208
    """
    return math.ceil(token_count / block_tok) * block_tok


@dataclass(frozen=True)
class KvPart:
    """The cache of one attention group: bytes of all its layers, by KV head and by token."""

    layer_count: int
    head_count: int
    bytes_per_head_tok: float
    window_tok: int | None = None
    compression: int = 1
    is_replicated: bool = False
    is_constant: bool = False
    """Cross attention: `window_tok` tokens are kept from the first token of the sequence to its last."""

    def _bytes_per_held_tok(self, tp: int) -> float:
        heads = self.head_count if self.is_replicated else kv_heads_per_gpu(self.head_count, tp)
        return self.bytes_per_head_tok * heads / self.compression

    def bytes_per_tok(self, tp: int = 1) -> float:
        """Return the bytes one more token takes on one GPU, while the window still fills."""
        return 0.0 if self.is_constant else self._bytes_per_held_tok(tp)

    def constant_bytes(self, tp: int = 1) -> float:
        """Return the bytes one sequence keeps on one GPU whatever its length: those of cross attention."""
        return self._bytes_per_held_tok(tp) * (self.window_tok or 0) if self.is_constant else 0.0

    def bytes_of(self, context_tok: int, tp: int, block_tok: int) -> float:
        """Return the bytes of one sequence on one GPU: whole pages, and at most the window where there is one.

        The window is not rounded up to pages: the published figures are bytes x min(tokens, window), and what an engine keeps
        beyond it is its profile's `window_extra_tok`.
        """
        if self.is_constant:
            return self._bytes_per_held_tok(tp) * paged_tok(self.window_tok or 0, block_tok)
        held_tok = paged_tok(context_tok, block_tok)
        return self.bytes_per_tok(tp) * (held_tok if self.window_tok is None else min(held_tok, self.window_tok))


def kv_part(
    group: AttentionGroup, bytes_per_value: float, mla_expands_kv: bool = False, chunked_keeps_all: bool = False
) -> KvPart | None:
    """Return the cache of one attention group, or nothing where its layers keep none or only a constant state."""
    n = group.layer_count
    if group.cache_is_shared or group.kind in ("linear", "none"):
        return None
    if group.kind == "mla":
        rank, rope = group.kv_lora_rank or 0, group.rope_dim or 0
        if not mla_expands_kv:
            return KvPart(n, 1, mla_bytes_per_tok(n, rank, rope, bytes_per_value), compression=group.kv_compression, is_replicated=True)
        if not (group.head_count and group.head_dim):
            raise ValueError("an engine that expands MLA needs head_count and head_dim of the model")
        per_head = kv_bytes_per_tok(n, 1, group.head_dim, bytes_per_value, group.v_head_dim)
        return KvPart(n, group.head_count, per_head, compression=group.kv_compression)
    v_head_dim = 0 if group.kv_is_one_tensor else group.v_head_dim
    per_head = kv_bytes_per_tok(n, 1, group.head_dim, bytes_per_value, v_head_dim)
    window_tok = None if group.kind == "chunked" and chunked_keeps_all else group.window_tok
    is_constant = group.kind == "cross"
    return KvPart(n, group.kv_head_count, per_head, window_tok=window_tok, compression=group.kv_compression, is_constant=is_constant)
