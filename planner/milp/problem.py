"""Sets and variables of the integer program: which unknowns exist, between which bounds.

A `Variables` holds either PuLP variables (to build the program) or plain numbers (to price a solution): constraints and cost lines
only look things up in it, so the objective and the report share one function for each cost.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from planner.schema.problem import ApiData, CandidateData, PoolData, ProblemData, SiteData, WorkloadData
from planner.units import HOURS_PER_WEEK

HELD_KINDS = frozenset({"own", "existing", "reserved"})
"""Pools whose nodes are at hand for whole months."""
SLICED_KINDS = frozenset({"on_demand", "spot"})
"""Pools whose nodes may differ in each timeslice."""
LEAST_LOAD_REPLICAS = 1e-6
"""Load below which the solver's tolerances would see none: the smallest that a workload with any load puts on a replica."""
Make = Callable[[str, tuple[Any, ...], float, float, str], Any]
"""(family, index, lower bound, upper bound, "int" | "bin" | "real") → a variable."""


def ceil_count(x: float) -> int:
    """Return the smallest whole number not below x, forgiving noise of 1e-9 relative.

    >>> ceil_count(3.0000000001), ceil_count(3.01)
    (3, 4)
    """
    return math.ceil(x - 1e-9 * max(1.0, abs(x)))


@dataclass(frozen=True)
class Sets:
    """Look-ups over one `ProblemData`, all in sorted order so that the same problem gives the same program."""

    d: ProblemData

    @cached_property
    def months(self) -> range:
        return range(self.d.months_count)

    @cached_property
    def slices(self) -> range:
        return range(len(self.d.hours_by_slice))

    @cached_property
    def workloads(self) -> tuple[WorkloadData, ...]:
        return tuple(sorted(self.d.workloads, key=lambda w: w.id))

    @cached_property
    def pools(self) -> tuple[PoolData, ...]:
        return tuple(sorted(self.d.pools, key=lambda p: p.id))

    @cached_property
    def candidates(self) -> tuple[CandidateData, ...]:
        return tuple(sorted(self.d.candidates, key=lambda k: k.id))

    @cached_property
    def apis(self) -> tuple[ApiData, ...]:
        return tuple(sorted(self.d.apis, key=lambda a: a.id))

    @cached_property
    def sites(self) -> tuple[SiteData, ...]:
        return tuple(sorted(self.d.sites, key=lambda s: s.id))

    @cached_property
    def pool(self) -> Mapping[str, PoolData]:
        return {p.id: p for p in self.pools}

    @cached_property
    def candidates_of_pool(self) -> Mapping[str, tuple[CandidateData, ...]]:
        return {p.id: tuple(k for k in self.candidates if k.pool == p.id) for p in self.pools}

    @cached_property
    def candidates_of(self) -> Mapping[str, tuple[CandidateData, ...]]:
        """Candidates that a workload may use."""
        return {w.id: tuple(k for k in self.candidates if k.req_per_s_by_workload.get(w.id, 0.0) > 0) for w in self.workloads}

    @cached_property
    def tenants_of(self) -> Mapping[str, tuple[WorkloadData, ...]]:
        """Workloads that may use a candidate."""
        return {k.id: tuple(w for w in self.workloads if k.req_per_s_by_workload.get(w.id, 0.0) > 0) for k in self.candidates}

    @cached_property
    def apis_of(self) -> Mapping[str, tuple[ApiData, ...]]:
        return {w.id: tuple(a for a in self.apis if w.id in a.usd_per_request_by_workload) for w in self.workloads}

    @cached_property
    def variants_of(self) -> Mapping[str, tuple[str, ...]]:
        return {w.id: tuple(sorted({k.variant for k in self.candidates_of[w.id]})) for w in self.workloads}

    @cached_property
    def _month_mean(self) -> Mapping[str, tuple[float, ...]]:
        hours = self.d.hours_by_slice
        return {
            w.id: tuple(sum(h * x for h, x in zip(hours, row, strict=True)) / sum(hours) for row in w.mean_req_per_s)
            for w in self.workloads
        }

    def mean_req_per_s(self, w: WorkloadData, m: int, t: int) -> float:
        """What a share of 1 serves on average: the timeslice's mean rate; for batch the month's mean arrival rate."""
        return self._month_mean[w.id][m] if w.kind == "batch" else w.mean_req_per_s[m][t]

    def peak_req_per_s(self, w: WorkloadData, m: int, t: int) -> float:
        """What a share of 1 asks of capacity: the highest hourly mean; for batch the constant work rate."""
        return self._month_mean[w.id][m] if w.kind == "batch" else w.peak_req_per_s[m][t]

    def is_served(self, w: WorkloadData, m: int, t: int) -> bool:
        return self.peak_req_per_s(w, m, t) > 0

    def derate_frac(self, k: CandidateData) -> float:
        """Spot without a fallback price delivers only `availability_frac` of its capacity; all else delivers all."""
        p = self.pool[k.pool]
        return p.availability_frac if p.kind == "spot" and not p.fallback_usd_per_node_hour_by_month else 1.0

    def max_share(self, w: WorkloadData, m: int, t: int) -> float:
        """Upper bound of a share: 1; for batch what a run of the timeslice's hours can work off at most (`batch_ceiling`)."""
        return 1.0 if w.kind != "batch" else self._batch_ceiling[w.id, m, t]

    @cached_property
    def _batch_ceiling(self) -> Mapping[tuple[str, int, int], float]:
        """Work over mean arrivals that no plan can pass: backlog of at most the deadline's arrivals, plus what arrives meanwhile."""
        out: dict[tuple[str, int, int], float] = {}
        hour_slice = self.d.slice_of_hour
        starts = [i for i in range(HOURS_PER_WEEK) if hour_slice[i - 1] != hour_slice[i]] or [0]
        lengths = [(b - a) % HOURS_PER_WEEK or HOURS_PER_WEEK for a, b in zip(starts, starts[1:] + starts[:1], strict=True)]
        for w in self.workloads:
            if w.kind != "batch":
                continue
            deadline = deadline_hours_count(w)
            for m in self.months:
                mean = self._month_mean[w.id][m]
                arrived = [w.mean_req_per_s[m][hour_slice[i]] / mean if mean > 0 else 0.0 for i in range(HOURS_PER_WEEK)]
                week = sum(arrived)
                most = [week] * len(self.slices)
                for i, length in zip(starts, lengths, strict=True):
                    reach = sum(arrived[(i - 1 - j) % HOURS_PER_WEEK] for j in range(min(deadline, HOURS_PER_WEEK)))
                    reach += sum(arrived[(i + j) % HOURS_PER_WEEK] for j in range(length))
                    most[hour_slice[i]] = min(most[hour_slice[i]], min(reach, week) / length)
                for t in self.slices:
                    out[w.id, m, t] = most[t]
        return out

    def nodes_of_replica(self, k: CandidateData) -> float:
        """Nodes that one replica takes: a fraction within a node, or n whole ones."""
        if k.nodes_per_replica_count > 1:
            return float(k.nodes_per_replica_count)
        return k.gpus_count / self.pool[k.pool].gpus_per_node_count

    def replicas_on_node(self, k: CandidateData) -> int:
        """Most replicas that fall with one node."""
        return 1 if k.nodes_per_replica_count > 1 else self.pool[k.pool].gpus_per_node_count // k.gpus_count

    def strict_tenants(self, k: CandidateData, level: str) -> tuple[WorkloadData, ...]:
        return self._strict[level, k.id]

    @cached_property
    def _strict(self) -> Mapping[tuple[str, str], tuple[WorkloadData, ...]]:
        return {(x, k.id): tuple(w for w in self.tenants_of[k.id] if w.survive == x) for k in self.candidates for x in ("replica", "node")}

    @cached_property
    def candidate(self) -> Mapping[str, CandidateData]:
        return {k.id: k for k in self.candidates}

    def peers(self, k: CandidateData) -> tuple[CandidateData, ...]:
        """Other candidates of the same variant."""
        return self._peers[k.id]

    @cached_property
    def _peers(self) -> Mapping[str, tuple[CandidateData, ...]]:
        by_variant: dict[str, list[CandidateData]] = {}
        for k in self.candidates:
            by_variant.setdefault(k.variant, []).append(k)
        return {k.id: tuple(j for j in by_variant[k.variant] if j.id != k.id) for k in self.candidates}

    def exchange_frac(self, j: CandidateData, k: CandidateData) -> float:
        """Replicas of k that one spare replica of j surely stands in for, whichever tenant of k is hit (0 if j may not serve one)."""
        return 1.0 if j.id == k.id else self._exchange[j.id, k.id]

    @cached_property
    def _exchange(self) -> Mapping[tuple[str, str], float]:
        out: dict[tuple[str, str], float] = {}
        for k in self.candidates:
            for j in self.peers(k):
                rates = [
                    j.req_per_s_by_workload.get(w.id, 0.0) * self.derate_frac(j) / (k.req_per_s_by_workload[w.id] * self.derate_frac(k))
                    for w in self.tenants_of[k.id]
                ]
                out[j.id, k.id] = min(rates) if rates else 0.0
        return out

    @cached_property
    def _spare_count(self) -> Mapping[str, int]:
        """The most spare replicas of a candidate that any promise can ask for."""
        out: dict[str, int] = {}
        for k in self.candidates:
            spare = 0
            for j in (k, *self.peers(k)):
                lost = 1 if self.strict_tenants(j, "replica") else 0
                if self.strict_tenants(j, "node"):
                    lost = max(lost, self.replicas_on_node(j))
                rate = self.exchange_frac(k, j)
                if lost and rate > 0:
                    spare = max(spare, ceil_count(lost / rate))
            out[k.id] = spare
        return out

    def max_replicas(self, k: CandidateData, m: int, t: int) -> int:
        """Upper bound of replicas: every tenant wholly on k, rounded up, plus the most spare that any promise can ask for."""
        key = (k.id, m, t)
        if key not in self._most:
            load = sum(self.load_replicas(w, k, m, t) * self.max_share(w, m, t) for w in self.tenants_of[k.id])
            least = max((w.min_replicas_count for w in self.tenants_of[k.id]), default=0)
            self._most[key] = max(ceil_count(load) + self._spare_count[k.id], least) if load > 0 else 0
        return self._most[key]

    @cached_property
    def _most(self) -> dict[tuple[str, int, int], int]:
        return {}

    def load_replicas(self, w: WorkloadData, k: CandidateData, m: int, t: int) -> float:
        """Replicas of k that the whole peak of w fills (its share times this is its load); any load at all asks for a replica."""
        load = self.peak_req_per_s(w, m, t) / self._served_req_per_s[w.id, k.id]
        return max(load, LEAST_LOAD_REPLICAS) if load > 0 else 0.0

    @cached_property
    def _served_req_per_s(self) -> Mapping[tuple[str, str], float]:
        return {(w.id, k.id): k.req_per_s_by_workload[w.id] * self.derate_frac(k) for k in self.candidates for w in self.tenants_of[k.id]}

    @cached_property
    def _max_nodes_cell(self) -> Mapping[tuple[str, int, int], int]:
        out: dict[tuple[str, int, int], int] = {}
        for p in self.pools:
            for m in self.months:
                for t in self.slices:
                    need = sum(self.max_replicas(k, m, t) * self.nodes_of_replica(k) for k in self.candidates_of_pool[p.id])
                    limit = math.inf if p.max_count is None else p.max_count
                    out[p.id, m, t] = int(min(ceil_count(need), limit))
                if p.cold_start_hours > 0:
                    keep = max(out[p.id, m, t] for t in self.slices)
                    out.update({(p.id, m, t): keep for t in self.slices})
        return out

    def max_nodes_at(self, p: PoolData, m: int, t: int) -> int:
        return self._max_nodes_cell[p.id, m, t]

    @cached_property
    def _max_nodes(self) -> Mapping[str, int]:
        return {p.id: max((self._max_nodes_cell[p.id, m, t] for m in self.months for t in self.slices), default=0) for p in self.pools}

    def max_nodes(self, p: PoolData) -> int:
        """Upper bound of nodes at hand at any time."""
        most = self._max_nodes[p.id]
        return min(most, p.existing_count) if p.kind == "existing" else most

    def order_months(self, p: PoolData) -> tuple[int, ...]:
        """Months in which an order can still serve within the horizon (reserved terms begin at once)."""
        lead = p.lead_months if p.kind == "own" else 0
        return tuple(m for m in self.months if m + lead < self.d.months_count)

    @cached_property
    def hour_steps(self) -> Mapping[tuple[int, int], int]:
        """(t, t') → how often a week passes from timeslice t straight into another timeslice t'."""
        out: dict[tuple[int, int], int] = {}
        s = self.d.slice_of_hour
        for i in range(HOURS_PER_WEEK):
            step = (s[i], s[(i + 1) % HOURS_PER_WEEK])
            if step[0] != step[1]:
                out[step] = out.get(step, 0) + 1
        return dict(sorted(out.items()))

    def needs_hosted(self, w: WorkloadData) -> bool:
        return bool(self.apis_of[w.id] and self.candidates_of[w.id]) and (not w.is_mix_allowed or w.min_replicas_count > 0)

    def limited_apis_of(self, w: WorkloadData) -> tuple[ApiData, ...]:
        return tuple(a for a in self.apis_of[w.id] if is_limited(a)) if w.is_mix_allowed else ()

    def unlimited_apis_of(self, w: WorkloadData) -> tuple[ApiData, ...]:
        return tuple(a for a in self.apis_of[w.id] if not is_limited(a)) if w.is_mix_allowed else ()


def deadline_hours_count(w: WorkloadData) -> int:
    """Whole hours within which batch work must be done (rounded down; a day where none is given)."""
    return math.floor(24.0 if w.deadline_hours is None else w.deadline_hours)


def most_backlog_hours(d: ProblemData, w: WorkloadData, m: int) -> float:
    """Upper bound of the backlog as the week begins: all that a deadline's hours may bring, in hours of mean arrivals."""
    rates = w.mean_req_per_s[m]
    mean = sum(h * x for h, x in zip(d.hours_by_slice, rates, strict=True)) / sum(d.hours_by_slice)
    return deadline_hours_count(w) * max(rates) / mean if mean > 0 else 0.0


def is_limited(a: ApiData) -> bool:
    return any(x is not None for x in (a.max_req_per_min, a.max_input_tok_per_min, a.max_output_tok_per_min))


@dataclass
class Variables:
    """The unknowns, by index. Keys absent stand for 0."""

    sets: Sets
    buy: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(p, m) nodes ordered (own), commitments begun (reserved)."""
    held: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(p, m) nodes at hand all month (own, existing, reserved)."""
    nodes: dict[tuple[str, int, int], Any] = field(default_factory=dict)
    """(p, m, t) nodes rented (on demand, spot)."""
    rise: dict[tuple[str, int, int, int], Any] = field(default_factory=dict)
    """(p, m, t, t') nodes started when the week passes from t into t'."""
    replicas: dict[tuple[str, int, int], Any] = field(default_factory=dict)
    share: dict[tuple[str, str, int, int], Any] = field(default_factory=dict)
    call: dict[tuple[str, str, int, int], Any] = field(default_factory=dict)
    backlog: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(w, m) batch work waiting as the week begins, in hours of the month's mean arrival rate."""
    work: dict[tuple[str, int, int], Any] = field(default_factory=dict)
    """(w, m, t) batch work rate over the month's mean arrival rate."""
    must_survive: dict[tuple[str, str, int, int], Any] = field(default_factory=dict)
    """(level, k, m, t) 1 where a strict workload runs on k."""
    absorb: dict[tuple[str, str, str, str, int, int], Any] = field(default_factory=dict)
    """(level, w, a, k, m, t) part of w's load that offer a takes over when k loses a replica or node (offers with limits)."""
    use: dict[tuple[str, str], Any] = field(default_factory=dict)
    """(v, w)"""
    hosted: dict[tuple[str, int], Any] = field(default_factory=dict)
    """(w, m) 1 where w runs on own or rented replicas."""
    open_site: dict[tuple[str, int], Any] = field(default_factory=dict)
    self_host: dict[int, Any] = field(default_factory=dict)

    def nodes_at(self, p: PoolData, m: int, t: int) -> Any:
        return self.held.get((p.id, m)) if p.kind in HELD_KINDS else self.nodes.get((p.id, m, t))


FAMILIES = (
    "buy",
    "held",
    "nodes",
    "rise",
    "replicas",
    "share",
    "call",
    "backlog",
    "work",
    "must_survive",
    "absorb",
    "use",
    "hosted",
    "open_site",
    "self_host",
)


def make_variables(d: ProblemData, make: Make, sets: Sets | None = None) -> Variables:
    """Return every unknown of the problem, made by `make`; all have finite bounds that no optimal plan needs to pass."""
    s = sets or Sets(d)
    v = Variables(s)
    for p in s.pools:
        most = s.max_nodes(p)
        if p.kind in HELD_KINDS:
            lead = p.lead_months if p.kind == "own" else 0
            for m in s.months:
                gone = p.kind == "existing" and p.retires_month is not None and m >= p.retires_month
                late = p.kind == "own" and m < lead
                v.held[p.id, m] = make("held", (p.id, m), 0, 0 if gone or late else most, "int")
            if p.kind != "existing":
                for m in s.order_months(p):
                    v.buy[p.id, m] = make("buy", (p.id, m), 0, most, "int")
        else:
            for m in s.months:
                for t in s.slices:
                    v.nodes[p.id, m, t] = make("nodes", (p.id, m, t), 0, s.max_nodes_at(p, m, t), "int")
                if p.cold_start_hours > 0:
                    for t, u in s.hour_steps:
                        v.rise[p.id, m, t, u] = make("rise", (p.id, m, t, u), 0, s.max_nodes_at(p, m, u), "real")
    for k in s.candidates:
        for m in s.months:
            for t in s.slices:
                if most_replicas := s.max_replicas(k, m, t):
                    v.replicas[k.id, m, t] = make("replicas", (k.id, m, t), 0, most_replicas, "int")
                    for level in ("replica", "node"):
                        if any(s.is_served(w, m, t) for w in s.strict_tenants(k, level)):
                            v.must_survive[level, k.id, m, t] = make("must_survive", (level, k.id, m, t), 0, 1, "bin")
                            for w in s.tenants_of[k.id]:
                                for a in s.limited_apis_of(w) if s.is_served(w, m, t) else ():
                                    key = (level, w.id, a.id, k.id, m, t)
                                    v.absorb[key] = make("absorb", key, 0, s.max_share(w, m, t), "real")
    for w in s.workloads:
        for m in s.months:
            for t in s.slices:
                if not s.is_served(w, m, t):
                    continue
                for k in s.candidates_of[w.id]:
                    v.share[w.id, k.id, m, t] = make("share", (w.id, k.id, m, t), 0, s.max_share(w, m, t), "real")
                for a in s.apis_of[w.id]:
                    v.call[w.id, a.id, m, t] = make("call", (w.id, a.id, m, t), 0, s.max_share(w, m, t), "real")
                if w.kind == "batch":
                    v.work[w.id, m, t] = make("work", (w.id, m, t), 0, s.max_share(w, m, t), "real")
            if w.kind == "batch" and s.peak_req_per_s(w, m, 0) > 0:
                v.backlog[w.id, m] = make("backlog", (w.id, m), 0, most_backlog_hours(d, w, m), "real")
            if s.needs_hosted(w):
                v.hosted[w.id, m] = make("hosted", (w.id, m), 0, 1, "bin")
        if len(s.variants_of[w.id]) > 1:
            for variant in s.variants_of[w.id]:
                v.use[variant, w.id] = make("use", (variant, w.id), 0, 1, "bin")
    for site in s.sites:
        if site.usd_per_month_fixed > 0 and any(p.site == site.id for p in s.pools):
            for m in s.months:
                v.open_site[site.id, m] = make("open_site", (site.id, m), 0, 1, "bin")
    if d.staff_usd_per_month > 0 and s.pools:
        for m in s.months:
            v.self_host[m] = make("self_host", (m,), 0, 1, "bin")
    return v
