"""Everything that is left out with a proof, in order: what no budget admits, what is dominated, what others cover for less."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

from planner.milp.cover import drop_covered
from planner.milp.dominance import Pruned
from planner.milp.dominance import prune as drop_dominated
from planner.schema.problem import PoolData, ProblemData


def prune(problem: ProblemData) -> tuple[ProblemData, tuple[Pruned, ...]]:
    """Return a smaller problem with the same optimum, and a proof for everything that was left out."""
    log = list(_beyond_limits(problem))
    gone = {entry.id for entry in log}
    d = replace(
        problem,
        pools=tuple(p for p in problem.pools if p.id not in gone),
        candidates=tuple(k for k in problem.candidates if k.pool not in gone),
    )
    d, dominated = drop_dominated(d)
    d, covered = drop_covered(d)
    log += [*dominated, *(Pruned(c.id, c.by, c.proof) for c in covered)]
    if covered:
        d, again = drop_dominated(d)
        log += again
    return d, tuple(log)


def _beyond_limits(d: ProblemData) -> Iterator[Pruned]:
    """Yield owned pools of which not even one node fits the purchase budget or its site."""
    sites = {s.id: s for s in d.sites}
    for p in d.pools:
        if p.kind != "own":
            continue
        text = _limit(
            d,
            p,
            sites[p.site].power_limit_w if p.site in sites else None,
            sites[p.site].rack_units_limit_count if p.site in sites else None,
        )
        if text:
            yield Pruned(p.id, "", text)


def _limit(d: ProblemData, p: PoolData, power_limit_w: float | None, rack_units_limit_count: int | None) -> str | None:
    if d.capex_budget_usd is not None and min(p.capex_usd_by_month) > d.capex_budget_usd:
        return f"one costs ${min(p.capex_usd_by_month):,.0f}, the purchase budget is ${d.capex_budget_usd:,.0f}"
    if power_limit_w is not None and p.nameplate_w > power_limit_w:
        return f"one draws {p.nameplate_w / 1000:,.1f} kW, the site feeds {power_limit_w / 1000:,.1f} kW"
    if rack_units_limit_count is not None and p.rack_units_count > rack_units_limit_count:
        return f"one takes {p.rack_units_count} rack units, the site has {rack_units_limit_count}"
    return None
