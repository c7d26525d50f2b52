"""Drop a rented pool where all that its nodes could ever serve is served for less by other supply, with that as the proof.

Take any plan that holds nodes of pool A in a cell (month, timeslice). They serve of each workload at most r = min(its peak there, what
a whole node of A does for it alone, times the nodes held); serving ALL of r by other on-demand nodes or by an API costs no more than ONE
node of A; so the plan without A is no dearer. Restarts of the others are charged at their worst, one for each entry into a timeslice.
A commitment is held against the same cover month by month. Pools that a workload with a survival, minimum, no-mix or provider rule may
use are left alone, and so are spot pools.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from planner.finance import commitment_usd
from planner.milp.problem import Sets, is_limited
from planner.schema.problem import CandidateData, PoolData, ProblemData, WorkloadData
from planner.units import SECONDS_PER_HOUR, WEEKS_PER_MONTH

MARGIN = 1e-9


@dataclass(frozen=True)
class Covered:
    """A pool that others cover, and the comparison that shows it."""

    id: str
    by: str
    proof: str


class Cover:
    """Costs of serving a rate of one workload on one variant by one kind of other supply, hour by hour."""

    def __init__(self, d: ProblemData) -> None:
        self.d = d
        self.s = Sets(d)
        self.node_rate: dict[tuple[str, str, str], float] = {}
        for k in d.candidates:
            pool = self.s.pool[k.pool]
            copies = pool.gpus_per_node_count // k.gpus_count if k.nodes_per_replica_count == 1 else 0
            for w, rate in k.req_per_s_by_workload.items():
                key = (k.pool, k.variant, w)
                self.node_rate[key] = max(self.node_rate.get(key, 0.0), copies * rate)

    @cached_property
    def restart_frac(self) -> tuple[float, ...]:
        """For each timeslice: entries into it over its hours in a week, the cold starts an hour of a node that restarts at each."""
        entries = [0] * len(self.d.hours_by_slice)
        for (_, to), count in self.s.hour_steps.items():
            entries[to] += count
        return tuple(n / (h / WEEKS_PER_MONTH) if h else 0.0 for n, h in zip(entries, self.d.hours_by_slice, strict=True))

    @cached_property
    def renting(self) -> list[PoolData]:
        """On-demand pools, cheapest first."""
        pools = [p for p in self.s.pools if p.kind == "on_demand" and p.max_count is None]
        return sorted(pools, key=lambda p: (p.usd_per_node_hour_by_month[0], p.id))

    def peak(self, w: WorkloadData, m: int, t: int) -> float:
        """Return the most that a workload may be served in a cell (for batch the fastest work rate)."""
        return self.s.peak_req_per_s(w, m, t) * self.s.max_share(w, m, t)

    def usd_per_hour(self, w: WorkloadData, variant: str, rate: float, m: int, t: int, without: set[str]) -> tuple[float, str]:
        """Return (cost an hour, supply) of the cheapest single kind of other supply for `rate` of a workload on a variant."""
        best, by = math.inf, ""
        for a in self.s.apis_of[w.id]:
            if not is_limited(a):
                usd = rate * SECONDS_PER_HOUR * a.usd_per_request_by_workload[w.id] * a.usd_factor_by_month[m]
                if usd < best:
                    best, by = usd, a.id
        for p in self.renting:
            if p.id in without:
                continue
            price = p.usd_per_node_hour_by_month[m]
            if price >= best:
                break
            node = self.node_rate.get((p.id, variant, w.id), 0.0)
            if node > 0:
                usd = math.ceil(rate / node - MARGIN) * price * (1.0 + p.cold_start_hours * self.restart_frac[t])
                if usd < best:
                    best, by = usd, p.id
        return best, by

    def all_that(self, pool: PoolData, m: int, t: int, without: set[str]) -> tuple[float, set[str]]:
        """Return (cost an hour, supplies) of everything a node of the pool could serve in a cell, at the dearest of its variants."""
        total, used = 0.0, set()
        for w in self.s.workloads:
            variants = {k.variant: k for k in self.s.candidates_of_pool[pool.id] if k.req_per_s_by_workload.get(w.id, 0.0) > 0}
            if not variants or not self.s.is_served(w, m, t):
                continue
            worst = 0.0
            for variant in variants:
                rate = min(self.peak(w, m, t), self.node_rate[pool.id, variant, w.id])
                usd, by = self.usd_per_hour(w, variant, rate, m, t, without)
                worst = max(worst, usd)
                used.add(by)
            total += worst
            if total == math.inf:
                break
        return total, used


def is_plain(w: WorkloadData) -> bool:
    """Say whether moving a workload from one supply to another can break none of its rules."""
    return w.survive == "none" and not w.min_replicas_count and w.is_mix_allowed and w.max_provider_share_frac in (None, 1.0)


def _may_drop(s: Sets, p: PoolData) -> bool:
    tenants = {w.id: w for k in s.candidates_of_pool[p.id] for w in s.tenants_of[k.id]}
    return all(is_plain(w) for w in tenants.values())


def drop_covered(d: ProblemData) -> tuple[ProblemData, tuple[Covered, ...]]:
    """Return the problem without covered pools, dearest first, and a proof for each. What covers a pool is never dropped before it."""
    cover = Cover(d)
    s = cover.s
    gone: set[str] = set()
    log: list[Covered] = []
    rented = sorted((p for p in s.pools if p.kind in ("on_demand", "reserved")), key=lambda p: (-p.usd_per_node_hour_by_month[0], p.id))
    for p in rented:
        if not _may_drop(s, p):
            continue
        used = _hourly(cover, p, gone) if p.kind == "on_demand" else _monthly(cover, p, gone)
        if used is not None:
            gone.add(p.id)
            what = "an hour of one node" if p.kind == "on_demand" else "a month of the commitment"
            by = ", ".join(sorted(used))
            log.append(
                Covered(p.id, by, f"all that it could serve costs no more than {what} when served by {by}, in every month and timeslice")
            )
    kept = tuple(p for p in d.pools if p.id not in gone)
    return replace(d, pools=kept, candidates=tuple(_candidates(d, gone))), tuple(log)


def _candidates(d: ProblemData, gone: set[str]) -> Iterator[CandidateData]:
    return (k for k in d.candidates if k.pool not in gone)


def _hourly(cover: Cover, p: PoolData, gone: set[str]) -> set[str] | None:
    """Return the supplies that cover an on-demand pool in every cell, or None."""
    without, used = gone | {p.id}, set()
    for m in cover.s.months:
        for t in cover.s.slices:
            usd, by = cover.all_that(p, m, t, without)
            if usd > p.usd_per_node_hour_by_month[m] * (1 - MARGIN):
                return None
            used |= by
    return used


def _monthly(cover: Cover, p: PoolData, gone: set[str]) -> set[str] | None:
    """Return the on-demand supplies that cover a commitment in every month, or None."""
    least = min(commitment_usd(x, p.term_months, p.upfront_frac)[1] for x in p.usd_per_node_hour_by_month)
    without, used = gone | {p.id}, set()
    for m in cover.s.months:
        total = 0.0
        for t in cover.s.slices:
            usd, by = cover.all_that(p, m, t, without)
            total += usd * cover.d.hours_by_slice[t]
            used |= by
            if total > least * (1 - MARGIN):
                return None
    return used
