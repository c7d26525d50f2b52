"""One sizing question answered: memory by term, every placement, the levers, the warnings and the smallest rung."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal

from planner.catalog import Catalog
from planner.errors import Fault, InputError
from planner.formatting import count as shown_count
from planner.formatting import gb, sums_up
from planner.physics import memory
from planner.physics.activations import default_fraction
from planner.physics.device import usable_bytes
from planner.physics.levers import Case, Lever, Room, levers
from planner.physics.memory import DoesNotFit, Fits, Footprint, MemoryTerms
from planner.physics.parallelism import layouts
from planner.schema.hardware import Gpu
from planner.sizing_levers import ALONE, Choices, bigger_splits, domain
from planner.sizing_question import Question
from planner.units import BYTES_PER_GB, BYTES_PER_GIB

COUNTS = (1, 2, 4, 8)
BARELY_FRAC = 0.95
"""A fuller placement fits barely. What is left, under 5 % of the usable bytes, is what the figures themselves may be wrong by:
2 % of the weights at worst, and half a GiB of cache room, which is 0.7 % of an 80 GB card and 3 % of a 16 GB one."""
DEFAULT_MARGIN_FRAC = 0.15
"""Part of a card kept free unless the user says otherwise; a margin taken away makes no card larger."""


@dataclass(frozen=True)
class Placement:
    """The load on `gpu_count` GPUs, split tp × pp; bytes are those of the fullest GPU."""

    question: Question
    gpu: Gpu
    gpu_count: int
    tp: int
    pp: int
    answer: Fits | DoesNotFit
    reason: str
    choices: Choices | None = None
    """The formats that a lever may change to; none are tried without them."""
    is_smallest: bool = False

    @property
    def fits(self) -> bool:
        """Whether the load fits."""
        return isinstance(self.answer, Fits)

    @property
    def advised_bytes_per_gpu(self) -> float:
        """What one GPU may fill where at least the default margin is kept."""
        q = self.question
        return self._room(q.footprint, self.tp, self.pp, self.answer.terms, max(q.margin_frac, DEFAULT_MARGIN_FRAC))

    @property
    def memory_frac(self) -> float:
        """The engine's memory fraction in force: the one set by hand, else what its rule gives on this card and split."""
        q = self.question
        return default_fraction(q.engine, self.gpu, self.tp, self.pp) if q.memory_frac is None else q.memory_frac

    def _room(self, fp: Footprint, tp: int, pp: int, need: MemoryTerms, margin_frac: float | None = None) -> float:
        q = self.question
        return memory.room_bytes(fp, self.gpu, tp, pp, need, q.memory_frac, q.margin_frac if margin_frac is None else margin_frac)

    @property
    def _changed_room(self) -> Room | None:
        """How the room of a change is reckoned, where it is not that of the load as asked."""
        return self._room if memory.room_follows_terms(self.question.engine) else None

    @property
    def verdict(self) -> Literal["fits", "barely", "does not fit"]:
        """The answer in words: `barely` where the default margin would leave less than the figures may be wrong by."""
        if not self.fits:
            return "does not fit"
        return "barely" if self.answer.per_gpu_bytes > BARELY_FRAC * self.advised_bytes_per_gpu else "fits"

    @property
    def case(self) -> Case:
        """The load as the levers try it."""
        q, room = self.question, self.answer.usable_bytes_per_gpu
        return Case(self.gpu, self.tp, self.pp, q.context_tok, q.concurrency, room, q.overhead_bytes, self._changed_room)

    @cached_property
    def max_context_tok(self) -> int:
        """The longest context, in whole pages up to what the model reads, that all sessions asked for may have here; 0 where none."""
        return self.case.longest_context_tok(self.question.footprint, self.question.llm.max_context_tok)

    @cached_property
    def lever_changes(self) -> tuple[Lever, ...]:
        """What would make it fit, the least harmful first; nothing where it does."""
        if self.fits:
            return ()
        q, room, choices = self.question, self.answer.usable_bytes_per_gpu, self.choices
        most = room if self._changed_room is None else usable_bytes(self.gpu, 1.0, q.margin_frac)
        return tuple(levers(
            q.footprint, self.gpu, self.tp, self.pp, q.context_tok, q.concurrency, room, q.overhead_bytes,
            choices.kv(self.gpu) if choices else (), choices.weights(self.gpu) if choices else (), choices.both if choices else None,
            layouts(q.llm, self.gpu_count // q.extras.dp, domain(self.gpu, self.gpu_count), sizes=q.footprint.tp_sizes),
            bigger_splits(q, self.gpu, self.gpu_count, most), self._changed_room,
        ))

    @property
    def levers(self) -> tuple[str, ...]:
        """The levers as sentences."""
        return tuple(map(str, self.lever_changes))

    @property
    def used_frac(self) -> float:
        """Bytes needed over usable bytes, one GPU; above 1 it does not fit."""
        return self.answer.per_gpu_bytes / self.answer.usable_bytes_per_gpu

    @property
    def label_gb(self) -> float:
        """Memory of all its GPUs as printed on the box, GB."""
        return self.gpu_count * self.gpu.memory_label_gb

    @property
    def crosses_pcie(self) -> bool:
        """Whether tensor parallelism runs without a fast link between the GPUs."""
        return self.tp > 1 and (self.gpu.fast_link_max_gpu_count or 1) < self.tp

    def as_json(self) -> dict[str, Any]:
        """Return the keys that DESIGN section 8 fixes, and the terms of one GPU."""
        need = self.answer.terms
        return {
            "gpu": self.gpu.id, "gpu_count": self.gpu_count, "tp": self.tp, "pp": self.pp, "dp": self.question.extras.dp, "fits": self.fits,
            "memory_frac": self.memory_frac, "label_gb": self.label_gb,
            "bytes_per_gpu": whole(need.total_bytes), "usable_bytes_per_gpu": whole(self.answer.usable_bytes_per_gpu),
            "used_frac": self.used_frac, "verdict": self.verdict, "max_sequences": self.answer.max_sequences,
            "max_context_tok": self.max_context_tok, "reason": self.reason,
            "levers": list(self.levers), "lever_changes": [lever_json(lever) for lever in self.lever_changes],
            "is_smallest": self.is_smallest,
            "terms_per_gpu": {name: whole(value) for name, value in need.by_term.items()}, "dominant_term": need.dominant_term,
        }


def whole(value: float) -> float | int:
    """Return bytes as a whole number where they are one (rates of a scaled format may not be)."""
    return int(value) if float(value).is_integer() else round(value, 6)


def lever_json(lever: Lever) -> dict[str, Any]:
    """Return a lever with its parts: `short_bytes` is what is still too much; formats bring their note and its source."""
    notes = [option.quality_note for option in lever.formats if option.quality_note]
    sources = [option.source for option in lever.formats if option.source]
    return {
        "kind": lever.kind, "change": lever.change, "bytes_per_gpu": whole(lever.bytes_per_gpu), "fits": lever.fits,
        **({} if lever.fits else {"short_bytes": whole(lever.bytes_per_gpu - lever.usable_bytes)}),
        **({"quality_note": " ".join(notes)} if notes else {}), **({"source": "; ".join(sources)} if sources else {}),
        **({"needs_evaluation": True} if lever.needs_evaluation else {}),
    }


def place(
    question: Question, gpu: Gpu, gpu_count: int, tp: int | None = None, pp: int | None = None,
    choices: Choices | None = None, tp_domain: int | None = None,
) -> Placement | None:
    """Return the best split of the load over `gpu_count` GPUs: the widest tp that fits, else the one that needs least.

    None where the model allows no split over that many. A `tp` or `pp` that is named is taken or refused.
    """
    q, fp, dp = question, question.footprint, question.extras.dp
    own = gpu_count // dp
    if tp is not None or pp is not None:
        width = tp if tp is not None else max(own // (pp or 1), 1)
        stages = pp if pp is not None else max(own // width, 1)
        if width * stages * dp != gpu_count:
            ranks, cure = (f" x dp {dp}", "tp x pp x dp") if dp > 1 else ("", "tp x pp")
            what = f"tp {width} x pp {stages}{ranks} is not {gpu_count} GPUs"
            raise InputError([Fault("", None, "tp", what, f"let {cure} be the count")])
        options = [(width, stages)]
    elif gpu_count % dp:
        options = []
    else:
        options = list(layouts(q.llm, own, tp_domain or domain(gpu, own), sizes=fp.tp_sizes))
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
    reason = answer.reason if isinstance(answer, DoesNotFit) else _fits_reason(answer)
    if q.engine.vendors and gpu.vendor not in q.engine.vendors:
        reason += f"; {q.engine.name} does not run on {gpu.vendor} hardware: memory only"
    return Placement(q, gpu, gpu_count, width, stages, answer, reason, choices)


def _fits_reason(answer: Fits) -> str:
    need, room = gb(answer.per_gpu_bytes), gb(answer.usable_bytes_per_gpu)
    return f"{need} of {room} usable per GPU; most is {answer.dominant_term.replace('_', ' ')}; {answer.max_sequences} sessions fit"


def placements(
    catalog: Catalog, question: Question, gpu: Gpu, count: int | None, tp: int | None, pp: int | None, choices: Choices | None = None
) -> list[Placement]:
    """Return the placements on one accelerator: the count that is named, else 1, 2, 4, 8, the smallest that fits marked."""
    tries = choices or Choices(catalog, question)
    if count is None and (tp or pp):
        count = (tp or 1) * (pp or 1) * question.extras.dp
    counts = (count,) if count is not None else ((1,) if gpu.kind in ALONE else counts_of(question))
    found = [p for n in counts if (p := place(question, gpu, n, tp, pp, tries)) is not None]
    if not found and not question.footprint.tp_sizes:
        raise InputError([memory.split_fault(question.footprint, tp or 1)])
    if not found:
        sizes = ", ".join(map(str, question.footprint.tp_sizes))
        cure = f"tensor-parallel sizes it allows: {sizes}; pipeline stages up to {question.llm.layer_count}"
        dp = question.extras.dp
        ranks = f" in {dp} data-parallel ranks" if dp > 1 else ""
        raise InputError([Fault("", None, "count", f"{question.llm.id} cannot be split over {counts[0]} GPUs{ranks}", cure)])
    first = next((i for i, p in enumerate(found) if p.fits), None)
    if first is not None:
        found[first] = replace(found[first], is_smallest=count is None)
    return found


def counts_of(question: Question) -> tuple[int, ...]:
    """Return the numbers of GPUs that are tried where none is named: 1, 2, 4, 8, or whole sets of data-parallel ranks."""
    dp = question.extras.dp
    return COUNTS if dp == 1 else tuple(dp * n for n in COUNTS)


def everywhere(catalog: Catalog, question: Question) -> list[Placement]:
    """Return every accelerator that the engine runs on, each up to the smallest count that fits."""
    found: list[Placement] = []
    choices = Choices(catalog, question)
    for gpu in catalog.gpus.values():
        if question.engine.vendors and gpu.vendor not in question.engine.vendors:
            continue
        for n in (1,) if gpu.kind in ALONE else counts_of(question):
            p = place(question, gpu, n, choices=choices)
            if p is not None:
                found.append(replace(p, is_smallest=True) if p.fits else p)
                if p.fits:
                    break
    return found


def undivided(question: Question, gpu: Gpu) -> MemoryTerms:
    """Return the terms of the whole load as if on one GPU: the figures at the head of the answer."""
    q = question
    return memory.terms(q.undivided, gpu, 1, 1, q.context_tok, q.concurrency, q.overhead_bytes)


def term_name(term: str) -> str:
    """Return a memory term as it is spoken."""
    return {"kv_cache": "KV cache"}.get(term, term.replace("_", " "))


def sum_line(question: Question, need: MemoryTerms) -> str:
    """Return the sum as one writes it down, in GB and in GiB, rounded so that both add up; the cache as sessions × tokens × bytes."""
    q = question
    by_term = {name: value for name, value in need.by_term.items() if value}
    per_sequence = q.footprint.kv_bytes_per_sequence(q.context_tok)
    per_tok = per_sequence / q.context_tok
    each = f"{q.context_tok:,} tok x {shown_count(per_tok)} B" if per_tok.is_integer() else f"{shown_count(per_sequence)} B"
    gb_parts, gib_parts = (sums_up([value / unit for value in by_term.values()]) for unit in (BYTES_PER_GB, BYTES_PER_GIB))
    words = [
        f"{part:,.1f} {term_name(name)}" + (f" ({q.concurrency:,} x {each})" if name == "kv_cache" else "")
        for name, part in zip(by_term, gb_parts, strict=True)
    ]
    return (
        f"{' + '.join(words)} = {sum(gb_parts):,.1f} GB; "
        f"{' + '.join(f'{part:,.1f}' for part in gib_parts)} = {sum(gib_parts):,.1f} GiB"
    )
