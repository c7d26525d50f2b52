"""A solution → the things to do, what runs when, and hours paid against hours used."""

from __future__ import annotations

from collections.abc import Mapping

from planner.candidates.build import Prepared
from planner.candidates.supply import provider_name
from planner.plan.pools import PoolBill, bill, call_bill
from planner.plan.words import LINE_TITLES, month_label, names, plain, week_label
from planner.schema.plan import CostLine, Decision, DispatchRow, Timeslice, Usage
from planner.schema.problem import PoolData, ProblemData, Solution
from planner.units import HOURS_PER_MONTH


def bills(problem: ProblemData, solution: Solution) -> dict[str, PoolBill]:
    """Return the bill of every pool that the solution holds at some time."""
    used = {p for p, _, _ in solution.nodes} | {p for p, _ in solution.buy}
    return {p.id: bill(problem, solution, p) for p in problem.pools if p.id in used}


def tenants(problem: ProblemData, solution: Solution, pool: str) -> list[str]:
    """Return the workloads that are served from a pool at some time, the largest first."""
    of_pool = {k.id for k in problem.candidates if k.pool == pool}
    total: dict[str, float] = {}
    for (w, k, _, _), x in solution.share.items():
        if k in of_pool:
            total[w] = total.get(w, 0.0) + x
    return sorted(total, key=lambda w: (-total[w], w))


def decisions(prepared: Prepared, problem: ProblemData, solution: Solution, billed: Mapping[str, PoolBill]) -> tuple[Decision, ...]:
    """Return what to buy, reserve, rent, call and keep, by month."""
    start, months = prepared.file.plan.start, problem.months_count
    found: list[Decision] = []
    for p in sorted(problem.pools, key=lambda p: p.id):
        pool = prepared.pools[p.id]
        who = tenants(problem, solution, p.id)
        common = {
            "pool": p.id,
            "node": p.node,
            "node_name": pool.node.name,
            "provider": provider_name(p.provider) if p.provider else None,
            "site": p.site,
            "price_ids": p.price_ids,
        }
        reason = why(prepared, solution, p, who)
        if p.kind in ("own", "reserved"):
            for (q, m), n in sorted(solution.buy.items()):
                if q != p.id:
                    continue
                if p.kind == "own":
                    money = n * p.capex_usd_by_month[m]
                    found.append(
                        Decision(
                            month=m,
                            month_label=month_label(start, m),
                            action="buy",
                            count=n,
                            usd=money,
                            reason=reason,
                            in_service_month=m + p.lead_months,
                            **common,
                        )
                    )
                else:
                    money = n * p.usd_per_node_hour_by_month[m] * HOURS_PER_MONTH * p.term_months
                    found.append(
                        Decision(
                            month=m,
                            month_label=month_label(start, m),
                            action="reserve",
                            count=n,
                            usd=money,
                            reason=reason,
                            until_month=m + p.term_months,
                            **common,
                        )
                    )
        elif p.id in billed:
            b = billed[p.id]
            first = b.first_month or 0
            action = "keep" if p.kind == "existing" else "rent"
            found.append(
                Decision(
                    month=first,
                    month_label=month_label(start, first),
                    action=action,
                    count=b.nodes_max_count,
                    usd=b.rent_usd if action == "rent" else b.total_usd,
                    reason=reason,
                    hours_per_month=b.paid_node_hours / months if action == "rent" else None,
                    **common,
                )
            )
    for a in sorted({a for _, a, _, _ in solution.call}):
        offer = prepared.offers[a]
        who = sorted({w for w, b, _, _ in solution.call if b == a})
        money = sum(call_bill(problem, solution, a, w)[1] for w in who)
        requests = sum(call_bill(problem, solution, a, w)[2] for w in who)
        first = min(m for _, b, m, _ in solution.call if b == a)
        found.append(
            Decision(
                month=first,
                month_label=month_label(start, first),
                action="call",
                pool=offer.name,
                node=None,
                node_name=None,
                provider=provider_name(offer.row.provider),
                site=None,
                count=0,
                usd=money,
                requests_per_month=requests / months,
                reason=f"serves {names(plain(w) for w in who)} at the lowest price that the rules admit",
                price_ids=(a,),
            )
        )
    order = {"buy": 0, "reserve": 1, "rent": 2, "call": 3, "keep": 4}
    return tuple(sorted(found, key=lambda d: (order[d.action], d.month, d.pool)))


def why(prepared: Prepared, solution: Solution, p: PoolData, who: list[str]) -> str:
    """Return one sentence: whom a pool serves, in which replicas, and which rule leaves no other supply."""
    if not who:
        return "held without load: a rule of the file asks for it"
    models: dict[str, None] = {}
    for k, _, _ in sorted(solution.replicas):
        c = prepared.candidates.get(k)
        if c is not None and c.data.pool == p.id:
            models[c.variant.formats.llm.name] = None
    runs = names(models)
    bound = [w for w in who if "api" not in prepared.workloads[w].privacy.allow]
    rule = f"; {names(plain(w) for w in bound)} may not leave own or rented machines" if bound else ""
    return f"runs {runs} for {names(plain(w) for w in who)}{rule}"


def cost_lines(solution: Solution) -> tuple[CostLine, ...]:
    """Return the lines of the objective that are not zero, dearest first."""
    lines = [
        CostLine(
            name=name,
            title=LINE_TITLES[name],
            npv_usd=npv,
            total_usd=sum(solution.cost_usd_by_month[name]),
            usd_by_month=solution.cost_usd_by_month[name],
        )
        for name, npv in solution.cost_npv_usd.items()
        if npv or any(solution.cost_usd_by_month[name])
    ]
    return tuple(sorted(lines, key=lambda line: (-line.npv_usd, line.name)))


def timeslices(prepared: Prepared, problem: ProblemData) -> tuple[Timeslice, ...]:
    """Return the stretches of the week with their load in month 0."""
    slices = prepared.demand.timeslices
    return tuple(
        Timeslice(
            index=t,
            hours_per_month=hours,
            hours_of_week=slices.hours_in(t),
            label=week_label(slices.hours_in(t)),
            mean_req_per_s={w.id: w.mean_req_per_s[0][t] for w in problem.workloads},
            peak_req_per_s={w.id: w.peak_req_per_s[0][t] for w in problem.workloads},
        )
        for t, hours in enumerate(problem.hours_by_slice)
    )


def dispatch(problem: ProblemData, solution: Solution) -> tuple[DispatchRow, ...]:
    """Return what runs in every month and timeslice."""
    cells = [(m, t) for m in range(problem.months_count) for t in range(len(problem.hours_by_slice))]
    nodes: dict[tuple[int, int], dict[str, int]] = {cell: {} for cell in cells}
    replicas: dict[tuple[int, int], dict[str, int]] = {cell: {} for cell in cells}
    shares: dict[tuple[int, int], dict[str, dict[str, float]]] = {cell: {} for cell in cells}
    for (p, m, t), n in sorted(solution.nodes.items()):
        nodes[m, t][p] = n
    for (k, m, t), n in sorted(solution.replicas.items()):
        replicas[m, t][k] = n
    for table in (solution.share, solution.call):
        for (w, supply, m, t), x in sorted(table.items()):
            shares[m, t].setdefault(w, {})[supply] = x
    return tuple(
        DispatchRow(month=m, timeslice=t, nodes=nodes[m, t], replicas=replicas[m, t], shares=dict(sorted(shares[m, t].items())))
        for m, t in cells
    )


def usage(prepared: Prepared, billed: Mapping[str, PoolBill]) -> tuple[Usage, ...]:
    """Return node-hours paid against node-hours used of each pool."""
    return tuple(
        Usage(
            pool=p,
            name=prepared.pools[p].name,
            kind=prepared.pools[p].data.kind,
            node_hours_paid=b.paid_node_hours,
            node_hours_used=b.used_node_hours,
            utilization_frac=b.used_node_hours / b.paid_node_hours if b.paid_node_hours else 0.0,
            peak_utilization_frac=b.peak_frac,
        )
        for p, b in sorted(billed.items())
    )
