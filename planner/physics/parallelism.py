"""Which tensor- and pipeline-parallel sizes a model allows, and what part of it each GPU then holds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from planner.schema.llm import Llm


def valid_tp(head_count: int, kv_head_count: int, limit: int = 8) -> tuple[int, ...]:
    """Return the tensor-parallel sizes up to `limit`: heads divide, and KV heads divide or are replicated evenly.

    >>> valid_tp(28, 4), valid_tp(40, 10), valid_tp(12, 2)
    ((1, 2, 4), (1, 2, 5), (1, 2, 4, 6))
    """
    return tuple(
        tp for tp in range(1, limit + 1)
        if head_count % tp == 0 and (kv_head_count % tp == 0 or tp % kv_head_count == 0)
    )


def kv_heads_per_gpu(kv_head_count: int, tp: int) -> int:
    """Return the KV heads one GPU keeps: split down to one, then replicated.

    >>> [kv_heads_per_gpu(8, tp) for tp in (1, 2, 8, 16)]
    [8, 4, 1, 1]
    """
    return max(1, math.ceil(kv_head_count / tp))


def stage_frac(layer_count: int, pp: int) -> float:
    """Return the share of the layers on the fullest of `pp` pipeline stages.

    >>> stage_frac(61, 2) == 31 / 61
    True
    """
    return math.ceil(layer_count / pp) / layer_count


def end_stage_frac(layer_count: int, pp: int) -> float:
    """Return the share of the layers on a stage that also holds the embedding or the head.

    Layers left over go to the stages between the ends first, as vLLM spreads them.

    >>> end_stage_frac(80, 6) == 13 / 80, end_stage_frac(61, 2) == 31 / 61
    (True, True)
    """
    left_over = layer_count % pp
    return (layer_count // pp + (left_over > max(pp - 2, 0))) / layer_count


def tp_obstacles(
    llm: Llm, tp: int, group_size: int | None = None, experts_are_whole: bool = False, dp: int = 1, tower_is_whole: bool = False
) -> Iterator[str]:
    """Yield what forbids `llm` to be split over `tp` GPUs by tensor, one clause each; nothing where it can be.

    A latent (MLA) has no KV heads to divide: it is replicated, so only the query heads count. `group_size` weights along a row
    share a scale: a shard has to hold whole groups. `experts_are_whole`: expert parallelism, no expert is sliced. With `dp`
    ranks of data-parallel attention the experts are divided over tp × dp GPUs. `tower_is_whole`: each rank keeps the vision tower,
    whose heads then need not divide.
    """
    if dp > 1:
        for mlp in llm.mlp:
            if mlp.kind == "moe" and mlp.expert_count % (tp * dp):
                yield f"{mlp.expert_count} experts do not divide by {tp} x {dp} ranks"
    if tp == 1:
        return
    for group in llm.attention:
        if group.kind == "none" or not group.head_count:
            continue
        if group.head_count % tp:
            yield f"{group.head_count} heads do not divide by {tp}"
            continue
        kv_head_count = group.kv_head_count if group.kind in ("full", "sliding", "chunked", "cross") else 0
        if kv_head_count and kv_head_count % tp and tp % kv_head_count:
            yield f"{kv_head_count} KV heads neither divide by {tp} nor {tp} by them"
        width = group.head_count * (group.v_head_dim or group.head_dim)
        if group_size and width and (width // tp) % group_size:
            yield _cut(width, tp, group_size, "values of the heads")
    for mlp in llm.mlp:
        if mlp.kind == "moe" and dp == 1 and mlp.expert_count % tp:
            yield f"{mlp.expert_count} experts do not divide by {tp}"
        if not group_size:
            continue
        widths = {"MLP width": mlp.intermediate_size}
        if mlp.kind == "moe":
            expert = mlp.expert_intermediate_size
            widths["shared expert's width"] = mlp.shared_expert_count * (mlp.shared_expert_intermediate_size or expert)
            if not experts_are_whole:
                widths["expert's width"] = expert
        for name, width in widths.items():
            if width and (width % tp or (width // tp) % group_size):
                yield _cut(width, tp, group_size, name)
    if llm.vision_head_count and llm.vision_head_count % tp and not tower_is_whole:
        yield f"{llm.vision_head_count} heads of the vision tower do not divide by {tp} (--whole-tower keeps it whole on every rank)"


def _cut(width: int, tp: int, group_size: int, name: str) -> str:
    return f"{name} {width:,} / {tp} = {width / tp:,g} is no multiple of the quantisation group of {group_size}"


def llm_valid_tp(
    llm: Llm, limit: int = 8, group_size: int | None = None, experts_are_whole: bool = False, dp: int = 1, tower_is_whole: bool = False
) -> tuple[int, ...]:
    """Return the tensor-parallel sizes up to `limit` that have no `tp_obstacles`."""
    rules = (group_size, experts_are_whole, dp, tower_is_whole)
    return tuple(tp for tp in range(1, limit + 1) if next(tp_obstacles(llm, tp, *rules), None) is None)


def layouts(
    llm: Llm, gpu_count: int, domain: int, max_tp: int = 64, sizes: Sequence[int] | None = None
) -> tuple[tuple[int, int], ...]:
    """Return the (tp, pp) pairs that use `gpu_count` GPUs, tp within the fast-link `domain`, widest tp first.

    `domain` is the number of GPUs joined by the fast link (1 where only PCIe joins them: then every pair is a
    pipeline, and a caller that accepts tensor parallelism over PCIe passes the size of the node). `sizes` are the
    tensor-parallel sizes that model, format and engine allow, smallest first, where they are known already.
    """
    widest = min(domain, gpu_count, max_tp)
    allowed = llm_valid_tp(llm, widest) if sizes is None else [tp for tp in sizes if tp <= widest]
    return tuple((tp, gpu_count // tp) for tp in reversed(allowed) if gpu_count % tp == 0 and gpu_count // tp <= llm.layer_count)
