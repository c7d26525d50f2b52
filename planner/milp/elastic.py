"""When nothing is feasible: which promises are in conflict, and how far each would have to give way."""

from __future__ import annotations

from dataclasses import dataclass

import highspy
import numpy as np

from planner.milp.constraints import CONSTRAINTS, supply_at_hand
from planner.milp.engine import Model, Run, build, run_highs, to_lp
from planner.schema.problem import NoSolution, ProblemData

SECONDS_EACH = 10.0
GAP_FRAC = 1e-3
BINDING = tuple(rows for rows in CONSTRAINTS if rows is not supply_at_hand)
"""The rows that bind: those that only tighten the relaxation would stand in the way of a promise that gives way."""


@dataclass(frozen=True)
class Promise:
    """One promise that could give way: the rows it stands for, its size, and how its excess is told."""

    name: str
    rows: tuple[str, ...]
    """Starts of the names of its rows."""
    size: float
    """What a part of 1 means: the budget, or the whole of a demand."""
    unit: str


def promises(d: ProblemData) -> tuple[Promise, ...]:
    """Return the promises that could give way, budgets first and demand last."""
    out: list[Promise] = []
    if d.capex_budget_usd is not None:
        out.append(Promise("budgets.capex_usd", ("capex_within_budget",), max(1.0, d.capex_budget_usd), "usd"))
    if d.opex_budget_usd_per_month is not None:
        out.append(Promise("budgets.opex_usd_per_month", ("opex_within_budget",), max(1.0, d.opex_budget_usd_per_month), "usd_per_month"))
    for site in sorted(d.sites, key=lambda x: x.id):
        if site.power_limit_w is not None:
            out.append(Promise(f"sites.{site.id}.power_limit_kw", (f"site_power__{site.id}__",), max(1.0, site.power_limit_w), "w"))
        if site.rack_units_limit_count is not None:
            size = max(1.0, float(site.rack_units_limit_count))
            out.append(Promise(f"sites.{site.id}.rack_units_count", (f"site_space__{site.id}__",), size, "count"))
    out.extend(
        Promise(f"quotas.{account}", (f"api_within_limits__{account}__",), 1.0, "frac") for account in sorted({x.account for x in d.apis})
    )
    workloads = sorted(d.workloads, key=lambda x: x.id)
    out.extend(Promise(f"workloads.{w.id}.availability", (), 1.0, "promise") for w in workloads if w.survive != "none")
    for w in workloads:
        row = "batch_work" if w.kind == "batch" else "demand_met"
        load = Promise(f"workloads.{w.id}.load", (f"{row}__{w.id}__",), 1.0, "frac")
        out.append(load)
    return tuple(out)


def explain(d: ProblemData) -> NoSolution:
    """Return which promises conflict: each that alone would make a plan exist with the least it must give, else the least joint set."""
    model = build(d, BINDING, ())
    alone: list[tuple[str, float, str]] = []
    reasons: list[str] = []
    known = promises(d)
    for p in known:
        excess, months = relaxed(model, (p,)) if p.rows else _without_survival(d, p)
        whole = p.name.endswith(".load") and excess.get(p.name, 0.0) >= 1.0 - 1e-6
        if p.name in excess and not whole:  # to serve nothing at all is no way out
            amount = excess[p.name] * p.size
            alone.append((p.name, amount, p.unit))
            reasons.append(_told(p, amount, months.get(p.name, ())))
    if alone:
        return NoSolution("infeasible", tuple(reasons), tuple(alone))
    soft = tuple(p for p in known if p.rows)
    excess, months = relaxed(model, soft)
    joint = tuple((p.name, excess[p.name] * p.size, p.unit) for p in soft if excess.get(p.name, 0.0) > 1e-6)
    told = tuple(
        "together with others: " + _told(p, excess[p.name] * p.size, months[p.name]) for p in soft if excess.get(p.name, 0.0) > 1e-6
    )
    return NoSolution(
        "infeasible", told or ("no promise that may give way makes a plan exist: minimum replicas, deadlines or shares conflict",), joint
    )


def _told(p: Promise, amount: float, months: tuple[int, ...]) -> str:
    if p.unit == "promise":
        return f"{p.name}: a plan exists without it"
    when = f" (from month {months[0]} of the plan)" if months else ""
    if p.name.endswith(".load"):
        return f"{p.name}: {amount:.4g} of it must go unserved at worst{when}"
    return f"{p.name} must rise by {amount:.6g} {p.unit}{when}"


def _without_survival(d: ProblemData, p: Promise) -> tuple[dict[str, float], dict[str, tuple[int, ...]]]:
    from dataclasses import replace

    loose = tuple(replace(w, survive="none") if p.name == f"workloads.{w.id}.availability" else w for w in d.workloads)
    run = run_highs(to_lp(build(replace(d, workloads=loose), BINDING, ())), gap_frac=1.0, time_limit_s=SECONDS_EACH)
    return ({p.name: 1.0} if run.status in ("optimal", "feasible") else {}), {}


def relaxed(model: Model, soft: tuple[Promise, ...]) -> tuple[dict[str, float], dict[str, tuple[int, ...]]]:
    """Return the least total excess of `soft` promises, each as a part of its size, and the months in which they give; {} if none helps.

    A budget or limit gives by one amount in all its rows; the demand of a workload by its own part in every cell (mean over the cells
    minimised, the worst reported).
    """
    extra: list[tuple[list[tuple[int, float]], float, Promise, str]] = []
    for p in soft:
        hit = [(i, name) for i, name in enumerate(model.row_names) if name.startswith(p.rows)]
        if not hit:
            continue
        if p.name.endswith(".load"):
            extra += [([(i, 1.0)], 100.0 / len(hit), p, name) for i, name in hit]
        else:
            extra.append(([(i, -p.size) for i, _ in hit], 1.0, p, ""))
    if not extra:
        return {}, {}
    run = _with_columns(model, extra)
    if run.status not in ("optimal", "feasible"):
        return {}, {}
    parts: dict[str, float] = {}
    months: dict[str, tuple[int, ...]] = {}
    slack = run.values[len(model.columns) :]
    for x, (_, _, p, name) in zip(slack, extra, strict=True):
        parts[p.name] = max(parts.get(p.name, 0.0), float(x))
        if name and x > 1e-6:
            m = int(name.split("__")[-2])
            months[p.name] = tuple(sorted({*months.get(p.name, ()), m}))
    return parts, {p.name: months.get(p.name, ()) for p in soft}


def _with_columns(model: Model, extra: list[tuple[list[tuple[int, float]], float, Promise, str]]) -> Run:
    n = len(model.columns)
    lp = to_lp(model)
    rows: list[list[tuple[int, float]]] = [[] for _ in model.row_names]
    for j, (entries, _, _, _) in enumerate(extra):
        for i, c in entries:
            rows[i].append((n + j, c))
    index: list[int] = []
    value: list[float] = []
    starts = [0]
    for i, more in enumerate(rows):
        a, b = model.starts[i], model.starts[i + 1]
        index += [*model.index[a:b], *(j for j, _ in more)]
        value += [*model.value[a:b], *(c for _, c in more)]
        starts.append(len(index))
    k = len(extra)
    lp.num_col_ = n + k
    lp.col_cost_ = np.concatenate([np.zeros(n), [cost for _, cost, _, _ in extra]])
    lp.col_lower_ = np.concatenate([model.lower, np.zeros(k)])
    lp.col_upper_ = np.concatenate([model.upper, [1.0 if p.name.endswith(".load") else 1e6 for _, _, p, _ in extra]])
    lp.integrality_ = [*lp.integrality_, *([highspy.HighsVarType.kContinuous] * k)]
    lp.a_matrix_.num_col_ = n + k
    lp.a_matrix_.start_ = np.array(starts, dtype=np.int32)
    lp.a_matrix_.index_ = np.array(index, dtype=np.int32)
    lp.a_matrix_.value_ = np.array(value, dtype=float)
    return run_highs(lp, gap_frac=GAP_FRAC, time_limit_s=SECONDS_EACH)
