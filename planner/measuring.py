"""Rows of measurements turned into runs that can be predicted: names to ids, words to loads; or skipped, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from planner.catalog import Catalog, data_root
from planner.physics import device
from planner.physics.parallelism import llm_valid_tp
from planner.physics.weights import weights_bytes_by_component
from planner.readers.checkpoint import is_checkpoint_path
from planner.readers.yaml_file import read_yaml_fast
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat, Llm, WeightFormat
from planner.schema.measured import LoadKind, MeasuredNames, MeasuredRow, MeasuredRun, ModelName, SkippedRow

BURST = re.compile(r"all (\d+) (?:requests )?at once|(\d+) prompts at once")
RATE = re.compile(r"(\d+(?:\.\d+)?(?:e[+-]?\d+)?) requests/s(?: \(cv (\d+(?:\.\d+)?)\))?$")
LIMITED = frozenset({"server", "interactive"})
"""MLPerf's scenarios of Poisson arrivals under limits at p99."""
LIMITS = re.compile(r"limits ttft<=(\d+(?:\.\d+)?)s tpot<=(\d+(?:\.\d+)?)ms")
LIMITED_RATES = frozenset({"server_throughput", "interactive_throughput"})
FILLED_FRAC = 0.6
"""Weights take at most this share of the memory of the GPUs that share one copy, where a full server does not say how it was split
(assumed: submitters leave room for the cache; it gives the splits that NVIDIA's own submissions state for 70B and 405B models)."""
MOST_CLIENTS = 10**6
FAILED_FRAC = 0.05
FAILED = re.compile(r"FAILED (\d+) of (\d+)")
SPECULATION = re.compile(r"speculative|\bMTP\b", re.IGNORECASE)
DATA_PARALLEL = re.compile(r"attention_dp=(?!1\b)\d+|attention data parallel|enable-dp-attention|\bDEP\d")
SHORTENED = re.compile(r"InferenceX|InferenceMAX")
SHORTEST_FRAC = 0.8
"""InferenceX draws lengths evenly between 0.8 and 1.0 of the figure it names."""


@cache
def measured_names() -> MeasuredNames:
    """Return the shipped table of public names."""
    return MeasuredNames.model_validate(read_yaml_fast(data_root() / "hardware" / "measured_names.yaml"))


def resolve(catalog: Catalog, rows: Iterable[MeasuredRow]) -> tuple[list[MeasuredRun], list[SkippedRow]]:
    """Return the rows that can be predicted, and the others each with its reason; ids of the catalog count as names too."""
    runs: list[MeasuredRun] = []
    skipped: list[SkippedRow] = []
    names = measured_names()
    rows = list(rows)
    rates = {row.source: row.value / row.output_tok for row in rows if row.metric in LIMITED_RATES and row.source and row.output_tok}
    for row in rows:
        found = _resolve(catalog, names, row, rates)
        if isinstance(found, str):
            metric = names.metrics.get(row.metric)
            skipped.append(SkippedRow(row.id, found, metric.quantity if metric else ""))
        else:
            runs.append(found)
    return runs, skipped


def _starts(table: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in table.items() if name.startswith(key)), None)


def _resolve(catalog: Catalog, names: MeasuredNames, row: MeasuredRow, rates: Mapping[str, float]) -> MeasuredRun | str:
    metric = names.metrics.get(row.metric)
    if metric is None:
        return f"metric '{row.metric}' is not predicted"
    gpu = catalog.gpus.get(names.accelerators.get(row.accelerator, row.accelerator))
    if gpu is None:
        return f"accelerator '{row.accelerator}' is not in the catalog"
    llm_and_format = _model(catalog, names, row)
    if isinstance(llm_and_format, str):
        return llm_and_format
    llm, weights = llm_and_format
    engine = _starts(names.engines, row.engine.lower()) or (row.engine if row.engine in _engine_names(catalog) else None)
    if engine is None:
        return f"engine '{row.engine}' has no constants"
    why = _left_out(row)
    if why is not None:
        return why
    load = _load(row, metric.quantity, rates)
    if isinstance(load, str):
        return load
    named = names.datasets.get(row.model)
    dataset = named if named is not None and named.of_source in row.source else None
    input_tok = row.input_tok if row.input_tok is not None or dataset is None else dataset.input_tok
    output_tok = row.output_tok if row.output_tok is not None or dataset is None else dataset.output_tok
    lengths = _lengths(metric.quantity, input_tok, output_tok)
    if isinstance(lengths, str):
        return lengths
    low_frac = SHORTEST_FRAC if SHORTENED.search(row.note) else None
    if low_frac is not None:
        lengths = (lengths[0] * (1.0 + low_frac) / 2.0, lengths[1] * (1.0 + low_frac) / 2.0)
    layout = _layout(engine, row, _unstated_tp(llm, weights, gpu, row) if load.kind in ("full", "limits") or load.is_limited else None)
    if isinstance(layout, str):
        return layout
    count, tp, pp = layout
    if gpu.dense_tflop_per_s == {}:
        return f"no peak is known of {gpu.id}"
    return MeasuredRun(
        row=row, metric=metric, gpu=gpu, llm=llm, weights=weights, kv=_kv(catalog, row), engine=engine, gpu_count=count, tp=tp, pp=pp,
        ep=row.ep or 1, input_tok=lengths[0], output_tok=lengths[1], load_kind=load.kind, load_count=load.count,
        length_low_frac=low_frac, input_p99_tok=dataset.input_p99_tok if dataset is not None and row.input_tok is None else None,
        arrival_cv=load.arrival_cv, ttft_limit_s=load.ttft_limit_s, tpot_limit_s=load.tpot_limit_s,
    )


def _engine_names(catalog: Catalog) -> set[str]:
    return {profile.engine for profile in catalog.engines.values()}


def _model(catalog: Catalog, names: MeasuredNames, row: MeasuredRow) -> tuple[Llm, WeightFormat] | str:
    named: Any = names.models.get(row.model)
    llm_id = named.llm if isinstance(named, ModelName) else named or row.model
    if llm_id not in catalog.model_files and not (is_checkpoint_path(llm_id) and Path(llm_id).exists()):
        return f"model '{row.model}' is not in the catalog"
    text = row.weight_format.upper()
    if text.startswith("GGUF (SEE MODEL NAME)"):
        text = "GGUF " + row.model.upper().rsplit("-", 1)[-1]
    form = _starts(names.weight_formats, text) or (row.weight_format if row.weight_format in catalog.weight_formats else None)
    if isinstance(named, ModelName) and named.weights is not None:
        form = named.weights
    if text.startswith("BF16 (NATIVE") and llm_id in names.native_fp8:
        form = "fp8"
    if form == "nvfp4" and llm_id in names.fp4_is_mxfp4:
        form = "mxfp4"
    if form is None:
        return f"weight format '{row.weight_format}' is not known"
    return catalog.llm(llm_id), catalog.weight_formats[form]


def _left_out(row: MeasuredRow) -> str | None:
    """Return why a run is of a kind that is not predicted: what it depends on is not stated in the row."""
    if SPECULATION.search(row.note):
        return "speculative decoding, acceptance not stated"
    failed = FAILED.search(row.note)
    if failed and int(failed[1]) > FAILED_FRAC * int(failed[2]):
        return f"more than {FAILED_FRAC:.0%} of its requests failed"
    if "PREFIX CACHE" in row.note:
        return "prefix cache, hits not stated"
    if "DISAGG" in row.note.upper():
        return "prefill and decode on separate pools"
    if DATA_PARALLEL.search(row.note):
        return "data-parallel attention"
    return None


@dataclass(frozen=True)
class _Load:
    kind: LoadKind
    count: float
    arrival_cv: float = 1.0
    is_limited: bool = False
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None


def _load(row: MeasuredRow, quantity: str, rates: Mapping[str, float]) -> _Load | str:
    text = row.load
    burst = BURST.match(text)
    if burst:
        sent = float(burst[1] or burst[2])
        return _Load("burst", sent) if 1 <= sent <= MOST_CLIENTS else f"load '{text[:40]}' is no number of requests"
    if text.lower().startswith(("max load", "offline")):
        return _Load("full", 0.0)
    rate = RATE.match(text)
    if rate:
        if quantity == "throughput":
            return "the rate of arrivals was set, so throughput measures nothing"
        return _Load("rate", float(rate[1]), float(rate[2] or 1.0)) if float(rate[1]) > 0 else "a rate of no requests"
    if text.lower() in LIMITED:
        return _limited(row, quantity, rates)
    try:
        count = float(text or "1")
    except ValueError:
        return f"load '{text[:40]}' is no number of clients"
    return _Load("steady", count) if 1 <= count <= MOST_CLIENTS else f"load '{text[:40]}' is no number of clients"


def _limited(row: MeasuredRow, quantity: str, rates: Mapping[str, float]) -> _Load | str:
    """Return the load of a test under limits: for throughput the limits, for latencies the rate that the same test reached."""
    limits = LIMITS.search(row.note)
    if quantity == "throughput":
        if limits is None:
            return "limits on latency not stated"
        return _Load("limits", 0.0, is_limited=True, ttft_limit_s=float(limits[1]), tpot_limit_s=float(limits[2]) / 1e3)
    if row.source not in rates:
        return "the rate that the test reached is not in the file"
    return _Load("rate", rates[row.source], is_limited=True)


def _lengths(quantity: str, input_tok: float | None, output_tok: float | None) -> tuple[float, float] | str:
    needs_input = quantity in ("prefill", "ttft", "tpot", "e2e", "throughput")
    needs_output = quantity in ("whole_request", "tpot", "e2e", "throughput")
    if (needs_input and not input_tok) or (needs_output and (output_tok is None or output_tok < 2)):
        return "prompt or answer length not stated"
    return max(input_tok or 1.0, 1.0), max(output_tok or 1.0, 1.0)


def _unstated_tp(llm: Llm, weights: WeightFormat, gpu: Gpu, row: MeasuredRow) -> int | None:
    """Return the smallest tensor-parallel size that holds a copy within `FILLED_FRAC` of memory; None where the row states its own."""
    if row.tp is not None or row.pp is not None:
        return None
    count, need = row.gpu_count or 1, sum(weights_bytes_by_component(llm, weights).values())
    sizes = [size for size in llm_valid_tp(llm, count) if count % size == 0]
    fitting = [size for size in sizes if need <= FILLED_FRAC * size * device.usable_bytes(gpu, 1.0, 0.0)]
    return fitting[0] if fitting else sizes[-1]


def _layout(engine: str, row: MeasuredRow, unstated_tp: int | None) -> tuple[int, int, int] | str:
    """Return (GPUs, tp, pp): layer split under llama.cpp, else as written, tensor parallel over all where nothing is."""
    count = row.gpu_count or 1
    if engine in ("llama_cpp", "mlx"):
        return count, 1, count
    pp = row.pp or 1
    tp = row.tp or unstated_tp or max(count // pp, 1)
    if tp * pp > count or count % (tp * pp):
        return f"tp {tp} x pp {pp} does not divide {count} GPUs"
    return count, tp, pp


def _kv(catalog: Catalog, row: MeasuredRow) -> KvFormat:
    text = row.kv_format.lower()
    return catalog.kv_formats["fp8" if text.startswith("fp8") else text if text in catalog.kv_formats else "fp16"]
