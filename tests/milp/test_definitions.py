"""One test for each definition that leaves no room, its figure worked by hand."""

from __future__ import annotations

import importlib.util
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from planner.errors import InputError
from planner.milp import SolutionRefused, restrict, solve
from planner.milp.verify import check_solution
from planner.schema.problem import ApiData, NoSolution, ProblemData, SiteData, Solution

spec = importlib.util.spec_from_file_location("small", Path(__file__).parent / "small.py")
assert spec and spec.loader
S: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(S)
D = 1.08 ** (1 / 12)


def solved(d: ProblemData) -> Solution:
    x = solve(d, gap_frac=0.0)
    assert isinstance(x, Solution), x
    return x


def offer(usd: float, *who: str, months: int = 1, **kw: Any) -> ApiData:
    return ApiData("offer", "maker", dict.fromkeys(who, usd), (1.0,) * months, dict.fromkeys(who, 10.0), dict.fromkeys(who, 5.0), **kw)


def test_discounting_by_hand_over_two_months() -> None:
    """Capex at the start of its month, running costs at the end of each, residual after H months; growth starts with factor 1."""
    d = S.problem((S.own("own", 2),), (S.candidate("own", {"w": 1.0}),), (S.serving("w", (1.0, 0.5), months=2),), months=2)
    x = solved(d)
    assert x.cost_npv_usd["capex"] == pytest.approx(1000)
    assert x.cost_npv_usd["residual"] == pytest.approx(-400 / D**2)
    assert x.cost_npv_usd["support"] == pytest.approx(10 / D + 10 / D**2)
    # idle 200 W over 730 h; full − idle 800 W × half a node for each replica in use; PUE 1.5, 0.20 USD/kWh
    kwh = 1.5 * (0.2 * 730 + 0.8 * (1.0 * 365 + 0.5 * 365) / 2)
    assert x.cost_npv_usd["energy"] == pytest.approx(0.2 * kwh * (1 / D + 1 / D**2))
    assert x.cost_usd_by_month["residual"][2] == pytest.approx(-400)


def test_commitments_beyond_the_horizon_are_charged_in_full() -> None:
    reserved = replace(S.rent("res", 2, usd=1.0), kind="reserved", term_months=12, upfront_frac=0.25)
    d = S.problem((reserved,), (S.candidate("res", {"w": 1.0}),), (S.serving("w", (1.0, 1.0), months=2),), months=2)
    x = solved(d)
    assert x.buy == {("res", 0): 1}
    assert x.cost_npv_usd["rent_reserved_upfront"] == pytest.approx(0.25 * 730 * 12)
    assert x.cost_npv_usd["rent_reserved_monthly"] == pytest.approx(0.75 * 730 * (1 / D + 1 / D**2))
    assert x.cost_npv_usd["commitment_tail"] == pytest.approx(sum(0.75 * 730 / D ** (m + 1) for m in range(2, 12)))
    assert x.cost_usd_by_month["commitment_tail"] == (0.0, 0.0, pytest.approx(0.75 * 730 * 10))


def test_residual_follows_the_age_at_the_end() -> None:
    """The same price: a node that is worth more at the end because it is younger is ordered as late as the load allows."""
    pool = S.own("own", 2, residual_usd_by_month=(100.0, 900.0), support_usd_per_node_month=0.0)
    w = replace(S.serving("w", (1.0, 1.0), months=2), mean_req_per_s=((0.0, 0.0), (1.0, 1.0)), peak_req_per_s=((0.0, 0.0), (1.0, 1.0)))
    x = solved(S.problem((pool,), (S.candidate("own", {"w": 1.0}),), (w,), months=2))
    assert x.buy == {("own", 1): 1}
    assert x.cost_npv_usd["residual"] == pytest.approx(-900 / D**2)


def test_lead_time_needs_a_bridge() -> None:
    pool, k, w = S.own("own", 2, lead_months=1), S.candidate("own", {"w": 1.0}), S.serving("w", (1.0, 1.0), months=2)
    alone = S.problem((pool,), (k,), (w,), months=2)
    no = solve(alone)
    assert isinstance(no, NoSolution) and no.reason_code == "infeasible"
    assert no.relaxations[0][0] == "workloads.w.load" and "month 0" in no.reasons[0]
    bridged = solved(replace(alone, apis=(offer(0.01, "w", months=2),)))
    assert {m for _, _, m, _ in bridged.call} == {0} and bridged.buy == {("own", 0): 1}
    assert isinstance(solve(restrict(alone, frozenset({"own"}), False, lead_months_zero=True)), Solution)


def test_classes_of_unequal_strictness_share_a_replica_by_their_own_rates() -> None:
    """Half a replica of chat (1 of 2 a second) and half of code (2 of 4) fill one replica; a hair more needs a second."""
    k = S.candidate("rent", {"chat": 2.0, "code": 4.0}, gpus=2)
    d = S.problem((S.rent(),), (k,), (S.serving("chat", (1.0, 1.0)), S.serving("code", (2.0, 2.0))))
    assert set(solved(d).replicas.values()) == {1}
    more = replace(d, workloads=(d.workloads[0], S.serving("code", (2.01, 2.01))))
    assert set(solved(more).replicas.values()) == {2}


def test_survive_replica_takes_one_spare_for_all_tenants() -> None:
    """1.5 replicas in use by a strict and a loose tenant: 2 carry them, 3 survive (not 4: the strictest, not the sum)."""
    k = S.candidate("rent", {"a": 1.0, "b": 1.0})
    loads = (S.serving("a", (1.0, 1.0), survive="replica"), S.serving("b", (0.5, 0.5)))
    x = solved(S.problem((S.rent(),), (k,), loads))
    assert min(x.replicas.values()) == 3
    both = solved(S.problem((S.rent(),), (k,), (loads[0], replace(loads[1], survive="replica"))))
    assert min(both.replicas.values()) == 3


def test_survive_node_takes_a_node_more() -> None:
    """Two replicas a node: a load of 2 needs one node, 2 nodes to lose any one of them with all its replicas."""
    k, w = S.candidate("rent", {"w": 1.0}), S.serving("w", (2.0, 2.0))
    for survive, nodes in (("none", 1), ("replica", 2), ("node", 2)):
        x = solved(S.problem((S.rent(),), (k,), (replace(w, survive=survive),)))
        assert set(x.nodes.values()) == {nodes}, survive
    three = solved(S.problem((S.rent(),), (k,), (S.serving("w", (3.0, 3.0), survive="replica"),)))
    assert set(three.nodes.values()) == {2}
    assert set(solved(S.problem((S.rent(),), (k,), (S.serving("w", (3.0, 3.0), survive="node"),))).nodes.values()) == {3}


def test_an_api_stands_in_only_within_its_limit() -> None:
    k, w = S.candidate("own", {"w": 1.0}, gpus=2), S.serving("w", (1.0, 1.0), survive="node")
    wide = S.problem((S.own(),), (k,), (w,), (offer(1.0, "w", max_req_per_min=60.0),))
    assert set(solved(wide).nodes.values()) == {1}
    narrow = replace(wide, apis=(offer(1.0, "w", max_req_per_min=30.0),))
    assert set(solved(narrow).nodes.values()) == {2}


def test_batch_with_an_idle_weekend_needs_weekday_capacity() -> None:
    """Work arrives on weekdays only and is due within a day: the weekend takes at most Friday's last day of arrivals."""
    k, w = S.candidate("rent", {"n": 1.0}, gpus=2), S.batch("n", (1.4, 0.0))
    x = solved(S.problem((S.rent(),), (k,), (w,), of_hour=S.WEEKDAY_WEEKEND))
    mean = 1.4 * 120 / 168
    weekday = sum(v for (_, _, _, t), v in x.share.items() if t == 0) * mean
    assert 1.4 * 96 / 120 - 1e-6 <= weekday <= 1.4 + 1e-6
    assert x.replicas[k.id, 0, 0] == 2
    long = replace(w, deadline_hours=168.0)
    assert set(solved(S.problem((S.rent(),), (k,), (long,), of_hour=S.WEEKDAY_WEEKEND)).replicas.values()) == {1}


def test_batch_fills_the_trough_of_capacity_already_paid_for() -> None:
    """Chat fills its node by day; the batch runs at night on the same node, free, though it arrives evenly."""
    k = S.candidate("own", {"chat": 1.0, "n": 1.0}, gpus=2)
    x = solved(S.problem((S.own(),), (k,), (S.serving("chat", (1.0, 0.0)), S.batch("n", (0.5, 0.5)))))
    assert x.buy == {("own", 0): 1}
    assert x.share["n", k.id, 0, 1] == pytest.approx(2.0) and ("n", k.id, 0, 0) not in x.share


def test_spot_pays_for_what_is_delivered_and_its_fallback() -> None:
    spot = replace(S.rent("spot", usd=1.0), kind="spot", availability_frac=0.8, fallback_usd_per_node_hour_by_month=(3.0,))
    k, w = S.candidate("spot", {"w": 1.0}, gpus=2), S.serving("w", (1.0, 1.0), is_interruptible=True)
    x = solved(S.problem((spot,), (k,), (w,)))
    assert x.cost_npv_usd["rent_spot"] == pytest.approx(0.8 * 730 / D)
    assert x.cost_npv_usd["spot_fallback"] == pytest.approx(0.2 * 3 * 730 / D)
    derated = solved(S.problem((replace(spot, fallback_usd_per_node_hour_by_month=()),), (k,), (w,)))
    assert set(derated.nodes.values()) == {2} and derated.cost_npv_usd["spot_fallback"] == 0.0
    floor = replace(w, firm_floor_frac=0.5)
    assert isinstance(solve(S.problem((spot,), (k,), (floor,))), NoSolution)


def test_cold_starts_count_each_rise_of_the_week() -> None:
    """Two nodes by day, one by night: seven rises a week of one node, 730/168 weeks a month, 0.5 h at 3 USD each.

    Where a start costs more than the night's 12 hours, the node is kept.
    """
    k, w = S.candidate("rent", {"w": 1.0}, gpus=2), S.serving("w", (2.0, 1.0))
    x = solved(S.problem((S.rent(cold_start_hours=0.5),), (k,), (w,)))
    assert x.cost_npv_usd["cold_starts"] == pytest.approx(7 * 730 / 168 * 0.5 * 3.0 / D)
    kept = solved(S.problem((S.rent(cold_start_hours=13.0),), (k,), (w,)))
    assert kept.cost_npv_usd["cold_starts"] == 0.0 and set(kept.nodes.values()) == {2}


def test_mix_false_and_min_replicas() -> None:
    k, w = S.candidate("rent", {"w": 1.0}, gpus=2), S.serving("w", (1.2, 1.2))
    api = (offer(1e-3, "w"),)
    mixed = solved(S.problem((S.rent(usd=2.0),), (k,), (w,), api))
    assert mixed.share and mixed.call
    pure = solved(S.problem((S.rent(usd=2.0),), (k,), (replace(w, is_mix_allowed=False),), api))
    assert bool(pure.share) != bool(pure.call)
    three = solved(S.problem((S.rent(),), (k,), (replace(w, min_replicas_count=3),)))
    assert min(three.replicas.values()) == 3
    called = solved(S.problem((S.rent(),), (k,), (replace(w, min_replicas_count=3),), (offer(1e-5, "w"),)))
    assert called.call and not called.replicas


def test_one_variant_for_a_workload() -> None:
    """Two half-fitting pools, one a variant: together they would do, but a workload runs on one."""
    pools = (replace(S.rent("a"), max_count=1), replace(S.rent("b"), max_count=1))
    ks = (S.candidate("a", {"w": 1.0}, "x", 2), S.candidate("b", {"w": 1.0}, "y", 2))
    d = S.problem(pools, ks, (S.serving("w", (1.5, 1.5)),))
    assert isinstance(solve(d), NoSolution)
    same = replace(d, candidates=(ks[0], replace(ks[1], variant="x")), variants=("x",))
    assert solved(same).use == {"w": "x"}


def test_infeasible_names_the_promise_and_the_least_that_helps() -> None:
    k, w = S.candidate("own", {"w": 1.0}, gpus=2), S.serving("w", (2.0, 2.0))
    no = solve(S.problem((S.own(),), (k,), (w,), capex_budget_usd=1500.0))
    assert isinstance(no, NoSolution)
    assert ("budgets.capex_usd", pytest.approx(500.0), "usd") in no.relaxations
    power = solve(S.problem((S.own(),), (k,), (w,), sites=(SiteData("s", 0.0, 2000.0),)))
    assert isinstance(power, NoSolution) and ("sites.s.power_limit_kw", pytest.approx(400.0), "w") in power.relaxations
    nobody = solve(S.problem((S.own(),), (), (w,)))
    assert isinstance(nobody, NoSolution) and nobody.reason_code == "no_candidate" and "workload w" in nobody.reasons[0]


def test_sizes_that_do_not_divide_are_refused() -> None:
    pool = replace(S.rent(), gpus_per_node_count=8)
    ks = (S.candidate("rent", {"w": 1.0}, gpus=2), S.candidate("rent", {"w": 1.0}, gpus=3))
    with pytest.raises(InputError, match="divisor chain"):
        solve(S.problem((pool,), ks, (S.serving("w", (1.0, 1.0)),)))


def test_another_solver_agrees_and_the_referee_refuses_a_false_plan() -> None:
    d = S.golden_problem()
    x = solved(d)
    other = solve(d, gap_frac=0.0, solver="cbc")
    assert isinstance(other, Solution) and other.npv_cost_usd == pytest.approx(x.npv_cost_usd, rel=1e-6)
    with pytest.raises(SolutionRefused, match="not wholly served"):
        check_solution(d, replace(x, share={}, call={}))
    with pytest.raises(SolutionRefused, match="cost lines"):
        check_solution(d, replace(x, npv_cost_usd=x.npv_cost_usd + 1))
    with pytest.raises(SolutionRefused, match="overfull"):
        check_solution(d, replace(x, nodes={}, self_host={}))


def test_the_same_problem_gives_the_same_plan_and_prints_nothing(capfd: pytest.CaptureFixture[str]) -> None:
    a, b = solved(S.golden_problem()), solved(S.golden_problem())
    assert replace(a, solve_seconds=0.0) == replace(b, solve_seconds=0.0)
    assert capfd.readouterr().out == ""
