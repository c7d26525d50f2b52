"""One sizing question answered: memory by term, every placement, the levers, the warnings and the smallest rung."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog import Catalog
from planner.errors import Fault, InputError
from planner.formatting import gb, gib
from planner.physics import memory
from planner.physics.levers import Lever, levers
from planner.physics.memory import DoesNotFit, Fits, Footprint, MemoryTerms
from planner.physics.parallelism import layouts
from planner.physics.work import DEFAULT_BITS_PER_WEIGHT
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat
from planner.sizing_question import Question

COUNTS = (1, 2, 4, 8)
ALONE = frozenset({"unified", "apu", "cpu"})
"""Kinds that serve alone unless the user names a count."""
MAX_PCIE_TP = 8


@dataclass(frozen=True)
class Placement:
    """The load on `gpu_count` GPUs, split tp × pp; bytes are those of the fullest GPU."""

    gpu: Gpu
    gpu_count: int
    tp: int
    pp: int
    answer: Fits | DoesNotFit
    reason: str
    levers: tuple[str, ...]
    is_smallest: bool = False

    @property
    def fits(self) -> bool:
        """Whether the load fits."""
        return isinstance(self.answer, Fits)

    @property
    def used_frac(self) -> float:
        """Bytes needed over usable bytes, one GPU; above 1 it does not fit."""
        return self.answer.per_gpu_bytes / self.answer.usable_bytes_per_gpu

    @property
    def crosses_pcie(self) -> bool:
        """Whether tensor parallelism runs without a fast link between the GPUs."""
        return self.tp > 1 and (self.gpu.fast_link_max_gpu_count or 1) < self.tp

    def as_json(self) -> dict[str, Any]:
        """Return the keys that DESIGN section 8 fixes, and the terms of one GPU."""
        need = self.answer.terms
        return {
            "gpu": self.gpu.id, "gpu_count": self.gpu_count, "tp": self.tp, "pp": self.pp, "fits": self.fits,
            "bytes_per_gpu": whole(need.total_bytes), "usable_bytes_per_gpu": whole(self.answer.usable_bytes_per_gpu),
            "used_frac": self.used_frac, "max_sequences": self.answer.max_sequences, "reason": self.reason,
            "levers": list(self.levers), "is_smallest": self.is_smallest,
            "terms_per_gpu": {name: whole(value) for name, value in need.by_term.items()}, "dominant_term": need.dominant_term,
        }


def whole(value: float) -> float | int:
    """Return bytes as a whole number where they are one (rates of a scaled format may not be)."""
    return int(value) if float(value).is_integer() else round(value, 6)


def kv_needs_fp4(kv: KvFormat) -> bool:
    """Say whether a KV format needs an accelerator with 4-bit floating point (`nvfp4`, `mxfp4`)."""
    return "fp4" in kv.id


def kv_alternatives(catalog: Catalog, question: Question, gpu: Gpu) -> list[tuple[str, Footprint]]:
    """Return the footprints of the nearest smaller KV format and of the smallest one that the engine runs on `gpu`."""
    q = question
    has_fp4 = "fp4" in gpu.dense_tflop_per_s
    runs = [k for k in catalog.kv_formats.values() if q.engine.engine in k.runs_on and (has_fp4 or not kv_needs_fp4(k))]
    smaller = sorted(
        (k for k in runs if k.bytes_per_value < q.kv.bytes_per_value),
        key=lambda k: (abs(k.bytes_per_value - q.kv.bytes_per_value / 2), k.id),
    )
    smallest = sorted(smaller, key=lambda k: (k.bytes_per_value, k.id))[:1]
    chosen = {k.id: k for k in smaller[:1] + smallest}
    return [(name, memory.footprint(q.llm, q.weights, k, q.engine, q.weights_bytes)) for name, k in chosen.items()]


def weight_alternatives(catalog: Catalog, question: Question) -> list[tuple[str, Footprint]]:
    """Return the footprints of up to two smaller weight formats that the engine runs, none below 4 bits; none under given bytes."""
    q = question
    if q.weights_bytes is not None:
        return []
    have = q.footprint.weights_bytes
    found = []
    for form in catalog.weight_formats.values():
        bits = form.bits_per_weight.get("mlp", DEFAULT_BITS_PER_WEIGHT)
        if q.engine.engine in form.runs_on and form.is_gguf == q.weights.is_gguf and bits >= 4:
            fp = memory.footprint(q.llm, form, q.kv, q.engine)
            if fp.weights_bytes < 0.95 * have:
                found.append((form.id, fp))
    if not found:
        return []
    half = min(found, key=lambda item: (abs(item[1].weights_bytes - have / 2), item[0]))
    least = min(found, key=lambda item: (item[1].weights_bytes, item[0]))
    return [half] if half[0] == least[0] else [half, least]


def domain(gpu: Gpu, gpu_count: int) -> int:
    """Return the GPUs that tensor parallelism may join: the fast link's, or over PCIe (which is then warned of)."""
    fast = gpu.fast_link_max_gpu_count or 1
    return fast if fast > 1 else min(gpu_count, MAX_PCIE_TP)


def place(
    question: Question, gpu: Gpu, gpu_count: int, tp: int | None = None, pp: int | None = None,
    alternatives: Sequence[tuple[str, Footprint]] = (), tp_domain: int | None = None,
    weight_options: Sequence[tuple[str, Footprint]] = (),
) -> Placement | None:
    """Return the best split of the load over `gpu_count` GPUs: the widest tp that fits, else the one that needs least.

    None where the model allows no split over that many. A `tp` or `pp` that is named is taken or refused.
    """
    q, fp = question, question.footprint
    if tp is not None or pp is not None:
        width = tp if tp is not None else gpu_count // (pp or 1)
        stages = pp if pp is not None else gpu_count // width
        if width * stages != gpu_count:
            raise InputError([Fault("", None, "tp", f"tp {width} x pp {stages} is not {gpu_count} GPUs", "let tp x pp be the count")])
        options = [(width, stages)]
    else:
        options = list(layouts(q.llm, gpu_count, tp_domain or domain(gpu, gpu_count), q.engine.max_tp))
    answers = []
    for width, stages in options:
        answer = memory.fit_footprint(
            fp, gpu, width, stages, q.context_tok, q.concurrency, q.memory_frac, q.margin_frac, q.overhead_bytes
        )
        answers.append((width, stages, answer))
        if isinstance(answer, Fits):
            break
    if not answers:
        return None
    width, stages, answer = answers[-1] if isinstance(answers[-1][2], Fits) else min(answers, key=lambda a: a[2].per_gpu_bytes)
    tried: tuple[str, ...] = ()
    if isinstance(answer, DoesNotFit):
        room = answer.usable_bytes_per_gpu
        changes = levers(fp, gpu, width, stages, q.context_tok, q.concurrency, room, q.overhead_bytes, alternatives)
        tried = tuple(str(lever) for lever in changes)
        for name, other in weight_options:
            total = memory.terms(other, gpu, width, stages, q.context_tok, q.concurrency, q.overhead_bytes).total_bytes
            tried += (str(Lever(f"weights in {name}", total, total <= room)),)
    reason = answer.reason if isinstance(answer, DoesNotFit) else _fits_reason(answer)
    if q.engine.vendors and gpu.vendor not in q.engine.vendors:
        reason += f"; {q.engine.name} does not run on {gpu.vendor} hardware: memory only"
    return Placement(gpu, gpu_count, width, stages, answer, reason, tried)


def _fits_reason(answer: Fits) -> str:
    need, room = gb(answer.per_gpu_bytes), gb(answer.usable_bytes_per_gpu)
    return f"{need} of {room} usable per GPU; most is {answer.dominant_term.replace('_', ' ')}; {answer.max_sequences} sessions fit"


def placements(catalog: Catalog, question: Question, gpu: Gpu, count: int | None, tp: int | None, pp: int | None) -> list[Placement]:
    """Return the placements on one accelerator: the count that is named, else 1, 2, 4, 8, the smallest that fits marked."""
    others, lighter = kv_alternatives(catalog, question, gpu), weight_alternatives(catalog, question)
    if count is None and (tp or pp):
        count = (tp or 1) * (pp or 1)
    counts = (count,) if count is not None else ((1,) if gpu.kind in ALONE else COUNTS)
    found = [p for n in counts if (p := place(question, gpu, n, tp, pp, others, weight_options=lighter)) is not None]
    if not found:
        sizes = ", ".join(map(str, question.footprint.tp_sizes))
        cure = f"tensor-parallel sizes it allows: {sizes}; pipeline stages up to {question.llm.layer_count}"
        raise InputError([Fault("", None, "count", f"{question.llm.id} cannot be split over {counts[0]} GPUs", cure)])
    first = next((i for i, p in enumerate(found) if p.fits), None)
    if first is not None:
        found[first] = replace(found[first], is_smallest=count is None)
        found[:first] = [_with_count_lever(p, found[first]) for p in found[:first]]
    return found


def _with_count_lever(small: Placement, bigger: Placement) -> Placement:
    split = f"TP {bigger.tp}" + (f" x PP {bigger.pp}" if bigger.pp > 1 else "")
    text = f"{bigger.gpu_count} GPUs ({split}) → {gb(bigger.answer.per_gpu_bytes)} each: fits"
    return replace(small, levers=(*small.levers, text))


def everywhere(catalog: Catalog, question: Question) -> list[Placement]:
    """Return every accelerator that the engine runs on, each up to the smallest count that fits."""
    found: list[Placement] = []
    for gpu in catalog.gpus.values():
        if question.engine.vendors and gpu.vendor not in question.engine.vendors:
            continue
        for placement in placements(catalog, question, gpu, None, None, None):
            found.append(placement)
            if placement.fits:
                break
    return found


def undivided(question: Question, gpu: Gpu) -> MemoryTerms:
    """Return the terms of the whole load as if on one GPU: the figures at the head of the answer."""
    q = question
    return memory.terms(q.footprint, gpu, 1, 1, q.context_tok, q.concurrency, q.overhead_bytes)


def sum_line(question: Question, need: MemoryTerms) -> str:
    """Return the sum as one would write it down: weights + KV (sessions × tokens × bytes) + activations + overhead."""
    q = question
    per_tok = q.footprint.kv_bytes_per_sequence(q.context_tok) / q.context_tok
    other = gb(need.overhead_bytes) if q.overhead_bytes is not None else f"{gb(need.activation_bytes)} + {gb(need.overhead_bytes)}"
    return (
        f"{gb(need.weights_bytes)} weights + {gb(need.kv_bytes)} KV ({q.concurrency:,} x {q.context_tok:,} tok x {per_tok:,.0f} B) "
        f"+ {other} activations and overhead = {gb(need.total_bytes)} ({gib(need.total_bytes)})"
    )
