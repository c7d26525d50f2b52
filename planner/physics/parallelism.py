"""Which tensor- and pipeline-parallel sizes a model allows, and what part of it each GPU then holds."""

from __future__ import annotations

import math

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


def llm_valid_tp(llm: Llm, limit: int = 8) -> tuple[int, ...]:
    """Return the tensor-parallel sizes that every attention group, the experts and the vision heads of `llm` allow.

    A latent (MLA) has no KV heads to divide: it is replicated, so only the query heads count.
    """
    sizes = set(range(1, limit + 1))
    for group in llm.attention:
        if group.kind == "none" or not group.head_count:
            continue
        kv_head_count = group.kv_head_count if group.kind in ("full", "sliding", "chunked") else group.head_count
        sizes &= set(valid_tp(group.head_count, kv_head_count or group.head_count, limit))
    for mlp in llm.mlp:
        if mlp.kind == "moe":
            sizes = {tp for tp in sizes if mlp.expert_count % tp == 0}
    if llm.vision_head_count:
        sizes = {tp for tp in sizes if llm.vision_head_count % tp == 0}
    return tuple(sorted(sizes))


def layouts(llm: Llm, gpu_count: int, domain: int, max_tp: int = 64) -> tuple[tuple[int, int], ...]:
    """Return the (tp, pp) pairs that use `gpu_count` GPUs, tp within the fast-link `domain`, widest tp first.

    `domain` is the number of GPUs joined by the fast link (1 where only PCIe joins them: then every pair is a
    pipeline, and a caller that accepts tensor parallelism over PCIe passes the size of the node).
    """
    widest = min(domain, gpu_count, max_tp)
    return tuple(
        (tp, gpu_count // tp)
        for tp in reversed(llm_valid_tp(llm, widest))
        if gpu_count % tp == 0 and gpu_count // tp <= llm.layer_count
    )
