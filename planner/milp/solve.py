"""Solve a problem: build, run, round, re-solve the continuous part, re-price, re-check; or say why there is no plan."""

from __future__ import annotations

import itertools
import math
import time
from dataclasses import replace
from typing import Any

import highspy
import numpy as np

from planner.milp.check import check_problem, unservable
from planner.milp.costs import priced
from planner.milp.dominance import prune as drop_dominated
from planner.milp.elastic import explain
from planner.milp.engine import Floats, Model, Run, build, run_highs, run_pulp, to_lp
from planner.milp.focus import focus
from planner.milp.months import relaxed_bound, run_months
from planner.milp.problem import HELD_KINDS, Sets, Variables
from planner.milp.stages import run_stages
from planner.milp.verify import check_solution
from planner.schema.problem import NoSolution, ProblemData, Solution

NOISE = 1e-9
CRUMB = 1e-6
"""Smallest part of a load that is taken to be meant."""
WHOLE_COUNT = 1500
"""Whole unknowns up to which one run of the solver proves the optimum fast; beyond, months are taken apart."""
FOCUS_FROM_COUNT = 12
"""Pools beyond which a plan is first looked for among the few that look best."""
MAX_CHOICES = 6
"""Combinations of variants that are solved one by one; more are left open within each month (the bound holds, the gap may stay)."""


def solve(
    problem: ProblemData, *, gap_frac: float = 1e-3, time_limit_s: float | None = 60, solver: str = "highs", is_sketch: bool = False
) -> Solution | NoSolution:
    """Return the cheapest plan with its proven bound, or why there is none.

    A sketch looks less far (bounded by counts, so it is reproducible): good enough to compare with, its gap stated.
    `gap_frac` is the relative distance to the bound at which the search may stop; a stop by the clock before that returns status
    `feasible` with the gap reached and `is_reproducible` False, or `NoSolution("time_limit")` where no plan was found. Errors:
    `InputError` for a problem of the wrong shape, `SolutionRefused` where the solver's answer fails the independent check.
    """
    began = time.perf_counter()
    check_problem(problem)
    lost = unservable(problem)
    if lost:
        return NoSolution("no_candidate", lost)
    small = drop_dominated(problem)[0]
    model = build(small)
    if solver == "highs" and problem.months_count > 1 and int(model.is_integer.sum()) > WHOLE_COUNT:
        small, model, run = by_choice(small, model, gap_frac, time_limit_s, is_sketch)
    elif solver == "highs":
        run = run_highs(to_lp(model), gap_frac=gap_frac, time_limit_s=time_limit_s)
    else:
        run = run_pulp(model, solver, gap_frac=gap_frac, time_limit_s=time_limit_s)
    if run.status == "infeasible":
        return explain(problem)
    if run.status == "no_incumbent":
        return NoSolution("time_limit", (f"no plan was found within {time_limit_s:g} s: allow more time (--time-limit)",))
    return finish(problem, small, model, run, gap_frac, began)


def by_choice(d: ProblemData, model: Model, gap_frac: float, time_limit_s: float | None, is_sketch: bool) -> tuple[ProblemData, Model, Run]:
    """Solve a large problem month by month; return the part that holds the best plan, its model, and a run with a bound of all of `d`.

    A plan is looked for where it most likely is (`focus`), once for each choice of variants. Where that is not the whole problem, the
    whole gives the bound: the relaxation of its months, and a search of its own in the time that is left. Without any plan the stages of
    `stages.py` are tried.
    """
    began = time.perf_counter()
    limit = 600.0 if time_limit_s is None else time_limit_s

    def left() -> float:
        return max(0.5, limit - (time.perf_counter() - began))

    part = focus(d) if len(d.pools) > FOCUS_FROM_COUNT else d
    is_whole = len(part.candidates) == len(d.candidates)
    best, bound, clock = _choose(part, model if is_whole else None, gap_frac, left() if is_whole else left() / 2, is_sketch, math.inf)
    if not is_whole:
        bound = relaxed_bound(model)
        if best is not None and best[2].objective - bound > gap_frac * abs(best[2].objective) and not is_sketch:
            other, whole_bound, late = _choose(d, model, gap_frac, left(), is_sketch, best[2].objective)
            bound, clock = max(bound, whole_bound), clock or late
            if other is not None and other[2].objective < best[2].objective:
                best = other
    if best is None:
        return d, model, run_stages(model, gap_frac=gap_frac, time_limit_s=left())
    problem, mine, run = best
    return problem, mine, replace(run, bound=min(bound, run.objective), stopped_by_clock=clock)


def _choose(
    d: ProblemData, model: Model | None, gap_frac: float, seconds: float, is_sketch: bool, cutoff: float
) -> tuple[tuple[ProblemData, Model, Run] | None, float, bool]:
    """Return (best part, bound, whether the clock stopped it) over the choices of variants."""
    began = time.perf_counter()
    parts = choices(d)
    best: tuple[ProblemData, Model, Run] | None = None
    bound, clock = math.inf, False
    for i, part in enumerate(parts):
        mine = model if model is not None and len(parts) == 1 else build(part)
        each = max(0.5, (seconds - (time.perf_counter() - began)) / (len(parts) - i))
        run = run_months(mine, gap_frac=gap_frac, time_limit_s=each, cutoff_usd=cutoff, is_sketch=is_sketch)
        if run.status == "infeasible":
            continue
        bound, clock = min(bound, run.bound), clock or run.stopped_by_clock
        if run.status in ("optimal", "feasible") and run.objective < cutoff:
            best, cutoff = (part, mine, run), run.objective
    return best, bound, clock


def choices(d: ProblemData) -> list[ProblemData]:
    """Return the problem once for each combination of one variant a workload, or as it is where there are too many."""
    options: dict[str, list[str]] = {}
    for k in d.candidates:
        for w in k.req_per_s_by_workload:
            options.setdefault(w, [])
            if k.variant not in options[w]:
                options[w].append(k.variant)
    open_choices = {w: sorted(v) for w, v in sorted(options.items()) if len(v) > 1}
    if not open_choices or math.prod(len(v) for v in open_choices.values()) > MAX_CHOICES:
        return [d]
    found = []
    for combination in itertools.product(*open_choices.values()):
        chosen = dict(zip(open_choices, combination, strict=True))
        kept = []
        for k in d.candidates:
            rates = {w: x for w, x in k.req_per_s_by_workload.items() if chosen.get(w, k.variant) == k.variant}
            if rates:
                kept.append(replace(k, req_per_s_by_workload=rates))
        found.append(drop_dominated(replace(d, candidates=tuple(kept)))[0])
    return found


def finish(problem: ProblemData, pruned: ProblemData, model: Model, run: Run, gap_frac: float, began: float) -> Solution:
    """Return the priced solution of a run that has values, checked against the whole problem."""
    values = polish(model, run.values)
    v = numbers(model, values)
    drop_crumbs(v)
    solution = read_solution(pruned, model, v, run, gap_frac, time.perf_counter() - began)
    check_solution(problem, solution)
    return solution


def polish(model: Model, values: Floats) -> Floats:
    """Return the solution with integers rounded and the rest solved again for them, so that nothing rests on a tolerance."""
    whole = np.where(model.is_integer, np.round(values), values)
    lp = to_lp(model)
    lp.col_lower_ = np.where(model.is_integer, whole, model.lower)
    lp.col_upper_ = np.where(model.is_integer, whole, model.upper)
    lp.integrality_ = [highspy.HighsVarType.kContinuous] * len(values)
    again = run_highs(lp, gap_frac=0.0, time_limit_s=None)
    if again.status != "optimal":
        return np.asarray(whole)
    return np.where(model.is_integer, whole, again.values)


def numbers(model: Model, values: Floats) -> Variables:
    """Return `Variables` that hold numbers instead of unknowns."""
    v = Variables(model.variables.sets)
    for (family, index), x, is_int, low, high in zip(model.keys, values, model.is_integer, model.lower, model.upper, strict=True):
        table: dict[Any, Any] = getattr(v, family)
        number = float(round(x)) if is_int else float(min(max(x, low), high))
        if not is_int and abs(number) < NOISE:
            number = 0.0
        table[index if len(index) > 1 else index[0]] = int(number) if is_int else number
    return v


def drop_crumbs(v: Variables) -> None:
    """Move parts of a load below `CRUMB` to its largest part: they are tolerance, and a rule would count them as running."""
    parts: dict[tuple[Any, ...], list[tuple[float, dict[Any, Any], Any]]] = {}
    for table in (v.share, v.call):
        for key, x in table.items():
            if x > 0:
                parts.setdefault((key[0], *key[2:]), []).append((x, table, key))
    for load in parts.values():
        most, largest, at = max(load, key=lambda part: part[0])
        for x, table, key in load:
            if x < CRUMB < most:
                table[key] = 0.0
                largest[at] += x


def read_solution(d: ProblemData, model: Model, v: Variables, run: Run, gap_frac: float, seconds: float) -> Solution:
    s: Sets = v.sets
    nodes = {}
    for p in s.pools:
        for m in s.months:
            for t in s.slices:
                n = v.held[p.id, m] if p.kind in HELD_KINDS else v.nodes[p.id, m, t]
                if n:
                    nodes[p.id, m, t] = n
    share = {key: x for key, x in v.share.items() if x > 0}
    use: dict[str, str] = {}
    variant = {k.id: k.variant for k in s.candidates}
    for w, k, _, _ in share:
        use.setdefault(w, variant[k])
    for (name, workload), on in v.use.items():
        if on and workload in use:
            use[workload] = name
    held_months = {m for _, m, _ in nodes}
    site_of = {p.id: p.site for p in s.pools if p.kind in ("own", "existing")}
    npv, cash = priced(v, d)
    total = sum(npv.values())
    bound = min(run.bound, total)
    gap = (total - bound) / abs(total) if abs(total) > NOISE else abs(total - bound)
    proven = gap <= gap_frac + 1e-7
    return Solution(
        status="optimal" if proven else "feasible",
        npv_cost_usd=total,
        npv_bound_usd=bound,
        gap_frac=gap,
        is_reproducible=not run.stopped_by_clock,
        solver_name=run.solver_name,
        solve_seconds=seconds,
        buy={key: n for key, n in v.buy.items() if n},
        nodes=nodes,
        replicas={key: n for key, n in v.replicas.items() if n},
        share=share,
        call={key: x for key, x in v.call.items() if x > 0},
        use=dict(sorted(use.items())),
        open_sites={
            (site, m): True
            for site in sorted({x.id for x in s.sites})
            for m in s.months
            if any(site_of.get(p) == site and n == m for p, n, _ in nodes)
        },
        self_host={m: m in held_months for m in s.months},
        cost_npv_usd=npv,
        cost_usd_by_month=cash,
        row_count=len(model.row_names),
        column_count=len(model.columns),
    )
