"""`planner validate --calibrate`: the user's own constants of an engine on a GPU family, from their own measurements.

Three factors a pair of engine and GPU family: how much longer reads of memory, arithmetic and overhead take than the constants that
would be used say. They are found by least squares on the logarithms of measured over predicted, held near 1 by a prior, through
whatever predicts a row; `scaled` alone knows what a row of constants looks like.
"""

from __future__ import annotations

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from planner.catalog import Catalog
from planner.errors import AnswerIsNo, Fault, InputError
from planner.physics.efficiency import choose_efficiency, format_class
from planner.schema.efficiency import EfficiencyRow, FormatClass
from planner.schema.measured import MeasuredRun
from planner.validating import Prediction, Predictor, Validation

FACTORS = ("memory", "compute", "overhead")
LEAST_TESTS = 4
"""Load tests (loads or lengths) of an engine on a GPU family: with three factors, fewer would be reproduced and nothing learned."""
PRIOR_SPREAD = 0.5
"""How far a factor may lie from 1 before the rows must insist (a standard deviation of its logarithm; assumed)."""
NOISE_SPREAD = 0.1
TTFT_NOISE_SPREAD = 0.3
"""Scatter of a figure that no factor explains (assumed: what repeated load tests differ by; a first token waits for those that happen to
be sent with it). Figures of one quantity in one test (mean, median, p99) share the weight of one."""
MOST_FACTOR = 8.0
STEP = 0.05
ROUNDS = 6
HEADER = "# Written by planner validate --calibrate: constants fitted to your own measurements.\n"
PLACE = ("hardware", "efficiency")


@dataclass(frozen=True)
class CalibratedCell:
    """What one engine on one GPU family was found to do."""

    engine: str
    gpu_family: str
    factors: Mapping[str, float]
    """Times measured over times that the constants in use gave, by what takes them."""
    row_count: int
    test_count: int
    rows: tuple[EfficiencyRow, ...]


@dataclass(frozen=True)
class CalibrationError:
    """Median absolute error of one metric on the rows of the fit: before, after, and with each test left out of the fit in turn."""

    metric: str
    row_count: int
    before_frac: float
    after_frac: float
    left_out_frac: float


@dataclass(frozen=True)
class Calibration:
    """The whole answer."""

    cells: tuple[CalibratedCell, ...]
    errors: tuple[CalibrationError, ...]
    notes: tuple[str, ...]

    def as_json(self) -> dict[str, Any]:
        """Return cells, errors and notes as plain values."""
        return {
            "cells": [
                {
                    "engine": cell.engine, "gpu_family": cell.gpu_family, "time_factors": dict(cell.factors), "row_count": cell.row_count,
                    "test_count": cell.test_count, "efficiency_rows": [row.id for row in cell.rows],
                }
                for cell in self.cells
            ],
            "errors": [asdict(line) for line in self.errors],
            "notes": list(self.notes),
        }


def scaled(row: EfficiencyRow, log_factors: Sequence[float]) -> EfficiencyRow:
    """Return constants whose times of memory, arithmetic and overhead are longer by these factors; no share passes 1.

    Shares of bandwidth (`…mbu_frac`) and of peak (`…mfu_frac`) shrink by a factor on time, overheads (`…overhead_ms`, `…_us`) grow.
    """
    memory, compute, overhead = (math.exp(value) for value in log_factors)

    def at(place: str, value: Any) -> Any:
        if isinstance(value, dict) and place != "sources":
            return {key: at(f"{place}.{key}", below) for key, below in value.items()}
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return value
        if "mbu_frac" in place:
            return min(value / memory, 1.0)
        if "mfu_frac" in place:
            return min(value / compute, 1.0)
        return value * overhead if "overhead_" in place else value

    return EfficiencyRow.model_validate({name: at(name, value) for name, value in row.model_dump(exclude_unset=True).items()})


def calibrate(catalog: Catalog, found: Validation, files: Sequence[str], as_of: datetime | None = None) -> Calibration:
    """Fit the rows that were predicted, engine by engine and GPU family by family.

    Raises `AnswerIsNo`: `too_few_rows` where no pair of engine and family has `LEAST_TESTS` load tests, `no_gain` where tests left out of
    the fit are not predicted better than before.
    """
    day = (as_of or datetime.now(UTC)).date()
    pairs: dict[tuple[str, str], list[Prediction]] = defaultdict(list)
    for p in found.predictions:
        pairs[p.run.engine, p.run.gpu.family].append(p)
    fits: list[_Fit] = []
    notes: list[str] = []
    for (engine, family), own in sorted(pairs.items()):
        tests = {load_test_of(p.run) for p in own}
        if len(tests) < LEAST_TESTS:
            notes.append(
                f"left alone: {engine} on {family}, {len(own)} rows of {len(tests)} load tests; {LEAST_TESTS} tests of different "
                "loads or lengths are the least"
            )
            continue
        fits.append(_Fit(catalog, engine, family, own))
    if not fits:
        told = notes or ["no row could be predicted, so there is nothing to fit: see `planner validate` without --calibrate"]
        raise AnswerIsNo("too_few_rows", told)
    errors = _errors(fits)
    before = _mean_miss([fit.miss(fit.before) for fit in fits])
    left_out = _mean_miss([fit.miss(fit.left_out) for fit in fits])
    if left_out >= before:
        raise AnswerIsNo("no_gain", [
            f"not written: tests left out of the fit are missed by {math.expm1(left_out):.1%}, without any fit by {math.expm1(before):.1%}",
            "the constants in use fit these rows as well as their scatter allows; more tests at other loads and lengths may tell more",
            *notes,
        ])
    for fit in fits:
        unmoved = [name for name, told in zip(FACTORS, fit.is_told, strict=True) if not told]
        if unmoved:
            notes.append(f"{fit.engine} on {fit.family}: these rows say nothing of {' and '.join(unmoved)}, left as it was")
    return Calibration(tuple(fit.cell(files, day) for fit in fits), errors, tuple(notes))


def _mean_miss(misses: Sequence[tuple[float, float]]) -> float:
    return sum(miss for miss, _ in misses) / sum(weight for _, weight in misses)


def load_test_of(run: MeasuredRun) -> tuple[Any, ...]:
    """Return what the rows of one load test share: figures of one test are no independent witnesses."""
    where = (run.row.source, run.llm.id, run.weights.id, run.gpu.id, run.tp, run.pp)
    return (*where, run.input_tok, run.output_tok, run.load_kind, run.load_count)


class _Fit:
    """The fit of one engine on one GPU family; errors are logarithms of predicted over measured."""

    def __init__(self, catalog: Catalog, engine: str, family: str, own: Sequence[Prediction]) -> None:
        self.catalog, self.engine, self.family = catalog, engine, family
        self.runs = [p.run for p in own]
        self.tests = [load_test_of(run) for run in self.runs]
        known = {row.id: row for row in catalog.efficiency}
        self.bases: dict[FormatClass, list[EfficiencyRow]] = {}
        for cls in sorted({format_class(run.weights) for run in self.runs}):
            chosen = choose_efficiency(catalog.efficiency, engine, family, cls)
            self.bases[cls] = [_own(known[name], engine, family, cls) for name in chosen.row_ids]
        self.before = [math.log(p.typical / p.run.value) for p in own]
        alike = Counter(zip(self.tests, (run.metric.quantity for run in self.runs), strict=True))
        self.weights = [
            1.0 / (alike[test, run.metric.quantity] * (TTFT_NOISE_SPREAD if run.metric.quantity == "ttft" else NOISE_SPREAD) ** 2)
            for test, run in zip(self.tests, self.runs, strict=True)
        ]
        self.factors, self.is_told = self._fitted()
        self.after = self._errors_at(self.factors, range(len(self.runs)))
        self.left_out = self._left_out()

    def _errors_at(self, log_factors: Sequence[float], which: Sequence[int]) -> list[float]:
        """Return the errors of some rows with scaled constants; a row that can no longer be predicted keeps its error of before."""
        rows = [scaled(base, log_factors) for bases in self.bases.values() for base in bases]
        predictor = Predictor(replace(self.catalog, efficiency=self._overlaid(rows)))
        found = []
        for index in which:
            typical = predictor.typical(self.runs[index])
            found.append(self.before[index] if isinstance(typical, str) else math.log(typical / self.runs[index].value))
        return found

    def _overlaid(self, rows: Sequence[EfficiencyRow]) -> tuple[EfficiencyRow, ...]:
        return (*(row for row in self.catalog.efficiency if row.id not in {own.id for own in rows}), *rows)

    def _fitted(self) -> tuple[list[float], list[bool]]:
        """Gauss and Newton's steps on the prior and the rows together, each halved until it is better."""
        everything = range(len(self.runs))
        at = [0.0] * len(FACTORS)
        errors = self._errors_at(at, everything)
        self.slopes = self._slopes_at(at, errors)
        told = [max((abs(row[k]) for row in self.slopes), default=0.0) > 0.01 for k in range(len(FACTORS))]
        for _ in range(ROUNDS):
            step = self._solved(errors, at, everything)
            for _ in range(4):
                trial = [min(max(a + s, -math.log(MOST_FACTOR)), math.log(MOST_FACTOR)) for a, s in zip(at, step, strict=True)]
                tried = self._errors_at(trial, everything)
                if self._cost(tried, trial) < self._cost(errors, at):
                    break
                step = [s / 2.0 for s in step]
            else:
                break
            is_done = max(abs(t - a) for t, a in zip(trial, at, strict=True)) < 1e-3
            at, errors = trial, tried
            self.slopes = self._slopes_at(at, errors)
            if is_done:
                break
        return [value if is_told else 0.0 for value, is_told in zip(at, told, strict=True)], told

    def _cost(self, errors: Sequence[float], at: Sequence[float]) -> float:
        return sum(w * e * e for w, e in zip(self.weights, errors, strict=True)) + sum(a * a for a in at) / PRIOR_SPREAD**2

    def _solved(self, errors: Sequence[float], at: Sequence[float], which: Sequence[int]) -> list[float]:
        """Return the step that the normal equations of some rows and the prior ask for."""
        import numpy as np

        slopes, missed = np.array([self.slopes[i] for i in which]), np.array([errors[i] for i in which])
        weighted = slopes.T * np.array([self.weights[i] for i in which])
        prior = np.eye(len(FACTORS)) / PRIOR_SPREAD**2
        return [float(value) for value in np.linalg.solve(weighted @ slopes + prior, -weighted @ missed - prior @ np.array(at))]

    def miss(self, errors: Sequence[float]) -> tuple[float, float]:
        """Return (weighted sum of absolute errors, sum of weights)."""
        return sum(w * abs(e) for w, e in zip(self.weights, errors, strict=True)), sum(self.weights)

    def _slopes_at(self, at: Sequence[float], errors: Sequence[float]) -> list[list[float]]:
        """Return how each row's error moves with each factor's logarithm."""
        columns = []
        for k in range(len(FACTORS)):
            moved = self._errors_at([value + STEP * (j == k) for j, value in enumerate(at)], range(len(errors)))
            columns.append([(b - a) / STEP for a, b in zip(errors, moved, strict=True)])
        return [list(row) for row in zip(*columns, strict=True)]

    def _left_out(self) -> list[float]:
        """Return each row's error with constants fitted to the other tests alone."""
        found = [0.0] * len(self.runs)
        for test in dict.fromkeys(self.tests):
            kept = [i for i, other in enumerate(self.tests) if other != test]
            out = [i for i, other in enumerate(self.tests) if other == test]
            step = self._solved(self.after, self.factors, kept)
            at = [f + s if told else 0.0 for f, s, told in zip(self.factors, step, self.is_told, strict=True)]
            for index, error in zip(out, self._errors_at(at, out), strict=True):
                found[index] = error
        return found

    def cell(self, files: Sequence[str], day: Any) -> CalibratedCell:
        """Return the rows to write: kind, counts, spread and band are those of this fit, the band from the tests left out."""
        times = sorted(-e if run.metric.unit == "tok_per_s" else e for e, run in zip(self.left_out, self.runs, strict=True))
        slow, fast = (math.exp(-times[min(int(q * len(times)), len(times) - 1)]) for q in (0.1, 0.9))
        rows = []
        for cls, base in ((cls, base) for cls, bases in self.bases.items() for base in bases):
            own = [i for i, run in enumerate(self.runs) if format_class(run.weights) == cls]
            values = scaled(base, self.factors).model_dump(exclude_unset=True)
            values.update(
                kind="measured", row_count=len(own), group_count=len({self.tests[i] for i in own}), origin=tuple(files)[:50],
                spread_frac=min(math.expm1(statistics.median(abs(self.after[i]) for i in own)), 100.0),
                sources={"default": {
                    "kind": "measured", "locator": f"doc:{', '.join(files)}"[:1000], "retrieved_on": day,
                    "note": "planner validate --calibrate: times of memory, compute and overhead x "
                    + ", ".join(f"{math.exp(value):.3f}" for value in self.factors) + f" of row {base.id}",
                }},
            )
            rows.append(EfficiencyRow.model_validate(_banded(values, min(max(slow, 1.0), 100.0), max(min(fast, 1.0), 1e-3))))
        named = {name: math.exp(value) for name, value in zip(FACTORS, self.factors, strict=True)}
        return CalibratedCell(self.engine, self.family, named, len(self.runs), len(set(self.tests)), tuple(rows))


def _own(row: EfficiencyRow, engine: str, family: str, cls: FormatClass) -> EfficiencyRow:
    """Return a row as the constants of exactly this engine, family and class, under an id that replaces a shipped row of the same."""
    if (row.engine, row.gpu_family) == (engine, family) and row.format_class in (cls, "any"):
        return row
    phase = getattr(row, "phase", None)
    name = ".".join(part for part in (engine, family, cls, phase) if part)
    return row.model_copy(update={"id": name, "engine": engine, "gpu_family": family, "format_class": cls})


def _banded(values: dict[str, Any], slow: float, fast: float) -> dict[str, Any]:
    """Return a row's values with the band that tests left out of the fit span: times at its slow and fast end over typical ones."""
    if "slow_frac" in EfficiencyRow.model_fields:
        return {**values, "slow_frac": slow, "fast_frac": fast}

    def around(typical: float) -> dict[str, float]:
        return {"low": typical / slow, "typical": typical, "high": max(min(typical / fast, 1.0), typical)}

    return {name: around(v["typical"]) if isinstance(v, dict) and "typical" in v else v for name, v in values.items()}


def _rounded(value: Any) -> Any:
    """Return figures with six digits that count, everything inside."""
    if isinstance(value, float):
        return float(f"{value:.6g}")
    if isinstance(value, dict):
        return {key: _rounded(below) for key, below in value.items()}
    return [_rounded(below) for below in value] if isinstance(value, list) else value


def _errors(fits: Sequence[_Fit]) -> tuple[CalibrationError, ...]:
    by_metric: dict[str, list[tuple[float, float, float]]] = defaultdict(list)
    for fit in fits:
        for run, *errors in zip(fit.runs, fit.before, fit.after, fit.left_out, strict=True):
            by_metric[run.metric.quantity].append(tuple(abs(math.expm1(e)) for e in errors))  # type: ignore[arg-type]
    return tuple(
        CalibrationError(metric, len(own), *(statistics.median(column) for column in zip(*own, strict=True)))
        for metric, own in sorted(by_metric.items())
    )


def write_overlay(fitted: Calibration, path: Path) -> str:
    """Write the rows as a file of `hardware/efficiency/` and return how to use it.

    Raises `InputError`: a name that is no YAML file's, a file that is not of this command, a folder that cannot be written.
    """
    import yaml

    if path.suffix.lower() not in (".yaml", ".yml"):
        raise InputError([Fault(str(path), None, "--calibrate", "is no YAML file's name", "write e.g. mine/hardware/efficiency/own.yaml")])
    steps = [_rounded(row.model_dump(mode="json", exclude_unset=True)) for cell in fitted.cells for row in cell.rows]
    try:
        if path.exists() and not (path.is_file() and path.read_text(encoding="utf-8", errors="replace").startswith(HEADER)):
            raise InputError([Fault(str(path), None, "--calibrate", "is there already and not of this command", "give another name")])
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(HEADER + yaml.safe_dump({"steps": steps}, sort_keys=False, allow_unicode=True, width=140), encoding="utf-8")
    except OSError as error:
        raise InputError([Fault(str(path), None, "--calibrate", f"cannot be written: {error.strerror}", "check the folder")]) from error
    folder = path.parent
    if folder.parts[-2:] == PLACE:
        root = folder.parent.parent.as_posix()
        return f"use it: planner estimate --catalog {root} …, planner solve --catalog {root} …"
    return f"use it: put it into FOLDER/{'/'.join(PLACE)}/, then planner estimate --catalog FOLDER …, planner solve --catalog FOLDER …"
