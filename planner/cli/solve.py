"""`planner solve`: the plan and its report."""

from __future__ import annotations

import shlex
import sys
from datetime import date
from pathlib import Path

import click

from planner.cli.ranges import Within


@click.command()
@click.argument("workloads", type=click.Path(path_type=Path))
@click.option("--prices", metavar="DAY", help="Price snapshot, for example 2026-11-30 (the file's own, else the newest).")
@click.option(
    "--out",
    type=click.Path(path_type=Path, file_okay=False),
    default=Path("out"),
    show_default=True,
    help="Folder for the plan and its report.",
)
@click.option("--format", "formats", default="html,pdf,md", show_default=True, help="Reports to write beside plan.json.")
@click.option(
    "--gap", "gap_frac", type=Within(0, 0.5), default=1e-3, show_default=True, help="Proven distance to the optimum at which to stop."
)
@click.option("--time-limit", "time_limit_s", type=Within(1, 86400), default=60, show_default=True, help="Seconds for the search.")
@click.option(
    "--timeslices",
    "timeslice_count",
    type=click.IntRange(1, 168),
    default=8,
    show_default=True,
    help="Stretches that the week is cut into.",
)
@click.option("--as-of", metavar="DAY", help="Day of the decision (the file's own, else today).")
@click.option("--allow-stale", is_flag=True, help="Use prices older than the file's limit; page one then says so.")
@click.option(
    "--catalog",
    "overlay",
    type=click.Path(path_type=Path, file_okay=False),
    help="Your own hardware/, pricing/ and models, laid over the shipped ones.",
)
@click.option("--json", "as_json", is_flag=True, help="Print the plan as JSON.")
def solve(
    workloads: Path,
    prices: str | None,
    out: Path,
    formats: str,
    gap_frac: float,
    time_limit_s: float,
    timeslice_count: int,
    as_of: str | None,
    allow_stale: bool,
    overlay: Path | None,
    as_json: bool,
) -> None:
    """Decide what to buy, rent and call for the workloads in a file; write the plan and its report."""
    from planner.catalog import load_catalog
    from planner.plan import Options, make_plan
    from planner.readers.workload_file import load_workload
    from planner.report.plan_file import plan_json
    from planner.report.write import check_formats, write_reports

    wanted = check_formats([name.strip() for name in formats.split(",") if name.strip()])
    file = load_workload(workloads)
    options = Options(
        prices=day(prices, "--prices"),
        as_of=day(as_of, "--as-of"),
        gap_frac=gap_frac,
        time_limit_s=time_limit_s,
        allow_stale=allow_stale,
        timeslice_count=timeslice_count,
        progress=teller(as_json),
        command=command_of(workloads, prices, gap_frac, timeslice_count, as_of, allow_stale, overlay),
    )
    plan = make_plan(file, load_catalog(overlay), options)
    options.progress("writing the report")
    files = write_reports(plan, out, ("json", *[f for f in wanted if f != "json"]))
    options.progress("")
    if as_json:
        sys.stdout.write(plan_json(plan))
        return
    from rich.console import Console

    from planner.report.terminal import print_plan
    from planner.report.view import build_view

    print_plan(build_view(plan), Console(), files)


def day(text: str | None, option: str) -> date | None:
    """Return a day, or raise `InputError` for a text that is none."""
    from planner.errors import Fault, InputError

    if text is None:
        return None
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise InputError([Fault("", None, option, f"'{text[:40]}' is not a day", "write year-month-day, for example 2026-11-30")]) from None


def command_of(
    workloads: Path, prices: str | None, gap_frac: float, timeslice_count: int, as_of: str | None, allow_stale: bool, overlay: Path | None
) -> str:
    """Return the command that makes the same plan again: only what differs from the defaults."""
    parts = ["planner", "solve", workloads.as_posix()]
    for option, value, default in (
        ("--prices", prices, None),
        ("--gap", f"{gap_frac:g}", "0.001"),
        ("--timeslices", str(timeslice_count), "8"),
        ("--as-of", as_of, None),
        ("--catalog", overlay.as_posix() if overlay else None, None),
    ):
        if value is not None and value != default:
            parts += [option, value]
    if allow_stale:
        parts.append("--allow-stale")
    return shlex.join(parts)


def teller(is_quiet: bool):  # type: ignore[no-untyped-def]
    """Return a function that shows what is being done, on stderr and only where a person is watching."""
    if is_quiet or not sys.stderr.isatty():
        return lambda _: None

    def tell(text: str) -> None:
        sys.stderr.write("\r\x1b[K" + (f"planner: {text} …" if text else ""))
        sys.stderr.flush()

    return tell
