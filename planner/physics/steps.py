"""How long a step takes: one replica shape as a frozen value that times decode steps and prompts.

A step takes max(FLOP / (peak · MFU), bytes / (bandwidth · MBU)) + collectives + overhead. Split over `tp` GPUs every
term but the collectives and the overhead shrinks, KV heads down to one a GPU; over `pp` stages a token passes all of
them, while a batch of B runs as `pp` micro-batches of B/pp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from planner.physics.links import NO_LINK, Link, allreduce_latency_s, allreduce_s_per_byte, handover_s
from planner.physics.roofline import BoundBy
from planner.physics.work import Work


@dataclass(frozen=True)
class Efficiency:
    """What an engine achieves on a GPU family: shares of the peaks and the time it adds to every step."""

    mbu_frac: float
    mfu_frac: float
    """In decode, where the batch makes a step compute bound."""
    prefill_mfu_frac: float
    step_overhead_s: float
    layer_overhead_s: float
    request_overhead_s: float = 0.0
    """Added to a request's first token: parsing, tokenising, scheduling, the way there and back."""


@dataclass(frozen=True)
class EfficiencyBand:
    """The slow, typical and fast end of what was measured."""

    low: Efficiency
    typical: Efficiency
    high: Efficiency
    basis: str = "assumed"
    """`measured` or `assumed`."""


@dataclass(frozen=True)
class StepModel:
    """Times the steps of one replica (all figures per GPU of it, one pipeline's whole depth). Built by `step_model`."""

    every_step_bytes: float
    experts_bytes: float
    expert_miss_frac: float
    """1 − k/N: the chance that one token leaves an expert unread."""
    state_bytes: float
    kv: tuple[tuple[float, float, float], ...]
    """(cache bytes per token of context, decode FLOP per token of context, window) of each group of layers."""
    flop_per_tok: float
    prefill_work: Work
    tp: int
    pp: int
    bandwidth_bytes_per_s: float
    peak_flop_per_s: float
    efficiency: Efficiency
    collective_s: float
    """Collectives of a step, the part free of its size."""
    collective_s_per_tok: float
    overhead_s: float
    bubble_chunk_tok: float
    low: StepModel | None = None
    """The same replica at the slow end of the efficiency band, `high` at the fast end."""
    high: StepModel | None = None

    def decode_terms_s(self, batch: float, context_tok: float) -> tuple[float, float, float, float]:
        """Return the (memory, compute, link, overhead) seconds of one decode step of `batch` sequences."""
        m = max(batch / self.pp, 1.0)
        kv_bytes, kv_flop = self.state_bytes, self.flop_per_tok
        for bytes_per_tok, flop_per_tok, window in self.kv:
            seen = context_tok if context_tok < window else window
            kv_bytes += bytes_per_tok * seen
            kv_flop += flop_per_tok * seen
        weights = self.every_step_bytes
        if self.experts_bytes:
            weights += self.experts_bytes * (1.0 - self.expert_miss_frac**m)
        e = self.efficiency
        memory = (weights + m * kv_bytes) / (self.bandwidth_bytes_per_s * e.mbu_frac)
        compute = m * kv_flop / (self.peak_flop_per_s * e.mfu_frac)
        return memory, compute, self.collective_s + m * self.collective_s_per_tok, self.overhead_s

    def decode_step_s(self, batch: float, context_tok: float) -> float:
        """Return the time between two tokens of a sequence when `batch` of them decode at a mean context (s).

        Below one sequence a stage the step is that of one: an idle pipeline stage saves nobody any time.
        """
        memory, compute, link, overhead = self.decode_terms_s(batch, context_tok)
        return (memory if memory > compute else compute) + link + overhead

    def bound_by(self, batch: float, context_tok: float) -> BoundBy:
        """Return what takes the largest part of a decode step."""
        memory, compute, link, overhead = self.decode_terms_s(batch, context_tok)
        roof: BoundBy = "memory" if memory >= compute else "compute"
        worst = max(memory, compute, link, overhead)
        if worst == link and link > 0:
            return "link"
        return "overhead" if worst == overhead and overhead > 0 else roof

    def prefill_busy_s(self, prompt_tok: float, cached_tok: float = 0.0) -> float:
        """Return the time that a prompt adds to running steps (s): its arithmetic and its share of the collectives.

        Weights are read by the decode step it rides on, so only FLOP and bytes sent count. `cached_tok` stand before it.
        """
        if prompt_tok <= 0:
            return 0.0
        flop = self.prefill_work.prefill_flop(prompt_tok, cached_tok) / self.tp
        compute = flop / (self.peak_flop_per_s * self.efficiency.prefill_mfu_frac)
        return (compute + prompt_tok * self.collective_s_per_tok) / self.pp

    def prefill_s(self, prompt_tok: float, cached_tok: float = 0.0) -> float:
        """Return the time of a prompt alone on an idle replica (s): roofline, collectives, overhead and pipeline filling."""
        if prompt_tok <= 0:
            return 0.0
        e = self.efficiency
        chunks = max(1.0, math.ceil(prompt_tok / self.bubble_chunk_tok))
        tokens = min(prompt_tok, self.bubble_chunk_tok)
        weights = self.every_step_bytes
        if self.experts_bytes:
            weights += self.experts_bytes * (1.0 - self.expert_miss_frac**tokens)
        memory = chunks * weights / (self.bandwidth_bytes_per_s * e.mbu_frac)
        compute = self.prefill_work.prefill_flop(prompt_tok, cached_tok) / self.tp / (self.peak_flop_per_s * e.prefill_mfu_frac)
        link = chunks * self.collective_s + prompt_tok * self.collective_s_per_tok
        through = max(memory, compute) + link + chunks * self.overhead_s
        return through / self.pp * (chunks + self.pp - 1) / chunks

    def decode_use(self, batch: float, context_tok: float) -> tuple[float, float]:
        """Return (MBU, MFU) of a decode step: bytes and FLOP it needs over what the hardware could do meanwhile."""
        memory, compute, _, _ = self.decode_terms_s(batch, context_tok)
        step = self.decode_step_s(batch, context_tok)
        return memory * self.efficiency.mbu_frac / step, compute * self.efficiency.mfu_frac / step


def step_model(
    work: Work,
    bandwidth_bytes_per_s: float,
    peak_flop_per_s: float,
    band: EfficiencyBand,
    tp: int = 1,
    pp: int = 1,
    link: Link = NO_LINK,
    stage_link: Link | None = None,
    chunk_tok: float = 2048.0,
) -> StepModel:
    """Return the timer of a replica of `tp` × `pp` GPUs, with its low and high ends.

    `bandwidth_bytes_per_s` and `peak_flop_per_s` (dense, at the compute dtype) are those of one GPU; `link` joins the
    tensor-parallel GPUs, `stage_link` the stages (the same if left out). Raises ValueError on a size below 1 or a
    rate that is not positive.
    """
    if tp < 1 or pp < 1:
        raise ValueError(f"tp and pp must be at least 1, not {tp} and {pp}")
    if not (bandwidth_bytes_per_s > 0 and peak_flop_per_s > 0):
        raise ValueError("bandwidth and peak must be positive")
    between = stage_link or link
    send = 2 * work.layer_count
    fixed = send * allreduce_latency_s(tp, link)
    per_tok = send * work.hidden_size * 2.0 * allreduce_s_per_byte(tp, link)
    if pp > 1:
        fixed += (pp - 1) * handover_s(work.hidden_size, 0.0, between)
        per_tok += (pp - 1) * work.hidden_size * 2.0 / between.bus_bytes_per_s

    def at(e: Efficiency, low: StepModel | None, high: StepModel | None) -> StepModel:
        return StepModel(
            every_step_bytes=work.every_step_bytes / tp,
            experts_bytes=work.experts_bytes / tp,
            expert_miss_frac=1.0 - work.top_k / work.expert_count,
            state_bytes=2 * work.state_bytes_per_sequence / tp,
            kv=tuple((g.bytes_per_tok / min(tp, g.shard_count), g.decode_flop_per_tok / tp, g.window_tok) for g in work.kv),
            flop_per_tok=2.0 * work.active_count / tp,
            prefill_work=work,
            tp=tp,
            pp=pp,
            bandwidth_bytes_per_s=bandwidth_bytes_per_s,
            peak_flop_per_s=peak_flop_per_s,
            efficiency=e,
            collective_s=fixed,
            collective_s_per_tok=per_tok,
            overhead_s=e.step_overhead_s * pp + e.layer_overhead_s * work.layer_count,
            bubble_chunk_tok=chunk_tok,
            low=low,
            high=high,
        )

    return at(band.typical, at(band.low, None, None), at(band.high, None, None))
