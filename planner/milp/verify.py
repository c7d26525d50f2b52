"""A second opinion on every solution, without PuLP or HiGHS: the rules again in plain Python, from the data and the plan alone."""

from __future__ import annotations

from collections.abc import Iterator

from planner.errors import PlannerError
from planner.schema.problem import ApiData, CandidateData, ProblemData, Solution, WorkloadData

TOLERANCE = 1e-6


class SolutionRefused(PlannerError):
    """The solver's answer breaks a rule or its cost does not add up: a fault of the solver or of this package, never of the input."""

    exit_code = 3


def check_solution(d: ProblemData, x: Solution) -> None:
    """Raise `SolutionRefused` with every rule that the solution breaks by more than 1e-6 (relative to the larger side, at least 1)."""
    broken = [text for text, over in _violations(d, x) if over > TOLERANCE]
    lines = sum(x.cost_npv_usd.values())
    if abs(lines - x.npv_cost_usd) > 1e-9 * max(1.0, abs(lines)):
        broken.append(f"cost lines sum to {lines:.6f}, the plan says {x.npv_cost_usd:.6f}")
    if broken:
        raise SolutionRefused("the solver's answer was checked and refused: " + "; ".join(broken[:10]))


def _over(left: float, right: float) -> float:
    return (left - right) / max(1.0, abs(left), abs(right))


def _violations(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    yield from _whole(x)
    yield from _served(d, x)
    yield from _capacity(d, x)
    yield from _fleet(d, x)
    yield from _limits(d, x)
    yield from _survival(d, x)
    yield from _batch(d, x)


def _whole(x: Solution) -> Iterator[tuple[str, float]]:
    whole = [
        *(("buy", *i) for i in x.buy.items()),
        *(("nodes", *i) for i in x.nodes.items()),
        *(("replicas", *i) for i in x.replicas.items()),
    ]
    for name, at, n in whole:
        if n < 0 or n != int(n):
            yield f"{name}{at} is {n}", 1.0
    for name, parts in (("share", x.share), ("call", x.call)):
        for key, part in parts.items():
            if part < 0:
                yield f"{name}{key} is {part}", 1.0


def _month_mean(d: ProblemData, w: WorkloadData, m: int) -> float:
    return sum(h * r for h, r in zip(d.hours_by_slice, w.mean_req_per_s[m], strict=True)) / sum(d.hours_by_slice)


def _peak(d: ProblemData, w: WorkloadData, m: int, t: int) -> float:
    return _month_mean(d, w, m) if w.kind == "batch" else w.peak_req_per_s[m][t]


def _cells(d: ProblemData) -> Iterator[tuple[int, int]]:
    for m in range(d.months_count):
        for t in range(len(d.hours_by_slice)):
            yield m, t


def _served(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    by_id = {k.id: k for k in d.candidates}
    offers = {a.id: a for a in d.apis}
    workloads = {w.id: w for w in d.workloads}
    total: dict[tuple[str, int, int], float] = {}
    hosted: dict[tuple[str, int], float] = {}
    called: dict[tuple[str, int], float] = {}
    for (w, k, m, t), part in x.share.items():
        total[w, m, t] = total.get((w, m, t), 0.0) + part
        hosted[w, m] = max(hosted.get((w, m), 0.0), part)
        if by_id[k].req_per_s_by_workload.get(w, 0.0) <= 0:
            yield f"{w} may not use {k}", 1.0
        if part > TOLERANCE and by_id[k].variant != x.use.get(w):
            yield f"{w} runs on two variants", 1.0
    for (w, a, m, t), part in x.call.items():
        total[w, m, t] = total.get((w, m, t), 0.0) + part
        called[w, m] = max(called.get((w, m), 0.0), part)
        if w not in offers[a].usd_per_request_by_workload:
            yield f"{w} may not call {a}", 1.0
    for w, load in workloads.items():
        for m, t in _cells(d):
            if load.kind == "serving" and load.peak_req_per_s[m][t] > 0:
                yield f"{w} is not wholly served in month {m} timeslice {t}", abs(total.get((w, m, t), 0.0) - 1.0)
        for m in range(d.months_count):
            both = min(hosted.get((w, m), 0.0), called.get((w, m), 0.0))
            if not load.is_mix_allowed:
                yield f"{w} mixes replicas and API in month {m}", both
            if load.min_replicas_count and (hosted.get((w, m), 0.0) > TOLERANCE or not _may_call(d, w)):
                for t in range(len(d.hours_by_slice)):
                    if _peak(d, load, m, t) > 0:
                        n = sum(
                            x.replicas.get((k.id, m, t), 0)
                            for k in d.candidates
                            if k.variant == x.use.get(w) and k.req_per_s_by_workload.get(w, 0.0) > 0
                        )
                        yield f"{w} has {n} replicas in month {m} timeslice {t}", _over(load.min_replicas_count, n)


def _may_call(d: ProblemData, w: str) -> bool:
    return any(w in a.usd_per_request_by_workload for a in d.apis)


def _derate(d: ProblemData, k: CandidateData) -> float:
    p = next(p for p in d.pools if p.id == k.pool)
    return p.availability_frac if p.kind == "spot" and not p.fallback_usd_per_node_hour_by_month else 1.0


def _loads(d: ProblemData, x: Solution) -> dict[tuple[str, int, int], float]:
    """Replicas in use of each candidate, by cell."""
    workloads = {w.id: w for w in d.workloads}
    by_id = {k.id: k for k in d.candidates}
    derate = {k.id: _derate(d, k) for k in d.candidates}
    out: dict[tuple[str, int, int], float] = {}
    for (w, k, m, t), part in x.share.items():
        used = part * _peak(d, workloads[w], m, t) / (by_id[k].req_per_s_by_workload[w] * derate[k])
        out[k, m, t] = out.get((k, m, t), 0.0) + used
    return out


def _capacity(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    for (k, m, t), used in _loads(d, x).items():
        yield f"{k} is overloaded in month {m} timeslice {t}", _over(used, x.replicas.get((k, m, t), 0))
    for p in d.pools:
        mine = [k for k in d.candidates if k.pool == p.id]
        for m, t in _cells(d):
            gpus = sum(x.replicas.get((k.id, m, t), 0) * k.gpus_count for k in mine)
            have = x.nodes.get((p.id, m, t), 0)
            yield f"{p.id} is overfull in month {m} timeslice {t}", _over(gpus, have * p.gpus_per_node_count)
            if p.max_count is not None:
                yield f"{p.id} holds more than {p.max_count}", _over(have, p.max_count)


def _fleet(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    slices = range(len(d.hours_by_slice))
    for p in d.pools:
        before = p.existing_count
        for m in range(d.months_count):
            have = {x.nodes.get((p.id, m, t), 0) for t in slices}
            if p.kind in ("own", "reserved", "existing") and len(have) > 1:
                yield f"{p.id} changes within month {m}", 1.0
            if p.kind == "own":
                due = sum(n for (q, o), n in x.buy.items() if q == p.id and o + p.lead_months <= m < o + p.lead_months + p.life_months)
            elif p.kind == "reserved":
                due = sum(n for (q, o), n in x.buy.items() if q == p.id and o <= m < o + p.term_months)
            elif p.kind == "existing":
                due = 0 if p.retires_month is not None and m >= p.retires_month else before
                before = min(due, max(have))
            else:
                continue
            if p.kind != "existing" and max(have) != due:
                yield f"{p.id} holds {max(have)} in month {m}, orders give {due}", 1.0
            yield f"{p.id} holds more than there is in month {m}", _over(max(have), due)
    for site in d.sites:
        mine = [p for p in d.pools if p.site == site.id and p.kind in ("own", "existing")]
        for m in range(d.months_count):
            counts = [(p, max(x.nodes.get((p.id, m, t), 0) for t in slices)) for p in mine]
            if site.power_limit_w is not None:
                yield f"site {site.id} draws too much in month {m}", _over(sum(p.nameplate_w * n for p, n in counts), site.power_limit_w)
            if site.rack_units_limit_count is not None:
                units = sum(p.rack_units_count * n for p, n in counts)
                yield f"site {site.id} is out of space in month {m}", _over(units, site.rack_units_limit_count)
            if site.usd_per_month_fixed and any(n for _, n in counts) and not x.open_sites.get((site.id, m)):
                yield f"site {site.id} holds nodes in month {m} but is not open", 1.0
    for m, t in _cells(d):
        if any(x.nodes.get((p.id, m, t), 0) for p in d.pools) and not x.self_host.get(m):
            yield f"nodes are held in month {m} but serving is not operated", 1.0


def _limits(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    if d.capex_budget_usd is not None:
        spent = sum(n * p.capex_usd_by_month[m] for (q, m), n in x.buy.items() for p in d.pools if p.id == q and p.kind == "own")
        yield "the capex budget is passed", _over(spent, d.capex_budget_usd)
    if d.opex_budget_usd_per_month is not None:
        for m in range(d.months_count):
            cash = sum(months[m] for name, months in x.cost_usd_by_month.items() if name not in ("capex", "residual"))
            yield f"the monthly budget is passed in month {m}", _over(cash, d.opex_budget_usd_per_month)
    for account in {a.account for a in d.apis}:
        for m, t in _cells(d):
            for unit, used in _account_use(d, x.call, account, m, t).items():
                yield f"account {account} passes its limit of {unit} in month {m} timeslice {t}", _over(used, 1.0)
    pool = {p.id: p for p in d.pools}
    by_id = {k.id: k for k in d.candidates}
    offers = {a.id: a for a in d.apis}
    for w in d.workloads:
        if not w.firm_floor_frac and w.max_provider_share_frac is None:
            continue
        for m, t in _cells(d):
            shares = {k: part for (q, k, n, u), part in x.share.items() if (q, n, u) == (w.id, m, t)}
            calls = {a: part for (q, a, n, u), part in x.call.items() if (q, n, u) == (w.id, m, t)}
            all_of_it = sum(shares.values()) + sum(calls.values())
            spot = sum(part for k, part in shares.items() if pool[by_id[k].pool].kind == "spot")
            yield f"{w.id} runs too much on spot in month {m} timeslice {t}", _over(spot, (1 - w.firm_floor_frac) * all_of_it)
            if w.max_provider_share_frac is not None:
                by_provider: dict[str, float] = {}
                for k, part in shares.items():
                    provider = pool[by_id[k].pool].provider
                    if provider:
                        by_provider[provider] = by_provider.get(provider, 0.0) + part
                for a, part in calls.items():
                    provider = offers[a].provider or offers[a].account
                    by_provider[provider] = by_provider.get(provider, 0.0) + part
                for provider, part in by_provider.items():
                    yield f"{w.id} leans too much on {provider}", _over(part, w.max_provider_share_frac * all_of_it)


def _account_use(d: ProblemData, call: object, account: str, m: int, t: int) -> dict[str, float]:
    """Part of each limit of an account that calls at the peak use."""
    assert isinstance(call, dict)
    used: dict[str, float] = {}
    for a in d.apis:
        if a.account != account:
            continue
        for w in d.workloads:
            part = call.get((w.id, a.id, m, t), 0.0)
            if part <= 0:
                continue
            per_min = part * _peak(d, w, m, t) * 60.0
            for unit, tok, limit in _units(a, w):
                if limit is not None:
                    used[unit] = used.get(unit, 0.0) + (per_min * tok / limit if limit > 0 else float("inf"))
    return used


def _units(a: ApiData, w: WorkloadData) -> tuple[tuple[str, float, float | None], ...]:
    return (
        ("requests", 1.0, a.max_req_per_min),
        ("input tokens", a.input_tok_per_request_by_workload[w.id], a.max_input_tok_per_min),
        ("output tokens", a.output_tok_per_request_by_workload[w.id], a.max_output_tok_per_min),
    )


def _survival(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    """Redistribute what a failure takes: own spare, peers' spare at the worst exchange rate of those it serves, then APIs with room."""
    load = _loads(d, x)
    pool = {p.id: p for p in d.pools}
    strict = [w for w in d.workloads if w.survive != "none"]
    for w in strict:
        for (q, kid, m, t), part in x.share.items():
            if q != w.id or part <= TOLERANCE:
                continue
            k = next(c for c in d.candidates if c.id == kid)
            falls_alone = w.survive == "replica" or k.nodes_per_replica_count > 1
            lost = 1 if falls_alone else pool[k.pool].gpus_per_node_count // k.gpus_count
            left = lost - (x.replicas.get((kid, m, t), 0) - load.get((kid, m, t), 0.0))
            for j in d.candidates:
                if j.variant != k.variant or j.id == kid or (w.survive == "node" and j.pool == k.pool):
                    continue
                tenants = [u for u in k.req_per_s_by_workload if x.share.get((u, kid, m, t), 0.0) > TOLERANCE]
                rate = min(
                    j.req_per_s_by_workload.get(u, 0.0) * _derate(d, j) / (k.req_per_s_by_workload[u] * _derate(d, k)) for u in tenants
                )
                left -= rate * max(0.0, x.replicas.get((j.id, m, t), 0) - load.get((j.id, m, t), 0.0))
            if left > TOLERANCE:
                left -= _api_relief(d, x, k, m, t)
            yield f"{w.id} does not survive the loss of a {w.survive} of {kid} in month {m} timeslice {t}", left / lost


def _api_relief(d: ProblemData, x: Solution, k: CandidateData, m: int, t: int) -> float:
    """Replicas of k that APIs can stand in for. One tenant and offer after the other: a plan that needs more cunning is looked at by LP."""
    import numpy as np
    from scipy.optimize import linprog

    pairs, gain, upper = [], [], []
    for w in d.workloads:
        part = x.share.get((w.id, k.id, m, t), 0.0)
        if part <= 0 or not w.is_mix_allowed:
            continue
        for a in d.apis:
            if w.id in a.usd_per_request_by_workload:
                pairs.append((w, a))
                gain.append(_peak(d, w, m, t) / (k.req_per_s_by_workload[w.id] * _derate(d, k)))
                upper.append(part)
    if not pairs:
        return 0.0
    rows, rhs = [], []
    for w in d.workloads:
        part = x.share.get((w.id, k.id, m, t), 0.0)
        rows.append([1.0 if q.id == w.id else 0.0 for q, _ in pairs])
        rhs.append(part)
    for account in {a.account for a in d.apis}:
        used = _account_use(d, x.call, account, m, t)
        for i, unit in enumerate(("requests", "input tokens", "output tokens")):
            row = []
            for w, a in pairs:
                _, tok, limit = _units(a, w)[i]
                on_it = a.account == account and limit is not None
                per_min = _peak(d, w, m, t) * 60.0 * tok
                row.append((per_min / limit if limit else 1e9) if on_it else 0.0)
            if any(row):
                rows.append(row)
                rhs.append(max(0.0, 1.0 + TOLERANCE - used.get(unit, 0.0)))
    answer = linprog(-np.array(gain), A_ub=np.array(rows), b_ub=np.array(rhs), bounds=[(0, u) for u in upper], method="highs")
    return -float(answer.fun or 0.0) if answer.status == 0 else 0.0


def _batch(d: ProblemData, x: Solution) -> Iterator[tuple[str, float]]:
    """Serve the arrivals of a few weeks in order, hour by hour: nothing is done before it arrives or after it is due."""
    for w in d.workloads:
        if w.kind != "batch":
            continue
        deadline = int(24.0 if w.deadline_hours is None else w.deadline_hours)
        for m in range(d.months_count):
            mean = _month_mean(d, w, m)
            if mean <= 0:
                continue
            rate = [0.0] * len(d.hours_by_slice)
            for (q, _, n, t), part in (*x.share.items(), *x.call.items()):
                if (q, n) == (w.id, m):
                    rate[t] += part
            work = [rate[t] for t in d.slice_of_hour]
            arrived = [w.mean_req_per_s[m][t] / mean for t in d.slice_of_hour]
            yield f"{w.id} does {sum(work):g} of {sum(arrived):g} hours of work a week in month {m}", abs(_over(sum(work), sum(arrived)))
            low, high, drift = 0.0, float("inf"), 0.0
            for i in range(len(work)):
                drift += arrived[i] - work[i]
                low = max(low, -drift)
                recent = sum(arrived[(i - j) % len(arrived)] for j in range(deadline))
                high = min(high, recent - drift)
            yield f"{w.id} misses its deadline in month {m}", _over(low, high)
