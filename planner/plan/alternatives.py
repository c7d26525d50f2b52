"""The best plans of one kind beside the optimum, and what the privacy rules cost: each a solve of its own, or a reason why not."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from planner.candidates.build import Prepared
from planner.milp import restrict
from planner.plan.decisions import cost_lines
from planner.plan.words import names, plain, usd
from planner.schema.plan import Alternative
from planner.schema.problem import NoSolution, ProblemData, Solution

Solve = Callable[[ProblemData], Solution | NoSolution]
OWN = frozenset({"own", "existing"})
RENT = frozenset({"reserved", "on_demand", "spot"})
KINDS: tuple[tuple[str, str, frozenset[str], bool], ...] = (
    ("all_own", "All owned", OWN, False),
    ("all_rent", "All rented", RENT, False),
    ("all_api", "All called as an API", frozenset(), True),
)


def alternatives(prepared: Prepared, problem: ProblemData, best: Solution, solve: Solve) -> tuple[Alternative, ...]:
    """Return the best all-own, all-rent and all-API plans (each with its cost or the reason why it cannot be) and today's fleet."""
    found = [
        itself(name, title, best)
        if is_one_kind(problem, best, kinds, api)
        else one(prepared, name, title, restrict(problem, kinds, api), best, solve)
        for name, title, kinds, api in KINDS
    ]
    if found[0].npv_cost_usd is None and any(p.kind == "own" and p.lead_months for p in problem.pools):
        steady = restrict(problem, OWN, False, lead_months_zero=True)
        again = one(prepared, "all_own_steady", "All owned, steady state (as if nodes were there at once)", steady, best, solve)
        if again.npv_cost_usd is not None:
            found.append(again)
    if any(p.kind == "existing" for p in problem.pools):
        found.append(one(prepared, "today", "Today's fleet alone", restrict(problem, frozenset({"existing"}), False), best, solve))
    return tuple(found)


def one(
    prepared: Prepared, name: str, title: str, problem: ProblemData, best: Solution, solve: Solve, is_wider: bool = False
) -> Alternative:
    """Return one alternative, solved; or the reason why there is no such plan. A wider problem holds the plan itself: never dearer."""
    missing = [w.id for w in problem.workloads if not _served(problem, w.id)]
    if missing:
        return _none(name, title, f"{names(plain(w) for w in missing)} could not be served: {_why(prepared, name, missing)}")
    early = bridge_gap(problem)
    if early:
        return _none(name, title, early)
    answer = solve(problem)
    if isinstance(answer, NoSolution):
        return _none(name, title, "; ".join(answer.reasons))
    if is_wider and answer.npv_cost_usd > best.npv_cost_usd:
        answer = replace(best, npv_bound_usd=min(answer.npv_bound_usd, best.npv_cost_usd), status="feasible")
        answer = replace(answer, gap_frac=1.0 - answer.npv_bound_usd / best.npv_cost_usd)
    difference = answer.npv_cost_usd - best.npv_cost_usd
    proof = (
        f"proven within {answer.gap_frac:.2%}" if answer.status == "optimal" else f"best found, within {answer.gap_frac:.1%} of its bound"
    )
    held = (
        "as this plan"
        if abs(difference) <= 1e-6 * abs(best.npv_cost_usd)
        else f"{usd(abs(difference))} {'more' if difference > 0 else 'less'}"
    )
    return Alternative(
        name=name,
        title=title,
        npv_cost_usd=answer.npv_cost_usd,
        tco_usd=tco_usd(answer),
        difference_usd=difference,
        reason=f"{held}; {proof}",
        cost_lines=cost_lines(answer),
    )


def is_one_kind(problem: ProblemData, best: Solution, kinds: frozenset[str], api: bool) -> bool:
    """Say whether the plan itself uses only these kinds of pools, and calls an API only where that is meant."""
    kind = {p.id: p.kind for p in problem.pools}
    used = {kind[p] for p, _, _ in best.nodes} | {kind[p] for p, _ in best.buy}
    return used <= kinds and bool(best.call) <= api


def itself(name: str, title: str, best: Solution) -> Alternative:
    """Return the plan as the alternative that it is."""
    return Alternative(
        name=name,
        title=title,
        npv_cost_usd=best.npv_cost_usd,
        tco_usd=tco_usd(best),
        difference_usd=0.0,
        reason="as this plan: it is of this kind",
        cost_lines=cost_lines(best),
    )


def tco_usd(solution: Solution) -> float:
    """Return the undiscounted sum over the horizon, residual value included."""
    return sum(sum(months) for months in solution.cost_usd_by_month.values())


def bridge_gap(problem: ProblemData) -> str | None:
    """Return why some workloads cannot be served from their first month on: only owned nodes may serve them, and none has arrived."""
    pools = {p.id: p for p in problem.pools}
    waiting: dict[str, int] = {}
    for w in problem.workloads:
        hosts = [pools[k.pool] for k in problem.candidates if k.req_per_s_by_workload.get(w.id, 0.0) > 0]
        if not hosts or any(p.kind != "own" for p in hosts) or any(w.id in a.usd_per_request_by_workload for a in problem.apis):
            continue
        first = min(p.lead_months for p in hosts)
        if any(any(row) for row in w.mean_req_per_s[:first]):
            waiting[w.id] = first
    if not waiting:
        return None
    first = max(waiting.values())
    who = names(plain(w) for w in waiting)
    cure = f"start in month {first}, or bridge" if first < problem.months_count else "plan more months, or bridge"
    return f"nothing serves {who} before the first nodes arrive in month {first}: {cure} by rent or API"


def _served(problem: ProblemData, workload: str) -> bool:
    hosted = any(k.req_per_s_by_workload.get(workload, 0.0) > 0 for k in problem.candidates)
    return hosted or any(workload in a.usd_per_request_by_workload for a in problem.apis)


def _why(prepared: Prepared, name: str, missing: list[str]) -> str:
    way = {"all_own": "own", "all_rent": "rent", "all_api": "api"}.get(name, "own")
    words = {"own": "owned nodes", "rent": "rented nodes", "api": "an API"}[way]
    barred = [w for w in missing if way not in prepared.workloads[w].privacy.allow]
    if barred:
        return f"privacy does not allow {words} for {names(plain(w) for w in barred)}"
    kinds = {e.kind for e in prepared.ledger.exclusions if e.workload in missing}
    if way == "api" and not any(prepared.workloads[w].api_equivalents for w in missing):
        return "no API offer is named as equal"
    told = {"region": "no offer in the allowed regions", "memory": "no node holds the model", "latency": "no node keeps the promise",
            "stale": "prices are too old", "attribute": "no offer states the required attributes"}  # fmt: skip
    return names(text for kind, text in told.items() if kind in kinds) or f"no {words} with a price can serve them"


def without_privacy(prepared: Prepared) -> Prepared | None:
    """Return the same decision with every way to serve and every region allowed, or None where the file asks for no less already."""
    from planner.candidates.build import prepare

    def free(workload: object) -> object:
        w = workload
        privacy = w.privacy.model_copy(update={"allow": ("own", "rent", "api"), "regions": None, "require": ()})  # type: ignore[attr-defined]
        return w.model_copy(update={"privacy": privacy})  # type: ignore[attr-defined]

    open_file = prepared.file.model_copy(update={"workloads": {n: free(w) for n, w in prepared.file.workloads.items()}})
    if all(w.privacy == prepared.file.workloads[n].privacy for n, w in open_file.workloads.items()):
        return None
    return prepare(open_file, prepared.catalog, prepared.snapshot, prepared.as_of, allow_stale=prepared.allow_stale,
                   timeslice_count=prepared.timeslice_count)  # fmt: skip


def _none(name: str, title: str, reason: str) -> Alternative:
    return Alternative(name=name, title=title, npv_cost_usd=None, tco_usd=None, difference_usd=None, reason=reason)
