"""The tables that `planner size` prints."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from planner.sizing_answer import SizeAnswer


def show(found: SizeAnswer) -> None:
    """Print the answer: terms, placements, levers, the rung, warnings."""
    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    console.print(found.headline, style="bold", markup=False, soft_wrap=True)
    console.print(found.sum_line, markup=False, soft_wrap=True)
    table = Table(title=None, box=None, pad_edge=False)
    for name, side in (("term", "left"), ("GB", "right"), ("GiB", "right"), ("", "left")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for row in found.term_rows:
        table.add_row(*row)
    console.print(table)
    where = Table(box=None, pad_edge=False)
    for name, side in (
        ("accelerator", "left"), ("GPUs", "right"), ("TP x PP", "right"), ("need/GPU", "right"), ("usable/GPU", "right"),
        ("sessions", "right"), ("", "left"),
    ):
        where.add_column(name, justify=side, no_wrap=True)  # type: ignore[arg-type]
    for row in found.placement_rows:
        where.add_row(*row)
    console.print(where)
    for line in found.lever_lines:
        console.print(line, markup=False, soft_wrap=True)
    for line in found.rung_lines:
        console.print(line, markup=False, soft_wrap=True)
    for warning in found.warnings:
        console.print(f"warning ({warning.name}): {warning.text}", markup=False, soft_wrap=True)
