"""The matrices of a model by module, from its shape: what adapters attach to and what a quantised base dequantises."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from planner.physics.training_recipe import Targets
from planner.schema.llm import AttentionGroup, Llm, MlpGroup


@dataclass(frozen=True)
class Linear:
    """`count` matrices alike."""

    module: str
    """`q`, `k`, `v`, `o`, `kv_down`, `kv_up`, `gate`, `up`, `down`, `experts`."""
    input_size: int
    output_size: int
    count: int


def attention_linears(group: AttentionGroup, hidden_size: int) -> Iterator[Linear]:
    """Yield the projections of one group of attention layers; none of a recurrent one, whose shape is not told.

    Low-rank query projections (DeepSeek) count as one full matrix. Layers that read another layer's cache have no key and value.
    """
    n = group.layer_count
    if group.kind in ("linear", "none") or group.is_second_cache:
        return
    value_dim = group.v_head_dim or group.head_dim
    yield Linear("q", hidden_size, group.head_count * group.head_dim, n)
    if group.kind == "mla":
        latent = group.kv_lora_rank or 0
        rope = group.rope_dim or 0
        yield Linear("kv_down", hidden_size, latent + rope, n)
        yield Linear("kv_up", latent, group.head_count * (group.head_dim - rope + value_dim), n)
    elif not group.cache_is_shared:
        yield Linear("k", hidden_size, group.kv_head_count * group.head_dim, n)
        if not group.kv_is_one_tensor:
            yield Linear("v", hidden_size, group.kv_head_count * value_dim, n)
    yield Linear("o", group.head_count * value_dim, hidden_size, n)


def mlp_linears(group: MlpGroup, hidden_size: int) -> Iterator[Linear]:
    """Yield the matrices of one group of feed-forward layers, every routed expert counted."""
    n = group.layer_count
    ways = ("gate", "up") if group.is_gated else ("up",)
    if group.intermediate_size:
        yield from (Linear(way, hidden_size, group.intermediate_size, n) for way in ways)
        yield Linear("down", group.intermediate_size, hidden_size, n)
    if group.kind == "dense":
        return
    shared_size = group.shared_expert_intermediate_size or group.expert_intermediate_size
    if group.shared_expert_count:
        yield from (Linear(way, hidden_size, shared_size, n * group.shared_expert_count) for way in ways)
        yield Linear("down", shared_size, hidden_size, n * group.shared_expert_count)
    width = group.expert_input_size or hidden_size
    if group.expert_intermediate_size:
        yield Linear("experts", width, group.expert_intermediate_size, n * group.expert_count * len(ways))
        yield Linear("experts", group.expert_intermediate_size, width, n * group.expert_count)


def linears(llm: Llm, targets: Targets) -> tuple[Linear, ...]:
    """Return the matrices that `targets` names: `q_v`, all of `attention`, or `all_linear` (head, embedding, router never)."""
    found = [m for group in llm.attention for m in attention_linears(group, llm.hidden_size)]
    if targets == "q_v":
        return tuple(m for m in found if m.module in ("q", "v", "kv_up"))
    if targets == "all_linear":
        found += [m for group in llm.mlp for m in mlp_linears(group, llm.hidden_size)]
    return tuple(found)


def adapter_count(llm: Llm, rank: int, targets: Targets) -> int:
    """Return the parameters of the adapters: rank × (inputs + outputs) of each matrix (arXiv 2106.09685).

    Llama-3.1-8B at rank 16 on all linear layers has 41,943,040; Llama-2-7B at rank 8 on q and v 4,194,304.
    """
    return sum(rank * (m.input_size + m.output_size) * m.count for m in linears(llm, targets))
