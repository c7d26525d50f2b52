"""The whole answer of one sizing question, as JSON and as the rows of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.catalog import Catalog
from planner.formatting import count as shown_count
from planner.formatting import gb
from planner.physics.device import device_bytes
from planner.physics.levers import FEW_BITS, FormatOption, Lever
from planner.physics.memory import MemoryTerms
from planner.sizing import Placement, everywhere, placements, sum_line, term_name, undivided, whole
from planner.sizing_levers import quality_locator
from planner.sizing_notes import SizeWarning, format_line, recipe_min_gb, smallest_rung, warnings
from planner.sizing_question import Question
from planner.sizing_replicas import refuse_with_replicas, replicas
from planner.sizing_rows import PlaceGroup, PlaceRow, TermRow, grouped, term_rows


@dataclass(frozen=True)
class SizeAnswer:
    """Terms of the undivided load, placements, the smallest rung and the warnings."""

    question: Question
    terms: MemoryTerms
    placements: tuple[Placement, ...]
    rung: dict[str, Any]
    warnings: tuple[SizeWarning, ...]
    gpu_is_named: bool

    def as_json(self) -> dict[str, Any]:
        """Return the keys that checks rely on (DESIGN section 8), and `rung`, `sum` and the engine's profile beside them."""
        q, fp, need = self.question, self.question.footprint, self.terms
        return {
            "llm": q.llm.id, "weights": q.weights.id, "kv_cache": q.kv.id, "context_tok": q.context_tok, "concurrency": q.concurrency,
            "engine": q.engine.engine, "engine_profile": q.engine.id, "memory_frac": self.memory_frac,
            "weights_bytes": whole(need.weights_bytes), "kv_bytes": whole(need.kv_bytes),
            "kv_bytes_per_tok": whole(fp.kv_bytes_per_tok), "kv_bytes_per_tok_past_window": whole(fp.kv_bytes_per_tok_past_window),
            "kv_fixed_bytes_per_sequence": whole(fp.fixed_bytes_per_sequence),
            "other_cache_bytes_per_tok": whole(fp.indexer_bytes_per_tok),
            "kv_bytes_per_sequence": whole(fp.kv_bytes_per_sequence(q.context_tok)),
            "activation_bytes": whole(need.activation_bytes), "overhead_bytes": whole(need.overhead_bytes),
            **{f"{name}_bytes": whole(value) for name, value in need.more},
            "margin_frac": q.margin_frac, "total_bytes": whole(need.total_bytes), "dominant_term": need.dominant_term,
            "weights_bytes_by_component": {name: whole(value) for name, value in fp.weights_bytes_by_component.items()},
            "rule_weights_bytes": whole(q.llm.params.total_count * q.weights.rule_bytes_per_param), "recipe_min_gb": recipe_min_gb(q),
            "weights_quality": {
                "note": q.weights.quality_note, "loss_frac": q.weights.quality_loss_frac, "source": quality_locator(q.weights),
            },
            "sum": sum_line(q, need),
            "placements": [p.as_json() for p in self.placements],
            "replicas": [r.as_json() for p in self.placements if self.gpu_is_named and (r := replicas(q, p.gpu, p.gpu_count)) is not None],
            "checkpoint": _checkpoint(q),
            "rung": self.rung,
            "warnings": [{"name": w.name, "text": w.text} for w in self.warnings],
            **({} if self.reason_code is None else {"reason_code": self.reason_code}),
        }

    @property
    def memory_frac(self) -> float | None:
        """The engine's memory fraction in force; None where it depends on the accelerator and none is named."""
        fractions = {p.memory_frac for p in (self.placements[:1] if self.gpu_is_named else self.placements)}
        return fractions.pop() if len(fractions) == 1 else None

    @property
    def reason_code(self) -> str | None:
        """`does_not_fit` where no placement asked about holds the load, and without `--gpu` no machine of the catalog either."""
        if any(p.fits for p in self.placements) or (not self.gpu_is_named and self.rung["name"]):
            return None
        return "does_not_fit"

    @property
    def headline(self) -> str:
        """The answer in one line."""
        q = self.question
        what = f"{q.llm.name}, {q.weights.id} weights, {q.kv.id} KV cache, {q.concurrency:,} x {q.context_tok:,} tokens on {q.engine.name}"
        return f"{what}: {gb(self.terms.total_bytes)}; the largest term is {term_name(self.terms.dominant_term)}"

    @property
    def format_line(self) -> str | None:
        """The weights by the rule of thumb and as counted, and the published loss of their format."""
        return format_line(self.question)

    @property
    def sum_line(self) -> str:
        """The sum as written on paper."""
        return sum_line(self.question, self.terms)

    @property
    def shown_terms(self) -> MemoryTerms:
        """The terms that the bars show: of the fullest GPU where an accelerator is named, else of the undivided load."""
        return self.placements[0].answer.terms if self.gpu_is_named else self.terms

    @property
    def term_rows(self) -> list[TermRow]:
        """The terms one after the other, and their sum."""
        return term_rows(self.terms.by_term, self.shown_terms.by_term, term_name)

    @property
    def card(self) -> tuple[Placement, float, float] | None:
        """The placement that the bars show, the bytes that its card shows, and those that may be used."""
        if not self.gpu_is_named:
            return None
        first = self.placements[0]
        return first, device_bytes(first.gpu), first.answer.usable_bytes_per_gpu

    @property
    def place_groups(self) -> list[PlaceGroup]:
        """Placements by the fewest GPUs that hold the load, the least memory first; then those that do not fit with what would help."""
        if self.gpu_is_named:
            return [PlaceGroup("", tuple(((*_cells(p), _mark(p)), p.used_frac) for p in self.placements))]
        return grouped(map(_row, {p.gpu.id: p for p in self.placements}.values()))

    @property
    def lever_lines(self) -> list[tuple[str, str | None]]:
        """What would make a named accelerator hold the load, from its first placement that does not: sentence and note."""
        short = next((p for p in self.placements if not p.fits), None) if self.gpu_is_named else None
        if short is None:
            return []
        lines: list[tuple[str, str | None]] = [(f"{short.gpu_count} x {short.gpu.id} {short.reason}", None)]
        told: set[str] = set()
        for lever in short.lever_changes:
            new = [option for option in lever.formats if lever.fits and option.id not in told]
            told.update(option.id for option in new)
            lines.append((f"  {lever}", _note(new) or None))
        return lines

    @property
    def rung_lines(self) -> list[str]:
        """The smallest rung, what runs well there and what it cannot do."""
        name = self.rung["name"] or "none"
        lines = [f"smallest rung: {name}. {self.rung['reason']}"]
        lines += [f"  runs: {text}" for text in self.rung["runs_well"]]
        return lines + [f"  cannot: {text}" for text in self.rung["cannot"]]


def _mark(p: Placement) -> str:
    return p.verdict + (" (smallest)" if p.is_smallest else "")


def _cells(p: Placement) -> tuple[str, ...]:
    need, room = p.answer.per_gpu_bytes, p.answer.usable_bytes_per_gpu
    longest = shown_count(p.max_context_tok) if p.max_context_tok else "none"
    split = f"{p.tp} x {p.pp}" + (f" x {p.question.extras.dp} DP" if p.question.extras.dp > 1 else "")
    return (str(p.gpu_count), split, gb(need), gb(room), shown_count(p.answer.max_sequences), longest)


def _row(p: Placement) -> PlaceRow:
    best = next((lever for lever in p.lever_changes if lever.fits), None)
    mark = "" if p.verdict == "fits" else "barely" if best is None else _short(best)
    return PlaceRow(
        p.gpu.id, p.gpu_count, p.answer.usable_bytes_per_gpu, p.used_frac, _cells(p), mark, fits=p.fits, is_helped=best is not None
    )


def _short(lever: Lever) -> str:
    return lever.change + (" (evaluate first)" if lever.needs_evaluation else "")


def _note(options: list[FormatOption]) -> str:
    """Return what is published of the loss of some formats, each with its source; the warning below 4 bits."""
    parts = []
    for option in options:
        text = option.quality_note or "no published loss is on file: evaluate it on your own task"
        has_source = option.quality_note and option.source and option.source not in text
        parts.append(f"{option.id}: {text}" + (f" [{option.source}]" if has_source else ""))
    if any(option.bits < FEW_BITS for option in options):
        parts.append("Below 4 bits only your own evaluation on your own task can say that it will do.")
    return " ".join(parts)


def _checkpoint(q: Question) -> dict[str, Any] | None:
    """Return where the model was read from and whether its bytes are the tensors' own; None for a model of the catalog."""
    file = q.checkpoint
    if file is None:
        return None
    is_exact = file.tensor_bytes_are_exact and q.weights_bytes is None and q.weights.id == file.weights.id
    return {"path": file.path.as_posix(), "tensor_bytes_are_exact": is_exact, "notes": list(file.notes)}


def answer(
    catalog: Catalog, question: Question, gpu_id: str | None = None, count: int | None = None, tp: int | None = None, pp: int | None = None
) -> SizeAnswer:
    """Answer one question: on a named accelerator, or on every one that the engine runs on. Unknown ids are `InputError`."""
    named = catalog.gpu(gpu_id) if gpu_id is not None else None
    if named is not None and tp is not None and count is not None:
        refuse_with_replicas(question, named, count, tp)
    found = everywhere(catalog, question) if named is None else placements(catalog, question, named, count, tp, pp)
    rung = smallest_rung(catalog, question)
    on_rung = catalog.gpus[catalog.nodes[rung["node"]].gpu] if rung["node"] else None
    need = undivided(question, named or on_rung or found[0].gpu)
    notes = tuple(warnings(question, need, found, gpu_id is not None))
    return SizeAnswer(question, need, tuple(found), rung, notes, gpu_id is not None)
