"""`planner validate`: every measured row that can be predicted, predicted; errors by metric, engine, accelerator and model."""

from __future__ import annotations

import re
import statistics
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

from planner.catalog import Catalog
from planner.errors import InputError
from planner.measuring import resolve
from planner.physics import memory
from planner.physics.activations import batch_default, chunk_tok
from planner.physics.efficiency import timed_replica
from planner.physics.replay import Lengths, Replay, replay, spread_lengths
from planner.physics.serving import Infeasible, Latency, RequestMix, Targets, latency_at, max_request_rate
from planner.physics.steps import StepModel
from planner.physics.weights import weight_bits
from planner.physics.work import Work, work_of
from planner.schema.measured import MeasuredRow, MeasuredRun, SkippedRow

GROUPINGS: dict[str, Callable[[Prediction], str]] = {
    "all": lambda _: "",
    "engine": lambda p: p.run.engine,
    "gpu": lambda p: p.run.gpu.id,
    "llm": lambda p: p.run.llm.id,
    "basis": lambda p: p.basis,
    "load": lambda p: p.run.load_kind,
    "statistic": lambda p: p.run.metric.statistic,
}
"""What errors are grouped by, and the key of a prediction in each grouping."""
CHUNKING = frozenset({"vllm", "sglang", "tensorrt_llm", "llama_cpp"})
"""Engines that compute a prompt in chunks of a token budget; the others take it at once."""
WHOLE_PROMPT_TOK = 10**9
WAVES = 10
"""Requests of a load test for each client: what the harnesses send by default."""
FULL_WAVES = 2
MOST_REQUESTS = 2000
MOST_REPLAYED_STEPS = 300_000
"""Requests and chunks of prompts that a replay takes at most: a few seconds."""
NO_ROOM = "does not fit by our count"
NO_E2E_TAIL = "the tail of whole requests in a closed loop is not predicted"
VERSION = re.compile(r"(\d+\.\d+(?:\.\d+)?)")
VERSION_BEHIND = re.compile(r"[A-Za-z. _-]+ v?(\d+\.\d+(?:\.\d+)?)")
PREFILL_FIRST = frozenset({"sglang"})
"""Engines that let running answers wait while prompts are computed."""


@dataclass(frozen=True)
class Prediction:
    """A measured run beside what is predicted for it, in seconds or tokens a second of the whole deployment."""

    run: MeasuredRun
    low: float
    typical: float
    high: float
    basis: str

    @property
    def err_frac(self) -> float:
        """Predicted over measured, less 1: positive is too high."""
        return self.typical / self.run.value - 1.0

    @property
    def is_inside(self) -> bool:
        """Whether the measured value lies in the band."""
        return self.low <= self.run.value <= self.high


@dataclass(frozen=True)
class ErrorGroup:
    """Errors of rows that have something in common."""

    metric: str
    by: str
    key: str
    row_count: int
    skipped_count: int
    median_abs_err_frac: float
    p90_abs_err_frac: float
    bias_frac: float
    inside_frac: float
    """Share of the measured values that lie in the predicted band."""


@dataclass(frozen=True)
class Validation:
    """The whole answer: predictions, and the rows left out with their reasons."""

    predictions: tuple[Prediction, ...]
    skipped: tuple[SkippedRow, ...]
    row_count: int

    @cached_property
    def skipped_by_reason(self) -> Counter[str]:
        """Rows left out, by reason."""
        return Counter(row.reason for row in self.skipped)

    def as_json(self) -> dict[str, Any]:
        """Return groups, skipped rows and rows under the keys that DESIGN section 8 fixes; times in seconds."""
        return {
            "row_count": self.row_count, "predicted_count": len(self.predictions), "skipped_count": len(self.skipped),
            "groups": [asdict(group) for group in error_groups(self.predictions, self.skipped)],
            "skipped": [{"id": row.id, "reason": row.reason} for row in self.skipped],
            "rows": [
                {
                    "id": p.run.row.id, "metric": p.run.row.metric, "measured": p.run.value, "predicted": p.typical,
                    "low": p.low, "high": p.high, "err_frac": p.err_frac, "basis": p.basis,
                }
                for p in self.predictions
            ],
        }


class Predictor:
    """Predicts runs; what rows share (work, constants, steps, memory) is computed once."""

    def __init__(self, catalog: Catalog) -> None:
        self.catalog = catalog
        self._work: dict[tuple[str, str, str], Work] = {}
        self._step: dict[tuple[Any, ...], tuple[StepModel, str]] = {}
        self._slots: dict[tuple[Any, ...], tuple[int, int]] = {}
        self._replays: dict[tuple[Any, ...], Replay] = {}

    def predict(self, run: MeasuredRun) -> Prediction | str:
        """Return the prediction of a run, or why there is none."""
        try:
            step, basis = self._step_of(run)
        except InputError as error:
            return error.faults[0].what
        ends = []
        for at in (step.low or step, step, step.high or step):
            value = self._value(run, at)
            if isinstance(value, str):
                return value
            ends.append(value)
        return Prediction(run, min(ends), ends[1], max(ends), basis)

    def typical(self, run: MeasuredRun) -> float | str:
        """Return the prediction of a run without its band, or why there is none."""
        try:
            step, _ = self._step_of(run)
        except InputError as error:
            return error.faults[0].what
        return self._value(run, step)

    def _step_of(self, run: MeasuredRun) -> tuple[StepModel, str]:
        key = (run.llm.id, run.weights.id, run.kv.id, run.engine, run.gpu.id, run.tp, run.pp)
        if key not in self._step:
            work, rows = self._work_of(run), self.catalog
            chunk = self._chunk_tok(run)
            timed = timed_replica(rows.efficiency, rows.links, work, run.gpu, run.weights, run.engine, run.tp, run.pp, chunk)
            self._step[key] = (timed.step, timed.chosen.band.basis)
        return self._step[key]

    def _work_of(self, run: MeasuredRun) -> Work:
        key = (run.llm.id, run.weights.id, run.kv.id)
        if key not in self._work:
            self._work[key] = work_of(run.llm, weight_bits(run.llm, run.weights), run.kv.bytes_per_value)
        return self._work[key]

    def _chunk_tok(self, run: MeasuredRun) -> float:
        return chunk_tok(self.catalog.engine(run.engine), run.gpu) if run.engine in CHUNKING else float(WHOLE_PROMPT_TOK)

    def _slots_of(self, run: MeasuredRun) -> tuple[int, int]:
        """Return the sequences that memory holds on one replica, and the engine's own limit."""
        key = (run.llm.id, run.weights.id, run.kv.id, run.engine, run.gpu.id, run.tp, run.pp, run.input_tok, run.output_tok)
        if key not in self._slots:
            profile = self.catalog.engine(run.engine)
            fp = memory.footprint(run.llm, run.weights, run.kv, profile)
            context = max(int(run.input_tok + run.output_tok), 1)
            most = memory.max_sequences(fp, run.gpu, run.tp, run.pp, context, margin_frac=0.0)
            self._slots[key] = (most, batch_default(profile, run.gpu).max_sequence_count)
        return self._slots[key]

    def _value(self, run: MeasuredRun, step: StepModel) -> float | str:
        replicas = run.gpu_count // (run.tp * run.pp)
        p, o = run.input_tok, run.output_tok
        quantity = run.metric.quantity
        count = max(run.load_count / replicas, 1.0)
        if quantity == "prefill":
            return p / step.prefill_s(p) * count
        if quantity == "decode":
            return count * replicas / step.decode_step_s(count, p + o / 2.0)
        tokens = o + (p if run.metric.counts_prompt else 0.0)
        if quantity == "whole_request":
            return count * tokens / (step.prefill_s(p) + (o - 1.0) * step.decode_step_s(count, p + o / 2.0))
        if run.load_kind in ("rate", "limits"):
            return self._arriving(run, step, replicas)
        seen = self._replayed(run, step, count)
        if isinstance(seen, str):
            return seen
        if quantity == "throughput":
            return seen.req_per_s * replicas * tokens
        statistic = run.metric.statistic if run.metric.statistic != "unstated" else "p50"
        if quantity == "e2e":
            return NO_E2E_TAIL if statistic == "p99" else seen.ttft(statistic) + (o - 1.0) * seen.tpot(statistic)
        return seen.ttft(statistic) if quantity == "ttft" else seen.tpot(statistic)

    def _arriving(self, run: MeasuredRun, step: StepModel, replicas: int) -> float | str:
        """Return what requests see that arrive at a rate, or the output tokens a second at the highest rate that keeps the limits."""
        held, most = self._slots_of(run)
        if held < 1:
            return NO_ROOM
        p, o = run.input_tok, run.output_tok
        mix = RequestMix(p, max(run.input_p99_tok or p, p), o, o, arrival_cv=run.arrival_cv)
        room = held * (p + o)
        if run.load_kind == "limits":
            found = max_request_rate(step, mix, Targets(run.ttft_limit_s, run.tpot_limit_s), room, most, with_band=False)
            return "no rate keeps its limits by our count" if isinstance(found, Infeasible) else found.tok_per_s * replicas
        seen = latency_at(step, mix, run.load_count / replicas, room, most)
        return _statistic(run, seen) if seen.is_stable else "more than it can answer by our count"

    def _replayed(self, run: MeasuredRun, step: StepModel, count: float) -> Replay | str:
        """Return the load test replayed on one replica, or why it is not; rows of one test share it."""
        sent = run.row.request_count
        key = (id(step), run.gpu.id, run.engine, run.llm.id, run.input_tok, run.output_tok, run.load_kind, count, sent)
        if key not in self._replays:
            held, limit = self._slots_of(run)
            if held < 1:
                return NO_ROOM
            clients = round(count) if run.load_kind != "full" else min(held, limit)
            requests = clients * (WAVES if run.load_kind == "steady" else FULL_WAVES if run.load_kind == "full" else 1)
            if run.load_kind == "steady" and sent:
                requests = sent * run.tp * run.pp // run.gpu_count
            requests = max(min(requests, MOST_REQUESTS), clients)
            chunk = int(self._chunk_tok(run))
            if requests * (1.0 + run.input_tok / chunk) > MOST_REPLAYED_STEPS:
                return "a test too large to replay"
            room = held * (run.input_tok + run.output_tok)
            lengths = lengths_of(run, requests)
            self._replays[key] = replay(step, lengths, clients, limit, room, chunk, prefill_first=run.engine in PREFILL_FIRST)
        return self._replays[key]


def _statistic(run: MeasuredRun, seen: Latency) -> float | str:
    """Return the row's own statistic of a steady state, which knows medians and 99th percentiles; TPOT's mean is close to its median."""
    quantity, statistic = run.metric.quantity, run.metric.statistic
    if statistic == "p99":
        return {"ttft": seen.ttft_p99_s, "tpot": seen.tpot_p99_s, "e2e": seen.e2e_p99_s}[quantity]
    if quantity == "ttft" and statistic == "mean":
        return "mean TTFT at a rate of arrivals is not predicted"
    return {"ttft": seen.ttft_p50_s, "tpot": seen.tpot_p50_s, "e2e": seen.e2e_p50_s}[quantity]


def version_of(run: MeasuredRun) -> str | None:
    """Return the engine's version where the row states one, in its own column or right behind the engine's name."""
    own = "" if run.row.engine_version.startswith("MLPerf") else run.row.engine_version
    found = VERSION.search(own) or VERSION_BEHIND.match(run.row.engine)
    return found[1] if found else None


def lengths_of(run: MeasuredRun, count: int) -> Lengths:
    """Return the lengths of a load test's requests: as drawn by its harness where that is known, else all alike."""
    prompt, output = run.input_tok, run.output_tok
    if run.length_low_frac is not None:
        low = run.length_low_frac

        def drawn(u: float) -> tuple[float, float]:
            at = 2.0 * (low + (1.0 - low) * u) / (1.0 + low)
            return prompt * at, output * at

        return spread_lengths(count, drawn)
    return [(max(round(prompt), 1), max(round(output), 1))] * count


def validate(catalog: Catalog, rows: Iterable[MeasuredRow]) -> Validation:
    """Predict every row that can be; the rest is skipped, each with its reason."""
    rows = list(rows)
    runs, skipped = resolve(catalog, rows)
    predictor = Predictor(catalog)
    found: list[Prediction] = []
    for run in runs:
        prediction = predictor.predict(run)
        if isinstance(prediction, str):
            skipped.append(SkippedRow(run.row.id, prediction, run.metric.quantity))
        else:
            found.append(prediction)
    return Validation(tuple(found), tuple(skipped), len(rows))


def error_groups(predictions: Sequence[Prediction], skipped: Iterable[SkippedRow] = ()) -> list[ErrorGroup]:
    """Return the errors by quantity over all rows, and by engine, accelerator, model and basis within each quantity."""
    left_out = Counter(row.quantity for row in skipped)
    buckets: dict[tuple[str, str, str], list[Prediction]] = defaultdict(list)
    for p in predictions:
        for by, key_of in GROUPINGS.items():
            buckets[p.run.metric.quantity, by, key_of(p)].append(p)
    return [_group(metric, by, key, own, left_out[metric] if by == "all" else 0) for (metric, by, key), own in sorted(buckets.items())]


def _group(metric: str, by: str, key: str, own: Sequence[Prediction], skipped_count: int) -> ErrorGroup:
    absolute = sorted(abs(p.err_frac) for p in own)
    at = min(int(0.9 * len(absolute)), len(absolute) - 1)
    inside = sum(p.is_inside for p in own) / len(own)
    bias = statistics.median(p.err_frac for p in own)
    return ErrorGroup(metric, by, key, len(own), skipped_count, statistics.median(absolute), absolute[at], bias, inside)
