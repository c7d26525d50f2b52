"""Cost lines: each yields its cash flows; the objective is their discounted sum, and the report evaluates the same functions.

A flow is `Flow(month, after_months, usd, x)`: the variable or number x times usd is paid in `month` (H: at the horizon's end or
beyond it) and discounted by (1+d)^−after_months. Capex, upfronts and residual count at the start of a month, running costs at its end.
"""

# ruff: noqa: ARG001 - every row and cost line takes (v, d), whether it needs both or not
from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from planner import finance
from planner.milp.problem import Variables
from planner.schema.problem import PoolData, ProblemData
from planner.units import HOURS_PER_MONTH, SECONDS_PER_HOUR, WEEKS_PER_MONTH


class Flow(NamedTuple):
    """Undiscounted cash: `usd` times `x`, paid in `month`, discounted over `after_months`."""

    month: int
    after_months: int
    usd: float
    x: Any


Flows = Iterator[Flow]


def _running(m: int, usd: float, x: Any) -> Flow:
    return Flow(m, m + 1, usd, x)


def _per_held(v: Variables, usd_of: Callable[[PoolData], float]) -> Flows:
    for p in v.sets.pools:
        usd = usd_of(p) if p.kind in ("own", "existing") else 0.0
        if usd:
            for m in v.sets.months:
                yield _running(m, usd, v.held[p.id, m])


def capex(v: Variables, d: ProblemData) -> Flows:
    r"""Price of the nodes ordered, paid when ordered.

    .. math:: \sum_{p,m} (1+d)^{-m}\, capex_{p,m}\, buy_{p,m}   [USD]
    """
    for p in v.sets.pools:
        if p.kind == "own":
            for m in v.sets.order_months(p):
                yield Flow(m, m, p.capex_usd_by_month[m], v.buy[p.id, m])


def residual(v: Variables, d: ProblemData) -> Flows:
    r"""What the nodes bought by this plan are worth at the horizon's end, by their age there; sunk nodes get none.

    .. math:: -(1+d)^{-H} \sum_{p,m} residual_{p,m}\, buy_{p,m}   [USD]
    """
    h = d.months_count
    for p in v.sets.pools:
        if p.kind == "own" and p.residual_usd_by_month:
            for m in v.sets.order_months(p):
                yield Flow(h, h, -p.residual_usd_by_month[m], v.buy[p.id, m])


def support(v: Variables, d: ProblemData) -> Flows:
    r"""Warranty and support of owned nodes.

    .. math:: \sum_{p,m} (1+d)^{-(m+1)}\, support_p\, held_{p,m}   [USD]
    """
    return _per_held(v, lambda p: p.support_usd_per_node_month)


def hosting(v: Variables, d: ProblemData) -> Flows:
    r"""Space and power contracted for owned nodes.

    .. math:: \sum_{p,m} (1+d)^{-(m+1)}\, hosting_p\, held_{p,m}   [USD]
    """
    return _per_held(v, lambda p: p.hosting_usd_per_node_month)


def node_ops(v: Variables, d: ProblemData) -> Flows:
    r"""Operations that grow with each owned node.

    .. math:: \sum_{p,m} (1+d)^{-(m+1)}\, ops_p\, held_{p,m}   [USD]
    """
    return _per_held(v, lambda p: p.ops_usd_per_node_month)


def energy_kwh(v: Variables, d: ProblemData) -> Iterator[tuple[PoolData, int, float, Any]]:
    """Yield (pool, month, kWh at the meter, variable): idle power of every node at hand, and the rest by utilisation."""
    s = v.sets
    for p in s.pools:
        if p.kind not in ("own", "existing") or p.full_w <= 0:
            continue
        idle_kwh = finance.energy_kwh(p.idle_w, HOURS_PER_MONTH, p.pue)
        for m in s.months:
            yield p, m, idle_kwh, v.held[p.id, m]
        for k in s.candidates_of_pool[p.id]:
            for w in s.tenants_of[k.id]:
                busy_kwh = finance.energy_kwh(p.full_w - p.idle_w, 1.0, p.pue) * s.nodes_of_replica(k) / k.req_per_s_by_workload[w.id]
                for m in s.months:
                    for t in s.slices:
                        x = v.share.get((w.id, k.id, m, t))
                        if x is not None:
                            yield p, m, busy_kwh * d.hours_by_slice[t] * s.mean_req_per_s(w, m, t), x


def energy(v: Variables, d: ProblemData) -> Flows:
    r"""Electricity of owned nodes: idle draw, and utilisation times the rest, at the meter.

    .. math:: \sum_{p,m,t} (1+d)^{-(m+1)}\, tariff_p\, PUE_p\, h_t \Big( idle_p\, held_{p,m} + (full_p - idle_p) \sum_{k,w}
       \frac{share_{w,k,m,t}\, mean_{w,m,t}}{\mu_{w,k}} \frac{g_k}{G_p} \Big)   [USD]
    """
    for p, m, kwh, x in energy_kwh(v, d):
        if p.usd_per_kwh:
            yield _running(m, finance.energy_usd(kwh, p.usd_per_kwh), x)


def carbon(v: Variables, d: ProblemData) -> Flows:
    r"""Price of the emissions of that electricity, where one is set.

    .. math:: \sum_{p,m} (1+d)^{-(m+1)}\, price\, g_p\, kWh_{p,m} / 10^6   [USD]
    """
    if d.carbon_usd_per_t:
        for p, m, kwh, x in energy_kwh(v, d):
            if p.carbon_g_per_kwh:
                yield _running(m, finance.energy_usd(kwh, 0.0, p.carbon_g_per_kwh, d.carbon_usd_per_t), x)


def site_ops(v: Variables, d: ProblemData) -> Flows:
    r"""Fixed cost of a site in every month in which it holds a node.

    .. math:: \sum_{s,m} (1+d)^{-(m+1)}\, fixed_s\, open_{s,m}   [USD]
    """
    for site in v.sets.sites:
        if site.usd_per_month_fixed:
            for m in v.sets.months:
                x = v.open_site.get((site.id, m))
                if x is not None:
                    yield _running(m, site.usd_per_month_fixed, x)


def rent_on_demand(v: Variables, d: ProblemData) -> Flows:
    r"""Hours of on-demand nodes.

    .. math:: \sum_{p,m,t} (1+d)^{-(m+1)}\, rate_{p,m}\, h_t\, nodes_{p,m,t}   [USD]
    """
    for p in v.sets.pools:
        if p.kind == "on_demand":
            for m in v.sets.months:
                for t in v.sets.slices:
                    yield _running(m, p.usd_per_node_hour_by_month[m] * d.hours_by_slice[t], v.nodes[p.id, m, t])


def rent_reserved_upfront(v: Variables, d: ProblemData) -> Flows:
    r"""Upfront part of commitments, for their whole term, paid when they begin.

    .. math:: \sum_{p,m} (1+d)^{-m}\, u_p\, rate_{p,m}\, 730\, term_p\, buy_{p,m}   [USD]
    """
    for p in v.sets.pools:
        if p.kind == "reserved" and p.upfront_frac:
            for m in v.sets.order_months(p):
                yield Flow(m, m, finance.commitment_usd(p.usd_per_node_hour_by_month[m], p.term_months, p.upfront_frac)[0], v.buy[p.id, m])


def _monthly_payments(v: Variables) -> Iterator[tuple[int, float, Any]]:
    for p in v.sets.pools:
        if p.kind == "reserved" and p.upfront_frac < 1:
            for begins in v.sets.order_months(p):
                usd = finance.commitment_usd(p.usd_per_node_hour_by_month[begins], p.term_months, p.upfront_frac)[1]
                for m in range(begins, begins + p.term_months):
                    yield m, usd, v.buy[p.id, begins]


def rent_reserved_monthly(v: Variables, d: ProblemData) -> Flows:
    r"""Monthly part of commitments within the horizon, at the price fixed when the term began.

    .. math:: \sum_{p,m} \sum_{b = m-term_p+1}^{m} (1+d)^{-(m+1)} (1-u_p)\, rate_{p,b}\, 730\, buy_{p,b}   [USD]
    """
    for m, usd, x in _monthly_payments(v):
        if m < d.months_count:
            yield _running(m, usd, x)


def commitment_tail(v: Variables, d: ProblemData) -> Flows:
    r"""Monthly payments of commitments beyond the horizon, all charged, discounted at their own month.

    .. math:: \sum_{p,b} \sum_{m = H}^{b+term_p-1} (1+d)^{-(m+1)} (1-u_p)\, rate_{p,b}\, 730\, buy_{p,b}   [USD]
    """
    h = d.months_count
    for m, usd, x in _monthly_payments(v):
        if m >= h:
            yield Flow(h, m + 1, usd, x)


def rent_spot(v: Variables, d: ProblemData) -> Flows:
    r"""Spot nodes, billed for the part of the hours in which they are delivered.

    .. math:: \sum_{p,m,t} (1+d)^{-(m+1)}\, a_p\, rate_{p,m}\, h_t\, nodes_{p,m,t}   [USD]
    """
    for p in v.sets.pools:
        if p.kind == "spot":
            for m in v.sets.months:
                usd = p.availability_frac * p.usd_per_node_hour_by_month[m]
                for t in v.sets.slices:
                    yield _running(m, usd * d.hours_by_slice[t], v.nodes[p.id, m, t])


def spot_fallback(v: Variables, d: ProblemData) -> Flows:
    r"""On-demand nodes that stand in for spot nodes while these are taken away (pools without that price derate instead).

    .. math:: \sum_{p,m,t} (1+d)^{-(m+1)} (1-a_p)\, fallback_{p,m}\, h_t\, nodes_{p,m,t}   [USD]
    """
    for p in v.sets.pools:
        if p.kind == "spot" and p.fallback_usd_per_node_hour_by_month and p.availability_frac < 1:
            for m in v.sets.months:
                usd = (1.0 - p.availability_frac) * p.fallback_usd_per_node_hour_by_month[m]
                for t in v.sets.slices:
                    yield _running(m, usd * d.hours_by_slice[t], v.nodes[p.id, m, t])


def cold_starts(v: Variables, d: ProblemData) -> Flows:
    r"""Hours billed without service at each rise in rented nodes between consecutive hours of the week.

    .. math:: \sum_{p,m} (1+d)^{-(m+1)}\, rate_{p,m}\, c_p\, \frac{730}{168} \sum_{t,t'} n_{t,t'}\, rise_{p,m,t,t'}   [USD]
    """
    s = v.sets
    for p in s.pools:
        if p.kind in ("on_demand", "spot") and p.cold_start_hours > 0:
            for m in s.months:
                usd = p.usd_per_node_hour_by_month[m] * p.cold_start_hours * WEEKS_PER_MONTH
                for (t, u), count in s.hour_steps.items():
                    yield _running(m, usd * count, v.rise[p.id, m, t, u])


def api_tokens(v: Variables, d: ProblemData) -> Flows:
    r"""Requests called as an API, at their expected bill.

    .. math:: \sum_{w,a,m,t} (1+d)^{-(m+1)}\, 3600\, h_t\, mean_{w,m,t}\, bill_{w,a}\, trend_{a,m}\, call_{w,a,m,t}   [USD]
    """
    s = v.sets
    for w in s.workloads:
        for a in s.apis_of[w.id]:
            usd_per_request = a.usd_per_request_by_workload[w.id]
            for m in s.months:
                for t in s.slices:
                    x = v.call.get((w.id, a.id, m, t))
                    if x is not None:
                        requests = SECONDS_PER_HOUR * d.hours_by_slice[t] * s.mean_req_per_s(w, m, t)
                        yield _running(m, requests * usd_per_request * a.usd_factor_by_month[m], x)


def staff(v: Variables, d: ProblemData) -> Flows:
    r"""People that operating serving takes at all, in every month in which any node is held.

    .. math:: \sum_m (1+d)^{-(m+1)}\, staff\, self\_host_m   [USD]
    """
    for m in v.self_host:
        yield _running(m, d.staff_usd_per_month, v.self_host[m])


CAPITAL = frozenset({"capex", "residual"})
"""Lines that no monthly budget counts."""
COSTS: tuple[Callable[[Variables, ProblemData], Flows], ...] = (
    capex,
    residual,
    support,
    hosting,
    energy,
    carbon,
    node_ops,
    site_ops,
    rent_on_demand,
    rent_reserved_upfront,
    rent_reserved_monthly,
    commitment_tail,
    rent_spot,
    spot_fallback,
    cold_starts,
    api_tokens,
    staff,
)


def factors(d: ProblemData) -> list[float]:
    """Return discount factors by number of months, far enough for the longest commitment tail."""
    longest = max((p.term_months for p in d.pools), default=0)
    return [finance.discount_factor_frac(d.discount_frac_per_year, n) for n in range(d.months_count + longest + 2)]


def priced(v: Variables, d: ProblemData) -> tuple[dict[str, float], dict[str, tuple[float, ...]]]:
    """Return (discounted sum, undiscounted cash by month) of each line for variables that hold numbers."""
    factor = factors(d)
    npv: dict[str, float] = {}
    cash: dict[str, tuple[float, ...]] = {}
    for line in COSTS:
        months = [0.0] * (d.months_count + 1)
        total = 0.0
        for f in line(v, d):
            usd = f.usd * f.x
            months[f.month] += usd
            total += usd * factor[f.after_months]
        npv[line.__name__] = total
        cash[line.__name__] = tuple(months)
    return npv, cash
