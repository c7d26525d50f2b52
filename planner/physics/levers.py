"""The smallest change of each kind that makes a load fit, each tried through the same memory functions.

A *kind* is a part of the question that may be changed: the split over the GPUs, the format of the KV cache, the format of
the weights, the sessions, the context, the number of GPUs. Where no change of a format is enough alone, it is paired.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Literal

from planner.formatting import gb
from planner.physics.memory import Footprint, MemoryTerms, loading_peak_bytes, terms
from planner.schema.hardware import Gpu

Room = Callable[[Footprint, int, int, MemoryTerms], float]
"""Bytes that one GPU may fill, by footprint, tp, pp and terms: some engines' rules depend on them."""
Kind = Literal["split", "kv_cache", "weights", "sessions", "context", "gpus"]
FEW_BITS = 4.0
"""Below it a format is offered with a warning: published losses grow steeply from here (hardware/formats.yaml)."""
EIGHT_BITS = 8.0
LITTLE_FRAC = 0.25
"""Less of the sessions or of the context than this is hardly the load that was asked about: such a change comes last."""
LEAST_CONTEXT_TOK = 256
"""Shorter contexts are not offered: a prompt and its answer hardly fit."""


@dataclass(frozen=True)
class FormatOption:
    """A smaller format of the weights or of the cache, with the footprint of the load in it, all else unchanged."""

    id: str
    bits: float
    """Bits a value; of the weights, those of the layers without embedding and head."""
    footprint: Footprint
    quality_note: str | None = None
    source: str | None = None


@dataclass(frozen=True)
class Lever:
    """One change, computed: what the fullest GPU would then need, and whether it fits."""

    kinds: tuple[Kind, ...]
    change: str
    bytes_per_gpu: float
    usable_bytes: float
    formats: tuple[FormatOption, ...] = ()
    kept_frac: float = 1.0
    """Share of the sessions or of the context that is kept."""

    @property
    def kind(self) -> str:
        """The kind, or both of a pair: `sessions`, `kv_cache+sessions`."""
        return "+".join(self.kinds)

    @property
    def fits(self) -> bool:
        """Whether the change is enough."""
        return self.bytes_per_gpu <= self.usable_bytes

    @property
    def needs_evaluation(self) -> bool:
        """Whether a format of it keeps fewer than 4 bits: only the user's own evaluation can say that it will do."""
        return any(option.bits < FEW_BITS for option in self.formats)

    @property
    def harm(self) -> int:
        """Rank of what the change costs its user, 0 the least; among equals the order of `levers` stands.

        Another split costs nothing; 8 bits next to nothing; then half the load, 4 bits, a quarter of the load, more GPUs, what
        must be evaluated first, two changes at once, and last what leaves less than a quarter of the load.
        """
        if self.kept_frac < LITTLE_FRAC:
            return 8
        if len(self.kinds) > 1 or self.needs_evaluation:
            return 7 if len(self.kinds) > 1 else 6
        kind = self.kinds[0]
        if kind in ("kv_cache", "weights"):
            return 1 if all(option.bits >= EIGHT_BITS for option in self.formats) else 3
        if kind in ("sessions", "context"):
            return 2 if self.kept_frac >= 0.5 else 4
        return 0 if kind == "split" else 5

    def __str__(self) -> str:
        each = " each" if self.kinds[0] in ("gpus", "split") else ""
        if self.fits:
            return f"{self.change} → {gb(self.bytes_per_gpu)}{each}: fits"
        return f"{self.change} → {gb(self.bytes_per_gpu)}{each}: still does not fit, {gb(self.bytes_per_gpu - self.usable_bytes)} too much"


@dataclass(frozen=True)
class Case:
    """A load on a split of one accelerator, and the bytes that one GPU may fill."""

    gpu: Gpu
    tp: int
    pp: int
    context_tok: int
    concurrency: int
    usable_bytes: float
    overhead_bytes: float | None = None
    room: Room | None = None
    """Reckons the bytes that one GPU may fill anew for each change; without it `usable_bytes` hold for all of them."""

    def tried(
        self, fp: Footprint, context_tok: int | None = None, concurrency: int | None = None, split: tuple[int, int] | None = None
    ) -> tuple[float, float]:
        """Return the bytes that the fullest GPU needs and those it may fill, what is given changed.

        The need is that while it loads where that is what the device cannot hold.
        """
        tp, pp = split or (self.tp, self.pp)
        need = terms(
            fp, self.gpu, tp, pp, self.context_tok if context_tok is None else context_tok,
            self.concurrency if concurrency is None else concurrency, self.overhead_bytes,
        )
        room = self.usable_bytes if self.room is None else self.room(fp, tp, pp, need)
        return max(need.total_bytes, loading_peak_bytes(fp, self.gpu, tp, pp, need)), room

    def excess(self, fp: Footprint, context_tok: int | None = None, concurrency: int | None = None) -> float:
        """Return the bytes needed beyond those that may be filled, below 0 where some are left."""
        need, room = self.tried(fp, context_tok, concurrency)
        return need - room

    def fits(self, fp: Footprint, split: tuple[int, int] | None = None) -> bool:
        """Say whether the load fits in `fp`, on another split if one is given."""
        need, room = self.tried(fp, split=split)
        return need <= room

    def most_sessions(self, fp: Footprint) -> int:
        """Return the most sessions below those asked for that fit; 0 where not even one does."""
        return largest(lambda n: self.excess(fp, concurrency=n), 0.0, self.concurrency - 1)

    def longest_context_tok(self, fp: Footprint, limit_tok: int) -> int:
        """Return the longest context, in whole pages up to `limit_tok`, that fits for all sessions; 0 where none does."""
        page = fp.engine.kv_block_tok
        return page * largest(lambda n: self.excess(fp, context_tok=n * page), 0.0, limit_tok // page)


def largest(need: Callable[[int], float], room: float, limit: int) -> int:
    """Return the largest whole number up to `limit` whose need is within `room`; 0 where that of 1 is not.

    `need` must not fall. The edge is sought along the straight line between the ends, halving every third time.

    >>> largest(lambda n: 3.0 * n, 20.0, 100), largest(lambda n: 3.0 * n, 2.0, 100), largest(lambda n: 3.0 * n, 900.0, 100)
    (6, 0, 100)
    """
    if limit < 1:
        return 0
    low, low_need, high, high_need = 1, need(1), limit, need(limit)
    if high_need <= room:
        return limit
    if low_need > room:
        return 0
    step = 0
    while high - low > 1:
        step += 1
        share = 0.5 if step % 3 == 0 else (room - low_need) / (high_need - low_need)
        middle = min(max(low + int(share * (high - low)), low + 1), high - 1)
        found = need(middle)
        if found <= room:
            low, low_need = middle, found
        else:
            high, high_need = middle, found
    return low


def levers(
    fp: Footprint, gpu: Gpu, tp: int, pp: int, context_tok: int, concurrency: int, usable: float, overhead_bytes: float | None = None,
    kv_options: Sequence[FormatOption] = (), weight_options: Sequence[FormatOption] = (),
    both: Callable[[FormatOption, FormatOption], Footprint] | None = None,
    splits: Iterable[tuple[int, int]] = (), bigger: Iterable[tuple[int, int]] = (), room: Room | None = None,
) -> list[Lever]:
    """Return the smallest change of each kind that makes the load fit, the least harmful first, then what still does not fit.

    Options of a format come with the most bits first; `both` gives the footprint of a weight and a KV format together.
    `splits` are other (tp, pp) of the same GPUs, `bigger` those of more GPUs, fewest first. `usable` bytes are one GPU's,
    for the load as asked; `room` reckons them for each change where the engine's rule depends on it.
    """
    case = Case(gpu, tp, pp, context_tok, concurrency, usable, overhead_bytes, room)
    found = [*_split(fp, case, splits), *_format(case, "kv_cache", kv_options), *_format(case, "weights", weight_options)]
    fewer, shorter = _sessions(fp, case), _context(fp, case)
    found += [lever for lever in (fewer, shorter) if lever is not None]
    found += _gpus(fp, case, bigger)
    enough = {lever.kinds[0] for lever in found if lever.fits}
    if "kv_cache" not in enough:
        found += _with_load(case, "kv_cache", kv_options)
        if "weights" not in enough and both is not None:
            found += _two_formats(case, kv_options, weight_options, both)
    if not enough & {"weights", "sessions", "context"}:
        found += _with_load(case, "weights", weight_options)
    return sorted(found, key=lambda lever: (not lever.fits, lever.harm))


def _split(fp: Footprint, case: Case, splits: Iterable[tuple[int, int]]) -> list[Lever]:
    for split in splits:
        if case.fits(fp, split):
            return [Lever(("split",), split_name(*split), *case.tried(fp, split=split))]
    return []


def split_name(tp: int, pp: int) -> str:
    """Return a split as it is spoken.

    >>> split_name(8, 1), split_name(4, 2)
    ('TP 8', 'TP 4 x PP 2')
    """
    return f"TP {tp}" + (f" x PP {pp}" if pp > 1 else "")


def _gpus(fp: Footprint, case: Case, bigger: Iterable[tuple[int, int]]) -> list[Lever]:
    for tp, pp in bigger:
        if case.fits(fp, (tp, pp)):
            text = f"{tp * pp * fp.extras.dp} GPUs ({split_name(tp, pp)})"
            return [Lever(("gpus",), text, *case.tried(fp, split=(tp, pp)))]
    return []


def _words(kind: Kind, option: FormatOption) -> str:
    return f"{'KV' if kind == 'kv_cache' else 'weights'} in {option.id}"


def _format(case: Case, kind: Kind, options: Sequence[FormatOption]) -> list[Lever]:
    if not options:
        return []
    option = next((o for o in options if case.fits(o.footprint)), None) or min(options, key=lambda o: case.excess(o.footprint))
    return [Lever((kind,), _words(kind, option), *case.tried(option.footprint), (option,))]


def _sessions(fp: Footprint, case: Case, option: FormatOption | None = None, kind: Kind = "kv_cache") -> Lever | None:
    """Return the most sessions that fit, or one session that does not; None where sessions change nothing."""
    n = case.most_sessions(fp)
    need, room = case.tried(fp, concurrency=max(n, 1))
    if case.concurrency == 1 or need >= case.tried(fp)[0]:
        return None
    text = f"{max(n, 1):,} session{'s' if n > 1 else ''}"
    return _of_load("sessions", text, need, room, max(n, 1) / case.concurrency, option, kind)


def _context(fp: Footprint, case: Case, option: FormatOption | None = None, kind: Kind = "kv_cache") -> Lever | None:
    """Return the longest context that fits, or the shortest offered if that does not; None where it changes nothing."""
    if case.context_tok <= LEAST_CONTEXT_TOK:
        return None
    tok = max(case.longest_context_tok(fp, case.context_tok - 1), LEAST_CONTEXT_TOK)
    need, room = case.tried(fp, context_tok=tok)
    if need >= case.tried(fp)[0]:
        return None
    return _of_load("context", f"{tok:,} tokens", need, room, tok / case.context_tok, option, kind)


def _of_load(
    load: Kind, text: str, need: float, room: float, kept_frac: float, option: FormatOption | None, kind: Kind
) -> Lever:
    if option is None:
        return Lever((load,), text, need, room, (), kept_frac)
    return Lever((kind, load), f"{_words(kind, option)} and {text}", need, room, (option,), kept_frac)


def _with_load(case: Case, kind: Kind, options: Sequence[FormatOption]) -> list[Lever]:
    """Return the format with the most bits that fits with fewer sessions, and the one that fits with a shorter context.

    One that leaves at least a quarter of the load is preferred to one that leaves less.
    """
    found: list[Lever] = []
    if not options:
        return found
    smallest = min(options, key=lambda o: (o.footprint.weights_bytes, o.footprint.kv_bytes_per_tok))
    shortest_tok = min(LEAST_CONTEXT_TOK, case.context_tok)
    for change, (tok, sessions) in ((_sessions, (case.context_tok, 1)), (_context, (shortest_tok, case.concurrency))):
        if case.excess(smallest.footprint, tok, sessions) > 0:
            continue
        first: Lever | None = None
        for option in options:
            lever = change(option.footprint, case, option, kind)
            if lever is not None and lever.fits:
                first = first or lever
                if lever.kept_frac >= LITTLE_FRAC:
                    first = lever
                    break
        if first is not None:
            found.append(first)
    return found


def _two_formats(
    case: Case, kv_options: Sequence[FormatOption], weight_options: Sequence[FormatOption],
    both: Callable[[FormatOption, FormatOption], Footprint],
) -> list[Lever]:
    """Return the smallest change of weights that fits with a smaller cache; the smallest pair of all where none does."""
    if not kv_options or not weight_options:
        return []
    least = min(weight_options, key=lambda o: o.footprint.weights_bytes), min(kv_options, key=lambda o: o.footprint.kv_bytes_per_tok)
    pairs = [(w, k) for w in weight_options for k in kv_options] if case.fits(both(*least)) else [least]
    for w, k in pairs:
        need, room = case.tried(both(w, k))
        if need <= room or len(pairs) == 1:
            return [Lever(("weights", "kv_cache"), f"weights in {w.id} and KV in {k.id}", need, room, (w, k))]
    return []
