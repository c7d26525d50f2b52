"""A smaller problem to find a plan in: of each kind of supply, the few pools that look best for each workload.

Nothing is proven here: the plan found is one of the whole problem, and the bound is sought on the whole problem.
"""

from __future__ import annotations

import math
from dataclasses import replace

from planner.milp.problem import Sets
from planner.schema.problem import PoolData, ProblemData, WorkloadData
from planner.units import HOURS_PER_MONTH

KEPT_EACH = 2
"""Pools of a kind kept for a workload at its highest and at its lowest peak."""


def focus(d: ProblemData) -> ProblemData:
    """Return the problem with the pools that look best; existing nodes and API offers all stay."""
    s = Sets(d)
    kept = {p.id for p in s.pools if p.kind == "existing"}
    for w in s.workloads:
        peaks = [s.peak_req_per_s(w, m, t) for m in s.months for t in s.slices if s.is_served(w, m, t)]
        if not peaks:
            continue
        for group in (("own",), ("reserved",), ("on_demand",), ("spot",)):
            pools = [p for p in s.pools if p.kind in group and _node_req_per_s(s, p, w) > 0]
            for peak in (max(peaks), min(peaks)):
                pools.sort(key=lambda p: (_usd_per_month(s, p, w, peak), p.id))
                kept.update(p.id for p in pools[:KEPT_EACH])
    return replace(
        d, pools=tuple(p for p in d.pools if p.id in kept), candidates=tuple(k for k in d.candidates if k.pool in kept)
    )  # fmt: skip


def _node_req_per_s(s: Sets, p: PoolData, w: WorkloadData) -> float:
    """Return the most that one node of a pool serves of a workload."""
    return max(
        (k.req_per_s_by_workload.get(w.id, 0.0) * s.replicas_on_node(k) for k in s.candidates_of_pool[p.id]), default=0.0
    )  # fmt: skip


def _usd_per_month(s: Sets, p: PoolData, w: WorkloadData, peak_req_per_s: float) -> float:
    """Return what enough nodes for a peak cost a month at full use, one spare where a loss must be survived."""
    nodes = math.ceil(peak_req_per_s / _node_req_per_s(s, p, w) - 1e-9) + (w.survive != "none")
    if p.kind == "own":
        months = max(1, min(p.life_months, s.d.months_count - p.lead_months))
        worth = p.residual_usd_by_month[0] if p.residual_usd_by_month else 0.0
        return nodes * ((p.capex_usd_by_month[0] - worth) / months + p.support_usd_per_node_month + p.ops_usd_per_node_month)
    return nodes * p.usd_per_node_hour_by_month[0] * HOURS_PER_MONTH
