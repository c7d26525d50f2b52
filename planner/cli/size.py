"""`planner size`: what memory a model needs under a load, what holds it, and what would make it fit."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from planner.cli.ranges import Within
from planner.cli.size_extras import extras_of, extras_options, named_extras
from planner.cli.size_train import BESIDE_TRAIN, refuse_with_train, refuse_without_train, train, train_options
from planner.errors import Fault, InputError
from planner.units import BYTES_PER_GB

LEAST = click.IntRange(1, 10**9)
GPUS = click.IntRange(1, 4096)
SIZE_GB = Within(0.0, 1e6, min_open=True)
UNREAD = frozenset({"region", "efficiency", "link", "planning"})
"""What memory needs nothing of: places, speeds, planning figures."""



@click.command()
@click.option("--llm", required=True, help="Model id; config.json, .gguf, .safetensors, index.json or folder; or hub:org/name.")
@click.option("--weights", help="Weight format, e.g. bf16, fp8, awq_int4, q4_k_m. A file's own where it states one.")
@click.option("--kv-cache", default="fp16", show_default=True, help="Format of the KV cache, e.g. fp16, fp8, q8_0.")
@click.option("--context", "context_tok", required=True, type=LEAST, help="Tokens of one session, prompt and output.")
@click.option("--concurrency", required=True, type=LEAST, help="Sessions held open at once.")
@click.option("--gpu", "gpu_id", help="Accelerator id; without it every accelerator is tried.")
@click.option("--count", type=GPUS, help="Number of GPUs; without it 1, 2, 4 and 8.")
@click.option("--tp", type=GPUS, help="Tensor-parallel size.")
@click.option("--pp", type=GPUS, help="Pipeline stages.")
@click.option("--engine", help="Engine, or a profile of hardware/engines.yaml. Default: vllm, llama_cpp for GGUF weights.")
@click.option("--memory-frac", type=Within(0.0, 1.0, min_open=True), help="Part of the device the engine may use.")
@click.option("--margin-frac", type=Within(0.0, 1.0, max_open=True), default=0.15, show_default=True, help="Part kept free.")
@click.option("--weights-gb", type=SIZE_GB, help="Bytes of the weights in GB (10^9), instead of the count by component.")
@click.option("--overhead-gb", type=Within(0.0, 1e6), help="Activations and overhead of one GPU in GB, not the profile's.")
@click.option("--assume", is_flag=True, help="Read a file of an unknown architecture as a plain decoder, and say so.")
@extras_options
@train_options
@click.option("--catalog", "overlay", type=click.Path(path_type=Path), help="Folder with your own hardware, models and prices.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
def size(
    llm: str, weights: str | None, kv_cache: str, context_tok: int, concurrency: int, gpu_id: str | None, count: int | None,
    tp: int | None, pp: int | None, engine: str | None, memory_frac: float | None, margin_frac: float,
    weights_gb: float | None, overhead_gb: float | None, assume: bool, overlay: Path | None, as_json: bool, **more: Any,
) -> None:
    """Say what memory a model needs, what holds it, and what would make it fit.

    Exit code 1 where nothing that was asked about holds the load.
    """
    training = {name: more.pop(name) for name in ("train", *BESIDE_TRAIN)}
    if training["train"] is not None:
        refuse_with_train({
            "--tp": tp, "--pp": pp, "--engine": engine, "--memory-frac": memory_frac, "--weights-gb": weights_gb,
            "--overhead-gb": overhead_gb, "--assume": assume or None, **named_extras(more),
        })
        from planner.sizing_question import file_name

        train(file_name(llm), weights, context_tok, concurrency, gpu_id, count, margin_frac, overlay, as_json, training)
        return
    refuse_without_train(training)
    if gpu_id is None and (count or tp or pp):
        raise InputError([Fault("", None, "--count", "a count, tp or pp needs an accelerator", "name one with --gpu")])
    from planner.catalog import load_catalog
    from planner.cli.size_table import show
    from planner.sizing_answer import answer
    from planner.sizing_question import ask

    catalog = load_catalog(overlay, UNREAD)
    question = ask(
        catalog, llm, weights, kv_cache, context_tok, concurrency, engine, memory_frac, margin_frac,
        None if weights_gb is None else weights_gb * BYTES_PER_GB, None if overhead_gb is None else overhead_gb * BYTES_PER_GB, assume,
        extras_of(catalog, more),
    )
    found = answer(catalog, question, gpu_id, count, tp, pp)
    if as_json:
        click.echo(json.dumps(found.as_json(), indent=2))
    else:
        show(found)
    if found.reason_code is not None:
        raise click.exceptions.Exit(1)
