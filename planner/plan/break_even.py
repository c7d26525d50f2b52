"""From which use on a node is cheaper owned: against the same node rented, and against the API for each workload it could serve.

A month of owning is the annuity of its price over its life (less the residual value) with all running costs at full load. Annuities are
for display only: the plan itself counts purchases when they are paid. Never claimed beyond what the node can serve.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner import finance
from planner.candidates.build import Candidate, Prepared
from planner.candidates.supply import Pool, residual_curve
from planner.plan.pools import PoolBill
from planner.plan.words import plain, usd
from planner.schema.plan import BreakEven
from planner.schema.problem import ProblemData
from planner.units import HOURS_PER_MONTH, MONTHS_PER_YEAR, SECONDS_PER_HOUR


def own_usd_per_month(prepared: Prepared, problem: ProblemData, pool: Pool) -> float:
    """Return a month of owning one node at full load: annuity less residual, support, hosting, operations, energy."""
    p = pool.data
    years = p.life_months / MONTHS_PER_YEAR
    points = residual_curve(prepared.file, prepared.catalog, prepared.snapshot, pool.node)
    left = finance.residual_frac(p.life_months - 1, p.life_months, points) if points else 0.0
    per_year = finance.annualized_usd_per_year(p.capex_usd_by_month[0], problem.discount_frac_per_year, max(years, 1.0), left)
    kwh = finance.energy_kwh(p.full_w, HOURS_PER_MONTH, p.pue)
    running = p.support_usd_per_node_month + p.hosting_usd_per_node_month + p.ops_usd_per_node_month
    return per_year / MONTHS_PER_YEAR + running + finance.energy_usd(kwh, p.usd_per_kwh, p.carbon_g_per_kwh, problem.carbon_usd_per_t)


def best_rate(candidates: list[Candidate], workload: str) -> float:
    """Return the most requests a second that one whole node serves of a workload."""
    return max(
        (c.pool.node.gpu_count // c.data.gpus_count * c.data.req_per_s_by_workload.get(workload, 0.0) for c in candidates), default=0.0
    )


def break_evens(prepared: Prepared, problem: ProblemData, billed: Mapping[str, PoolBill]) -> tuple[BreakEven, ...]:
    """Return the break-even of every node type that may be bought, cheapest nodes first."""
    found: list[BreakEven] = []
    own = sorted((p for p in prepared.pools.values() if p.data.kind == "own"), key=lambda p: (p.data.capex_usd_by_month[0], p.data.id))
    for pool in own:
        mine = [c for c in prepared.candidates.values() if c.pool.data.id == pool.data.id]
        if not mine:
            continue
        own_usd = own_usd_per_month(prepared, problem, pool)
        bought = billed.get(pool.data.id)
        today = bought.used_node_hours / bought.paid_node_hours if bought and bought.paid_node_hours else None
        found.append(_against_rent(prepared, pool, own_usd, today))
        for w in problem.workloads:
            found.extend(_against_api(prepared, problem, pool, mine, w.id, own_usd, today))
    return tuple(found)


def _against_rent(prepared: Prepared, pool: Pool, own_usd: float, today: float | None) -> BreakEven:
    rivals = [
        p for p in prepared.pools.values()
        if p.data.kind == "on_demand" and p.data.gpu == pool.data.gpu and p.data.gpus_per_node_count <= pool.data.gpus_per_node_count
    ]  # fmt: skip
    common = {
        "node": pool.data.node,
        "node_name": pool.node.name,
        "site": pool.data.site or "",
        "workload": None,
        "meaning": "hours_billed",
        "today_frac": today,
        "own_usd_per_month": own_usd,
    }
    if not rivals:
        text = f"{pool.node.name}: not checked, nobody rents this accelerator to the workloads that may use it"
        return BreakEven(rival="none", utilization_frac=None, rival_usd_per_month_full=0.0, text=text, **common)

    def hourly(p: Pool) -> float:
        return p.data.usd_per_node_hour_by_month[0] * pool.data.gpus_per_node_count / p.data.gpus_per_node_count

    rival = min(rivals, key=lambda p: (hourly(p), p.data.id))
    frac = finance.break_even_utilization_frac(own_usd, hourly(rival))
    full = hourly(rival) * HOURS_PER_MONTH
    if frac is None:
        text = f"{pool.node.name}: not reached, renting as many GPUs all hours costs {usd(full)} a month, owning them {usd(own_usd)}"
    else:
        text = f"{pool.node.name}: owning ({usd(own_usd)} a month) is cheaper than {rival.name} from {frac:.0%} of the hours billed"
    return BreakEven(rival=rival.name, utilization_frac=frac, rival_usd_per_month_full=full, text=text, **common)


def _against_api(
    prepared: Prepared, problem: ProblemData, pool: Pool, mine: list[Candidate], workload: str, own_usd: float, today: float | None
) -> list[BreakEven]:
    prices = [(a.usd_per_request_by_workload[workload], a.id) for a in problem.apis if workload in a.usd_per_request_by_workload]
    rate = best_rate(mine, workload)
    if not prices or rate <= 0:
        return []
    per_request, offer = min(prices)
    full = rate * SECONDS_PER_HOUR * HOURS_PER_MONTH * per_request
    frac = own_usd / full
    name = prepared.offers[offer].name
    if frac > 1:
        text = (
            f"{pool.node.name} for {plain(workload)}: not reached, all that the node can serve ({rate:.2g} requests a second) costs "
            f"{usd(full)} a month at {name}, owning it {usd(own_usd)}"
        )
    else:
        text = f"{pool.node.name} for {plain(workload)}: owning is cheaper than {name} from {frac:.0%} of the node's capacity on"
    return [
        BreakEven(
            node=pool.data.node,
            node_name=pool.node.name,
            site=pool.data.site or "",
            workload=workload,
            rival=name,
            meaning="share_of_capacity",
            utilization_frac=frac if frac <= 1 else None,
            today_frac=today,
            own_usd_per_month=own_usd,
            rival_usd_per_month_full=full,
            text=text,
        )
    ]
