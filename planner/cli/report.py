"""`planner report`: write the report of a plan file again."""

from __future__ import annotations

from pathlib import Path

import click


@click.command()
@click.argument("plan", type=click.Path(path_type=Path))
@click.option("--out", type=click.Path(path_type=Path), default=None, metavar="DIR", help="Where to write (default: beside the plan file).")
@click.option(
    "--format", "formats", default="html,pdf,md", metavar="LIST", help="html, pdf, md and json, separated by commas (default: html,pdf,md)."
)
def report(plan: Path, out: Path | None, formats: str) -> None:
    """Write the report of PLAN, a plan.json that `planner solve` wrote: one HTML file, a PDF and a Markdown summary.

    The report is made from the plan file alone: same plan, same bytes.
    """
    from planner.errors import Fault, InputError
    from planner.report.plan_file import read_plan
    from planner.report.write import check_formats, write_reports

    names = [name.strip().lower() for name in formats.split(",") if name.strip()]
    if not names:
        raise InputError([Fault("", None, "--format", "names no format", "for example --format html,pdf")])
    check_formats(names)
    for path in write_reports(read_plan(plan), out if out is not None else plan.parent, names):
        click.echo(path.as_posix())
