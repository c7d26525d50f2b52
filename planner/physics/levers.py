"""Changes that would make a load fit, each tried through the same memory functions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.formatting import gb
from planner.physics.memory import Footprint, terms
from planner.schema.hardware import Gpu


@dataclass(frozen=True)
class Lever:
    """One change, computed: what the fullest GPU would then need and whether it fits."""

    change: str
    bytes_per_gpu: float
    fits: bool

    def __str__(self) -> str:
        return f"{self.change} → {gb(self.bytes_per_gpu)}{': fits' if self.fits else ': still does not fit'}"


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


def levers(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int, usable: float,
    overhead_bytes: float | None = None, kv_alternatives: Sequence[tuple[str, Footprint]] = (),
) -> list[Lever]:
    """Try the KV formats one by one, then fewer sessions and a shorter context under the present and the smallest that fails."""
    ask = _Ask(gpu, tp, pp, context_tok, concurrency, usable, overhead_bytes)
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
