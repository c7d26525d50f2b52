"""`planner validate`: predictions beside measurements, with the error of each group and the rows left out."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import click

WORST = 10
TOK = click.FloatRange(1, 10**8)
JSON = (".json", ".jsonl")
GPUS = click.IntRange(1, 4096)


@click.command()
@click.argument("measured", nargs=-1, required=True, type=click.Path(path_type=Path))
@click.option("--by", type=click.Choice(["engine", "gpu", "llm", "basis", "load", "statistic"]), default="engine", show_default=True,
              help="Group errors by.")
@click.option("--llm", help="JSON files: model id, or the path of a config.json, where the file's own name is not known.")
@click.option("--gpu", help="JSON files: accelerators of the whole deployment, e.g. 2xh100_sxm_80gb.")
@click.option("--engine", help="JSON files: engine, e.g. vllm.")
@click.option("--engine-version", help="JSON files: its version, e.g. 0.12.0.")
@click.option("--weights", help="JSON files: weight format, e.g. bf16, fp8, awq_int4.")
@click.option("--kv-cache", help="JSON files: format of the KV cache.  [default: fp16]")
@click.option("--tp", type=GPUS, help="JSON files: tensor-parallel size of a copy.  [default: all accelerators]")
@click.option("--pp", type=GPUS, help="JSON files: pipeline stages of a copy.")
@click.option("--input", "input_tok", type=TOK, help="JSON files: prompt tokens of a request, where the file does not say.")
@click.option("--output", "output_tok", type=TOK, help="JSON files: output tokens of a request, where the file does not say.")
@click.option("--concurrency", type=click.IntRange(1, 10**6), help="JSON files: clients, or the batch of `vllm bench latency`.")
@click.option("--calibrate", "calibrated", type=click.Path(path_type=Path),
              help="Fit an overlay of the engine's constants to these rows and write it to this YAML file.")
@click.option("--catalog", "overlay", type=click.Path(path_type=Path), help="Folder with your own hardware, models and prices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: groups, skipped rows with reasons, and every row.")
def validate(
    measured: tuple[Path, ...], by: str, calibrated: Path | None, overlay: Path | None, as_json: bool, **options: Any
) -> None:
    """Hold predicted speed against measured runs.

    Reads CSV files (columns id, engine, model, weight_format, accelerator, metric, value, …) and the JSON of `vllm bench serve
    --save-result`, `vllm bench latency` and `throughput`, GuideLLM, AIPerf and GenAI-Perf; a JSON file does not say where it ran:
    state --gpu, --engine and --weights. Rows that cannot be predicted are counted by reason, never dropped in silence.
    """
    from planner.bench_rows import deployment_of, rows_of
    from planner.catalog import load_catalog
    from planner.errors import Fault, InputError, gathered
    from planner.readers.bench_json import read_bench_json
    from planner.readers.measured_csv import read_measured_csv
    from planner.validating import validate as hold

    faults: list[Fault] = []
    catalog = load_catalog(overlay)
    at = gathered(faults, deployment_of, catalog, options)
    rows: list[Any] = []
    tests: list[Any] = []
    files = _files(measured, faults)
    for path in files:
        if path.suffix.lower() in JSON:
            tests += gathered(faults, read_bench_json, path) or []
        else:
            rows += gathered(faults, read_measured_csv, path) or []
    stated = [f"--{name.removesuffix('_tok').replace('_', '-')}" for name, value in options.items() if value is not None]
    if stated and not any(path.suffix.lower() in JSON for path in measured):
        faults.append(Fault("", None, stated[0], "is for JSON files, and none is given", "leave it out: a CSV row says where it ran"))
    if at is not None:
        rows += gathered(faults, rows_of, catalog, tests, at) or []
    if faults:
        raise InputError(faults)
    found = hold(catalog, rows)
    if calibrated is not None:
        from planner.calibrating import calibrate, write_overlay

        fitted = calibrate(catalog, found, sorted({path.name for path in files}))
        command = write_overlay(fitted, calibrated)
        if as_json:
            click.echo(json.dumps({**found.as_json(), "calibration": fitted.as_json()}, indent=2, ensure_ascii=False))
        else:
            _show_calibration(fitted, calibrated, command)
    elif as_json:
        click.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(found, by)


def _files(measured: Iterable[Path], faults: list[Any]) -> list[Path]:
    """Return the files: a quoted pattern stands for what it matches."""
    from planner.errors import Fault

    found: list[Path] = []
    for path in measured:
        if any(mark in path.name for mark in "*?[") and not path.exists():
            matched = sorted(path.parent.glob(path.name))
            if not matched:
                faults.append(Fault(str(path), None, "", "matches no file", "check the pattern"))
            found += matched
        else:
            found.append(path)
    return found


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
            f"measured {p.run.value:,.4g}, predicted {p.typical:,.4g} ({'s' if r.metric.quantity in ('ttft', 'tpot', 'e2e') else 'tok/s'})",
            markup=False, soft_wrap=True,
        )
    for reason, count in found.skipped_by_reason.most_common():
        console.print(f"left out {count:,}: {reason}", markup=False, soft_wrap=True)


def _show_calibration(fitted: Any, path: Path, command: str) -> None:
    from rich.console import Console
    from rich.table import Table

    from planner.formatting import percent

    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    for cell in fitted.cells:
        factors = ", ".join(f"{name} x {value:.2f}" for name, value in cell.factors.items())
        console.print(
            f"{cell.engine} on {cell.gpu_family}: {cell.row_count:,} rows of {cell.test_count:,} tests; times of {factors}", markup=False,
            soft_wrap=True,
        )
    table = Table(box=None, pad_edge=False)
    for at, name in enumerate(("metric", "rows", "median |error| before", "after", "each test left out in turn")):
        table.add_column(name, justify="left" if at == 0 else "right")
    for line in fitted.errors:
        figures = (line.before_frac, line.after_frac, line.left_out_frac)
        table.add_row(line.metric.replace("_", " "), f"{line.row_count:,}", *(percent(value) for value in figures))
    console.print(table)
    for text in fitted.notes:
        console.print(text, markup=False, soft_wrap=True)
    console.print(f"written: {path}", markup=False, soft_wrap=True)
    console.print(command, markup=False, soft_wrap=True)
