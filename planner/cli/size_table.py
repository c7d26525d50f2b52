"""What `planner size` prints: the sum with bars against the card, placements, levers, the rung, warnings."""

from __future__ import annotations

import textwrap
from typing import TYPE_CHECKING

from planner.cli.page import Page
from planner.errors import one_line
from planner.formatting import decimals, gb
from planner.units import BYTES_PER_GB, BYTES_PER_GIB

if TYPE_CHECKING:
    from planner.sizing_answer import SizeAnswer
    from planner.sizing_rows import TermRow

HEADS = ("GPUs", "TP x PP", "need/GPU", "usable/GPU", "max sessions", "max context")
BESIDE_BARS = 14
"""Columns that the words after a bar take."""
LARGEST = " <- largest"


def show(found: SizeAnswer) -> None:
    """Print the answer: the sum, the terms as bars, placements, levers, the rung, warnings."""
    page = Page()
    page.text(found.headline, bold=True)
    page.text(found.sum_line)
    page.line("")
    card = found.card
    show_terms(page, found.term_rows, None if card is None else (card[0].gpu.id, card[0].gpu_count, card[1], card[2]))
    for group in found.place_groups:
        page.line("")
        page.places(group, HEADS)
    if found.lever_lines:
        page.line("")
    for text, note in found.lever_lines:
        page.text(text)
        for part in textwrap.wrap(one_line(note or "", 20_000), page.width - 6, break_on_hyphens=False):
            page.line(f"      {part}")
    page.line("")
    for text in found.rung_lines:
        page.text(text)
    if found.format_line is not None:
        page.text(found.format_line)
    for warning in found.warnings:
        page.text(f"warning ({warning.name}): {warning.text}")


def show_terms(page: Page, rows: list[TermRow], card: tuple[str, int, float, float] | None = None) -> None:
    """Print the sum as a table, and its bars: against a card (its id, how many, the bytes it shows and may use), of its part."""
    gpu, split, shown_bytes, usable = card or ("", 1, 0.0, None)
    last = f"usable, one {gpu}" if card else ""
    if len(last) > page.width // 3:
        last = "usable of one"
    wide = max(len(last), *(len(row.name) for row in rows))
    head = f"{'':{wide}} {'GB':>8} {'GiB':>8}" + (f" {f'GB/GPU of {split}':>14}" if split > 1 else "")
    of_card = f" of {gb(shown_bytes)}" if card else ""
    room = max(10, min(60, page.width - len(head) - max(BESIDE_BARS, 2 + len(of_card))))
    full = max(rows[-1].end_bytes, usable or 0.0)
    page.line(head)
    for row in rows:
        drawn = page.bar(row.start_bytes, row.end_bytes, full, room, usable)
        own = f" {row.gb_per_gpu:>14}" if split > 1 else ""
        page.line(f"{row.name:{wide}} {row.gb:>8} {row.gib:>8}{own}  {drawn}{LARGEST if row.is_largest else ''}")
    if usable is not None:
        cells = (f" {'':>8} {'':>8} {decimals(usable / BYTES_PER_GB):>14}" if split > 1 else
                 f" {decimals(usable / BYTES_PER_GB):>8} {decimals(usable / BYTES_PER_GIB):>8}")
        page.line(f"{last:{wide}}{cells}  {page.bar(0.0, usable, full, room)}{of_card}")
