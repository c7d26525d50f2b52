"""Rows as the tables of sizing show them: the sum term by term, and placements by the fewest GPUs that hold the load."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from planner.formatting import decimals, plural, sums_up
from planner.units import BYTES_PER_GB, BYTES_PER_GIB

Name = TypeVar("Name", bound=str)
MOST_GPUS = 8


@dataclass(frozen=True)
class TermRow:
    """One line of the sum: its name, GB and GiB rounded so that each column adds up, and where its bar starts and ends (bytes)."""

    name: str
    gb: str
    gib: str
    gb_per_gpu: str
    """The fullest GPU's part, of the placement that the bars show."""
    start_bytes: float
    end_bytes: float
    is_largest: bool = False


@dataclass(frozen=True)
class PlaceGroup:
    """Placements that are alike in the number of GPUs: a title and rows; the last cell of a row names accelerators."""

    title: str
    rows: tuple[tuple[tuple[str, ...], float | None], ...]
    """Cells, and how full a GPU would be (nothing where the row has no bar)."""
    names: str = ""
    """Accelerators of a group that has no figures to show."""


@dataclass(frozen=True)
class PlaceRow:
    """One accelerator's last word: what its row says."""

    gpu: str
    gpu_count: int
    usable_bytes: float
    used_frac: float
    cells: tuple[str, ...]
    mark: str
    """Before the accelerator's name: nothing, `barely`, or the nearest change that helps."""
    fits: bool
    is_helped: bool
    """Whether some change that was tried is enough."""


def term_rows(whole: Mapping[Name, float], shown: Mapping[Name, float], name_of: Callable[[str], str]) -> list[TermRow]:
    """Return the terms one after the other, and their sum: bytes of the undivided load, and those that the bars show."""
    in_gb, in_gib, of_one = (
        sums_up([value / unit for value in values])
        for values, unit in ((whole.values(), BYTES_PER_GB), (whole.values(), BYTES_PER_GIB), (shown.values(), BYTES_PER_GB))
    )
    largest = max(shown, key=lambda name: shown[name])
    rows, start = [], 0.0
    for (name, value), large, small, one in zip(shown.items(), in_gb, in_gib, of_one, strict=True):
        is_largest = name == largest
        rows.append(TermRow(name_of(name), decimals(large), decimals(small), decimals(one), start, start + value, is_largest))
        start += value
    return [*rows, TermRow("need", decimals(sum(in_gb)), decimals(sum(in_gib)), decimals(sum(of_one)), 0.0, start)]


def grouped(places: Iterable[PlaceRow]) -> list[PlaceGroup]:
    """Return accelerators by the fewest GPUs that hold the load, the least memory first; then those that do not, with what would help."""
    last = list(places)
    groups = []
    for n in sorted({p.gpu_count for p in last if p.fits}):
        of_count = [p for p in last if p.fits and p.gpu_count == n]
        title = f"{'one holds it' if n == 1 else f'{n} together hold it'}: {plural(len(of_count), 'accelerator')}"
        groups.append(PlaceGroup(title, _alike(of_count)))
    helped = [p for p in last if not p.fits and p.is_helped]
    lost = [p.gpu for p in last if not p.fits and not p.is_helped]
    if helped:
        many = plural(len(helped), "accelerator")
        title = f"does not fit on up to {MOST_GPUS}, nor on one that serves alone: {many}, each with its nearest lever"
        groups.append(PlaceGroup(title, _alike(helped)))
    if lost:
        groups.append(PlaceGroup(f"no change that was tried is enough: {plural(len(lost), 'accelerator')}", (), ", ".join(lost)))
    return groups


def _alike(places: list[PlaceRow]) -> tuple[tuple[tuple[str, ...], float | None], ...]:
    """Return one row for all placements whose figures are the same, the least memory first; the accelerators named in the last cell."""
    rows: dict[tuple[str, ...], list[PlaceRow]] = {}
    for p in sorted(places, key=lambda p: (p.gpu_count, p.usable_bytes, p.gpu)):
        rows.setdefault((*p.cells, p.mark), []).append(p)
    return tuple(
        ((*cells, f"{mark}: {names}" if mark else names), same[0].used_frac)
        for (*cells, mark), same in rows.items() if (names := ", ".join(p.gpu for p in same))
    )
