"""What one step of a model reads and multiplies: the shape of an `Llm` in given formats, as a few numbers.

Each number is for the whole model; `serving.step_model` splits it over the GPUs of a replica.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.schema.llm import AttentionGroup, Llm


@dataclass(frozen=True)
class KvGroup:
    """Layers whose cache is read alike in decode."""

    bytes_per_tok: float
    """Cache read per token of context, all these layers, one copy."""
    decode_flop_per_tok: float
    """Attention FLOP of one decoded token per token of context."""
    prefill_flop_per_tok: float
    """Attention FLOP of one prompt token per token before it."""
    window_tok: float
    """Tokens that are looked at, at most; infinite where attention is full."""
    shard_count: float
    """Copies of the cache split over at most so many GPUs: KV heads, or 1 for a latent."""


@dataclass(frozen=True)
class Work:
    """Bytes and FLOP of a model in given formats: enough to time a step on any accelerator."""

    layer_count: int
    hidden_size: int
    every_step_bytes: float
    """Weights read whatever the batch: attention, recurrent layers, dense feed-forward, router, norms, output head."""
    experts_bytes: float
    """Routed experts, all of them; a step reads the distinct ones."""
    expert_count: int
    top_k: int
    active_count: float
    """Parameters multiplied for one token."""
    head_count: float
    """Those of them in the output head: a prefill multiplies them only for its last token."""
    state_bytes_per_sequence: float
    """Recurrent state, read and written each step."""
    kv: tuple[KvGroup, ...]

    def kv_read_bytes(self, context_tok: float) -> float:
        """Return the cache that one sequence's decode step reads at a context (bytes, windows honoured)."""
        return 2 * self.state_bytes_per_sequence + sum(g.bytes_per_tok * min(context_tok, g.window_tok) for g in self.kv)

    def weights_read_bytes(self, token_count: float) -> float:
        """Return the weights that a step over so many tokens reads (bytes): distinct experts only."""
        if not self.experts_bytes:
            return self.every_step_bytes
        missed_frac: float = (1.0 - self.top_k / self.expert_count) ** token_count
        return self.every_step_bytes + self.experts_bytes * (1.0 - missed_frac)

    def decode_flop(self, context_tok: float) -> float:
        """Return the FLOP of one decoded token: 2 a parameter in use, and attention over its context."""
        return 2.0 * self.active_count + sum(g.decode_flop_per_tok * min(context_tok, g.window_tok) for g in self.kv)

    def prefill_flop(self, prompt_tok: float, before_tok: float = 0.0) -> float:
        """Return the FLOP of a prompt of P tokens behind `before_tok` cached ones: 2·N·P, the quadratic part, one head.

        Full attention costs f·P·(before + P/2); a window w caps the tokens each one looks at.
        """
        total = 2.0 * (self.active_count - self.head_count) * prompt_tok + 2.0 * self.head_count
        for g in self.kv:
            end = before_tok + prompt_tok
            full = (end * end - before_tok * before_tok) / 2.0
            if math.isfinite(g.window_tok) and end > g.window_tok:
                start = min(max(before_tok, 0.0), g.window_tok)
                growing = max(g.window_tok - start, 0.0)
                full = (g.window_tok**2 - start**2) / 2.0 + (prompt_tok - growing) * g.window_tok
            total += g.prefill_flop_per_tok * full
        return total


DEFAULT_BITS_PER_WEIGHT = 16.0
"""A component that a format does not name keeps 16 bit."""


def bits_by_component(llm: Llm, bits_per_weight: Mapping[Any, float]) -> dict[str, float]:
    """Return the bits a weight of every component that the format names or implies.

    Routed experts are stored as the MLP where they have no entry of their own. An embedding that is the output head too (tied)
    takes the wider of both: GGUF files keep such a matrix at the head's type (Q6_K in a Q4_K_M file).
    """
    bits: dict[str, float] = dict(bits_per_weight.items())
    bits.setdefault("experts", bits.get("mlp", DEFAULT_BITS_PER_WEIGHT))
    if llm.params.head_count == 0 and "head" in bits:
        bits["embedding"] = max(bits.get("embedding", DEFAULT_BITS_PER_WEIGHT), bits["head"])
    return bits


def work_of(llm: Llm, bits_per_weight: Mapping[Any, float], kv_bytes_per_value: float) -> Work:
    """Return what steps of `llm` read and multiply, weights at `bits_per_weight` by component, KV at its format.

    `bits_per_weight` is that of a `WeightFormat` (keys `attention`, `mlp`, …; a component that is not named keeps 16 bit).
    """
    p = llm.params
    bits = bits_by_component(llm, bits_per_weight)

    def stored(count: int, component: str) -> float:
        return count * bits.get(component, DEFAULT_BITS_PER_WEIGHT) / 8.0

    head = stored(p.head_count, "head") if p.head_count else stored(p.embedding_count, "embedding")
    moe = [g for g in llm.mlp if g.kind == "moe"]
    return Work(
        layer_count=llm.layer_count,
        hidden_size=llm.hidden_size,
        every_step_bytes=stored(p.attention_count, "attention") + stored(p.mlp_count, "mlp") + stored(p.router_count, "router")
        + stored(p.norm_count, "norm") + stored(p.recurrent_count, "recurrent") + stored(llm.active_other_count, "other") + head,
        experts_bytes=stored(p.experts_count, "experts"),
        expert_count=moe[0].expert_count if moe else 1,
        top_k=moe[0].top_k if moe else 1,
        active_count=float(p.active_count),
        head_count=float(min(p.head_count or p.embedding_count, p.active_count)),
        state_bytes_per_sequence=float(sum(g.state_bytes_per_sequence for g in llm.attention)),
        kv=tuple(_kv_group(g, kv_bytes_per_value) for g in llm.attention if g.kind not in ("linear", "none")),
    )



def _kv_group(g: AttentionGroup, bytes_per_value: float) -> KvGroup:
    layers = g.layer_count
    compression = g.kv_compression
    if g.kind == "mla":
        latent = (g.kv_lora_rank or 0) + (g.rope_dim or 0)
        decode = 2.0 * g.head_count * (latent + (g.kv_lora_rank or 0)) * layers
        qk = g.head_dim or latent
        prefill = 2.0 * g.head_count * (qk + (g.v_head_dim or g.head_dim or qk)) * layers
        stored, shards = latent * bytes_per_value * layers, 1.0
    else:
        v_dim = g.v_head_dim or g.head_dim
        decode = prefill = 2.0 * g.head_count * (g.head_dim + v_dim) * layers
        one = g.head_dim if g.kv_is_one_tensor else g.head_dim + v_dim
        stored, shards = g.kv_head_count * one * bytes_per_value * layers, float(g.kv_head_count)
    return KvGroup(
        bytes_per_tok=stored / compression + g.indexer_bytes_per_tok,
        decode_flop_per_tok=decode / compression,
        prefill_flop_per_tok=prefill / compression,
        window_tok=float(g.window_tok) if g.window_tok else math.inf,
        shard_count=max(shards, 1.0),
    )
