"""What a deployment keeps beside one model and its sessions, and what its user sets on the engine."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.schema.llm import Llm, WeightFormat

AdapterTargets = Literal["attention", "all", "experts"]
ADAPTER_BYTES_PER_VALUE = 2
"""Adapters are served in 16 bit, whatever the base is stored in."""
ENCODER_CACHE_BYTES_PER_VALUE = 2


@dataclass(frozen=True)
class Extras:
    """Everything is off by default. Counts are those of one replica."""

    adapter_count: int = 0
    """LoRA adapters held on the GPUs at once: the engine sets so many slots of `adapter_rank` aside."""
    adapter_rank: int = 16
    adapter_targets: AdapterTargets = "all"
    draft: tuple[Llm, WeightFormat] | None = None
    """A smaller model that guesses ahead; it keeps its own cache of every session."""
    prefix_pool_tok: int = 0
    """Tokens of shared prefixes that are kept beside the sessions."""
    image_count: int = 0
    """Images in one session, each taking `image_tok` tokens of context."""
    image_tok: int = 0
    loads_in: WeightFormat | None = None
    """The weights stand on the GPUs in this format before they are quantised there."""
    dp: int = 1
    """Data-parallel attention: so many ranks hold attention whole and sessions of their own, and divide the experts."""
    experts_are_whole: bool = False
    """Expert parallelism: GPUs divide the experts by number, not each expert by width."""
    tower_is_whole: bool = False
    """Every rank holds the vision tower whole and reads its own images (vLLM's --mm-encoder-tp-mode data): its heads need not divide."""
    max_batched_tok: int | None = None
    """Tokens of one step, where the engine's own limit is set by hand."""
    max_sequence_count: int | None = None
    memory_frac: float | None = None
    """The engine's memory fraction where it is set by hand."""

    @property
    def names_nothing(self) -> bool:
        """Whether no memory term is added."""
        return not (self.adapter_count or self.draft or self.prefix_pool_tok or self.image_count)


NO_EXTRAS = Extras()


@dataclass(frozen=True)
class AdapterBytes:
    """The matrices of all adapter slots: those on the way in and those on the way out of the target matrices."""

    down_bytes: float
    """rank × input width: kept whole on every tensor-parallel rank."""
    up_bytes: float
    """output width × rank: divided as the target matrix is."""

    def per_gpu(self, tp: int) -> float:
        """Return the bytes of one GPU."""
        return self.down_bytes + self.up_bytes / tp


def adapter_bytes(llm: Llm, extras: Extras) -> AdapterBytes:
    """Return the bytes of `adapter_count` LoRA slots on the model: rank × (input + output) of every target matrix × 2 B each.

    Targets: the four projections of attention; `all` linear matrices that every token passes; or the routed `experts` too, each
    with an adapter of its own. Rank 16 on all matrices of Llama-3.1-8B: 41,943,040 parameters, 84 MB.
    """
    d = llm.hidden_size
    down, up = 0, 0
    for group in llm.attention:
        if group.is_second_cache or not group.head_count:
            continue
        q = group.head_count * group.head_dim
        v = group.head_count * (group.v_head_dim or group.head_dim)
        if group.kind == "mla":
            rank = (group.kv_lora_rank or 0) + (group.rope_dim or 0)
            down += group.layer_count * (d + d + v)
            up += group.layer_count * (q + rank + d)
        else:
            kv = group.kv_head_count * group.head_dim
            kv_v = group.kv_head_count * (group.v_head_dim or group.head_dim)
            down += group.layer_count * (3 * d + v)
            up += group.layer_count * (q + kv + kv_v + d)
    if extras.adapter_targets != "attention":
        for mlp in llm.mlp:
            ins = 2 if mlp.is_gated else 1
            widths = [mlp.intermediate_size] if mlp.intermediate_size else []
            if mlp.kind == "moe":
                widths += [mlp.expert_intermediate_size] * (mlp.expert_count if extras.adapter_targets == "experts" else 0)
                widths += [mlp.shared_expert_intermediate_size or mlp.expert_intermediate_size] * mlp.shared_expert_count
            down += mlp.layer_count * sum(ins * d + width for width in widths)
            up += mlp.layer_count * sum(ins * width + d for width in widths)
    each = extras.adapter_count * extras.adapter_rank * ADAPTER_BYTES_PER_VALUE
    return AdapterBytes(float(down * each), float(up * each))
