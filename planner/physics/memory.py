"""What a model needs of each GPU's memory: weights, KV cache, activations and the engine's own overhead.

`footprint` precomputes what depends on (model, weight format, KV format, engine) alone; `terms`, `max_sequences` and `fit`
then cost microseconds a call. All bytes are plain bytes; GB is 10⁹ and GiB 2³⁰ wherever a figure is shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from planner.errors import Fault, InputError
from planner.formatting import gb
from planner.physics.activations import activation_bytes, batch_default, overhead_bytes_per_gpu
from planner.physics.device import usable_bytes
from planner.physics.kv_cache import KvPart, kv_part, paged_tok
from planner.physics.parallelism import end_stage_frac, llm_valid_tp, stage_frac
from planner.physics.weights import weights_bytes_by_component
from planner.schema.engine import EngineProfile
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat, Llm, WeightFormat

Term = Literal["weights", "kv_cache", "activations", "overhead"]
REPLICATED = ("router", "norm")
"""Components that every tensor-parallel rank keeps whole."""


@dataclass(frozen=True)
class Footprint:
    """What (model, weight format, KV format, engine) fix before any GPU is named."""

    llm: Llm
    engine: EngineProfile
    weights_bytes_by_component: dict[str, float]
    weights_bytes: float
    kv_parts: tuple[KvPart, ...]
    indexer_bytes_per_tok: float
    state_bytes_per_sequence: float
    tp_sizes: tuple[int, ...]

    @property
    def kv_bytes_per_tok(self) -> float:
        """Bytes one token keeps on an undivided model while every window still fills."""
        return sum(part.bytes_per_tok() for part in self.kv_parts)

    @property
    def kv_bytes_per_tok_past_window(self) -> float:
        """Bytes one more token keeps once every window is full."""
        return sum(part.bytes_per_tok() for part in self.kv_parts if part.window_tok is None)

    def kv_bytes_per_sequence(self, context_tok: int, tp: int = 1) -> float:
        """Return the cache of one sequence of `context_tok` tokens, all layers, on one of `tp` GPUs: KV, indexer keys, state."""
        block_tok = self.engine.kv_block_tok
        paged = sum(part.bytes_of(context_tok, tp, block_tok) for part in self.kv_parts)
        return paged + self.indexer_bytes_per_tok * paged_tok(context_tok, block_tok) + self.state_bytes_per_sequence / tp

    def weights_bytes_per_gpu(self, tp: int, pp: int) -> float:
        """Return the weights of the fullest GPU: layers split by stage and rank, the larger of embedding and head at an end."""
        parts = self.weights_bytes_by_component
        kept = sum(parts[name] for name in REPLICATED)
        ends = (parts["embedding"], parts["head"])
        layers = (self.weights_bytes - kept - sum(ends)) / tp + kept
        if pp == 1:
            return layers + sum(ends) / tp
        return max(stage_frac(self.llm.layer_count, pp) * layers, end_stage_frac(self.llm.layer_count, pp) * layers + max(ends) / tp)


@dataclass(frozen=True)
class MemoryTerms:
    """Bytes by term; they sum to `total_bytes`."""

    weights_bytes: float
    kv_bytes: float
    activation_bytes: float
    overhead_bytes: float

    @property
    def total_bytes(self) -> float:
        """Sum of the four terms."""
        return self.weights_bytes + self.kv_bytes + self.activation_bytes + self.overhead_bytes

    @property
    def by_term(self) -> dict[Term, float]:
        """The four terms by name."""
        return {
            "weights": self.weights_bytes, "kv_cache": self.kv_bytes,
            "activations": self.activation_bytes, "overhead": self.overhead_bytes,
        }

    @property
    def dominant_term(self) -> Term:
        """Name of the largest term."""
        return max(self.by_term.items(), key=lambda item: item[1])[0]


@dataclass(frozen=True)
class Fits:
    """The load fits. `terms` are those of the fullest GPU; `max_sequences` counts inside `usable_bytes_per_gpu`."""

    terms: MemoryTerms
    per_gpu_bytes: float
    usable_bytes_per_gpu: float
    max_sequences: int
    engine_max_sequences: int
    """What the engine admits by default on this card: set its limit if more are wanted."""

    @property
    def dominant_term(self) -> Term:
        """Name of the largest term."""
        return self.terms.dominant_term


@dataclass(frozen=True)
class DoesNotFit:
    """The load does not fit. `terms` are those of the fullest GPU."""

    terms: MemoryTerms
    per_gpu_bytes: float
    usable_bytes_per_gpu: float
    max_sequences: int

    @property
    def dominant_term(self) -> Term:
        """Name of the largest term."""
        return self.terms.dominant_term

    @property
    def reason(self) -> str:
        """The shortfall in one line."""
        largest = self.terms.by_term[self.dominant_term]
        return (
            f"needs {gb(self.per_gpu_bytes)} per GPU, {gb(self.usable_bytes_per_gpu)} usable; "
            f"the largest term is {self.dominant_term.replace('_', ' ')} with {gb(largest)}"
        )


def footprint(
    llm: Llm, weights: WeightFormat, kv: KvFormat, engine: EngineProfile, weights_bytes: float | None = None,
    bytes_by_component: Mapping[str, float] | None = None,
) -> Footprint:
    """Return the precomputed footprint. `weights_bytes` (a rule's) scales every component alike; `bytes_by_component` are a file's own."""
    parts = weights_bytes_by_component(llm, weights)
    if bytes_by_component is not None:
        parts = {name: float(bytes_by_component.get(name, 0.0)) for name in parts}
    total = sum(parts.values())
    if weights_bytes is not None:
        parts = {name: value * weights_bytes / total for name, value in parts.items()}
        total = weights_bytes
    groups = () if llm.is_encoder else llm.attention
    kept = [kv_part(g, kv.bytes_per_value, engine.mla_expands_kv, engine.chunked_keeps_all) for g in groups]
    kv_parts = tuple(part for part in kept if part is not None)
    return Footprint(
        llm=llm, engine=engine, weights_bytes_by_component=parts, weights_bytes=total, kv_parts=kv_parts,
        indexer_bytes_per_tok=float(sum(g.indexer_bytes_per_tok for g in groups)),
        state_bytes_per_sequence=float(sum(g.state_bytes_per_sequence for g in groups)),
        tp_sizes=llm_valid_tp(llm, engine.max_tp),
    )


def window_extra_bytes(fp: Footprint, tp: int, pp: int) -> float:
    """Return the bytes a sequence holds beyond its windows while a step runs, on the fullest GPU."""
    rows = sum(part.bytes_per_tok(tp) for part in fp.kv_parts if part.window_tok is not None)
    return rows * fp.engine.window_extra_tok * stage_frac(fp.llm.layer_count, pp)


def terms(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int, overhead_bytes: float | None = None
) -> MemoryTerms:
    """Return the bytes by term on the fullest GPU. `overhead_bytes` per GPU replaces activations and overhead together."""
    share = stage_frac(fp.llm.layer_count, pp)
    kv_bytes = share * concurrency * fp.kv_bytes_per_sequence(context_tok, tp)
    if overhead_bytes is not None:
        return MemoryTerms(fp.weights_bytes_per_gpu(tp, pp), kv_bytes, 0.0, overhead_bytes)
    return MemoryTerms(
        weights_bytes=fp.weights_bytes_per_gpu(tp, pp),
        kv_bytes=kv_bytes,
        activation_bytes=activation_bytes(fp.llm, fp.engine, gpu, tp, context_tok) + concurrency * window_extra_bytes(fp, tp, pp),
        overhead_bytes=overhead_bytes_per_gpu(fp.engine, tp),
    )


def max_sequences(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int,
    memory_frac: float | None = None, margin_frac: float = 0.15, overhead_bytes: float | None = None,
) -> int:
    """Return how many sequences of `context_tok` tokens fit inside usable; the engine's own limit where none keeps a cache."""
    usable = usable_bytes(gpu, fp.engine.memory_fraction if memory_frac is None else memory_frac, margin_frac)
    empty = terms(fp, gpu, tp, pp, context_tok, 0, overhead_bytes).total_bytes
    one = terms(fp, gpu, tp, pp, context_tok, 1, overhead_bytes).total_bytes - empty
    if empty > usable:
        return 0
    return int((usable - empty) // one) if one > 0 else batch_default(fp.engine, gpu).max_sequence_count


def fit_footprint(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int,
    memory_frac: float | None = None, margin_frac: float = 0.15, overhead_bytes: float | None = None,
) -> Fits | DoesNotFit:
    """Answer `fit` from a footprint made earlier."""
    if tp not in fp.tp_sizes:
        sizes = ", ".join(map(str, fp.tp_sizes))
        cure = f"tensor-parallel sizes that its heads, experts and the engine allow: {sizes}"
        raise InputError([Fault("", None, "tp", f"{fp.llm.id} cannot be split over {tp} GPUs by tensor", cure)])
    if not 1 <= pp <= fp.llm.layer_count:
        raise InputError([Fault("", None, "pp", f"{fp.llm.id} has {fp.llm.layer_count} layers, not {pp} stages", "take fewer stages")])
    fraction = fp.engine.memory_fraction if memory_frac is None else memory_frac
    usable = usable_bytes(gpu, fraction, margin_frac)
    need = terms(fp, gpu, tp, pp, context_tok, concurrency, overhead_bytes)
    most = max_sequences(fp, gpu, tp, pp, context_tok, fraction, margin_frac, overhead_bytes)
    if need.total_bytes <= usable:
        return Fits(need, need.total_bytes, usable, most, batch_default(fp.engine, gpu).max_sequence_count)
    return DoesNotFit(need, need.total_bytes, usable, most)


def fit(
    llm: Llm, weights: WeightFormat, kv: KvFormat, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int,
    engine: EngineProfile, memory_frac: float | None = None, margin_frac: float = 0.15,
    overhead_bytes: float | None = None, weights_bytes: float | None = None,
) -> Fits | DoesNotFit:
    """Say whether `concurrency` sequences of `context_tok` tokens fit on tp × pp GPUs, by term.

    `overhead_bytes` (one GPU) replaces activations and overhead together; `weights_bytes` (the whole model) replaces the
    count by component. Raises `InputError` where the model cannot be split that way.
    """
    fp = footprint(llm, weights, kv, engine, weights_bytes)
    return fit_footprint(fp, gpu, tp, pp, context_tok, concurrency, memory_frac, margin_frac, overhead_bytes)
