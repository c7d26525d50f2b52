"""`planner prices`: list the dated price snapshots, show what one holds, check that it can be true."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from planner.errors import Fault, InputError, did_you_mean

if TYPE_CHECKING:
    from planner.catalog import Catalog, Snapshot
    from planner.schema.prices import PriceRow

KINDS = ("rent", "api", "own", "operating")
Table = tuple[str, list[tuple[str, bool]], list[Sequence[str]]]
"""Title, columns (name, whether it is a number) and rows of text."""


class Day(click.ParamType[date]):
    """A date as year-month-day."""

    name = "day"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> date:
        if isinstance(value, date):
            return value
        try:
            return date.fromisoformat(value)
        except ValueError:
            self.fail(f"'{value}' is not a date; write year-month-day, for example 2026-11-30", param, ctx)


OVERLAY = click.option("--catalog", "overlay", type=click.Path(path_type=Path), help="Folder with your own hardware, models and prices.")
AS_JSON = click.option("--json", "as_json", is_flag=True, help="Print JSON.")


@click.group()
def prices() -> None:
    """List, show and check the dated price snapshots."""


@prices.command("list")
@OVERLAY
@AS_JSON
def list_command(overlay: Path | None, as_json: bool) -> None:
    """List the snapshots: their day, rows by file, providers, and digest."""
    from planner.catalog import load_catalog
    from planner.formatting import count
    from planner.prices.listing import summary

    catalog = load_catalog(overlay)
    found = [summary(catalog.snapshot(day)) for day in catalog.snapshot_days]
    if as_json:
        rows = [
            {
                "day": s.day.isoformat(),
                "rows": {"rent": s.rent_count, "api": s.api_count, "own": s.own_count, "operating": s.operating_count},
                "providers": list(s.providers),
                "oldest": s.oldest.isoformat() if s.oldest else None,
                "newest": s.newest.isoformat() if s.newest else None,
                "digest": s.digest,
                "gaps": list(catalog.snapshot(s.day).info.gaps),
            }
            for s in found
        ]
        _print_json({"snapshots": rows})
        return
    numbers = ("rent", "api", "own", "operating", "providers")
    columns = [("day", False), *((name, True) for name in numbers), ("rows dated", False), ("digest", False)]
    lines = [
        (
            s.day.isoformat(), count(s.rent_count), count(s.api_count), count(s.own_count), count(s.operating_count),
            count(len(s.providers)), f"{s.oldest} … {s.newest}", s.digest[:12],
        )
        for s in found
    ]
    _print_table(("Price snapshots", columns, [*lines]))


@prices.command("show")
@click.option("--gpu", help="Accelerator id: rent and purchase offers of its nodes.")
@click.option("--node", help="Node id: its rent and purchase offers.")
@click.option("--provider", help="Provider id, e.g. aws, nebius, openai; for purchases the vendor.")
@click.option("--kind", type=click.Choice(KINDS), help="Only this file. Default: those that the filters apply to.")
@click.option("--llm", help="Open-weight model id: the APIs that serve it.")
@click.option("--prices", "day", type=Day(), help="Day of the snapshot. Default: the newest.")
@OVERLAY
@AS_JSON
def show_command(
    gpu: str | None, node: str | None, provider: str | None, kind: str | None, llm: str | None, day: date | None,
    overlay: Path | None, as_json: bool,
) -> None:
    """Show the offers of a snapshot, rent sorted by price per GPU-hour, each with its source and own date."""
    from planner.catalog import load_catalog
    from planner.prices import listing

    catalog = load_catalog(overlay)
    snapshot = catalog.snapshot(day)
    _refuse_unknown(catalog, snapshot, gpu, node, provider, llm)
    chosen = _kinds(kind, gpu or node, llm)
    nodes = frozenset(n.id for n in catalog.nodes.values() if gpu in (None, n.gpu) and node in (None, n.id))
    rows: dict[str, Sequence[PriceRow]] = {}
    if "rent" in chosen:
        rows["rent"] = listing.rent_offers(snapshot, gpu, node, provider)
    if "api" in chosen:
        rows["api"] = listing.api_offers(snapshot, llm, provider)
    if "own" in chosen:
        rows["own"] = listing.purchase_offers(snapshot, nodes if gpu or node else None, provider)
    if "operating" in chosen:
        rows["operating"] = listing.operating_figures(snapshot, provider)
    if as_json:
        _print_json({"day": snapshot.day.isoformat(), **{k: [row.model_dump(mode="json") for row in found] for k, found in rows.items()}})
        return
    printed = False
    for name, found in rows.items():
        if found:
            _print_table(_table(name, found, snapshot.day))
            printed = True
    if not printed:
        click.echo(f"No such offer in the snapshot of {snapshot.day}.")


@prices.command("check")
@click.argument("day", type=Day(), required=False)
@click.option("--as-of", type=Day(), help="Also tell rows that are too old on this day for a plan to use without --allow-stale.")
@OVERLAY
@AS_JSON
def check_command(day: date | None, as_of: date | None, overlay: Path | None, as_json: bool) -> int:
    """Check one snapshot, or every one: ids, dates, spot below on demand, prices out of proportion. Exit code 1 if any fault."""
    from planner.catalog import load_catalog
    from planner.prices.check import AGE_LIMITS_DAYS, aged_rows, check_snapshot

    catalog = load_catalog(overlay)
    days = [day] if day is not None else list(catalog.snapshot_days)
    answers: list[dict[str, Any]] = []
    for each in days:
        snapshot = catalog.snapshot(each)
        faults = check_snapshot(snapshot, catalog)
        answer: dict[str, Any] = {"day": each.isoformat(), "faults": faults}
        if as_of is not None:
            answer["aged"] = aged_rows(snapshot, as_of)
        answers.append(answer)
    failed = any(answer["faults"] for answer in answers)
    if as_json:
        _print_json(_check_json(answers, failed))
        return int(failed)
    for answer in answers:
        for fault in answer["faults"]:
            click.echo(str(fault))
        click.echo(f"{answer['day']}: {_how_many(len(answer['faults']), 'fault')}")
        for kind, rows in answer.get("aged", {}).items():
            if rows:
                click.echo(f"{answer['day']}: {_how_many(len(rows), f'{kind} row')} older than {AGE_LIMITS_DAYS[kind]} days on {as_of}")
    return int(failed)


def _how_many(number: int, noun: str) -> str:
    return f"{number or 'no'} {noun}{'' if number == 1 else 's'}"


def _check_json(answers: list[dict[str, Any]], failed: bool) -> dict[str, Any]:
    snapshots = []
    for answer in answers:
        told: dict[str, Any] = {
            "day": answer["day"],
            "faults": [{"file": f.file, "line": f.line, "place": f.place, "what": f.what, "cure": f.cure} for f in answer["faults"]],
        }
        if "aged" in answer:
            told["aged"] = {kind: [row.id for row in rows] for kind, rows in answer["aged"].items()}
        snapshots.append(told)
    return {"ok": not failed, "reason_code": "price_faults" if failed else None, "snapshots": snapshots}


def _kinds(kind: str | None, hardware: str | None, llm: str | None) -> tuple[str, ...]:
    """Return the files to show; a filter that a file cannot answer leaves it out, and naming that file is an error."""
    if hardware and llm:
        raise InputError([Fault("", None, "--llm", "an API row names no hardware", "ask for --gpu or --node, or for --llm")])
    allowed = ("rent", "own") if hardware else ("api",) if llm else KINDS
    if kind is not None and kind not in allowed:
        filters = "--gpu and --node" if hardware else "--llm"
        raise InputError([Fault("", None, "--kind", f"{kind} rows cannot be filtered by {filters}", f"take {' or '.join(allowed)}")])
    return (kind,) if kind is not None else allowed


def _refuse_unknown(
    catalog: Catalog, snapshot: Snapshot, gpu: str | None, node: str | None, provider: str | None, llm: str | None
) -> None:
    providers = {row.provider for row in snapshot.rent.values()} | {row.provider for row in snapshot.api.values()}
    providers |= {row.vendor for row in snapshot.own.values() if row.vendor}
    providers |= {row.applies_to for row in snapshot.operating.values() if row.applies_to}
    asked: tuple[tuple[str, str | None, Any, str], ...] = (
        ("--gpu", gpu, catalog.gpus, "hardware/gpus"),
        ("--node", node, catalog.nodes, "hardware/nodes"),
        ("--provider", provider, providers | {p.casefold() for p in providers}, f"the snapshot of {snapshot.day}"),
        ("--llm", llm, catalog.model_files, "workloads/models"),
    )
    faults = [
        Fault("", None, option, f"no '{name}' in {where}", did_you_mean(name, known))
        for option, name, known, where in asked
        if name is not None and name not in known
    ]
    if faults:
        raise InputError(faults)


def _table(kind: str, rows: Sequence[PriceRow], day: date) -> Table:
    from planner.prices.listing import usd_per_gpu_hour
    from planner.schema.prices import ApiRow, OperatingRow, OwnRow, RentRow

    lines: list[Sequence[str]] = []
    for row in rows:
        tail = (row.kind, row.retrieved_on.isoformat(), row.source)
        if isinstance(row, RentRow):
            by_hour = (f"{usd_per_gpu_hour(row):.3f}", f"{row.usd_per_node_hour:.2f}")
            lines.append((row.id, row.gpu, str(row.gpu_count), row.term, *by_hour, *tail))
        elif isinstance(row, ApiRow):
            prices_usd = (row.usd_per_mtok_input, row.usd_per_mtok_cached_input, row.usd_per_mtok_output)
            lines.append((row.id, row.llm or "–", *(_plain(price) for price in prices_usd), ", ".join(row.regions) or "–", *tail))
        elif isinstance(row, OwnRow):
            low_high = f"{_whole(row.usd_per_node_low)} … {_whole(row.usd_per_node_high)}"
            lines.append((row.id, row.node, _whole(row.usd_per_node), low_high, *tail))
        elif isinstance(row, OperatingRow):
            low_high = f"{_plain(row.value_low)} … {_plain(row.value_high)}" if row.value_low is not None else "–"
            lines.append((row.id, row.region or "–", _plain(row.value), low_high, row.unit, *tail))
    columns = {
        "rent": [("offer", False), ("GPU", False), ("n", True), ("term", False), ("USD/GPU-h", True), ("USD/node-h", True)],
        "api": [("offer", False), ("model", False), ("USD/Mtok in", True), ("cached", True), ("out", True), ("regions", False)],
        "own": [("offer", False), ("node", False), ("USD/node", True), ("range", True)],
        "operating": [("figure", False), ("place", False), ("value", True), ("range", True), ("unit", False)],
    }[kind]
    return f"{kind}, prices of {day}", [*columns, ("kind", False), ("date", False), ("source", False)], lines


def _plain(value: Any) -> str:
    return "–" if value is None else f"{value.normalize():f}"


def _whole(value: Any) -> str:
    return "–" if value is None else f"{value:,.0f}"


def _print_table(table: Table) -> None:
    """Print a table as wide as the terminal; into a pipe or a file nothing is cut, so that `grep` finds whole ids."""
    from rich.console import Console
    from rich.table import Table as RichTable
    from rich.text import Text

    title, columns, lines = table
    grid = RichTable(title=title, title_justify="left", box=None, pad_edge=False, header_style="bold")
    for i, (name, is_number) in enumerate(columns):
        last = i == len(columns) - 1
        grid.add_column(name, justify="right" if is_number else "left", no_wrap=True, overflow="ellipsis" if last else "fold")
    for line in lines:
        grid.add_row(*(Text(cell) for cell in line))
    console = Console(highlight=False)
    if not console.is_terminal:
        widest = sum(max(len(line[i]) for line in [[name for name, _ in columns], *lines]) + 1 for i in range(len(columns)))
        console = Console(highlight=False, width=widest + len(columns))
    console.print(grid)


def _print_json(answer: dict[str, Any]) -> None:
    import json

    click.echo(json.dumps(answer, indent=2, ensure_ascii=False))
