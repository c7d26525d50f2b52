"""`planner validate`: predictions beside measurements, with the error of each group and the rows left out."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

WORST = 10


@click.command()
@click.argument("measured", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--by", type=click.Choice(["engine", "gpu", "llm", "basis"]), default="engine", show_default=True, help="Group errors by.")
@click.option("--catalog", "overlay", type=click.Path(path_type=Path), help="Folder with your own hardware, models and prices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: groups, skipped rows with reasons, and every row.")
def validate(measured: tuple[Path, ...], by: str, overlay: Path | None, as_json: bool) -> None:
    """Hold predicted speed against measured runs: CSV files with columns id, engine, model, weight_format, accelerator, metric, value, …

    Rows that cannot be predicted are counted by reason, never dropped in silence.
    """
    from planner.catalog import load_catalog
    from planner.errors import Fault, InputError
    from planner.readers.measured_csv import read_measured_csv
    from planner.validating import validate as hold

    faults: list[Fault] = []
    rows = []
    for path in measured:
        try:
            rows += read_measured_csv(path)
        except InputError as error:
            faults += error.faults
    if faults:
        raise InputError(faults)
    found = hold(load_catalog(overlay), rows)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(found, by)


def _show(found: Any, by: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from planner.formatting import percent
    from planner.validating import error_groups

    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    head = f"{found.row_count:,} rows: {len(found.predictions):,} predicted, {len(found.skipped):,} left out"
    console.print(head, style="bold", markup=False)
    table = Table(box=None, pad_edge=False)
    heads = ("metric", by, "rows", "median |error|", "p90 |error|", "bias", "in band")
    for at, name in enumerate(heads):
        table.add_column(name, justify="left" if at < 2 else "right")
    for group in error_groups(found.predictions, found.skipped):
        if group.by not in ("all", by):
            continue
        bias = f"{'+' if group.bias_frac >= 0 else '−'}{percent(abs(group.bias_frac))}"
        figures = (percent(group.median_abs_err_frac), percent(group.p90_abs_err_frac), bias, percent(group.inside_frac))
        table.add_row(group.metric.replace("_", " "), group.key or "all", f"{group.row_count:,}", *figures)
    console.print(table)
    worst = sorted(found.predictions, key=lambda p: -abs(p.err_frac))[:WORST]
    if worst:
        console.print("worst rows:", markup=False)
    for p in worst:
        r = p.run
        console.print(
            f"  {r.row.id} {r.row.metric}: {r.llm.id} {r.weights.id} on {r.gpu_count} x {r.gpu.id}, {r.engine}: "
            f"measured {p.run.value:,.4g}, predicted {p.typical:,.4g} ({'s' if r.metric.quantity in ('ttft', 'tpot') else 'tok/s'})",
            markup=False, soft_wrap=True,
        )
    for reason, count in found.skipped_by_reason.most_common():
        console.print(f"left out {count:,}: {reason}", markup=False, soft_wrap=True)
