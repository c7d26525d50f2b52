"""Rows of measurements turned into runs that can be predicted: names to ids, words to loads; or skipped, with the reason."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from functools import cache
from typing import Any

from planner.catalog import Catalog, data_root
from planner.readers.yaml_file import read_yaml_fast
from planner.schema.llm import KvFormat, Llm, WeightFormat
from planner.schema.measured import LoadKind, MeasuredNames, MeasuredRow, MeasuredRun, ModelName, SkippedRow

BURST = re.compile(r"all (\d+) requests at once")
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
    for row in rows:
        found = _resolve(catalog, names, row)
        if isinstance(found, str):
            metric = names.metrics.get(row.metric)
            skipped.append(SkippedRow(row.id, found, metric.quantity if metric else ""))
        else:
            runs.append(found)
    return runs, skipped


def _starts(table: Mapping[str, str], name: str) -> str | None:
    return next((value for key, value in table.items() if name.startswith(key)), None)


def _resolve(catalog: Catalog, names: MeasuredNames, row: MeasuredRow) -> MeasuredRun | str:
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
    load = _load(row)
    if isinstance(load, str):
        return load
    dataset = names.datasets.get(row.model)
    input_tok = row.input_tok if row.input_tok is not None or dataset is None else dataset.input_tok
    output_tok = row.output_tok if row.output_tok is not None or dataset is None else dataset.output_tok
    lengths = _lengths(metric.quantity, input_tok, output_tok)
    if isinstance(lengths, str):
        return lengths
    low_frac = SHORTEST_FRAC if SHORTENED.search(row.note) else None
    if low_frac is not None:
        lengths = (lengths[0] * (1.0 + low_frac) / 2.0, lengths[1] * (1.0 + low_frac) / 2.0)
    layout = _layout(engine, row)
    if isinstance(layout, str):
        return layout
    count, tp, pp = layout
    if gpu.dense_tflop_per_s == {}:
        return f"no peak is known of {gpu.id}"
    return MeasuredRun(
        row=row, metric=metric, gpu=gpu, llm=llm, weights=weights, kv=_kv(catalog, row), engine=engine, gpu_count=count, tp=tp, pp=pp,
        ep=row.ep or 1, input_tok=lengths[0], output_tok=lengths[1], load_kind=load[0], load_count=load[1],
        length_low_frac=low_frac,
    )


def _engine_names(catalog: Catalog) -> set[str]:
    return {profile.engine for profile in catalog.engines.values()}


def _model(catalog: Catalog, names: MeasuredNames, row: MeasuredRow) -> tuple[Llm, WeightFormat] | str:
    named: Any = names.models.get(row.model)
    llm_id = named.llm if isinstance(named, ModelName) else named or row.model
    if llm_id not in catalog.model_files:
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
    if "PREFIX CACHE" in row.note:
        return "prefix cache, hits not stated"
    if "DISAGG" in row.note.upper():
        return "prefill and decode on separate pools"
    if DATA_PARALLEL.search(row.note):
        return "data-parallel attention"
    return None


def _load(row: MeasuredRow) -> tuple[LoadKind, float] | str:
    text = row.load
    burst = BURST.match(text)
    if burst:
        return "burst", float(burst[1])
    if text.lower().startswith(("max load", "offline")):
        return "full", 0.0
    try:
        count = float(text or "1")
    except ValueError:
        return f"load '{text[:40]}' is no number of clients"
    return ("steady", count) if 1 <= count <= 10**6 else f"load '{text[:40]}' is no number of clients"


def _lengths(quantity: str, input_tok: float | None, output_tok: float | None) -> tuple[float, float] | str:
    needs_input = quantity in ("prefill", "ttft", "tpot", "throughput")
    needs_output = quantity in ("whole_request", "tpot", "throughput")
    if (needs_input and not input_tok) or (needs_output and (output_tok is None or output_tok < 2)):
        return "prompt or answer length not stated"
    return max(input_tok or 1.0, 1.0), max(output_tok or 1.0, 1.0)


def _layout(engine: str, row: MeasuredRow) -> tuple[int, int, int] | str:
    """Return (GPUs, tp, pp): layer split under llama.cpp, else as written, tensor parallel over all where nothing is."""
    count = row.gpu_count or 1
    if engine in ("llama_cpp", "mlx"):
        return count, 1, count
    pp = row.pp or 1
    tp = row.tp or max(count // pp, 1)
    if tp * pp > count or count % (tp * pp):
        return f"tp {tp} x pp {pp} does not divide {count} GPUs"
    return count, tp, pp


def _kv(catalog: Catalog, row: MeasuredRow) -> KvFormat:
    text = row.kv_format.lower()
    return catalog.kv_formats["fp8" if text.startswith("fp8") else text if text in catalog.kv_formats else "fp16"]
