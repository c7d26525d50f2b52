"""The whole answer of one sizing question, as JSON and as the rows of its tables."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.catalog import Catalog
from planner.formatting import count as shown_count
from planner.formatting import decimals, gb, gib
from planner.physics.device import usable_bytes
from planner.physics.memory import MemoryTerms
from planner.sizing import Placement, everywhere, placements, sum_line, undivided, whole
from planner.sizing_notes import SizeWarning, smallest_rung, warnings
from planner.sizing_question import Question
from planner.units import BYTES_PER_GB, BYTES_PER_GIB

SHOWN_LEVERS = 9


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
            "engine": q.engine.engine, "engine_profile": q.engine.id, "memory_frac": q.fraction,
            "weights_bytes": whole(need.weights_bytes), "kv_bytes": whole(need.kv_bytes),
            "kv_bytes_per_tok": whole(fp.kv_bytes_per_tok), "kv_bytes_per_tok_past_window": whole(fp.kv_bytes_per_tok_past_window),
            "kv_fixed_bytes_per_sequence": whole(fp.state_bytes_per_sequence),
            "other_cache_bytes_per_tok": whole(fp.indexer_bytes_per_tok),
            "kv_bytes_per_sequence": whole(fp.kv_bytes_per_sequence(q.context_tok)),
            "activation_bytes": whole(need.activation_bytes), "overhead_bytes": whole(need.overhead_bytes),
            "margin_frac": q.margin_frac, "total_bytes": whole(need.total_bytes), "dominant_term": need.dominant_term,
            "weights_bytes_by_component": {name: whole(value) for name, value in fp.weights_bytes_by_component.items()},
            "rule_weights_bytes": whole(q.llm.params.total_count * q.weights.rule_bytes_per_param),
            "sum": sum_line(q, need),
            "placements": [p.as_json() for p in self.placements],
            "rung": self.rung,
            "warnings": [{"name": w.name, "text": w.text} for w in self.warnings],
            **({} if self.reason_code is None else {"reason_code": self.reason_code}),
        }

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
        return f"{what}: {gb(self.terms.total_bytes)}; the largest term is {self.terms.dominant_term.replace('_', ' ')}"

    @property
    def sum_line(self) -> str:
        """The sum as written on paper."""
        return sum_line(self.question, self.terms)

    @property
    def term_rows(self) -> list[tuple[str, ...]]:
        """Rows of the table of terms: name, GB, GiB, mark."""
        rows: list[tuple[str, ...]] = []
        for name, value in self.terms.by_term.items():
            mark = "<- largest" if name == self.terms.dominant_term else ""
            rows.append((name.replace("_", " "), decimals(value / BYTES_PER_GB), decimals(value / BYTES_PER_GIB), mark))
        total = self.terms.total_bytes
        rows.append(("need", decimals(total / BYTES_PER_GB), decimals(total / BYTES_PER_GIB), ""))
        if self.gpu_is_named:
            gpu = self.placements[0].gpu
            room = usable_bytes(gpu, self.question.fraction, self.question.margin_frac)
            rows.append((f"usable, one {gpu.id}", decimals(room / BYTES_PER_GB), decimals(room / BYTES_PER_GIB), ""))
        return rows

    @property
    def placement_rows(self) -> list[tuple[str, ...]]:
        """Rows of the table of placements: all of a named accelerator, else the last tried of each."""
        last = {p.gpu.id: p for p in self.placements}
        rows: list[tuple[str, ...]] = []
        for p in self.placements if self.gpu_is_named else last.values():
            verdict = "fits" if p.fits else "does not fit"
            rows.append((
                p.gpu.id, str(p.gpu_count), f"{p.tp} x {p.pp}", f"{gb(p.answer.per_gpu_bytes)} / {gib(p.answer.per_gpu_bytes)}",
                f"{gb(p.answer.usable_bytes_per_gpu)} / {gib(p.answer.usable_bytes_per_gpu)}", shown_count(p.answer.max_sequences),
                verdict + (" (smallest)" if p.is_smallest and self.gpu_is_named else ""),
            ))
        return rows

    @property
    def lever_lines(self) -> list[str]:
        """What would make a named accelerator hold the load, from its first placement that does not."""
        short = next((p for p in self.placements if not p.fits), None) if self.gpu_is_named else None
        if short is None:
            return []
        return [f"{short.gpu_count} x {short.gpu.id} {short.reason}", *(f"  {lever}" for lever in short.levers[:SHOWN_LEVERS])]

    @property
    def rung_lines(self) -> list[str]:
        """The smallest rung, what runs well there and what it cannot do."""
        name = self.rung["name"] or "none"
        lines = [f"smallest rung: {name}. {self.rung['reason']}"]
        lines += [f"  runs: {text}" for text in self.rung["runs_well"]]
        return lines + [f"  cannot: {text}" for text in self.rung["cannot"]]


def answer(
    catalog: Catalog, question: Question, gpu_id: str | None = None, count: int | None = None, tp: int | None = None, pp: int | None = None
) -> SizeAnswer:
    """Answer one question: on a named accelerator, or on every one that the engine runs on. Unknown ids are `InputError`."""
    named = catalog.gpu(gpu_id) if gpu_id is not None else None
    found = everywhere(catalog, question) if named is None else placements(catalog, question, named, count, tp, pp)
    rung = smallest_rung(catalog, question)
    on_rung = catalog.gpus[catalog.nodes[rung["node"]].gpu] if rung["node"] else None
    need = undivided(question, named or on_rung or found[0].gpu)
    notes = tuple(warnings(question, need, found, gpu_id is not None))
    return SizeAnswer(question, need, tuple(found), rung, notes, gpu_id is not None)
