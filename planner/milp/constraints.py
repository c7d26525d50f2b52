"""Constraints: one generator each; it yields rows and knows nothing of any solver.

A row is `Row(name, terms, sense, rhs)` with `terms` a list of (variable, coefficient). `solve.build` adds the rows of `CONSTRAINTS` in
order; `docs/formulation.md` is printed from the docstrings.
"""

# ruff: noqa: ARG001 - every row and cost line takes (v, d), whether it needs both or not
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Literal, NamedTuple

from planner.milp.costs import CAPITAL, COSTS
from planner.milp.problem import HELD_KINDS, Variables, deadline_hours_count
from planner.schema.problem import CandidateData, ProblemData, WorkloadData
from planner.units import HOURS_PER_WEEK

Sense = Literal["<=", ">=", "=="]


class Row(NamedTuple):
    """One linear condition on the variables."""

    name: str
    terms: list[tuple[Any, float]]
    sense: Sense
    rhs: float


Rows = Iterator[Row]


def row_name(*parts: object) -> str:
    """Return the row's name: its constraint and its index, in characters that every solver keeps."""
    return "__".join(str(p) for p in parts)


def demand_met(v: Variables, d: ProblemData) -> Rows:
    r"""Serve all of every workload in every month and timeslice, on replicas or through APIs, in fixed proportions.

    .. math:: \sum_k share_{w,k,m,t} + \sum_a call_{w,a,m,t} = 1 \quad \forall w\ \text{serving}, m, t   [part of the rate]
    """
    s = v.sets
    for w in s.workloads:
        if w.kind == "batch":
            continue
        for m in s.months:
            for t in s.slices:
                if s.is_served(w, m, t):
                    terms = [(v.share[w.id, k.id, m, t], 1.0) for k in s.candidates_of[w.id]]
                    terms += [(v.call[w.id, a.id, m, t], 1.0) for a in s.apis_of[w.id]]
                    yield Row(row_name("demand_met", w.id, m, t), terms, "==", 1.0)


def load_within_replicas(v: Variables, d: ProblemData) -> Rows:
    r"""Replicas of a candidate carry the peak load of all workloads that share them.

    .. math:: \sum_w \frac{share_{w,k,m,t}\, peak_{w,m,t}}{\mu_{w,k}} \le replicas_{k,m,t}   [replicas]
    """
    s = v.sets
    for k in s.candidates:
        for m in s.months:
            for t in s.slices:
                terms = _load(v, k, m, t)
                if terms:
                    yield Row(row_name("load_within_replicas", k.id, m, t), [*terms, (v.replicas[k.id, m, t], -1.0)], "<=", 0.0)


def _load(v: Variables, k: CandidateData, m: int, t: int, sign: float = 1.0) -> list[tuple[Any, float]]:
    """Replicas of k in use: the sum over tenants of share × peak / μ."""
    s = v.sets
    return [(v.share[w.id, k.id, m, t], sign * s.load_replicas(w, k, m, t)) for w in s.tenants_of[k.id] if (w.id, k.id, m, t) in v.share]


def replicas_within_nodes(v: Variables, d: ProblemData) -> Rows:
    r"""Replicas fit on the nodes at hand; exact because sizes on a pool divide one another and the node, or are whole nodes.

    .. math:: \sum_{k \in p} \frac{g_k}{G_p}\, replicas_{k,m,t} \le nodes_{p,m,t}   [nodes]
    """
    s = v.sets
    for p in s.pools:
        for m in s.months:
            for t in s.slices:
                terms = [(v.replicas[k.id, m, t], s.nodes_of_replica(k)) for k in s.candidates_of_pool[p.id] if (k.id, m, t) in v.replicas]
                if terms:
                    yield Row(row_name("replicas_within_nodes", p.id, m, t), [*terms, (v.nodes_at(p, m, t), -1.0)], "<=", 0.0)


def supply_at_hand(v: Variables, d: ProblemData) -> Rows:
    r"""A part of a load needs a whole replica and a whole node to be served at all (these rows only tighten the relaxation).

    .. math:: share_{w,k,m,t} \le most_{w,m,t}\, replicas_{k,m,t}, \qquad
       \sum_{k \in p} share_{w,k,m,t} \le \min(most_{w,m,t}, most_{w,p,m,t})\, nodes_{p,m,t}, \qquad
       \sum_k \min(1, \mu_{w,k} / peak_{w,m,t})\, replicas_{k,m,t} + \sum_a call_{w,a,m,t} \ge 1   [part of the rate]
    """
    s = v.sets
    for w in s.workloads:
        for m in s.months:
            for t in s.slices:
                if not s.is_served(w, m, t):
                    continue
                most = s.max_share(w, m, t)
                mine = [k for k in s.candidates_of[w.id] if (w.id, k.id, m, t) in v.share]
                for k in mine:
                    if s.load_replicas(w, k, m, t) * most < 1:
                        terms = [(v.share[w.id, k.id, m, t], 1.0), (v.replicas[k.id, m, t], -most)]
                        yield Row(row_name("supply_at_hand", "replica", w.id, k.id, m, t), terms, "<=", 0.0)
                for p in s.pools:
                    here = [k for k in s.candidates_of_pool[p.id] if (w.id, k.id, m, t) in v.share]
                    if here:
                        node = max(1.0 / (s.nodes_of_replica(k) * s.load_replicas(w, k, m, t)) for k in here)
                        terms = [(v.share[w.id, k.id, m, t], 1.0) for k in here]
                        yield Row(
                            row_name("supply_at_hand", "node", w.id, p.id, m, t),
                            [*terms, (v.nodes_at(p, m, t), -min(most, node))],
                            "<=",
                            0.0,
                        )
                if w.kind == "serving" and mine:
                    terms = [(v.replicas[k.id, m, t], min(1.0, 1.0 / s.load_replicas(w, k, m, t))) for k in mine]
                    terms += [(v.call[w.id, a.id, m, t], 1.0) for a in s.apis_of[w.id] if (w.id, a.id, m, t) in v.call]
                    yield Row(row_name("supply_at_hand", "cover", w.id, m, t), terms, ">=", 1.0)


def nodes_held(v: Variables, d: ProblemData) -> Rows:
    r"""Nodes at hand: last month's, plus orders delivered (own, after the lead time) or begun (reserved), less those past life or term;
    nodes that were there before the plan may be put out of service, for good.

    .. math:: held_{p,m} = held_{p,m-1} + buy_{p,m-lead} - buy_{p,m-lead-life}, \qquad held_{e,m} \le held_{e,m-1}   [nodes]
    """
    s = v.sets
    for p in s.pools:
        if p.kind not in HELD_KINDS:
            continue
        for m in s.months:
            terms = [(v.held[p.id, m], 1.0)]
            if m > 0:
                terms.append((v.held[p.id, m - 1], -1.0))
            if p.kind == "existing":
                if m > 0:
                    yield Row(row_name("nodes_held", p.id, m), terms, "<=", 0.0)
                continue
            lead, lasts = (p.lead_months, p.life_months) if p.kind == "own" else (0, p.term_months)
            for begins, sign in ((m - lead, -1.0), (m - lead - lasts, 1.0)):
                if (p.id, begins) in v.buy:
                    terms.append((v.buy[p.id, begins], sign))
            yield Row(row_name("nodes_held", p.id, m), terms, "==", 0.0)


def starts_counted(v: Variables, d: ProblemData) -> Rows:
    r"""A rise in rented nodes between consecutive hours is a cold start (each month is alike weeks, so Sunday meets Monday).

    .. math:: rise_{p,m,t,t'} \ge nodes_{p,m,t'} - nodes_{p,m,t}   [nodes]
    """
    for (p, m, t, u), rise in v.rise.items():
        terms = [(v.nodes[p, m, u], 1.0), (v.nodes[p, m, t], -1.0), (rise, -1.0)]
        yield Row(row_name("starts_counted", p, m, t, u), terms, "<=", 0.0)


def min_replicas(v: Variables, d: ProblemData) -> Rows:
    r"""A workload that runs on replicas always has its least number of them; one that is wholly called needs none.

    .. math:: \sum_{k \in v} replicas_{k,m,t} \ge least_w\, (use_{v,w} + hosted_{w,m} - 1)   [replicas]
    """
    s = v.sets
    for w in s.workloads:
        if w.min_replicas_count <= 0:
            continue
        least = float(w.min_replicas_count)
        for variant in s.variants_of[w.id]:
            for m in s.months:
                for t in s.slices:
                    if not s.is_served(w, m, t):
                        continue
                    terms = [(v.replicas[k.id, m, t], 1.0) for k in s.candidates_of[w.id] if k.variant == variant]
                    rhs = least
                    for switch in (v.use.get((variant, w.id)), v.hosted.get((w.id, m))):
                        if switch is not None:
                            terms.append((switch, -least))
                            rhs -= least
                    yield Row(row_name("min_replicas", w.id, variant, m, t), terms, ">=", rhs)


def one_variant(v: Variables, d: ProblemData) -> Rows:
    r"""A workload runs on one variant (weights, KV format, class) over the whole horizon.

    .. math:: \sum_v use_{v,w} \le 1, \qquad \sum_{k \in v} share_{w,k,m,t} \le most_{w,m,t}\, use_{v,w}   [variants]
    """
    s = v.sets
    for w in s.workloads:
        variants = s.variants_of[w.id]
        if len(variants) <= 1:
            continue
        yield Row(row_name("one_variant", w.id), [(v.use[x, w.id], 1.0) for x in variants], "<=", 1.0)
        for x in variants:
            for m in s.months:
                for t in s.slices:
                    if s.is_served(w, m, t):
                        terms = [(v.share[w.id, k.id, m, t], 1.0) for k in s.candidates_of[w.id] if k.variant == x]
                        yield Row(row_name("one_variant", w.id, x, m, t), [*terms, (v.use[x, w.id], -s.max_share(w, m, t))], "<=", 0.0)


def not_mixed(v: Variables, d: ProblemData) -> Rows:
    r"""Replicas serve a workload only where it is hosted; where mixing is not allowed, APIs serve it only where it is not.

    .. math:: \sum_k share_{w,k,m,t} \le most_{w,m,t}\, hosted_{w,m}, \qquad
       \sum_a call_{w,a,m,t} \le most_{w,m,t}\, (1 - hosted_{w,m})   [part of the rate]
    """
    s = v.sets
    for w in s.workloads:
        if not s.needs_hosted(w):
            continue
        for m in s.months:
            for t in s.slices:
                if not s.is_served(w, m, t):
                    continue
                most = s.max_share(w, m, t)
                hosted = v.hosted[w.id, m]
                shares = [(v.share[w.id, k.id, m, t], 1.0) for k in s.candidates_of[w.id]]
                yield Row(row_name("not_mixed", w.id, "replicas", m, t), [*shares, (hosted, -most)], "<=", 0.0)
                if not w.is_mix_allowed:
                    calls = [(v.call[w.id, a.id, m, t], 1.0) for a in s.apis_of[w.id]]
                    yield Row(row_name("not_mixed", w.id, "api", m, t), [*calls, (hosted, most)], "<=", most)


def survives(v: Variables, d: ProblemData) -> Rows:
    r"""Where a workload that must survive runs on k, the loss of one replica (or of a node full of them) is made good by the spare of k,
    the spare of the class's other candidates (outside the lost node's pool) at their exchange rate, and APIs within their limits.
    All tenants of k count: the strictest rules. Where a class has one tenant that no API may serve, its replicas carry the peak and the
    least that can be lost (that row only tightens).

    .. math:: spare_k + \sum_{j} \min_w \tfrac{\mu_{w,j}}{\mu_{w,k}}\, spare_j + \sum_{w,a} absorb_{w,a,k}\, \tfrac{peak_w}{\mu_{w,k}}
       \ge lost_k\, strict_{k,m,t}, \quad spare_k = replicas_k - load_k   [replicas]
    """
    s = v.sets
    for (level, kid, m, t), strict in v.must_survive.items():
        k = s.candidate[kid]
        lost = 1 if level == "replica" else s.replicas_on_node(k)
        for w in s.strict_tenants(k, level):
            if (w.id, kid, m, t) in v.share:
                terms = [(v.share[w.id, kid, m, t], 1.0), (strict, -s.max_share(w, m, t))]
                yield Row(row_name("survives", level, kid, m, t, w.id), terms, "<=", 0.0)
        terms = [(v.replicas[kid, m, t], 1.0), *_load(v, k, m, t, -1.0), (strict, -float(lost))]
        for j in s.peers(k):
            rate = s.exchange_frac(j, k)
            if rate > 0 and (j.id, m, t) in v.replicas and not (level == "node" and j.pool == k.pool):
                terms.append((v.replicas[j.id, m, t], rate))
                terms += _load(v, j, m, t, -rate)
        for w in s.tenants_of[kid]:
            if (w.id, kid, m, t) not in v.share:
                continue
            load = s.load_replicas(w, k, m, t)
            if s.unlimited_apis_of(w):
                terms.append((v.share[w.id, kid, m, t], load))
            elif s.limited_apis_of(w):
                absorbed = [(v.absorb[level, w.id, a.id, kid, m, t], 1.0) for a in s.limited_apis_of(w)]
                terms += [(x, load) for x, _ in absorbed]
                own = [*absorbed, (v.share[w.id, kid, m, t], -1.0)]
                yield Row(row_name("survives", level, kid, m, t, w.id, "absorbed"), own, "<=", 0.0)
        yield Row(row_name("survives", level, kid, m, t), _merged(terms), ">=", 0.0)
        for name, calls in _limit_rows(v, m, t, (level, kid)):
            yield Row(row_name("survives", level, kid, m, t, name), calls, "<=", 1.0)
    for w in s.workloads:
        mine = s.candidates_of[w.id]
        alone = all(len(s.tenants_of[k.id]) == 1 for k in mine)
        if w.survive == "none" or w.kind == "batch" or s.apis_of[w.id] or not alone or len(s.variants_of[w.id]) != 1:
            continue
        lost_req_per_s = min(
            k.req_per_s_by_workload[w.id] * s.derate_frac(k) * (s.replicas_on_node(k) if w.survive == "node" else 1) for k in mine
        )
        for m in s.months:
            for t in s.slices:
                if s.is_served(w, m, t):
                    terms = [(v.replicas[k.id, m, t], k.req_per_s_by_workload[w.id] * s.derate_frac(k)) for k in mine]
                    yield Row(row_name("survives", w.id, m, t), terms, ">=", s.peak_req_per_s(w, m, t) + lost_req_per_s)


def _merged(terms: list[tuple[Any, float]]) -> list[tuple[Any, float]]:
    """Add up coefficients of the same variable, keeping the order of first mention."""
    at: dict[int, int] = {}
    out: list[tuple[Any, float]] = []
    for x, c in terms:
        if id(x) in at:
            i = at[id(x)]
            out[i] = (x, out[i][1] + c)
        else:
            at[id(x)] = len(out)
            out.append((x, c))
    return [(x, c) for x, c in out if abs(c) > 1e-12]


LIMITS: tuple[tuple[str, Callable[[Any, str], float], Callable[[Any], float | None]], ...] = (
    ("req", lambda _a, _w: 1.0, lambda a: a.max_req_per_min),
    ("input_tok", lambda a, w: a.input_tok_per_request_by_workload[w], lambda a: a.max_input_tok_per_min),
    ("output_tok", lambda a, w: a.output_tok_per_request_by_workload[w], lambda a: a.max_output_tok_per_min),
)


def _limit_rows(v: Variables, m: int, t: int, failed: tuple[str, str] | None = None) -> Iterator[tuple[str, list[tuple[Any, float]]]]:
    """Parts of an account's limits in use, by account and unit; with what a failure of (level, k) sends there added."""
    s = v.sets
    for account in sorted({a.account for a in s.apis}):
        for unit, per_request, limit_of in LIMITS:
            terms: list[tuple[Any, float]] = []
            extra = False
            for a in s.apis:
                limit = limit_of(a)
                if a.account != account or limit is None:
                    continue
                for w in s.workloads:
                    if (w.id, a.id, m, t) not in v.call:
                        continue
                    part = s.peak_req_per_s(w, m, t) * 60.0 * per_request(a, w.id) / limit if limit > 0 else 1e6
                    terms.append((v.call[w.id, a.id, m, t], part))
                    if failed is not None:
                        x = v.absorb.get((failed[0], w.id, a.id, failed[1], m, t))
                        if x is not None:
                            terms.append((x, part))
                            extra = True
            if terms and (failed is None or extra):
                yield row_name(account, unit), terms


def api_within_limits(v: Variables, d: ProblemData) -> Rows:
    r"""Calls at the peak stay within the account's requests and tokens a minute; offers on one account share its limits, each using
    the part of its own limit that it takes.

    .. math:: \sum_{a \in account} \sum_w \frac{60\, call_{w,a,m,t}\, peak_{w,m,t}\, tok_{w,a}}{limit_a} \le 1   [part of the limit]
    """
    for m in v.sets.months:
        for t in v.sets.slices:
            for name, terms in _limit_rows(v, m, t):
                yield Row(row_name("api_within_limits", name, m, t), terms, "<=", 1.0)


def firm_floor(v: Variables, d: ProblemData) -> Rows:
    r"""Spot carries at most the part of an interruptible load that need not be firm.

    .. math:: \sum_{k \in spot} share_{w,k,m,t} \le (1 - floor_w)\, served_{w,m,t}   [part of the rate]
    """
    s = v.sets
    for w in s.workloads:
        spot = [k for k in s.candidates_of[w.id] if s.pool[k.pool].kind == "spot"]
        if not spot or w.firm_floor_frac <= 0:
            continue
        for m in s.months:
            for t in s.slices:
                if s.is_served(w, m, t):
                    terms = [(v.share[w.id, k.id, m, t], 1.0) for k in spot]
                    yield Row(row_name("firm_floor", w.id, m, t), *_part_of_served(v, w, m, t, terms, 1.0 - w.firm_floor_frac))


def _part_of_served(
    v: Variables, w: WorkloadData, m: int, t: int, terms: list[tuple[Any, float]], part: float
) -> tuple[list[tuple[Any, float]], Sense, float]:
    """`terms` are at most `part` of what is served of w in the cell (all of it; for batch the work done there)."""
    if w.kind == "batch":
        return [*terms, (v.work[w.id, m, t], -part)], "<=", 0.0
    return terms, "<=", part


def provider_share(v: Variables, d: ProblemData) -> Rows:
    r"""No provider carries more than the part of a workload that its owner allows.

    .. math:: \sum_{k \in provider} share_{w,k,m,t} + \sum_{a \in provider} call_{w,a,m,t} \le most_w   [part of the rate]
    """
    s = v.sets
    for w in s.workloads:
        if w.max_provider_share_frac is None:
            continue
        for provider in sorted({p.provider for p in s.pools if p.provider} | {a.provider or a.account for a in s.apis}):
            rented = [k for k in s.candidates_of[w.id] if s.pool[k.pool].provider == provider]
            called = [a for a in s.apis_of[w.id] if (a.provider or a.account) == provider]
            for m in s.months:
                for t in s.slices:
                    terms = [(v.share[w.id, k.id, m, t], 1.0) for k in rented if (w.id, k.id, m, t) in v.share]
                    terms += [(v.call[w.id, a.id, m, t], 1.0) for a in called if (w.id, a.id, m, t) in v.call]
                    if terms:
                        name = row_name("provider_share", w.id, provider, m, t)
                        yield Row(name, *_part_of_served(v, w, m, t, terms, w.max_provider_share_frac))


def batch_work(v: Variables, d: ProblemData) -> Rows:
    r"""Batch work of a timeslice is what replicas and APIs do of it, constant over its hours.

    .. math:: work_{w,m,t} = \sum_k share_{w,k,m,t} + \sum_a call_{w,a,m,t}   [part of the month's mean arrivals]
    """
    s = v.sets
    for (wid, m, t), work in v.work.items():
        terms = [(v.share[wid, k.id, m, t], 1.0) for k in s.candidates_of[wid]]
        terms += [(v.call[wid, a.id, m, t], 1.0) for a in s.apis_of[wid]]
        yield Row(row_name("batch_work", wid, m, t), [*terms, (work, -1.0)], "==", 0.0)


def batch_in_time(v: Variables, d: ProblemData) -> Rows:
    r"""Batch work is done after it arrives and before it is due, hour by hour over a cyclic week: the backlog is never negative and
    never more than what arrived within the deadline. Rows stand where a straight piece of either curve ends.

    .. math:: 0 \le backlog_{w,m} + \sum_{i \le n} (arrived_i - work_{w,m,t(i)}) \le \sum_{i = n-D+1}^{n} arrived_i \quad \forall n, \qquad
       \sum_i work_{w,m,t(i)} = \sum_i arrived_i   [hours of mean arrivals]
    """
    s = v.sets
    hour_slice = d.slice_of_hour
    for w in s.workloads:
        if w.kind != "batch":
            continue
        deadline = deadline_hours_count(w)
        ends = batch_checkpoints(hour_slice, deadline)
        for m in s.months:
            if (w.id, m) not in v.backlog:
                continue
            mean = s.mean_req_per_s(w, m, 0)
            arrived = [w.mean_req_per_s[m][hour_slice[i]] / mean for i in range(HOURS_PER_WEEK)]
            hours = [0] * len(s.slices)
            total = 0.0
            for i in range(HOURS_PER_WEEK):
                hours[hour_slice[i]] += 1
                total += arrived[i]
                if i not in ends:
                    continue
                work = [(v.work[w.id, m, t], float(n)) for t, n in enumerate(hours) if n]
                if i == HOURS_PER_WEEK - 1:
                    yield Row(row_name("batch_in_time", w.id, m, "week"), work, "==", total)
                left = [*((x, -c) for x, c in work), (v.backlog[w.id, m], 1.0)]
                recent = sum(arrived[(i - j) % HOURS_PER_WEEK] for j in range(deadline))
                yield Row(row_name("batch_in_time", w.id, m, i, "arrived"), left, ">=", -total)
                yield Row(row_name("batch_in_time", w.id, m, i, "due"), left, "<=", recent - total)


def batch_checkpoints(hour_slice: tuple[int, ...], deadline: int) -> frozenset[int]:
    """Return the hours at whose end the backlog, or the arrivals of a deadline's length, may turn: between them both run straight."""
    turns = {i for i in range(HOURS_PER_WEEK) if hour_slice[i] != hour_slice[(i + 1) % HOURS_PER_WEEK]}
    return frozenset(turns | {(i + deadline) % HOURS_PER_WEEK for i in turns} | {HOURS_PER_WEEK - 1})


def capex_within_budget(v: Variables, d: ProblemData) -> Rows:
    r"""Undiscounted purchases over the horizon stay within the capex budget.

    .. math:: \sum_{p,m} capex_{p,m}\, buy_{p,m} \le budget   [USD]
    """
    if d.capex_budget_usd is None:
        return
    terms = [(v.buy[p.id, m], p.capex_usd_by_month[m]) for p in v.sets.pools if p.kind == "own" for m in v.sets.order_months(p)]
    if terms:
        yield Row("capex_within_budget", terms, "<=", d.capex_budget_usd)


def opex_within_budget(v: Variables, d: ProblemData) -> Rows:
    r"""Every month's undiscounted cash but capex, upfronts included, stays within the monthly budget.

    .. math:: \sum_{lines} cash_m \le budget \quad \forall m   [USD]
    """
    if d.opex_budget_usd_per_month is None:
        return
    terms: list[list[tuple[Any, float]]] = [[] for _ in v.sets.months]
    for line in COSTS:
        if line.__name__ not in CAPITAL:
            for f in line(v, d):
                if f.month < d.months_count:
                    terms[f.month].append((f.x, f.usd))
    for m in v.sets.months:
        if terms[m]:
            yield Row(row_name("opex_within_budget", m), _merged(terms[m]), "<=", d.opex_budget_usd_per_month)


def site_power(v: Variables, d: ProblemData) -> Rows:
    r"""Nameplate watts of the nodes at a site stay within its power.

    .. math:: \sum_{p \in s} watts_p\, held_{p,m} \le limit_s   [W]
    """
    s = v.sets
    for site in s.sites:
        if site.power_limit_w is not None:
            for m in s.months:
                terms = [(v.held[p.id, m], p.nameplate_w) for p in s.pools if p.site == site.id and p.kind in ("own", "existing")]
                if terms:
                    yield Row(row_name("site_power", site.id, m), terms, "<=", site.power_limit_w)


def site_space(v: Variables, d: ProblemData) -> Rows:
    r"""Rack units of the nodes at a site stay within its space.

    .. math:: \sum_{p \in s} units_p\, held_{p,m} \le limit_s   [rack units]
    """
    s = v.sets
    for site in s.sites:
        if site.rack_units_limit_count is not None:
            for m in s.months:
                terms = [
                    (v.held[p.id, m], float(p.rack_units_count)) for p in s.pools if p.site == site.id and p.kind in ("own", "existing")
                ]
                if terms:
                    yield Row(row_name("site_space", site.id, m), terms, "<=", float(site.rack_units_limit_count))


def site_opened(v: Variables, d: ProblemData) -> Rows:
    r"""A site that holds a node is staffed; so it is where it serves any part of a load (the second row only tightens).

    .. math:: held_{p,m} \le most_p\, open_{s,m}, \qquad
       \sum_{k \in s} share_{w,k,m,t} \le most_{w,m,t}\, open_{s,m}   [nodes, part of the rate]
    """
    s = v.sets
    for (site, m), is_open in v.open_site.items():
        pools = [p for p in s.pools if p.site == site and p.kind in ("own", "existing")]
        for p in pools:
            yield Row(row_name("site_opened", p.id, m), [(v.held[p.id, m], 1.0), (is_open, -float(s.max_nodes(p)))], "<=", 0.0)
        names = {p.id for p in pools}
        yield from _needs(v, m, row_name("site_opened", site), is_open, names)


def self_host_staffed(v: Variables, d: ProblemData) -> Rows:
    r"""Serving is operated in every month in which any node is held (the second row only tightens).

    .. math:: nodes_{p,m,t} \le most_p\, self\_host_m, \qquad
       \sum_k share_{w,k,m,t} \le most_{w,m,t}\, self\_host_m   [nodes, part of the rate]
    """
    s = v.sets
    for m, staffed in v.self_host.items():
        for p in s.pools:
            if p.kind in HELD_KINDS:
                terms = [(v.held[p.id, m], 1.0), (staffed, -float(s.max_nodes(p)))]
                yield Row(row_name("self_host_staffed", p.id, m), terms, "<=", 0.0)
            else:
                for t in s.slices:
                    if most := s.max_nodes_at(p, m, t):
                        terms = [(v.nodes[p.id, m, t], 1.0), (staffed, -float(most))]
                        yield Row(row_name("self_host_staffed", p.id, m, t), terms, "<=", 0.0)
        yield from _needs(v, m, "self_host_staffed", staffed, set(s.pool))


def _needs(v: Variables, m: int, name: str, switch: Any, pools: set[str]) -> Rows:
    s = v.sets
    for w in s.workloads:
        mine = [k for k in s.candidates_of[w.id] if k.pool in pools]
        for t in s.slices:
            if mine and s.is_served(w, m, t):
                terms = [(v.share[w.id, k.id, m, t], 1.0) for k in mine]
                yield Row(row_name(name, w.id, m, t), [*terms, (switch, -s.max_share(w, m, t))], "<=", 0.0)


CONSTRAINTS: tuple[Callable[[Variables, ProblemData], Rows], ...] = (
    demand_met,
    load_within_replicas,
    replicas_within_nodes,
    supply_at_hand,
    nodes_held,
    starts_counted,
    min_replicas,
    one_variant,
    not_mixed,
    survives,
    api_within_limits,
    firm_floor,
    provider_share,
    batch_work,
    batch_in_time,
    capex_within_budget,
    opex_within_budget,
    site_power,
    site_space,
    site_opened,
    self_host_staffed,
)
