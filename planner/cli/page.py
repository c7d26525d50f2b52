"""Standard output as the tables of `planner size` use it: its width, what it can draw, and one clean line at a time."""

from __future__ import annotations

import os
import shutil
import sys
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING

import click

from planner.errors import one_line
from planner.formatting import percent

if TYPE_CHECKING:
    from planner.sizing_rows import PlaceGroup

WIDTH = 120
"""Columns where standard output is no terminal and COLUMNS does not say."""
LEAST_WIDTH = 80
"""Narrower than that no table of figures stays one."""
BLOCKS = " ▏▎▍▌▋▊▉█"
FILL_WIDTH = 8
PERCENT_WIDTH = 6
DRAWN = "█▏│→×–−≤≥·…"
PLAIN = (("→", "->"), ("×", "x"), ("–", "-"), ("−", "-"), ("≤", "<="), ("≥", ">="), ("…", "..."))


class Page:
    """Standard output: how wide it is, what it can draw, and one clean line at a time.

    Names come from files of others: control and direction characters in them are written out, never sent to a terminal.
    Sentences are wrapped on a terminal, or where COLUMNS says how wide the reader is; in a file each stays one line.
    """

    def __init__(self) -> None:
        self.encoding = getattr(sys.stdout, "encoding", None) or "ascii"
        self.is_terminal = sys.stdout.isatty()
        self.wraps = self.is_terminal or os.environ.get("COLUMNS", "").strip().isdecimal()
        self.width = max(LEAST_WIDTH, shutil.get_terminal_size((WIDTH, 0)).columns) if self.wraps else WIDTH
        try:
            DRAWN.encode(self.encoding)
            BLOCKS.encode(self.encoding)
            self.draws = True
        except (UnicodeEncodeError, LookupError):
            self.draws = False

    def line(self, text: str, bold: bool = False) -> None:
        """Print one line."""
        text = self._clean(text)
        click.echo(click.style(text, bold=True) if bold and self.is_terminal else text)

    def text(self, text: str, bold: bool = False) -> None:
        """Print a sentence, on as many lines as the width asks for; what follows the first stands two columns further in."""
        if not self.wraps:
            self.line(text, bold)
            return
        text = self._clean(text)
        indent = text[: len(text) - len(text.lstrip())]
        for part in textwrap.wrap(text, self.width, subsequent_indent=f"{indent}  ", break_on_hyphens=False) or [""]:
            self.line(part, bold)

    def _clean(self, text: str) -> str:
        text = one_line(text.rstrip(), 20_000)
        if not self.draws:
            for char, plain in PLAIN:
                text = text.replace(char, plain)
            text = text.encode("ascii", "backslashreplace").decode("ascii")
        return text

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

    def places(self, group: PlaceGroup, heads: Sequence[str]) -> None:
        """Print a group of placements under its title: figures, how full a GPU is, and the accelerators.

        Where the width is short the bars go first, then a column between figures; names that find no room stand a line below.
        """
        if group.title:
            self.text(group.title)
        for part in self._names(group.names, self.width - 2):
            self.line(f"  {part}")
        if not group.rows:
            return
        rows = [cells for cells, _ in group.rows]
        widths = [max(len(head), *(len(row[i]) for row in rows)) for i, head in enumerate(heads)]
        shares = [percent(used_frac, 0) if used_frac is not None else "" for _, used_frac in group.rows]
        share_width = max(PERCENT_WIDTH, *map(len, shares))
        indent, gap, fill = "  " if group.title else "", "  ", FILL_WIDTH + 1 + share_width
        if len(indent) + sum(widths) + len(gap) * len(widths) + fill > self.width:
            fill = share_width
        if len(indent) + sum(widths) + len(gap) * len(widths) + fill > self.width:
            gap = " "
        self.line(indent + _joined(heads, widths, gap) + gap + ("full" if fill > share_width else f"{'full':>{fill}}"))
        room = self.width - len(indent) - sum(widths) - len(gap) * len(widths) - fill - 2
        is_below = max((len(word) for row in rows for word in row[-1].split()), default=0) > room
        for (cells, used_frac), share in zip(group.rows, shares, strict=True):
            drawn = f"{share:>{share_width}}"
            if fill > share_width:
                drawn = f"{self.bar(0.0, min(used_frac or 0.0, 1.0), 1.0, FILL_WIDTH)} {drawn}"
            head = f"{indent}{_joined(cells[:-1], widths, gap)}{gap}{drawn:{fill}}"
            if is_below:
                self.line(head)
                for part in self._names(cells[-1], self.width - len(indent) - 4):
                    self.line(f"{indent}    {part}")
                continue
            parts = self._names(cells[-1], room) or [""]
            self.line(f"{head}  {parts[0]}")
            for part in parts[1:]:
                self.line(" " * (len(head) + 2) + part)

    def _names(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(self._clean(text), width, break_on_hyphens=False)


def _joined(cells: Sequence[str], widths: Sequence[int], gap: str) -> str:
    return gap.join(f"{cell:>{width}}" for cell, width in zip(cells, widths, strict=True))
