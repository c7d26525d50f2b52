"""Drop what no cheapest plan needs, each with a proof: replacing it in any plan gives a plan that is no dearer and breaks no rule.

The one idea: candidate k is replaced by n replicas of k' where n·μ' is no less than μ for every tenant of k and the n replicas take no
more of the node (sizes of a pool divide one another, so what fits by sum fits by packing), nor more energy for a request. It is used
within a pool (another shape), between pools (r nodes of one for one of the other, no dearer in any month) and between variants.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from planner.milp.problem import Sets, is_limited
from planner.schema.problem import ApiData, CandidateData, PoolData, ProblemData

T = TypeVar("T")
EPS = 1e-12


@dataclass(frozen=True)
class Pruned:
    """What was dropped, by what it is dominated, and why that is so."""

    id: str
    dominated_by: str
    proof: str


def prune(problem: ProblemData) -> tuple[ProblemData, tuple[Pruned, ...]]:
    """Return the problem without dominated candidates, variants, pools and API offers, and a proof for each. The optimum is the same."""
    log: list[Pruned] = []
    d = problem
    while True:
        before = len(log)
        d = _drop_candidates(d, log)
        d = _drop_variants(d, log)
        d = _drop_pools(d, log)
        d = _drop_apis(d, log)
        if len(log) == before:
            return d, tuple(log)


def _le(a: float, b: float) -> bool:
    return a <= b + EPS * max(1.0, abs(a), abs(b))


def _sweep(items: Iterable[T], beats: Callable[[T, T], str | None], name: Callable[[T], str], log: list[Pruned]) -> list[T]:
    """Keep what no other kept item beats; of two that beat each other the one with the smaller id stays."""
    kept = sorted(items, key=name)
    for x in reversed(list(kept)):
        for y in kept:
            proof = beats(y, x) if y is not x else None
            if proof:
                log.append(Pruned(name(x), name(y), proof))
                kept.remove(x)
                break
    return kept


def replaces(s: Sets, by: CandidateData, k: CandidateData, nodes_ratio: int = 1) -> int | None:
    """Return n where n replicas of `by`, on `nodes_ratio` nodes for one, always stand in for one of k; None where they do not."""
    worst = 0.0
    for w, rate in k.req_per_s_by_workload.items():
        if rate > 0:
            mine = by.req_per_s_by_workload.get(w, 0.0) * s.derate_frac(by)
            if mine <= 0:
                return None
            worst = max(worst, rate * s.derate_frac(k) / mine)
    n = max(1, math.ceil(worst - EPS))
    if (by.nodes_per_replica_count > 1) != (k.nodes_per_replica_count > 1):
        return None
    return n if _le(n * s.nodes_of_replica(by), nodes_ratio * s.nodes_of_replica(k)) else None


def _no_more_energy(s: Sets, by: CandidateData, k: CandidateData) -> bool:
    p, q = s.pool[by.pool], s.pool[k.pool]

    def kwh(c: CandidateData, w: str, pool: PoolData) -> float:
        return (pool.full_w - pool.idle_w) * pool.pue * s.nodes_of_replica(c) / c.req_per_s_by_workload[w]

    return all(_le(kwh(by, w, p), kwh(k, w, q)) for w, rate in k.req_per_s_by_workload.items() if rate > 0)


def _loses_no_more(s: Sets, by: CandidateData, k: CandidateData) -> bool:
    """Node-strict tenants compare what falls with a node; everyone else is content with the replacement."""
    if not any(w.survive == "node" for c in (by, k) for w in s.tenants_of[c.id]):
        return True
    return by.pool == k.pool and by.gpus_count == k.gpus_count


def _stands_in(s: Sets, by: CandidateData, k: CandidateData, nodes_ratio: int = 1) -> bool:
    return replaces(s, by, k, nodes_ratio) is not None and _no_more_energy(s, by, k) and _loses_no_more(s, by, k)


def _drop_candidates(d: ProblemData, log: list[Pruned]) -> ProblemData:
    s = Sets(d)

    def beats(by: CandidateData, k: CandidateData) -> str | None:
        if by.pool != k.pool or by.variant != k.variant or not _stands_in(s, by, k):
            return None
        n = replaces(s, by, k)
        return (
            f"same pool and variant: {n} replica(s) of {by.gpus_count} GPUs serve no less than one of {k.gpus_count} on no more GPUs, "
            "for every workload that may use it"
        )

    return replace(d, candidates=tuple(_sweep(d.candidates, beats, lambda k: k.id, log)))


def _drop_variants(d: ProblemData, log: list[Pruned]) -> ProblemData:
    s = Sets(d)
    by_variant: dict[str, list[CandidateData]] = {}
    for k in s.candidates:
        by_variant.setdefault(k.variant, []).append(k)

    def beats(y: str, x: str) -> str | None:
        if all(any(b.pool == k.pool and _stands_in(s, b, k) for b in by_variant[y]) for k in by_variant[x]):
            return "on every pool each of its replica shapes is matched: no more GPUs, no less served, for every workload that may use it"
        return None

    kept = set(_sweep(by_variant, beats, lambda x: x, log))
    candidates = tuple(k for k in d.candidates if k.variant in kept)
    return replace(d, candidates=candidates, variants=tuple(v for v in d.variants if v in kept))


def _drop_pools(d: ProblemData, log: list[Pruned]) -> ProblemData:
    s = Sets(d)
    empty = [p for p in s.pools if not s.candidates_of_pool[p.id] and p.kind != "existing"]
    log += [Pruned(p.id, "", "no candidate runs on it, and it only costs") for p in empty]
    used = [p for p in d.pools if p not in empty]
    limits_providers = any(w.max_provider_share_frac is not None for w in d.workloads)

    def beats(a: PoolData, b: PoolData) -> str | None:
        if a.max_count is not None or b.kind == "existing" or a.kind == "existing":
            return None
        if limits_providers and a.provider and a.provider != b.provider:
            return None
        for r in _ratios(a, b):
            if _no_dearer(d, a, b, r) and all(
                any(x.variant == k.variant and _stands_in(s, x, k, r) for x in s.candidates_of_pool[a.id])
                for k in s.candidates_of_pool[b.id]
            ):
                told = "no dearer in any month, and every replica on it has a match that serves no less on no more of the node"
                return f"{r} node(s) for one: {told}"
        return None

    kept = _sweep(used, beats, lambda p: p.id, log)
    ids = {p.id for p in kept}
    return replace(d, pools=tuple(kept), candidates=tuple(k for k in d.candidates if k.pool in ids))


def _ratios(a: PoolData, b: PoolData) -> tuple[int, ...]:
    most = max(1, b.gpus_per_node_count // max(1, a.gpus_per_node_count))
    return tuple(range(1, most + 1))


def _no_dearer(d: ProblemData, a: PoolData, b: PoolData, r: int) -> bool:
    """r nodes of a cost no more than one of b in every month, whatever the plan does with b."""
    rate = a.usd_per_node_hour_by_month
    other = b.usd_per_node_hour_by_month
    if a.kind in ("on_demand", "spot") and b.kind in ("on_demand", "spot"):
        if a.kind == "spot" and b.kind == "on_demand":
            return False
        starts = all(_le(r * x * a.cold_start_hours, y * b.cold_start_hours) for x, y in zip(rate, other, strict=True))
        return starts and all(_le(r * x, y) for x, y in zip(_hour_usd(a), _hour_usd(b), strict=True))
    if a.kind == "on_demand" and b.kind == "reserved":
        lasts = range(b.term_months)
        return all(_le(r * rate[m + i], other[m]) for m in range(d.months_count) for i in lasts if m + i < d.months_count)
    if a.kind == b.kind == "reserved":
        same = a.term_months == b.term_months and a.upfront_frac == b.upfront_frac
        return same and all(_le(r * x, y) for x, y in zip(rate, other, strict=True))
    if a.kind == b.kind == "own":
        if (a.site, a.lead_months, a.life_months) != (b.site, b.lead_months, b.life_months):
            return False
        worth = [0.0] * d.months_count
        monthly = (
            "support_usd_per_node_month",
            "hosting_usd_per_node_month",
            "ops_usd_per_node_month",
            "idle_w",
            "nameplate_w",
            "rack_units_count",
        )
        return (
            all(_le(r * x, y) for x, y in zip(a.capex_usd_by_month, b.capex_usd_by_month, strict=True))
            and all(_le(y, r * x) for x, y in zip(a.residual_usd_by_month or worth, b.residual_usd_by_month or worth, strict=True))
            and all(_le(r * getattr(a, n), getattr(b, n)) for n in monthly)
            and _le(a.pue, b.pue)
            and _le(a.usd_per_kwh, b.usd_per_kwh)
            and _le(a.carbon_g_per_kwh, b.carbon_g_per_kwh)
        )
    return False


def _hour_usd(p: PoolData) -> list[float]:
    if p.kind == "on_demand":
        return list(p.usd_per_node_hour_by_month)
    back = p.fallback_usd_per_node_hour_by_month or (0.0,) * len(p.usd_per_node_hour_by_month)
    a = p.availability_frac
    return [a * x + (1 - a) * y for x, y in zip(p.usd_per_node_hour_by_month, back, strict=True)]


def _drop_apis(d: ProblemData, log: list[Pruned]) -> ProblemData:
    limits_providers = any(w.max_provider_share_frac is not None for w in d.workloads)

    def beats(b: ApiData, a: ApiData) -> str | None:
        if is_limited(b) or (limits_providers and (b.provider or b.account) != (a.provider or a.account)):
            return None
        for w, usd in a.usd_per_request_by_workload.items():
            mine = b.usd_per_request_by_workload.get(w)
            if mine is None or not all(_le(mine * x, usd * y) for x, y in zip(b.usd_factor_by_month, a.usd_factor_by_month, strict=True)):
                return None
        return "no rate limit, and no dearer in any month for every workload that may call the other"

    return replace(d, apis=tuple(_sweep(d.apis, beats, lambda a: a.id, log)))
