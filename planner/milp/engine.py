"""PuLP and HiGHS: build the program, hand it over as arrays, run it, read what may be believed.

What the two do that nothing else needs to know: a stop at the time limit sets PuLP's `status` to Optimal (`sol_status` tells it from a
proof); an infeasible model leaves variables at 0.0; the default relative gap is 1e-4; HiGHS prints a banner unless `output_flag` is off;
one process keeps one thread count; PuLP turns `-` into `_` and drops empty rows. The model of record is a PuLP problem (written out as
.lp, solved by other PuLP solvers as a cross-check); HiGHS receives it in one call, for PuLP's own hand-over row by row is slow.
"""

from __future__ import annotations

import contextlib
import ctypes
import io
import os
import sys
import threading
import time
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import highspy
import numpy as np
import numpy.typing as npt
import pulp

from planner.milp.constraints import CONSTRAINTS, Row
from planner.milp.costs import COSTS, factors
from planner.milp.problem import Sets, Variables, make_variables
from planner.schema.problem import ProblemData

Floats = npt.NDArray[np.float64]
_SENSE = {"<=": pulp.LpConstraintLE, ">=": pulp.LpConstraintGE, "==": pulp.LpConstraintEQ}
SEED = 1
_SWAPPING_STDOUT = threading.Lock()


@dataclass
class Model:
    """A PuLP problem with its variables by index, and the same as arrays."""

    problem: pulp.LpProblem
    variables: Variables
    keys: list[tuple[str, tuple[Any, ...]]]
    """Family and index of each column, in column order."""
    columns: list[Any]
    lower: Floats = field(default_factory=lambda: np.zeros(0))
    upper: Floats = field(default_factory=lambda: np.zeros(0))
    is_integer: npt.NDArray[np.bool_] = field(default_factory=lambda: np.zeros(0, dtype=bool))
    cost: Floats = field(default_factory=lambda: np.zeros(0))
    starts: list[int] = field(default_factory=lambda: [0])
    index: list[int] = field(default_factory=list)
    value: list[float] = field(default_factory=list)
    row_lower: list[float] = field(default_factory=list)
    row_upper: list[float] = field(default_factory=list)
    row_names: list[str] = field(default_factory=list)

    def add_row(self, row: Row) -> None:
        """Add one row; a row without variables that does not hold makes the model infeasible by name instead of vanishing."""
        at = self.column_of
        self.index.extend([at[id(x)] for x, _ in row.terms])
        self.value.extend([c for _, c in row.terms])
        self.starts.append(len(self.index))
        self.row_lower.append(-highspy.kHighsInf if row.sense == "<=" else row.rhs)
        self.row_upper.append(highspy.kHighsInf if row.sense == ">=" else row.rhs)
        self.row_names.append(row.name)

    def __post_init__(self) -> None:
        self.column_of = {id(x): i for i, x in enumerate(self.columns)}


def build(d: ProblemData, constraints: Sequence[Any] = CONSTRAINTS, costs: Sequence[Any] = COSTS, name: str = "plan") -> Model:
    """Return the program of a problem: all variables, the rows of `constraints` in order, the sum of `costs` as objective."""
    problem = pulp.LpProblem(name, pulp.LpMinimize)
    keys: list[tuple[str, tuple[Any, ...]]] = []
    columns: list[Any] = []
    bounds: list[tuple[float, float, bool]] = []

    def make(family: str, index: tuple[Any, ...], low: float, high: float, kind: str) -> Any:
        text = "__".join([family, *map(str, index)])
        x = problem.add_variable(text, low, high, pulp.LpContinuous if kind == "real" else pulp.LpInteger)
        keys.append((family, index))
        columns.append(x)
        bounds.append((low, high, kind != "real"))
        return x

    v = make_variables(d, make, Sets(d))
    model = Model(problem, v, keys, columns)
    model.lower = np.array([b[0] for b in bounds], dtype=float)
    model.upper = np.array([b[1] for b in bounds], dtype=float)
    model.is_integer = np.array([b[2] for b in bounds], dtype=bool)
    model.cost = np.zeros(len(columns))
    factor = factors(d)
    at = model.column_of
    for line in costs:
        for f in line(v, d):
            model.cost[at[id(f.x)]] += f.usd * factor[f.after_months]
    for rows in constraints:
        for row in rows(v, d):
            model.add_row(row)
    return model


def fill_pulp(model: Model) -> pulp.LpProblem:
    """Return the PuLP problem with the model's rows and objective written into it."""
    p, columns = model.problem, model.columns
    if p.objective is None:
        p.setObjective(pulp.LpAffineExpression({x: c for x, c in zip(columns, model.cost, strict=True) if c}))
        for i, name in enumerate(model.row_names):
            a, b = model.starts[i], model.starts[i + 1]
            e = pulp.LpAffineExpression({columns[j]: c for j, c in zip(model.index[a:b], model.value[a:b], strict=True)})
            low, high = model.row_lower[i], model.row_upper[i]
            sense = _SENSE["=="] if low == high else _SENSE["<="] if low == -highspy.kHighsInf else _SENSE[">="]
            p.addConstraint(pulp.LpConstraint(e, sense, name, high if sense == _SENSE["<="] else low))
    return p


def to_lp(model: Model) -> highspy.HighsLp:
    """Return the model as HiGHS takes it, rows one after the other."""
    lp = highspy.HighsLp()
    n, m = len(model.columns), len(model.row_names)
    lp.num_col_, lp.num_row_ = n, m
    lp.col_cost_, lp.col_lower_, lp.col_upper_ = model.cost, model.lower, model.upper
    lp.row_lower_, lp.row_upper_ = np.array(model.row_lower, dtype=float), np.array(model.row_upper, dtype=float)
    lp.a_matrix_.format_ = highspy.MatrixFormat.kRowwise
    lp.a_matrix_.num_col_, lp.a_matrix_.num_row_ = n, m
    lp.a_matrix_.start_ = np.array(model.starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(model.index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(model.value, dtype=float)
    kinds = (highspy.HighsVarType.kContinuous, highspy.HighsVarType.kInteger)
    lp.integrality_ = [kinds[int(b)] for b in model.is_integer]
    return lp


@dataclass(frozen=True)
class Run:
    """What a solver said, already told apart: only `optimal` and `feasible` carry values."""

    status: Literal["optimal", "feasible", "infeasible", "no_incumbent"]
    values: Floats
    objective: float
    bound: float
    seconds: float
    stopped_by_clock: bool
    solver_name: str
    duals: Floats = field(default_factory=lambda: np.zeros(0))
    """Of the rows, for a program without whole variables."""


def _quiet_highs() -> Any:
    """Return a new HiGHS whose banner, written by the C library before any option can be set, does not reach standard output.

    One at a time: of two threads that swap the process's standard output at once, the second would put the sink back for good.
    """
    make: Any = highspy.Highs
    with _SWAPPING_STDOUT:
        sys.stdout.flush()
        kept = os.dup(1)
        try:
            with Path(os.devnull).open("w") as sink:
                os.dup2(sink.fileno(), 1)
                h = make()
                h.setOptionValue("output_flag", False)
                ctypes.CDLL(None).fflush(None)
        finally:
            os.dup2(kept, 1)
            os.close(kept)
    return h


def new_highs(time_limit_s: float | None = None, gap_frac: float = 0.0, **options: Any) -> Any:
    """Return a silent HiGHS on one thread with a fixed seed."""
    h = _quiet_highs()
    h.setOptionValue("output_flag", False)
    h.setOptionValue("threads", 1)
    h.setOptionValue("random_seed", SEED)
    h.setOptionValue("mip_rel_gap", float(gap_frac))
    h.setOptionValue("mip_abs_gap", 0.0 if gap_frac == 0 else 1e-6)
    h.setOptionValue("mip_feasibility_tolerance", 1e-7)
    h.setOptionValue("primal_feasibility_tolerance", 1e-8)
    if time_limit_s is not None:
        h.setOptionValue("time_limit", float(max(time_limit_s, 0.01)))
    for key, value in options.items():
        h.setOptionValue(key, value)
    return h


def run_highs(lp: highspy.HighsLp, *, gap_frac: float, time_limit_s: float | None, start: Floats | None = None, **options: Any) -> Run:
    """Solve one program with HiGHS and return what may be believed of it."""
    began = time.perf_counter()
    h = new_highs(time_limit_s, gap_frac, **options)
    name = f"highs {h.version()}"
    if h.passModel(lp) == highspy.HighsStatus.kError:
        raise ValueError("HiGHS refused the model: a coefficient or bound is not a finite number")
    if start is not None:
        solution = highspy.HighsSolution()
        solution.col_value = [float(x) for x in start]
        h.setSolution(solution)
    h.run()
    seconds = time.perf_counter() - began
    status, info = h.getModelStatus(), h.getInfo()
    done = highspy.HighsModelStatus
    empty = np.zeros(0)
    if status in (done.kInfeasible, done.kUnboundedOrInfeasible):
        return Run("infeasible", empty, 0.0, 0.0, seconds, False, name)
    clock = status == done.kTimeLimit
    is_mip = any(t != highspy.HighsVarType.kContinuous for t in lp.integrality_)
    if status == done.kOptimal or info.primal_solution_status == 2:
        values = np.array(h.getSolution().col_value, dtype=float)
        objective = float(info.objective_function_value)
        bound = float(info.mip_dual_bound) if is_mip else objective
        duals = np.zeros(0) if is_mip else np.array(h.getSolution().row_dual, dtype=float)
        return Run("optimal" if status == done.kOptimal else "feasible", values, objective, bound, seconds, clock, name, duals)
    bound = float(info.mip_dual_bound) if is_mip else -highspy.kHighsInf
    return Run("no_incumbent", empty, 0.0, bound, seconds, clock, name)


def run_pulp(model: Model, solver: str, *, gap_frac: float, time_limit_s: float | None) -> Run:
    """Solve with another solver that PuLP knows, as a cross-check: it gives no bound, so the bound is -inf unless it claims a proof."""
    problem = fill_pulp(model)
    known = {name.lower(): name for name in pulp.listSolvers()}
    name = known.get(solver.lower()) or known.get({"cbc": "pulp_cbc_cmd", "highs_pulp": "highs"}.get(solver.lower(), ""))
    if name is None:
        raise ValueError(f"no solver '{solver}' in PuLP; known: highs, cbc, {', '.join(sorted(known))}")
    began = time.perf_counter()
    with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # PuLP 3.3 announces that 4.0 ships no CBC; the pin stays below 4
        problem.solve(pulp.getSolver(name, msg=False, gapRel=gap_frac, timeLimit=time_limit_s))
    seconds = time.perf_counter() - began
    values = np.array([x.varValue or 0.0 for x in model.columns], dtype=float)
    objective = float(values @ model.cost)
    if problem.sol_status == pulp.LpSolutionOptimal:
        return Run("optimal", values, objective, objective - abs(objective) * gap_frac, seconds, False, name.lower())
    if problem.sol_status == pulp.LpSolutionIntegerFeasible:
        return Run("feasible", values, objective, -float("inf"), seconds, True, name.lower())
    if problem.sol_status == pulp.LpSolutionInfeasible:
        return Run("infeasible", np.zeros(0), 0.0, 0.0, seconds, False, name.lower())
    return Run("no_incumbent", np.zeros(0), 0.0, -float("inf"), seconds, True, name.lower())
