"""Workload file + catalog → plan: prepare, prune, solve, price again, compare, explain."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, replace
from datetime import UTC, date, datetime
from pathlib import Path

from planner import __version__
from planner.candidates.build import Prepared, prepare
from planner.catalog import Catalog, load_catalog
from planner.errors import AnswerIsNo
from planner.milp import solve
from planner.milp.costs import CAPITAL
from planner.milp.dominance import Pruned
from planner.milp.elastic import explain, promises
from planner.milp.prune import prune
from planner.plan.alternatives import Solve, alternatives, bridge_gap, one, tco_usd, without_privacy
from planner.plan.break_even import break_evens
from planner.plan.decisions import bills, cost_lines, decisions, dispatch, timeslices, usage
from planner.plan.evidence import LIMITATIONS, assumptions, data_used, evidence, inputs, risks, row_name, used_rows
from planner.plan.pools import call_bill, fixed_npv_usd
from planner.plan.words import headline, month_label, names, plain, usd
from planner.plan.workloads import workload_plans
from planner.schema.plan import Alternative, Plan, Run, SolverReport
from planner.schema.problem import NoSolution, ProblemData, Solution
from planner.schema.workload import WorkloadFile
from planner.units import MONTHS_PER_YEAR

REPRICE_TOLERANCE = 1e-6
ALL_OF_IT = 1.0 - 1e-6
"""From this part of a load on, serving less is no lever: it would be served not at all."""


@dataclass(frozen=True)
class Options:
    """How hard to look, and what to accept."""

    prices: date | None = None
    """A snapshot's day; the file's own if left out."""
    as_of: date | None = None
    gap_frac: float = 1e-3
    time_limit_s: float = 60.0
    alternative_gap_frac: float = 1e-2
    allow_stale: bool = False
    timeslice_count: int = 8
    command: str = ""
    progress: Callable[[str], None] = lambda _: None


def make_plan(file: WorkloadFile, catalog: Catalog | None = None, options: Options | None = None) -> Plan:
    """Return the cheapest plan that keeps every promise of the file.

    Raises `InputError` for names the catalog does not know or keys that are not planned yet, and `AnswerIsNo` with a `reason_code`
    (`infeasible`, `no_supply`, `stale_prices`, `time_limit`) where there is no plan, saying which promise to relax and by how much.
    """
    options = options or Options()
    catalog = catalog or load_catalog()
    started_at, began = datetime.now(UTC), time.perf_counter()
    snapshot = catalog.snapshot(options.prices or file.plan.prices)
    as_of = options.as_of or file.plan.as_of or started_at.date()
    options.progress("finding what fits and keeps its promises")
    prepared = prepare(file, catalog, snapshot, as_of, allow_stale=options.allow_stale, timeslice_count=options.timeslice_count)
    refuse_without_supply(prepared)
    problem, pruned = prune(prepared.problem)
    note_pruned(prepared, pruned)
    options.progress(
        f"choosing among {len(problem.pools)} pools, {len(problem.candidates)} replica shapes and {len(problem.apis)} API offers"
    )
    solution = solve(problem, gap_frac=options.gap_frac, time_limit_s=options.time_limit_s)
    if isinstance(solution, NoSolution):
        raise no_plan(solution, prepared)
    options.progress("comparing with the plans of one kind")

    def quick(other: ProblemData) -> Solution | NoSolution:
        return solve(prune(other)[0], gap_frac=options.alternative_gap_frac, time_limit_s=None, is_sketch=True)

    beside = list(alternatives(prepared, prepared.problem, solution, quick))
    beside.extend(_rule_cost(prepared, solution, quick))
    return assemble(prepared, problem, solution, tuple(beside), options, started_at, began)


def note_pruned(prepared: Prepared, pruned: Sequence[Pruned]) -> None:
    """Keep every pool that was left out with a proof as an exclusion, the proof in names instead of ids."""
    called = {p: pool.name for p, pool in prepared.pools.items()} | {a: offer.name for a, offer in prepared.offers.items()}
    for drop in pruned:
        if drop.id not in prepared.pools:
            continue
        by = [called.get(key, key) for key in drop.dominated_by.split(", ") if key]
        reason = drop.proof if not by else f"never better than {names(by)}"
        for w in prepared.pools[drop.id].workloads:
            prepared.ledger.exclude(w, prepared.pools[drop.id].name, "dominated", reason)


def assemble(
    prepared: Prepared,
    problem: ProblemData,
    solution: Solution,
    beside: tuple[Alternative, ...],
    options: Options,
    started_at: datetime,
    began: float,
) -> Plan:
    """Return the plan file's content from a solution. Raises `AssertionError` where a second pricing does not match the objective."""
    file = prepared.file
    billed = bills(problem, solution)
    difference = reprice_difference(problem, solution)
    if difference > REPRICE_TOLERANCE:
        raise AssertionError(f"pricing the plan again gives a difference of {difference:.3g} of its cost")
    done = decisions(prepared, problem, solution, billed)
    lines = cost_lines(solution)
    plans = workload_plans(prepared, problem, solution, billed)
    staff = sum(solution.cost_usd_by_month.get("staff", (0.0,)))
    return Plan(
        title=plain(Path(file.path).stem), start=month_label(file.plan.start, 0), as_of=prepared.as_of, horizon_months=problem.months_count,
        timezone=file.plan.timezone, discount_frac_per_year=file.plan.discount_frac_per_year, prices_day=prepared.snapshot.day,
        inputs=inputs(prepared, solution), headline=headline(done, solution.npv_cost_usd, problem.months_count, beside), decisions=done,
        cost_lines=lines, npv_cost_usd=solution.npv_cost_usd, tco_usd=tco_usd(solution),
        first_year_usd=sum(sum(line.usd_by_month[: min(MONTHS_PER_YEAR, problem.months_count)]) for line in lines), staff_usd=staff,
        workloads=plans, timeslices=timeslices(prepared, problem), dispatch=dispatch(problem, solution), usage=usage(prepared, billed),
        alternatives=beside, break_even=break_evens(prepared, problem, billed), exclusions=tuple(dict.fromkeys(prepared.ledger.exclusions)),
        solver=SolverReport(
            name=solution.solver_name, status=solution.status, npv_bound_usd=solution.npv_bound_usd, gap_frac=solution.gap_frac,
            gap_asked_frac=options.gap_frac, reproducible=solution.is_reproducible, row_count=solution.row_count,
            column_count=solution.column_count,
            rechecked="every rule recomputed without the solver and held; "
            f"priced twice, the sums agree within {max(difference, 1e-15):.0e} of the cost",
        ),
        evidence=evidence(prepared, problem, solution), assumptions=assumptions(prepared, solution), limitations=LIMITATIONS,
        risks=risks(prepared, solution, plans), warnings=page_one_warnings(prepared, solution),
        resolved_workload=file.model_dump(mode="json", exclude_none=True), data=data_used(prepared, solution),
        problem=asdict(problem), command=options.command,
        run=Run(started_at=started_at, solve_seconds=solution.solve_seconds, total_seconds=time.perf_counter() - began,
                planner_version=__version__),
    )  # fmt: skip


def reprice_difference(problem: ProblemData, solution: Solution) -> float:
    """Return the relative difference between the objective and the sum over pools, calls, sites and staff priced apart from it."""
    again = sum(b.npv_usd for b in bills(problem, solution).values()) + fixed_npv_usd(problem, solution)
    again += sum(call_bill(problem, solution, a, w)[0] for w, a in sorted({(w, a) for w, a, _, _ in solution.call}))
    return abs(again - solution.npv_cost_usd) / max(abs(solution.npv_cost_usd), 1.0)


def refuse_without_supply(prepared: Prepared) -> None:
    """Raise `AnswerIsNo` where some workload can be served by nothing: the reasons, most frequent first, and the levers."""
    lines = []
    for name in prepared.workloads:
        hosted = any(name in c.data.req_per_s_by_workload for c in prepared.candidates.values())
        called = any(name in o.data.usd_per_request_by_workload for o in prepared.offers.values())
        if hosted or called:
            continue
        reasons: dict[str, list[str]] = {}
        for e in prepared.ledger.exclusions:
            if e.workload == name and e.kind != "dominated":
                reasons.setdefault(e.kind, []).append(e.reason)
        told = sorted(reasons.items(), key=lambda item: (-len(item[1]), item[0]))
        detail = "; ".join(
            f"{kind}, {len(texts)} option{'s' if len(texts) > 1 else ''}: {nearest(kind, texts)}" for kind, texts in told[:3]
        )
        lines.append(f"workloads.{name}: nothing may serve it ({detail or 'no supply has a price'}); {levers(name, set(reasons))}")
    if lines:
        raise AnswerIsNo("no_supply", lines)


def nearest(kind: str, texts: list[str]) -> str:
    """Return the reason to show of many alike: the shortest for rules, else the one that misses by least (as they are sorted)."""
    return min(texts, key=lambda t: (len(t), t)) if kind in ("privacy", "region", "attribute") else sorted(texts)[0]


def levers(name: str, kinds: set[str]) -> str:
    """Return what the user can change where nothing serves a workload."""
    change = {
        "privacy": "allow another way to serve (privacy.allow)", "region": "allow more regions (privacy.regions)",
        "attribute": "require fewer attributes (privacy.require)", "memory": "accept lighter weights or KV formats, or a shorter context",
        "latency": "relax the latency promise", "stale": "take newer prices or raise plan.max_price_age_days",
        "engine": "accept a format that the engine runs", "limit": "set api_unproven: accept where it is not, or name other offers",
    }  # fmt: skip
    found = [text for kind, text in change.items() if kind in kinds]
    return names(found) or f"add a price for a node or an offer that {plain(name)} may use"


def no_plan(answer: NoSolution, prepared: Prepared) -> AnswerIsNo:
    """Return the error for a proven conflict: the promises in it, and the smallest change that makes a plan exist."""
    if answer.reason_code == "time_limit":
        return AnswerIsNo("time_limit", answer.reasons)
    early = bridge_gap(prepared.problem)
    if early:
        return AnswerIsNo("infeasible", [early])
    if answer.reason_code == "no_candidate":
        answer = explain(within_limits_later(prepared.problem))
    if not answer.relaxations:
        return AnswerIsNo("infeasible", answer.reasons or ["no plan keeps every promise"])
    changes = [change for change in answer.relaxations if change[2] != "frac" or change[1] < ALL_OF_IT or len(answer.relaxations) == 1]
    texts = [relaxed(*(at_most(prepared.problem, change) if len(changes) == 1 else change)) for change in changes]
    if [c for c in changes if c[2] == "frac" and c[1] >= ALL_OF_IT and c[0].startswith("workloads.")]:
        limits = [p.name for p in promises(prepared.problem) if not p.name.startswith("workloads.")]
        alone = names(limits) or "them"
        return AnswerIsNo("infeasible", [f"no plan keeps every promise, and none of {alone} alone is enough: raise several at once"])
    if answer.reasons[0].startswith("together"):
        return AnswerIsNo("infeasible", [f"no plan keeps every promise; one exists with all of these changes: {names(texts)}"])
    return AnswerIsNo("infeasible", [f"no plan keeps every promise; {text}, and one exists" for text in texts])


def within_limits_later(problem: ProblemData) -> ProblemData:
    """Return the problem without what is dominated, yet with the pools that only a budget or a site's limit shuts out."""
    sites = tuple(replace(s, power_limit_w=None, rack_units_limit_count=None) for s in problem.sites)
    kept = prune(replace(problem, capex_budget_usd=None, sites=sites))[0]
    return replace(problem, pools=kept.pools, candidates=kept.candidates, variants=kept.variants)


def at_most(problem: ProblemData, change: tuple[str, float, str]) -> tuple[str, float, str]:
    """Return a raise of a budget, lowered to what the plan without it needs where this is less: one found in haste may be large."""
    promise, amount, unit = change
    capex, opex = problem.capex_budget_usd, problem.opex_budget_usd_per_month
    if promise == "budgets.capex_usd" and capex is not None:
        free = solve(prune(replace(problem, capex_budget_usd=None))[0], time_limit_s=None, is_sketch=True)
        if isinstance(free, Solution):
            amount = min(amount, sum(free.cost_usd_by_month["capex"]) - capex)
    elif promise == "budgets.opex_usd_per_month" and opex is not None:
        free = solve(prune(replace(problem, opex_budget_usd_per_month=None))[0], time_limit_s=None, is_sketch=True)
        if isinstance(free, Solution):
            running = [line for name, line in free.cost_usd_by_month.items() if name not in CAPITAL]
            amount = min(amount, max(sum(line[m] for line in running) for m in range(problem.months_count)) - opex)
    return promise, amount, unit


def relaxed(promise: str, amount: float, unit: str) -> str:
    """Return how a promise would have to give way, rounded so that the change told is enough.

    >>> relaxed("budgets.capex_usd", 22390.2, "usd"), relaxed("workloads.chat.load", 0.251, "frac")
    ('raise budgets.capex_usd by $22,391', 'serve 26% less of workloads.chat.load')
    """
    if unit.startswith("usd"):
        return f"raise {promise} by {usd(math.ceil(amount))}"
    if unit == "promise":
        return f"drop {promise}"
    if unit == "frac" and promise.startswith("workloads."):
        return f"serve {math.ceil(100 * amount)}% less of {promise}"
    if unit == "frac":
        return f"raise {promise} by {math.ceil(100 * amount)}%"
    return f"raise {promise} by {math.ceil(amount / 100) / 10:g} kW" if unit == "w" else f"raise {promise} by {math.ceil(amount)}"


def page_one_warnings(prepared: Prepared, solution: Solution) -> tuple[str, ...]:
    """Return what page one must say: stale prices, unproven offers, derived prices, a run stopped by the clock."""
    found = []
    stale = {r.id for rows in prepared.ledger.stale.values() for r in rows}
    rows = used_rows(prepared, solution)
    old = [r for r in rows if r.id in stale]
    if old:
        found.append(f"Stale prices were allowed: {names(f'{row_name(prepared, r)} of {r.retrieved_on}' for r in old)}.")
    called = sorted({a for _, a, _, _ in solution.call})
    unproven = [prepared.offers[a].name for a in called if prepared.offers[a].row.ttft_p99_ms is None]
    if unproven:
        found.append(f"No sourced p99 latency or rate limit: {names(unproven)} (accepted as unproven by the workload file).")
    derived = [r for r in rows if r.kind in ("derived", "assumed")]
    if derived:
        found.append(f"Derived or assumed prices, to be replaced by quotes: {names(row_name(prepared, r) for r in derived)}.")
    if not solution.is_reproducible:
        found.append("The search was stopped by the clock: another run may find a cheaper plan within the stated gap.")
    return tuple(found)


def _rule_cost(prepared: Prepared, solution: Solution, quick: Solve) -> list[Alternative]:
    """Return the plan without any privacy rule, so that the price of the rules is seen; nothing where there is no rule."""
    name, title = "no_privacy_rule", "If privacy allowed everything"
    try:
        free = without_privacy(prepared)
    except AnswerIsNo as error:
        reason = f"not compared: {'; '.join(error.lines)}"
        return [Alternative(name=name, title=title, npv_cost_usd=None, tco_usd=None, difference_usd=None, reason=reason)]
    return [] if free is None else [one(free, name, title, free.problem, solution, quick, is_wider=True)]
