"""What a model needs of each GPU's memory: weights, KV cache, activations and the engine's own overhead.

`footprint` precomputes what depends on (model, weight format, KV format, engine) alone; `terms`, `max_sequences` and `fit`
then cost microseconds a call. All bytes are plain bytes; GB is 10⁹ and GiB 2³⁰ wherever a figure is shown.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.errors import Fault, InputError
from planner.formatting import gb
from planner.physics.activations import activation_bytes, batch_default, default_fraction, overhead_bytes_per_gpu, step_tok
from planner.physics.device import taken_first, usable_bytes
from planner.physics.extras import ENCODER_CACHE_BYTES_PER_VALUE, NO_EXTRAS, AdapterBytes, Extras, adapter_bytes
from planner.physics.kv_cache import KvPart, kv_part, paged_tok
from planner.physics.parallelism import end_stage_frac, llm_valid_tp, stage_frac, tp_obstacles
from planner.physics.weights import weights_bytes_by_component
from planner.schema.engine import EngineProfile, ExpertPadding
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat, Llm, WeightFormat

Term = Literal["weights", "kv_cache", "activations", "overhead", "adapters", "draft", "prefix_pool", "images"]
REPLICATED = ("router", "norm")
"""Components that every tensor-parallel rank keeps whole."""
KEEPS_GROUPS = frozenset({"vllm", "sglang"})
"""Engines that refuse a shard that cuts a quantisation group (vllm-project/vllm#13640)."""


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
    group_size: int | None = None
    """Weights along a row that a shard must keep together, where the engine insists."""
    extras: Extras = NO_EXTRAS
    adapters: AdapterBytes | None = None
    draft: Footprint | None = None
    loading: Mapping[str, float] | None = None
    """Bytes by component that stand on the GPUs before they are quantised there."""
    padding: tuple[ExpertPadding, ...] = ()
    """The engine's rules that lengthen routed experts stored in this format."""
    _weights_of_one: dict[tuple[int, int], float] = field(default_factory=dict, repr=False, compare=False)

    @property
    def kv_bytes_per_tok(self) -> float:
        """Bytes one token keeps on an undivided model while every window still fills."""
        return sum(part.bytes_per_tok() for part in self.kv_parts)

    @property
    def kv_bytes_per_tok_past_window(self) -> float:
        """Bytes one more token keeps once every window is full."""
        return sum(part.bytes_per_tok() for part in self.kv_parts if part.window_tok is None)

    @property
    def fixed_bytes_per_sequence(self) -> float:
        """Bytes one sequence keeps whatever its length: recurrent state, and the encoder's keys and values of cross attention."""
        return self.state_bytes_per_sequence + sum(part.constant_bytes() for part in self.kv_parts)

    def kv_bytes_per_sequence(self, context_tok: int, tp: int = 1) -> float:
        """Return the cache of one sequence of `context_tok` tokens, all layers, on one of `tp` GPUs: KV, indexer keys, state."""
        block_tok = self.engine.kv_block_tok
        paged = sum(part.bytes_of(context_tok, tp, block_tok) for part in self.kv_parts)
        return paged + self.indexer_bytes_per_tok * paged_tok(context_tok, block_tok) + self.state_bytes_per_sequence / tp

    def weights_bytes_per_gpu(self, tp: int, pp: int) -> float:
        """Return the weights of the fullest GPU: layers split by stage and rank, the larger of embedding and head at an end.

        A vision tower stands on the first stage. With data-parallel attention the experts are divided over all ranks.
        """
        known = self._weights_of_one.get((tp, pp))
        if known is None:
            known = self._weights_of_one[tp, pp] = _per_gpu(self.llm, self.weights_bytes_by_component, tp, pp, self.extras)
        return known

    def loading_bytes_per_gpu(self, tp: int, pp: int) -> float:
        """Return the weights of the fullest GPU while they are loaded; 0 where they come in the format they stay in."""
        return _per_gpu(self.llm, self.loading, tp, pp, self.extras) if self.loading is not None else 0.0


def padding_bytes(fp: Footprint, gpu: Gpu, tp: int, pp: int) -> float:
    """Return what an engine's kernel adds to the routed experts of the fullest GPU by padding their sides to whole multiples.

    gpt-oss under vLLM on an H100: 2,880 inputs become 3,072, so 9.46 GiB of experts take 0.63 more (13.44 with the rest, 13.47 logged).
    """
    rules = [rule for rule in fp.padding if gpu.family in rule.families] or [rule for rule in fp.padding if not rule.families]
    if not rules:
        return 0.0
    hidden, width = rules[0].hidden_multiple_count, rules[0].width_multiple_count
    used, padded = 0.0, 0.0
    for mlp in fp.llm.mlp:
        if mlp.kind != "moe":
            continue
        ranks = 1 if fp.extras.experts_are_whole or fp.extras.dp > 1 else tp
        own_width, inputs = mlp.expert_intermediate_size / ranks, mlp.expert_input_size or fp.llm.hidden_size
        count = mlp.layer_count * mlp.expert_count
        used += count * own_width * inputs
        padded += count * math.ceil(own_width / width) * width * math.ceil(inputs / hidden) * hidden
    own_bytes = fp.weights_bytes_by_component["experts"] / (tp * fp.extras.dp) * stage_frac(fp.llm.layer_count, pp)
    return own_bytes * (padded / used - 1.0) if used else 0.0


def _per_gpu(llm: Llm, parts: Mapping[str, float], tp: int, pp: int, extras: Extras) -> float:
    kept = sum(parts[name] for name in REPLICATED)
    ends = (parts["embedding"], parts["head"])
    first = parts["vision"] / (1 if extras.tower_is_whole else tp)
    experts = parts["experts"] / (tp * extras.dp)
    layers = (sum(parts.values()) - kept - sum(ends) - parts["vision"] - parts["experts"]) / tp + experts + kept
    if pp == 1:
        return layers + first + sum(ends) / tp
    end_frac = end_stage_frac(llm.layer_count, pp)
    return max(stage_frac(llm.layer_count, pp) * layers, end_frac * layers + max(ends[0] / tp + first, ends[1] / tp))


@dataclass(frozen=True)
class MemoryTerms:
    """Bytes by term; they sum to `total_bytes`."""

    weights_bytes: float
    kv_bytes: float
    activation_bytes: float
    overhead_bytes: float
    more: tuple[tuple[Term, float], ...] = ()
    """What the deployment keeps beside: adapters, draft model, prefix pool, images."""

    @property
    def total_bytes(self) -> float:
        """Sum of the terms."""
        return self.weights_bytes + self.kv_bytes + self.activation_bytes + self.overhead_bytes + sum(value for _, value in self.more)

    @property
    def by_term(self) -> dict[Term, float]:
        """The terms by name."""
        return {
            "weights": self.weights_bytes, "kv_cache": self.kv_bytes,
            "activations": self.activation_bytes, "overhead": self.overhead_bytes, **dict(self.more),
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
    loading_bytes: float = 0.0
    """Bytes of one GPU while the weights are loaded, where that is what does not fit."""
    loading_room_bytes: float = 0.0
    """What the whole device has for that."""

    @property
    def dominant_term(self) -> Term:
        """Name of the largest term."""
        return self.terms.dominant_term

    @property
    def reason(self) -> str:
        """The shortfall in one line."""
        if self.loading_bytes:
            return (
                f"needs {gb(self.loading_bytes)} per GPU while it loads, before the weights are quantised there, of "
                f"{gb(self.loading_room_bytes)} in all, {gb(self.per_gpu_bytes)} afterwards: quantise offline and load that file"
            )
        largest = self.terms.by_term[self.dominant_term]
        return (
            f"needs {gb(self.per_gpu_bytes)} per GPU, {gb(self.usable_bytes_per_gpu)} usable; "
            f"the largest term is {self.dominant_term.replace('_', ' ')} with {gb(largest)}"
        )


def footprint(
    llm: Llm, weights: WeightFormat, kv: KvFormat, engine: EngineProfile, weights_bytes: float | None = None,
    bytes_by_component: Mapping[str, float] | None = None, extras: Extras = NO_EXTRAS,
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
    group_size = weights.group_size if engine.engine in KEEPS_GROUPS else None
    return Footprint(
        llm=llm, engine=engine, weights_bytes_by_component=parts, weights_bytes=total, kv_parts=kv_parts,
        indexer_bytes_per_tok=float(sum(g.indexer_bytes_per_tok for g in groups)),
        state_bytes_per_sequence=float(sum(g.state_bytes_per_sequence for g in groups)),
        tp_sizes=llm_valid_tp(llm, engine.max_tp, group_size, extras.experts_are_whole, extras.dp, extras.tower_is_whole),
        group_size=group_size, extras=extras,
        adapters=adapter_bytes(llm, extras) if extras.adapter_count else None,
        draft=footprint(*extras.draft, kv, engine) if extras.draft is not None else None,
        loading=weights_bytes_by_component(llm, extras.loads_in) if extras.loads_in is not None else None,
        padding=tuple(rule for rule in engine.expert_padding if weights.id in rule.weights),
    )


def window_extra_bytes(fp: Footprint, tp: int, pp: int) -> float:
    """Return the bytes a sequence holds beyond its windows while a step runs, on the fullest GPU."""
    rows = sum(part.bytes_per_tok(tp) for part in fp.kv_parts if part.window_tok is not None)
    return rows * fp.engine.window_extra_tok * stage_frac(fp.llm.layer_count, pp)


def terms(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int, overhead_bytes: float | None = None
) -> MemoryTerms:
    """Return the bytes by term on the fullest GPU. `overhead_bytes` per GPU replaces activations and overhead together."""
    extras = fp.extras
    share = stage_frac(fp.llm.layer_count, pp)
    own = concurrency if extras.dp == 1 else math.ceil(concurrency / extras.dp)
    sequence_bytes = fp.kv_bytes_per_sequence(context_tok, tp)
    activations, overhead = 0.0, overhead_bytes
    if overhead is None:
        overhead = overhead_bytes_per_gpu(fp.engine, tp * extras.dp, gpu)
        if fp.padding:
            overhead += padding_bytes(fp, gpu, tp, pp)
        activations = own * window_extra_bytes(fp, tp, pp) + activation_bytes(
            fp.llm, fp.engine, gpu, tp, context_tok, concurrency=own, max_batched_tok=extras.max_batched_tok,
            max_sequence_count=extras.max_sequence_count, memory_frac=extras.memory_frac,
        )
    more = () if extras.names_nothing else _more(fp, gpu, tp, context_tok, own, share, sequence_bytes)
    return MemoryTerms(fp.weights_bytes_per_gpu(tp, pp), share * own * sequence_bytes, activations, overhead, more)


def _more(
    fp: Footprint, gpu: Gpu, tp: int, context_tok: int, own: int, share: float, sequence_bytes: float
) -> tuple[tuple[Term, float], ...]:
    """Return the terms that extras add on one GPU, those that are there."""
    extras = fp.extras
    found: list[tuple[Term, float]] = []
    if fp.adapters is not None:
        found.append(("adapters", share * fp.adapters.per_gpu(tp)))
    if fp.draft is not None:
        draft_tp = tp if tp in fp.draft.tp_sizes else 1
        found.append(("draft", fp.draft.weights_bytes_per_gpu(draft_tp, 1) + own * fp.draft.kv_bytes_per_sequence(context_tok, draft_tp)))
    if extras.prefix_pool_tok:
        found.append(("prefix_pool", share * fp.kv_bytes_per_sequence(extras.prefix_pool_tok, tp)))
    if extras.image_count:
        with_images = fp.kv_bytes_per_sequence(context_tok + extras.image_count * extras.image_tok, tp)
        encoder_tok = step_tok(fp.engine, gpu, context_tok, 1, extras.max_batched_tok)
        held = encoder_tok * fp.llm.hidden_size * ENCODER_CACHE_BYTES_PER_VALUE
        found.append(("images", share * own * (with_images - sequence_bytes) + held))
    return tuple(found)


def room_follows_terms(engine: EngineProfile) -> bool:
    """Say whether what an engine may fill of a GPU depends on the split or on what is taken before the cache."""
    return engine.reserve is not None or engine.fraction_of != "device_memory"


def room_bytes(fp: Footprint, gpu: Gpu, tp: int, pp: int, need: MemoryTerms, memory_frac: float | None, margin_frac: float) -> float:
    """Return what one GPU may fill under these terms: the engine's fraction of what it is a fraction of, less the margin."""
    fraction = default_fraction(fp.engine, gpu, tp, pp) if memory_frac is None else memory_frac
    first = taken_first(fp.engine, need.weights_bytes, need.activation_bytes, need.overhead_bytes)
    return usable_bytes(gpu, fraction, margin_frac, first)


def max_sequences(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int,
    memory_frac: float | None = None, margin_frac: float = 0.15, overhead_bytes: float | None = None,
) -> int:
    """Return how many sequences of `context_tok` tokens fit inside usable; the engine's own limit where none keeps a cache."""
    empty = terms(fp, gpu, tp, pp, context_tok, 0, overhead_bytes)
    room = room_bytes(fp, gpu, tp, pp, empty, memory_frac, margin_frac) - empty.total_bytes
    if room < 0 or loading_peak_bytes(fp, gpu, tp, pp, empty):
        return 0
    each = terms(fp, gpu, tp, pp, context_tok, 1, overhead_bytes).total_bytes - empty.total_bytes
    if each <= 0:
        return batch_default(fp.engine, gpu).max_sequence_count
    most = int(room // each)
    if fp.engine.is_static_batch:
        most = _most_at_once(fp, gpu, tp, pp, context_tok, memory_frac, margin_frac, overhead_bytes, most)
    return most * fp.extras.dp


def _most_at_once(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, memory_frac: float | None, margin_frac: float,
    overhead_bytes: float | None, limit: int,
) -> int:
    """Return the most sequences of a rank up to `limit` where temporary tensors grow with the batch, and not in proportion."""
    low, high = 0, limit
    while low < high:
        middle = (low + high + 1) // 2
        need = terms(fp, gpu, tp, pp, context_tok, middle * fp.extras.dp, overhead_bytes)
        fits = need.total_bytes <= room_bytes(fp, gpu, tp, pp, need, memory_frac, margin_frac)
        low, high = (middle, high) if fits else (low, middle - 1)
    return low


def loading_peak_bytes(fp: Footprint, gpu: Gpu, tp: int, pp: int, need: MemoryTerms) -> float:
    """Return what one GPU holds while the weights are loaded, where that is more than the whole device; else 0."""
    peak = fp.loading_bytes_per_gpu(tp, pp) + need.overhead_bytes if fp.loading is not None else 0.0
    return peak if peak > usable_bytes(gpu, 1.0, 0.0) else 0.0


def fit_footprint(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int,
    memory_frac: float | None = None, margin_frac: float = 0.15, overhead_bytes: float | None = None,
) -> Fits | DoesNotFit:
    """Answer `fit` from a footprint made earlier."""
    if tp not in fp.tp_sizes:
        raise InputError([split_fault(fp, tp)])
    if not 1 <= pp <= fp.llm.layer_count:
        raise InputError([Fault("", None, "pp", f"{fp.llm.id} has {fp.llm.layer_count} layers, not {pp} stages", "take fewer stages")])
    need = terms(fp, gpu, tp, pp, context_tok, concurrency, overhead_bytes)
    usable = room_bytes(fp, gpu, tp, pp, need, memory_frac, margin_frac)
    most = max_sequences(fp, gpu, tp, pp, context_tok, memory_frac, margin_frac, overhead_bytes)
    if need.total_bytes > usable:
        return DoesNotFit(need, need.total_bytes, usable, most)
    peak = loading_peak_bytes(fp, gpu, tp, pp, need)
    if peak:
        return DoesNotFit(need, need.total_bytes, usable, 0, peak, usable_bytes(gpu, 1.0, 0.0))
    return Fits(need, need.total_bytes, usable, most, batch_default(fp.engine, gpu).max_sequence_count)


def split_fault(fp: Footprint, tp: int) -> Fault:
    """Return why a model cannot be split over `tp` GPUs, with the sizes that can."""
    cure = f"valid: {', '.join(map(str, fp.tp_sizes))}" if fp.tp_sizes else "let the ranks divide the experts"
    x = fp.extras
    obstacles = list(dict.fromkeys(tp_obstacles(fp.llm, tp, fp.group_size, x.experts_are_whole, x.dp, x.tower_is_whole)))
    if fp.engine.max_tp < tp and not obstacles:
        obstacles = [f"{fp.engine.name} splits by layer only" if fp.engine.max_tp == 1 else f"{fp.engine.name} goes to {fp.engine.max_tp}"]
    return Fault("", None, "tp", f"{fp.llm.id} cannot be split over {tp} GPUs by tensor: {'; '.join(obstacles)}", cure)


def fit(
    llm: Llm, weights: WeightFormat, kv: KvFormat, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int,
    engine: EngineProfile, memory_frac: float | None = None, margin_frac: float = 0.15,
    overhead_bytes: float | None = None, weights_bytes: float | None = None,
) -> Fits | DoesNotFit:
    """Say whether `concurrency` sequences of `context_tok` tokens fit on tp × pp GPUs, by term.

    `overhead_bytes` (one GPU) replaces activations and overhead together; `weights_bytes` (the whole model) replaces the
    count by component. Raises `InputError` where the model cannot be split that way.
    """
    fp = footprint(llm, weights, kv, engine, weights_bytes, extras=replace(NO_EXTRAS, memory_frac=memory_frac))
    return fit_footprint(fp, gpu, tp, pp, context_tok, concurrency, memory_frac, margin_frac, overhead_bytes)
