"""What `planner size` prints: the sum with bars against the card, placements, levers, the rung, warnings."""

from __future__ import annotations

import shutil
import sys
import textwrap
from collections.abc import Sequence

import click

from planner.errors import one_line
from planner.formatting import decimals, gb, percent
from planner.sizing_answer import PlaceGroup, SizeAnswer
from planner.units import BYTES_PER_GB, BYTES_PER_GIB

WIDTH = 120
"""Columns where standard output is no terminal."""
LEAST_WIDTH = 60
BLOCKS = " ▏▎▍▌▋▊▉█"
FILL_WIDTH = 8
HEADS = ("GPUs", "TP x PP", "need/GPU", "usable/GPU", "max sessions", "max context")
DRAWN = "█▏│→×–−≤≥·…"


class Page:
    """Standard output: how wide it is, what it can draw, and one clean line at a time.

    Names come from files of others: control and direction characters in them are written out, never sent to a terminal.
    """

    def __init__(self) -> None:
        self.encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        self.is_terminal = sys.stdout.isatty()
        self.width = max(LEAST_WIDTH, shutil.get_terminal_size().columns) if self.is_terminal else WIDTH
        try:
            DRAWN.encode(self.encoding)
            BLOCKS.encode(self.encoding)
            self.draws = True
        except (UnicodeEncodeError, LookupError):
            self.draws = False

    def line(self, text: str, bold: bool = False) -> None:
        """Print one line."""
        text = one_line(text.rstrip(), 20_000)
        if not self.draws:
            for char, plain in (("→", "->"), ("×", "x"), ("–", "-"), ("−", "-"), ("≤", "<="), ("≥", ">="), ("…", "...")):
                text = text.replace(char, plain)
            text = text.encode("ascii", "backslashreplace").decode("ascii")
        click.echo(click.style(text, bold=True) if bold and self.is_terminal else text)

    def bar(self, start: float, end: float, full: float, width: int, edge: float | None = None) -> str:
        """Return a bar from `start` to `end` on a scale of `width` columns for `full`, the card's edge drawn at `edge`."""
        cells = [" "] * width
        first, last = start / full * width, end / full * width
        for i in range(width):
            covered = min(last, i + 1) - max(first, i)
            if covered > 0 and self.draws:
                cells[i] = BLOCKS[max(1, round(covered * 8))] if i + 1 > last else "█"
            elif covered >= 0.5:
                cells[i] = "#"
        if edge is not None and edge < full:
            cells[min(width - 1, int(edge / full * width))] = "│" if self.draws else "|"
        return "".join(cells)


def show(found: SizeAnswer) -> None:
    """Print the answer: the sum, the terms as bars, placements, levers, the rung, warnings."""
    page = Page()
    page.line(found.headline, bold=True)
    page.line(found.sum_line)
    page.line("")
    _terms(page, found)
    for group in found.place_groups:
        page.line("")
        _places(page, group)
    if found.lever_lines:
        page.line("")
    for text, note in found.lever_lines:
        page.line(text)
        for part in textwrap.wrap(one_line(note or "", 20_000), page.width - 6, break_long_words=False, break_on_hyphens=False):
            page.line(f"      {part}")
    page.line("")
    for text in found.rung_lines:
        page.line(text)
    for warning in found.warnings:
        page.line(f"warning ({warning.name}): {warning.text}")


def _terms(page: Page, found: SizeAnswer) -> None:
    """Print the sum as a table, and its bars against the card: one GPU's part where the load is split."""
    rows, card = found.term_rows, found.card
    split = card[0].gpu_count if card else 1
    usable = card[2] if card else None
    last = f"usable, one {card[0].gpu.id}" if card else ""
    wide = min(max(len(last), *(len(row.name) for row in rows)), page.width // 3)
    head = f"{'':{wide}} {'GB':>8} {'GiB':>8}" + (f" {f'GB/GPU of {split}':>14}" if split > 1 else "")
    room = max(10, min(60, page.width - len(head) - 14))
    full = max(rows[-1].end_bytes, usable or 0.0)
    page.line(head)
    for row in rows:
        mark = " <- largest" if row.is_largest else ""
        drawn = page.bar(row.start_bytes, row.end_bytes, full, room, usable)
        own = f" {row.gb_per_gpu:>14}" if split > 1 else ""
        page.line(f"{row.name:{wide}} {row.gb:>8} {row.gib:>8}{own}  {drawn}{mark}")
    if card and usable is not None:
        cells = (f" {'':>8} {'':>8} {decimals(usable / BYTES_PER_GB):>14}" if split > 1 else
                 f" {decimals(usable / BYTES_PER_GB):>8} {decimals(usable / BYTES_PER_GIB):>8}")
        page.line(f"{last[:wide]:{wide}}{cells}  {page.bar(0.0, usable, full, room)} of {gb(card[1])}")


def _places(page: Page, group: PlaceGroup) -> None:
    if group.title:
        page.line(group.title)
    for part in textwrap.wrap(group.names, page.width - 2, break_long_words=False, break_on_hyphens=False):
        page.line(f"  {part}")
    if not group.rows:
        return
    rows = [cells for cells, _ in group.rows]
    widths = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(HEADS)]
    indent = "  " if group.title else ""
    fill = FILL_WIDTH + 7
    page.line(indent + _joined(HEADS, widths) + "  full")
    for cells, used_frac in group.rows:
        drawn = ""
        if used_frac is not None:
            drawn = f"{page.bar(0.0, min(used_frac, 1.0), 1.0, FILL_WIDTH)} {percent(used_frac, 0):>6}"
        head = f"{indent}{_joined(cells[:-1], widths)}  {drawn:{fill}}  "
        parts = textwrap.wrap(cells[-1], max(20, page.width - len(head)), break_long_words=False, break_on_hyphens=False) or [""]
        page.line(head + parts[0])
        for part in parts[1:]:
            page.line(" " * len(head) + part)


def _joined(cells: Sequence[str], widths: Sequence[int]) -> str:
    return "  ".join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
