"""What a model needs of each GPU's memory: weights, KV cache, activations and the engine's own overhead.

`footprint` precomputes what depends on (model, weight format, KV format, engine) alone; `terms`, `max_sequences` and `fit`
then cost microseconds a call. All bytes are plain bytes; GB is 10⁹ and GiB 2³⁰ wherever a figure is shown.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from planner.errors import Fault, InputError
from planner.formatting import gb
from planner.physics.parallelism import end_stage_frac, kv_heads_per_gpu, llm_valid_tp, stage_frac
from planner.physics.work import DEFAULT_BITS_PER_WEIGHT, bits_by_component
from planner.schema.engine import BatchDefault, EngineProfile
from planner.schema.hardware import Gpu
from planner.schema.llm import AttentionGroup, KvFormat, Llm, MlpGroup, WeightFormat
from planner.units import BYTES_PER_GB, BYTES_PER_GIB, BYTES_PER_MIB

Term = Literal["weights", "kv_cache", "activations", "overhead"]
REPLICATED = ("router", "norm")
"""Components that every tensor-parallel rank keeps whole."""


def kv_bytes_per_tok(layer_count: int, kv_head_count: int, head_dim: int, bytes_per_value: float, v_head_dim: int | None = None) -> float:
    """Return the KV cache one token keeps in `layer_count` layers: a key and a value per KV head and layer (bytes).

    >>> kv_bytes_per_tok(layer_count=80, kv_head_count=8, head_dim=128, bytes_per_value=2)   # Llama 70B, GQA
    327680
    """
    return layer_count * kv_head_count * (head_dim + (head_dim if v_head_dim is None else v_head_dim)) * bytes_per_value


def mla_bytes_per_tok(layer_count: int, kv_lora_rank: int, rope_dim: int, bytes_per_value: float) -> float:
    """Return the latent one token keeps under MLA: one vector and its rotary key a layer, not doubled (bytes).

    >>> mla_bytes_per_tok(layer_count=61, kv_lora_rank=512, rope_dim=64, bytes_per_value=2)   # DeepSeek-V3
    70272
    """
    return layer_count * (kv_lora_rank + rope_dim) * bytes_per_value


def paged_tok(token_count: int, block_tok: int) -> int:
    """Return the tokens that whole pages hold for `token_count` tokens.

    >>> paged_tok(8193, 16)
    8208
    """
    return math.ceil(token_count / block_tok) * block_tok


def device_bytes(gpu: Gpu) -> float:
    """Return the memory that the device shows; the label × 10⁹ where nobody published it (`label_is_used`).

    81,559 MiB shown by an "80 GB" H100 are 85.5 × 10⁹ bytes, or 79.65 GiB.
    """
    if gpu.memory_device_mib is not None:
        return gpu.memory_device_mib * BYTES_PER_MIB
    return gpu.memory_label_gb * BYTES_PER_GB


def label_is_used(gpu: Gpu) -> bool:
    """Say whether the capacity is the figure on the box, for want of one read from a device."""
    return gpu.memory_device_mib is None


def usable_bytes(gpu: Gpu, memory_frac: float, margin_frac: float) -> float:
    """Return what one GPU may fill: device bytes × min(engine's fraction, 1 − margin). One reserve, never both.

    Unified memory first loses the part that the GPU may not use. An H100 (85.5 × 10⁹ bytes) at the default margin of
    0.15 gives 72.7 × 10⁹ bytes whether the engine's fraction is 0.92 or 0.9.
    """
    share_frac = gpu.gpu_memory_share_frac if gpu.gpu_memory_share_frac is not None else 1.0
    return device_bytes(gpu) * share_frac * min(memory_frac, 1.0 - margin_frac)


def device_bytes_needed(need_bytes: float, memory_frac: float) -> float:
    """Return the smallest device that holds `need_bytes` at the engine's fraction: 20.31 GiB at 0.9 need 22.57 GiB.

    >>> round(device_bytes_needed(20.31, 0.9), 2)
    22.57
    """
    return need_bytes / memory_frac


@dataclass(frozen=True)
class KvPart:
    """The cache of one attention group: bytes of all its layers, by KV head and by token."""

    layer_count: int
    head_count: int
    bytes_per_head_tok: float
    window_tok: int | None = None
    compression: int = 1
    is_replicated: bool = False

    def bytes_per_tok(self, tp: int = 1) -> float:
        """Return the bytes one more token takes on one GPU, while the window still fills."""
        heads = self.head_count if self.is_replicated else kv_heads_per_gpu(self.head_count, tp)
        return self.bytes_per_head_tok * heads / self.compression

    def bytes_of(self, context_tok: int, tp: int, block_tok: int) -> float:
        """Return the bytes of one sequence on one GPU: whole pages, and at most the window where there is one."""
        held_tok = paged_tok(context_tok, block_tok)
        return self.bytes_per_tok(tp) * (held_tok if self.window_tok is None else min(held_tok, self.window_tok))


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
class Lever:
    """One change, computed: what the fullest GPU would then need and whether it fits."""

    change: str
    bytes_per_gpu: float
    fits: bool

    def __str__(self) -> str:
        return f"{self.change} → {gb(self.bytes_per_gpu)}{': fits' if self.fits else ': still does not fit'}"


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
    """The load does not fit. `terms` are those of the fullest GPU; `levers` are computed changes, nearest first."""

    terms: MemoryTerms
    per_gpu_bytes: float
    usable_bytes_per_gpu: float
    max_sequences: int
    levers: tuple[Lever, ...]

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


def weights_bytes_by_component(llm: Llm, weights: WeightFormat) -> dict[str, float]:
    """Return the bytes of each component: parameters × bits ÷ 8, scales and zero points inside the bits.

    A component that the format does not name stays in 16 bit; routed experts are stored as the MLP where they have no
    entry of their own; an embedding that is the output head too (tied) takes the wider of both.
    """
    bits = bits_by_component(llm, weights.bits_per_weight)
    p = llm.params
    counts = {
        "embedding": p.embedding_count, "head": p.head_count, "attention": p.attention_count, "mlp": p.mlp_count,
        "experts": p.experts_count, "router": p.router_count, "norm": p.norm_count, "other": p.other_count,
    }
    return {name: count * bits.get(name, DEFAULT_BITS_PER_WEIGHT) / 8 for name, count in counts.items()}


def kv_part(
    group: AttentionGroup, bytes_per_value: float, mla_expands_kv: bool = False, chunked_keeps_all: bool = False
) -> KvPart | None:
    """Return the cache of one attention group, or nothing where its layers keep none or only a constant state."""
    n = group.layer_count
    if group.cache_is_shared or group.kind in ("linear", "none"):
        return None
    if group.kind == "mla":
        rank, rope = group.kv_lora_rank or 0, group.rope_dim or 0
        if not mla_expands_kv:
            return KvPart(n, 1, mla_bytes_per_tok(n, rank, rope, bytes_per_value), compression=group.kv_compression, is_replicated=True)
        if not (group.head_count and group.head_dim):
            raise ValueError("an engine that expands MLA needs head_count and head_dim of the model")
        per_head = kv_bytes_per_tok(n, 1, group.head_dim, bytes_per_value, group.v_head_dim)
        return KvPart(n, group.head_count, per_head, compression=group.kv_compression)
    v_head_dim = 0 if group.kv_is_one_tensor else group.v_head_dim
    per_head = kv_bytes_per_tok(n, 1, group.head_dim, bytes_per_value, v_head_dim)
    window_tok = None if group.kind == "chunked" and chunked_keeps_all else group.window_tok
    return KvPart(n, group.kv_head_count, per_head, window_tok=window_tok, compression=group.kv_compression)


def footprint(
    llm: Llm, weights: WeightFormat, kv: KvFormat, engine: EngineProfile, weights_bytes: float | None = None
) -> Footprint:
    """Return the precomputed footprint. `weights_bytes` (a file's or a rule's) scales every component alike."""
    parts = weights_bytes_by_component(llm, weights)
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


def batch_default(engine: EngineProfile, gpu: Gpu) -> BatchDefault:
    """Return the engine's own limits on this card: the class with the most memory that the card reaches."""
    gib = device_bytes(gpu) / BYTES_PER_GIB
    open_to_it = [d for d in engine.batch_defaults if d.device_gib_from <= gib and gpu.family not in d.not_families]
    return max(open_to_it, key=lambda d: d.device_gib_from)


def chunk_tok(engine: EngineProfile, gpu: Gpu) -> float:
    """Return the tokens of one step that the engine batches on a card by default: prompts are prefilled in chunks of them."""
    return float(batch_default(engine, gpu).max_batched_tok)


def mlp_width(group: MlpGroup) -> int:
    """Return the MLP values of one token in one layer: the dense width, or that of the chosen and shared experts."""
    if group.kind == "dense":
        return group.intermediate_size
    shared = group.shared_expert_count * (group.shared_expert_intermediate_size or group.expert_intermediate_size)
    return group.top_k * group.expert_intermediate_size + shared


def activation_bytes(fp: Footprint, gpu: Gpu, tp: int, context_tok: int) -> float:
    """Return the peak of the temporary tensors of one step on one GPU, by the engine's model (`ActivationModel`).

    The sampler's part is whole on every rank: 1,024 sequences × 128,256 words × 39 bytes are 4.77 GiB with vLLM on an
    H100 (4.76 logged for Llama-3.1-8B).
    """
    model, llm, batch = fp.engine.activation, fp.llm, batch_default(fp.engine, gpu)
    width = max((mlp_width(group) for group in llm.mlp), default=0)
    forward = batch.max_batched_tok * (model.bytes_per_mlp_value * width / tp + model.bytes_per_hidden_value * llm.hidden_size)
    sampler = 0.0 if llm.is_encoder else batch.max_sequence_count * llm.vocab_size * model.bytes_per_logit
    compute = batch.max_batched_tok * (llm.vocab_size + llm.hidden_size) * model.bytes_per_compute_value
    mask = batch.max_batched_tok * context_tok * model.bytes_per_mask_value
    return max(forward, sampler) + compute + mask


def overhead_bytes_per_gpu(engine: EngineProfile, tp: int) -> float:
    """Return what the engine, the driver and the collectives keep on one GPU whatever the load."""
    collective = engine.collective_bytes if tp > 1 else 0.0
    return engine.driver_bytes + engine.context_bytes + engine.cuda_graph_bytes + collective


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
        activation_bytes=activation_bytes(fp, gpu, tp, context_tok) + concurrency * window_extra_bytes(fp, tp, pp),
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
    kv_alternatives: Sequence[tuple[str, Footprint]] = (),
) -> Fits | DoesNotFit:
    """Answer `fit` from a footprint made earlier; `kv_alternatives` (name, footprint) are tried as levers."""
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
    ask = _Ask(gpu, tp, pp, context_tok, concurrency, usable, overhead_bytes)
    return DoesNotFit(need, need.total_bytes, usable, most, tuple(_levers(fp, ask, kv_alternatives)))


def fit(
    llm: Llm, weights: WeightFormat, kv: KvFormat, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int,
    engine: EngineProfile, memory_frac: float | None = None, margin_frac: float = 0.15,
    overhead_bytes: float | None = None, weights_bytes: float | None = None, kv_alternatives: Sequence[KvFormat] = (),
) -> Fits | DoesNotFit:
    """Say whether `concurrency` sequences of `context_tok` tokens fit on tp × pp GPUs, by term, with levers where not.

    `overhead_bytes` (one GPU) replaces activations and overhead together; `weights_bytes` (the whole model) replaces the
    count by component. Raises `InputError` where the model cannot be split that way.
    """
    fp = footprint(llm, weights, kv, engine, weights_bytes)
    others = [
        (other.id, footprint(llm, weights, other, engine, weights_bytes))
        for other in kv_alternatives if engine.engine in other.runs_on and other.bytes_per_value < kv.bytes_per_value
    ]
    return fit_footprint(fp, gpu, tp, pp, context_tok, concurrency, memory_frac, margin_frac, overhead_bytes, others)


@dataclass(frozen=True)
class _Ask:
    gpu: Gpu
    tp: int
    pp: int
    context_tok: int
    concurrency: int
    usable: float
    overhead_bytes: float | None

    def total(self, fp: Footprint) -> float:
        return terms(fp, self.gpu, self.tp, self.pp, self.context_tok, self.concurrency, self.overhead_bytes).total_bytes

    def lever(self, fp: Footprint, change: str) -> Lever:
        total = self.total(fp)
        return Lever(change, total, total <= self.usable)


def _levers(fp: Footprint, ask: _Ask, kv_alternatives: Sequence[tuple[str, Footprint]]) -> list[Lever]:
    """Try the KV formats one by one, then fewer sessions and a shorter context under the present and the smallest that fails."""
    by_size = sorted(kv_alternatives, key=lambda item: (-item[1].kv_bytes_per_tok, item[0]))
    found = [ask.lever(other, f"KV in {name}") for name, other in by_size]
    bases = [("", fp)]
    failing = [item for item in by_size if ask.total(item[1]) > ask.usable]
    if failing:
        name, other = min(failing, key=lambda item: (item[1].kv_bytes_per_tok, item[0]))
        bases.append((f"KV in {name} and ", other))
    for prefix, base in bases:
        found.extend(_halvings(base, ask, prefix))
    return found


def _halvings(fp: Footprint, ask: _Ask, prefix: str) -> list[Lever]:
    """Halve the sessions, and apart from that the context, until it fits; nothing where even one does not."""
    found = []
    few, short = ask, ask
    while few.concurrency > 1:
        few = replace(few, concurrency=few.concurrency // 2)
        if few.total(fp) <= few.usable:
            found.append(few.lever(fp, f"{prefix}{few.concurrency} session{'s' if few.concurrency > 1 else ''}"))
            break
    while short.context_tok >= 512:
        short = replace(short, context_tok=short.context_tok // 2)
        if short.total(fp) <= short.usable:
            found.append(short.lever(fp, f"{prefix}{short.context_tok:,} tokens"))
            break
    return found
