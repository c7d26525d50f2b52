"""What `planner solve` prints: the decision, its cost, what it beats, how sure it is, and where the files are."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from io import StringIO
from pathlib import Path

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text as RichText

from planner.report.blocks import Block, Cell, Facts, Figures, ReportView, Table, Text

SHOWN_PARTS = ("What to do", "Until the purchase serves", "What it costs", "How sure this is", "What it beats")
NARROW_COLUMNS = 60
ROOMY_COLUMNS = 92
ROOMY_TABLE = 4
"""A table of more columns than this puts its last one (the reason) under it where the terminal is not roomy."""


def print_plan(view: ReportView, console: Console, files: Sequence[Path] = ()) -> None:
    """Print page one of a report. Names are printed as text: no markup of theirs is read."""
    console.print(RichText(view.headline, style="bold"))
    console.print(RichText(view.subtitle, style="dim"))
    for warning in view.warnings:
        console.print(RichText(f"! {warning}", style="yellow"))
    for part in view.page_one:
        if part.title in SHOWN_PARTS:
            console.print()
            console.print(RichText(part.title, style="bold"))
            for block in part.blocks:
                _print_block(block, console)
    if files:
        console.print()
        console.print(RichText("Written: ", style="bold") + RichText(", ".join(path.as_posix() for path in files)))


def plan_text(view: ReportView, width: int = 100, files: Sequence[Path] = ()) -> str:
    """Return what `print_plan` prints, without colour, `width` columns wide."""
    out = StringIO()
    print_plan(view, Console(file=out, width=width, color_system=None, force_terminal=False, legacy_windows=False, emoji=False), files)
    return "\n".join(line.rstrip() for line in out.getvalue().splitlines()) + "\n"


def _print_block(block: Block, console: Console) -> None:
    if isinstance(block, Table):
        if console.width < ROOMY_COLUMNS and len(block.columns) > ROOMY_TABLE:
            console.print(
                _table(
                    replace(block, columns=block.columns[:-1], rows=tuple(replace(r, cells=r.cells[:-1]) for r in block.rows)),
                    console.width,
                )
            )
            for row in block.rows:
                console.print(Padding(RichText(f"{row.cells[0].text} {row.cells[1].text}: {row.cells[-1].text}"), (0, 0, 0, 1)))
        else:
            console.print(_table(block, console.width))
    elif isinstance(block, Text):
        console.print(Padding(RichText(block.text), (0, 0, 0, 1)))
    elif isinstance(block, (Facts, Figures)):
        grid = RichTable.grid(padding=(0, 2, 0, 1))
        grid.add_column(no_wrap=False, max_width=28)
        grid.add_column(overflow="fold", justify="right" if isinstance(block, Figures) else "left")
        if isinstance(block, Figures):
            grid.add_column(overflow="fold")
        for fact in block.items:
            value = RichText(fact.value, style="bold" if isinstance(block, Figures) else "")
            if isinstance(block, Figures):
                grid.add_row(RichText(fact.label), value, RichText(fact.note, style="dim"))
            else:
                grid.add_row(RichText(fact.label, style="dim"), value + RichText(f" {fact.note}" if fact.note else "", style="dim"))
        console.print(grid)


def _table(table: Table, width: int) -> RichTable:
    shown = RichTable(box=SIMPLE_HEAD, pad_edge=False, show_edge=False, width=None if width < NARROW_COLUMNS else width - 1)
    for column in table.columns:
        is_number = column.kind == "number"
        shown.add_column(
            RichText(column.title),
            justify="right" if is_number else "left",
            overflow="fold",
            ratio=None if is_number else round(column.weight * 10),
            no_wrap=False,
        )
    for row in table.rows:
        shown.add_row(*(_text(cell) for cell in row.cells), style="bold" if row.is_total else None)
    return shown


def _text(cell: Cell) -> RichText:
    return RichText(cell.text) + (RichText(f"\n{cell.sub}", style="dim") if cell.sub else RichText(""))
