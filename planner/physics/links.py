"""What it costs to talk between accelerators: all-reduces of tensor parallelism, hand-overs and bubbles of pipelines.

An all-reduce of M bytes over n GPUs takes alpha + beta·(n − 1) + 2(n − 1)/n · M / bus rate: the latency of the launch,
the latency of each further peer, and the bytes a ring moves. The constants are rows of `hardware/efficiency/links.yaml`.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Link:
    """How the GPUs of one replica are joined, as the constants of the all-reduce model."""

    name: str
    base_latency_s: float
    peer_latency_s: float
    bus_bytes_per_s: float
    """Achieved bus rate of large messages, one direction."""
    is_fast: bool
    """True for NVLink, Infinity Fabric and the like; false for PCIe and networks."""


NO_LINK = Link("none", 0.0, 0.0, float("inf"), True)
"""One GPU: nothing is sent."""


def allreduce_s(message_bytes: float, gpu_count: int, link: Link) -> float:
    """Return the time of one all-reduce (s); 0 on one GPU.

    >>> fast = Link("nvlink", 4e-6, 1e-6, 370e9, True)
    >>> round(allreduce_s(8192 * 2, 2, fast) * 1e6, 2)   # one token of a 70B-class model
    5.04
    """
    if gpu_count <= 1:
        return 0.0
    return allreduce_latency_s(gpu_count, link) + message_bytes * allreduce_s_per_byte(gpu_count, link)


def allreduce_latency_s(gpu_count: int, link: Link) -> float:
    """Return the part of an all-reduce that does not depend on its size (s)."""
    return link.base_latency_s + link.peer_latency_s * (gpu_count - 1) if gpu_count > 1 else 0.0


def allreduce_s_per_byte(gpu_count: int, link: Link) -> float:
    """Return the part of an all-reduce that grows with its size: a ring moves 2(n − 1)/n of the message (s per byte)."""
    return 2.0 * (gpu_count - 1) / gpu_count / link.bus_bytes_per_s if gpu_count > 1 else 0.0


def tensor_parallel_s(layer_count: int, hidden_size: int, token_count: float, gpu_count: int, link: Link) -> float:
    """Return the collectives of one step under tensor parallelism: two all-reduces a layer of hidden × 2 bytes × tokens (s).

    Shoeybi et al., "Megatron-LM" (arxiv:1909.08053), section 3: one after attention, one after the feed-forward part.
    """
    return 2 * layer_count * allreduce_s(hidden_size * 2.0 * token_count, gpu_count, link)


def handover_s(hidden_size: int, token_count: float, link: Link) -> float:
    """Return the time to pass activations (2 bytes a value) from one pipeline stage to the next (s)."""
    return link.base_latency_s + hidden_size * 2.0 * token_count / link.bus_bytes_per_s


def bubble_frac(stage_count: int, microbatch_count: float) -> float:
    """Return the idle share of a pipeline that is filled and drained once: (p − 1)/(m + p − 1).

    >>> bubble_frac(4, 1)
    0.75
    """
    return (stage_count - 1) / (microbatch_count + stage_count - 1)
