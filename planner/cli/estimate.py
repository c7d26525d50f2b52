"""`planner estimate`: how fast a model runs on given accelerators, what bounds it, and how far the ceiling is."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from planner.cli.ranges import Within
from planner.errors import Fault, InputError

LEAST = click.IntRange(1, 10**8)
GPUS = click.IntRange(1, 4096)


@click.command()
@click.option("--llm", help="Model id, or the path of a config.json.")
@click.option("--gpu", help="Accelerator id.")
@click.option("--count", type=GPUS, default=1, show_default=True, help="Number of accelerators.")
@click.option("--tp", type=GPUS, help="Tensor-parallel size; left out, as wide as the fast link and the model allow.")
@click.option("--pp", type=GPUS, help="Pipeline stages.")
@click.option("--weights", help="Weight format, e.g. bf16, fp8, awq_int4, q4_k_m.")
@click.option("--kv-cache", default="fp16", show_default=True, help="Format of the KV cache, e.g. fp16, fp8, q8_0.")
@click.option("--engine", help="Engine. Default: vllm, llama_cpp for GGUF weights.")
@click.option("--input", "input_tok", type=LEAST, help="Prompt tokens of a request.")
@click.option("--output", "output_tok", type=LEAST, help="Output tokens of a request.")
@click.option("--concurrency", type=LEAST, default=1, show_default=True, help="Sessions at work at once, over all accelerators.")
@click.option("--memory-frac", type=Within(0.0, 1.0, min_open=True), help="Part of the device the engine may use.")
@click.option("--margin-frac", type=Within(0.0, 1.0, max_open=True), default=0.15, show_default=True, help="Part kept free.")
@click.option("--topology", help="Not answered yet: the text of `nvidia-smi topo -m`.")
@click.option("--ceilings", "show_ceilings", is_flag=True, help="Batch-1 ceilings of an 8B and a 70B in Q4_K_M on every accelerator.")
@click.option("--catalog", "overlay", type=click.Path(path_type=Path), help="Folder with your own hardware, models and prices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def estimate(
    llm: str | None, gpu: str | None, count: int, tp: int | None, pp: int | None, weights: str | None, kv_cache: str, engine: str | None,
    input_tok: int | None, output_tok: int | None, concurrency: int, memory_frac: float | None, margin_frac: float, topology: str | None,
    show_ceilings: bool, overlay: Path | None, as_json: bool,
) -> None:
    """Predict speed on given hardware: TTFT, TPOT, tokens a second, and what bounds them.

    A model that does not fit has no speed: exit code 1.
    """
    if topology is not None:
        raise InputError([Fault("", None, "--topology", "reading a topology is not answered by this version", "leave it out")])
    from planner.catalog import load_catalog
    from planner.estimating import ask, ceilings
    from planner.estimating import estimate as predict

    if show_ceilings:
        rows = ceilings(load_catalog(overlay))
        if as_json:
            listed = [{"gpu": r.gpu, "llm": r.llm, "weights_bytes": r.weights_bytes, "ceiling_tok_per_s": r.tok_per_s} for r in rows]
            click.echo(json.dumps({"weights": "q4_k_m", "batch": 1, "ceilings": listed}, indent=2))
        else:
            _show_ceilings(rows)
        return
    needed = {"--llm": llm, "--gpu": gpu, "--weights": weights, "--input": input_tok, "--output": output_tok}
    missing = [Fault("", None, name, "is missing", "give it, or --ceilings") for name, value in needed.items() if value is None]
    if missing:
        raise InputError(missing)
    assert llm is not None and gpu is not None and weights is not None and input_tok is not None and output_tok is not None
    catalog = load_catalog(overlay)
    question = ask(
        catalog, llm, gpu, count, weights, kv_cache, input_tok, output_tok, concurrency, engine, tp, pp, memory_frac, margin_frac
    )
    found = predict(catalog, question)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2, ensure_ascii=False))
    else:
        _show(found)


def _show(found: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from planner.formatting import milliseconds, number, percent, rate

    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    q, answer = found.question, found.as_json()
    shape = f"tp {q.tp} x pp {q.pp}" + (f", {q.replica_count} replicas" if q.replica_count > 1 else "")
    console.print(
        f"{q.llm.id} {q.weights.id} on {q.gpu_count} x {q.gpu.id} ({shape}), {q.engine.engine}, KV {q.kv.id}: "
        f"{q.concurrency} sessions, {q.input_tok:,} in, {q.output_tok:,} out",
        style="bold", markup=False, soft_wrap=True,
    )
    table = Table(box=None, pad_edge=False)
    for name, side in (("", "left"), ("low", "right"), ("typical", "right"), ("high", "right")):
        table.add_column(name, justify=side)  # type: ignore[arg-type]
    for label, key in (("TTFT", "ttft_s"), ("TPOT", "tpot_s"), ("whole request", "e2e_s")):
        table.add_row(label, *(milliseconds(answer[key][end] * 1e3) for end in ("low", "typical", "high")))
    for label, key, unit in (("output", "output_tok_per_s", "tok/s"), ("requests", "request_per_s", "req/s")):
        table.add_row(label, *(rate(answer[key][end], unit) for end in ("low", "typical", "high")))
    console.print(table)
    typical = answer["output_tok_per_s"]["typical"]
    dense = f"{found.peak_flop_per_s / 1e12:,.0f} TFLOP/s dense {found.compute_dtype}"
    lines = [
        f"bound by {found.bound_by} in decode: intensity {number(found.intensity_flop_per_byte)} FLOP/byte, ridge "
        f"{number(found.ridge_flop_per_byte)} ({dense}, {q.gpu.memory_bandwidth_gb_per_s:,.0f} GB/s a GPU)",
        f"MBU {percent(found.mbu_frac)}, MFU {percent(found.mfu_frac)} in decode at {found.typical.batch:.1f} sequences a replica",
        f"ceiling {rate(found.ceiling_tok_per_s, 'tok/s')} of decode at this batch; typical engines, prefill included, reach "
        f"{percent(typical / found.ceiling_tok_per_s)} of it: no kernel passes it; batch, precision or hardware move it",
        f"memory holds {found.max_sequences:,} such sessions a replica; link {found.link.name}",
        f"basis: {found.basis} ({', '.join(found.efficiency.row_ids)})",
    ]
    for line in lines:
        console.print(line, markup=False, soft_wrap=True)
    for warning in found.warnings:
        console.print(f"warning ({warning.name}): {warning.text}", markup=False, soft_wrap=True)


def _show_ceilings(rows: Any) -> None:
    from rich.console import Console
    from rich.table import Table

    from planner.formatting import gb, number

    console = Console(highlight=False, width=None if Console().is_terminal else 120)
    llms = list(dict.fromkeys(row.llm for row in rows))
    read = {row.llm: gb(row.weights_bytes) for row in rows}
    table = Table(box=None, pad_edge=False, title="tok/s of one stream at most: bandwidth / bytes read a token, Q4_K_M, batch 1")
    table.add_column("accelerator")
    for llm in llms:
        table.add_column(f"{llm} ({read[llm]})", justify="right")
    by_gpu: dict[str, dict[str, float | None]] = {}
    for row in rows:
        by_gpu.setdefault(row.gpu, {})[row.llm] = row.tok_per_s
    for gpu, speeds in by_gpu.items():
        table.add_row(gpu, *("does not fit" if speeds[llm] is None else number(speeds[llm]) for llm in llms))
    console.print(table)
