"""Published and own speed measurements: how their names resolve, and one resolved row."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import Field

from planner.schema.base import Frozen, Id, Positive, Source, Text
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat, Llm, WeightFormat

Quantity = Literal["decode", "prefill", "whole_request", "tpot", "ttft", "e2e", "throughput"]
"""decode and prefill: rates of one phase; whole_request: rate over prompt and answer; e2e: time of a whole request; throughput: rate
of a loaded server."""
Statistic = Literal["mean", "p50", "p99", "unstated"]
LoadKind = Literal["steady", "burst", "full", "rate", "limits"]
"""steady: so many clients at any time; burst: so many requests at once, then none; full: as many as the engine admits;
rate: so many requests a second, whatever the server does; limits: the highest rate that keeps limits on TTFT and TPOT (p99)."""


class Metric(Frozen):
    """What a metric's name in a file of measurements stands for."""

    quantity: Quantity
    statistic: Statistic = "mean"
    unit: Literal["s", "ms", "tok_per_s"] = "tok_per_s"
    """What the file writes the value in."""
    counts_prompt: bool = False
    """Prompt tokens are counted in the rate too."""
    is_per_gpu: bool = False


class ModelName(Frozen):
    """The model, and where a name says so the weight format, that a public name stands for."""

    llm: Id
    weights: Id | None = None


class Dataset(Frozen):
    """Lengths of a benchmark's own requests, for what its rows leave out."""

    of_source: Text
    """What the source of its rows has in it: other rows of that model name had other requests."""
    input_tok: Positive
    """Mean prompt."""
    input_p99_tok: Positive | None = None
    output_tok: Positive | None = None
    """Mean answer, where the rows do not state it."""
    source: Source


class MeasuredNames(Frozen):
    """`hardware/measured_names.yaml`: public spellings and the catalog's ids; what is not listed is skipped and counted."""

    metrics: dict[Text, Metric]
    accelerators: dict[Text, Id]
    models: dict[Text, Id | ModelName]
    engines: dict[Text, Id]
    """By how the lower-case name starts, first match."""
    weight_formats: dict[Text, Id]
    """By how the upper-case name starts, first match."""
    fp4_is_mxfp4: tuple[Id, ...] = ()
    """Models whose 4-bit floating-point checkpoint is MXFP4 whatever the row calls it."""
    native_fp8: tuple[Id, ...] = ()
    """Models published in FP8: a row's "BF16 (native checkpoint)" means that."""
    datasets: dict[Text, Dataset] = Field(default_factory=dict)
    """By the name that its rows give the model."""


@dataclass(frozen=True)
class MeasuredRow:
    """One line of a file of measurements as written, numbers parsed; None and "" where the source is silent."""

    id: str
    source: str
    engine: str
    engine_version: str
    model: str
    params_note: str
    weight_format: str
    kv_format: str
    accelerator: str
    gpu_count: int | None
    tp: int | None
    pp: int | None
    ep: int | None
    input_tok: float | None
    output_tok: float | None
    load: str
    metric: str
    value: float
    unit: str
    note: str
    line: int
    request_count: int | None = None
    """Requests that the test sent."""


@dataclass(frozen=True)
class Deployment:
    """Where a benchmark ran: what its own file does not say, in ids of the catalog; None and "" where nobody said."""

    llm: str | None = None
    gpu: str | None = None
    gpu_count: int = 1
    engine: str | None = None
    engine_version: str = ""
    weights: str | None = None
    kv_cache: str | None = None
    tp: int | None = None
    pp: int | None = None
    input_tok: float | None = None
    output_tok: float | None = None
    concurrency: int | None = None


@dataclass(frozen=True)
class BenchTest:
    """One load test as a benchmark tool's own JSON tells it; None and "" where the file is silent."""

    file: str
    place: str
    """Where in the file, e.g. `benchmarks[3]`."""
    tool: str
    model: str
    input_tok: float | None
    output_tok: float | None
    load: str
    """As in a CSV: a number of clients, `all 100 requests at once`, `2.5 requests/s (cv 1)`."""
    values: tuple[tuple[str, float, str], ...]
    """(metric, value, unit) under the names that CSV files use."""
    request_count: int | None = None
    failed_count: int = 0
    total_tok_per_request: float | None = None
    """Prompt and answer together, where a tool counts nothing finer."""
    batch_s: float | None = None
    """Time of a whole batch, where that is all that was measured."""
    note: str = ""


@dataclass(frozen=True)
class MeasuredRun:
    """A row whose every name is known: enough to predict what it measured."""

    row: MeasuredRow
    metric: Metric
    gpu: Gpu
    llm: Llm
    weights: WeightFormat
    kv: KvFormat
    engine: str
    gpu_count: int
    tp: int
    pp: int
    ep: int
    input_tok: float
    output_tok: float
    load_kind: LoadKind
    load_count: float
    """Clients (steady), requests (burst), requests a second of the whole deployment (rate), or 0 (full, limits)."""
    length_low_frac: float | None = None
    """Lengths are drawn evenly between this share of the longest and the longest; None where all are alike or nobody said."""
    input_p99_tok: float | None = None
    """99th percentile of the prompts; None where all are alike or nobody said."""
    arrival_cv: float = 1.0
    """Of the times between arrivals, where requests come at a rate."""
    ttft_limit_s: float | None = None
    tpot_limit_s: float | None = None
    """What p99 had to keep, where the load is the highest rate that does."""

    @property
    def value(self) -> float:
        """The measured value in seconds or tokens a second of the whole deployment."""
        return self.row.value / (1e3 if self.metric.unit == "ms" else 1.0) * (self.gpu_count if self.metric.is_per_gpu else 1)


@dataclass(frozen=True)
class SkippedRow:
    """A row that cannot be predicted, and why."""

    id: str
    reason: str
    quantity: str = ""
    """What the row measures, where its metric is one that is predicted."""
