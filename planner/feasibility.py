"""(workload, model in its formats, node, shape) → what one replica can promise, or why it cannot, with levers.

Memory decides first, then the closed form of `physics/serving.py` gives the largest rate that keeps the p99 promises.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from functools import cached_property

from planner.catalog import Catalog
from planner.errors import InputError
from planner.physics.activations import batch_default, chunk_tok
from planner.physics.efficiency import ChosenEfficiency, choose_efficiency, format_class, link_between, peak_flop_per_s
from planner.physics.memory import Footprint, MemoryTerms, footprint, max_sequences, room_bytes, terms
from planner.physics.parallelism import layouts, stage_frac
from planner.physics.serving import Feasible, Infeasible, RequestMix, StepModel, Targets, max_request_rate, max_throughput, step_model
from planner.physics.weights import weight_bits
from planner.physics.work import Work, work_of
from planner.schema.engine import EngineProfile
from planner.schema.hardware import Gpu, Node
from planner.schema.llm import KvFormat, Llm, WeightFormat
from planner.units import BYTES_PER_GB

MARGIN_FRAC = 0.15
"""Kept free on every GPU for the first long prompt (assumed; the lesson behind it: a card at 98 % dies on it)."""


@dataclass(frozen=True)
class Formats:
    """A model in given weight and KV formats under one engine: what `footprint` and the step times start from."""

    llm: Llm
    weights: WeightFormat
    kv: KvFormat
    engine: EngineProfile

    @cached_property
    def footprint(self) -> Footprint:
        """Bytes by component, fixed before a GPU is named."""
        return footprint(self.llm, self.weights, self.kv, self.engine)

    @cached_property
    def work(self) -> Work:
        """Bytes and FLOP of a step, fixed before a GPU is named."""
        return work_of(self.llm, weight_bits(self.llm, self.weights), self.kv.bytes_per_value)

    @cached_property
    def efficiencies(self) -> dict[str, ChosenEfficiency]:
        """GPU family → the constants that stand for it, filled as families are met."""
        return {}


@dataclass(frozen=True)
class Ask:
    """What one workload wants of a replica. `sessions_req_per_s` is set where sessions hold KV open: requests a second of one."""

    mix: RequestMix
    targets: Targets
    max_context_tok: int
    is_batch: bool
    sessions_req_per_s: float | None = None


@dataclass(frozen=True)
class Shape:
    """One replica on GPUs of one node: memory and step times, before any workload is named."""

    formats: Formats
    node: Node
    gpu: Gpu
    tp: int
    pp: int
    context_tok: int
    step: StepModel
    efficiency: ChosenEfficiency
    compute_dtype: str
    peak_flop_per_s: float
    memory: MemoryTerms
    """Of the fullest GPU, at `max_sequences_count` sequences of `context_tok`."""
    usable_bytes_per_gpu: float
    max_sequences_count: int
    kv_room_tok: float
    """Tokens of KV cache that the replica holds at once."""

    @property
    def gpus_count(self) -> int:
        """GPUs of one replica."""
        return self.tp * self.pp


@dataclass(frozen=True)
class Assessment:
    """A shape under one workload's ask: the rate it serves, or why it serves none."""

    shape: Shape
    result: Feasible | Infeasible
    ask: Ask = field(repr=False)

    @property
    def req_per_s(self) -> float:
        """Largest rate one replica serves within the promise; 0 where infeasible."""
        return self.result.req_per_s if isinstance(self.result, Feasible) else 0.0


def shape_sizes(node: Node) -> tuple[int, ...]:
    """Return the replica sizes that pack a node exactly: a chain of divisors, each dividing the next (1, 2, 4, 8).

    >>> from types import SimpleNamespace as N
    >>> shape_sizes(N(gpu_count=8)), shape_sizes(N(gpu_count=6)), shape_sizes(N(gpu_count=1))
    ((1, 2, 4, 8), (1, 2, 6), (1,))
    """
    sizes, size = [1], 1
    while size < node.gpu_count:
        step = next(k for k in range(2, node.gpu_count // size + 1) if (node.gpu_count // size) % k == 0)
        size *= step
        sizes.append(size)
    return tuple(sizes)


def runs_on(formats: Formats, gpu: Gpu) -> str | None:
    """Return why this engine cannot run these formats on this accelerator, or None where it can."""
    engine = formats.engine
    if engine.vendors and gpu.vendor not in engine.vendors:
        return f"{engine.name} has no back end for {gpu.name}"
    if engine.engine not in formats.weights.runs_on:
        return f"{engine.name} does not read {formats.weights.name} weights"
    if engine.engine not in formats.kv.runs_on:
        return f"{engine.name} does not keep its KV cache in {formats.kv.name}"
    return None


def efficiency_of(catalog: Catalog, formats: Formats, gpu: Gpu) -> ChosenEfficiency:
    """Return the measured or nearest constants of this engine on this accelerator's family."""
    chosen = formats.efficiencies.get(gpu.family)
    if chosen is None:
        chosen = choose_efficiency(catalog.efficiency, formats.engine.engine, gpu.family, format_class(formats.weights))
        formats.efficiencies[gpu.family] = chosen
    return chosen


def shapes(catalog: Catalog, formats: Formats, node: Node, size: int, context_tok: int) -> tuple[tuple[Shape, ...], str | None]:
    """Return every (tp, pp) layout of a replica of `size` GPUs within the node that holds one sequence, or the reason why none does.

    Where only PCIe joins the GPUs, tensor parallelism over the whole node is tried too, priced at PCIe speed.
    """
    gpu = catalog.gpus[node.gpu]
    fp = formats.footprint
    fast = node.fast_link_domain_gpu_count
    pairs = dict.fromkeys((*layouts(formats.llm, size, fast, sizes=fp.tp_sizes), *layouts(formats.llm, size, size, sizes=fp.tp_sizes)))
    found: list[Shape] = []
    worst: str | None = None
    try:
        dtype, peak = peak_flop_per_s(gpu, formats.weights.compute_dtype)
    except InputError as error:
        return (), f"{gpu.name}: {error.faults[0].what}"
    chosen = efficiency_of(catalog, formats, gpu)
    bandwidth = gpu.memory_bandwidth_gb_per_s * BYTES_PER_GB
    for tp, pp in pairs:
        if tp not in fp.tp_sizes:
            continue
        empty = terms(fp, gpu, tp, pp, context_tok, 0)
        usable = room_bytes(fp, gpu, tp, pp, empty, None, MARGIN_FRAC)
        most = max_sequences(fp, gpu, tp, pp, context_tok, margin_frac=MARGIN_FRAC)
        if most < 1:
            need = terms(fp, gpu, tp, pp, context_tok, 1)
            largest = need.by_term[need.dominant_term] / BYTES_PER_GB
            worst = (
                f"one sequence of {context_tok:,} tokens needs {need.total_bytes / BYTES_PER_GB:.1f} GB per GPU on {size} x {gpu.name} "
                f"({usable / BYTES_PER_GB:.1f} GB usable); the largest term is {need.dominant_term.replace('_', ' ')} with {largest:.1f} GB"
            )
            continue
        per_tok = stage_frac(fp.llm.layer_count, pp) * fp.kv_bytes_per_sequence(context_tok, tp) / context_tok
        room_tok = (usable - empty.total_bytes) / per_tok if per_tok > 0 else math.inf
        admitted = min(most, batch_default(fp.engine, gpu).max_sequence_count)
        link = link_between(catalog.links, gpu, tp, fast)
        stage = link_between(catalog.links, gpu, pp, fast) if pp > 1 else None
        step = step_model(formats.work, bandwidth, peak, chosen.band, tp, pp, link, stage, chunk_tok(fp.engine, gpu))
        memory = terms(fp, gpu, tp, pp, context_tok, admitted)
        found.append(Shape(formats, node, gpu, tp, pp, context_tok, step, chosen, dtype, peak, memory, usable, most, room_tok))
    return tuple(found), None if found else worst or f"no tensor-parallel size of {formats.llm.name} makes {size} GPUs"


def admitted_count(shape: Shape) -> int:
    """Return the sequences the engine is told to admit: its own limit on this card, raised where memory holds more at full context."""
    return max(batch_default(shape.formats.engine, shape.gpu).max_sequence_count, min(shape.max_sequences_count, 1024))


def assess(shape: Shape, ask: Ask, with_band: bool = False) -> Assessment:
    """Return the largest rate of one replica under an ask (its band at three times the price).

    Sessions that are held open reserve KV at the longest context each, so a replica takes at most `max_sequences_count` of them.
    """
    slots = admitted_count(shape)
    if ask.is_batch:
        result = max_throughput(shape.step, ask.mix, shape.kv_room_tok, slots)
    else:
        result = max_request_rate(shape.step, ask.mix, ask.targets, shape.kv_room_tok, slots, with_band)
    if isinstance(result, Feasible) and ask.sessions_req_per_s is not None:
        cap = shape.max_sequences_count * ask.sessions_req_per_s
        if cap < result.req_per_s:
            scale = cap / result.req_per_s
            result = replace(
                result, req_per_s=cap, tok_per_s=result.tok_per_s * scale, batch=result.batch * scale, limited_by="sessions",
                band=(min(result.band[0], cap), cap, cap),
            )
    return Assessment(shape, result, ask)


def best_shape(options: tuple[Shape, ...], asks: tuple[Ask, ...]) -> tuple[Shape, tuple[Assessment, ...]]:
    """Return the layout that serves these asks best: the one with the highest sum of rates, each over the best of its ask."""
    table = [tuple(assess(shape, ask) for ask in asks) for shape in options]
    best = [max(row[i].req_per_s for row in table) for i in range(len(asks))]
    score = [sum(a.req_per_s / b for a, b in zip(row, best, strict=True) if b > 0) for row in table]
    winner = max(range(len(options)), key=lambda i: (score[i], -i))
    return options[winner], table[winner]

