"""Parts of a problem for the alternatives beside the optimum: all own, all rented, all API."""

from __future__ import annotations

from dataclasses import replace

from planner.schema.problem import ProblemData


def restrict(problem: ProblemData, pool_kinds: frozenset[str], api: bool, *, lead_months_zero: bool = False) -> ProblemData:
    """Return the problem with only pools of `pool_kinds` (and their candidates) and, unless `api`, no API offers.

    All own is `{"own", "existing"}` without API; where nodes take time to arrive and nothing else serves meanwhile it has no plan:
    `lead_months_zero` gives the steady state instead, nodes serving from the month they are ordered in (to be labelled as such).
    """
    pools = tuple(replace(p, lead_months=0) if lead_months_zero and p.kind == "own" else p for p in problem.pools if p.kind in pool_kinds)
    kept = {p.id for p in pools}
    candidates = tuple(k for k in problem.candidates if k.pool in kept)
    variants = {k.variant for k in candidates}
    return replace(
        problem,
        pools=pools,
        candidates=candidates,
        variants=tuple(x for x in problem.variants if x in variants),
        apis=problem.apis if api else (),
    )
