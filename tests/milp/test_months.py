"""Months apart against the whole program: the same cost to the gap, a bound that holds, variants told apart, and what is left out."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.milp import prune, solve
from planner.milp.cover import drop_covered
from planner.milp.engine import build, run_highs, to_lp
from planner.milp.months import relaxed_bound, run_months
from planner.schema.problem import ApiData, NoSolution, ProblemData, Solution

spec = importlib.util.spec_from_file_location("small", Path(__file__).parent / "small.py")
assert spec and spec.loader
S: Any = importlib.util.module_from_spec(spec)
spec.loader.exec_module(S)
importlib.import_module("planner.milp.solve")
SOLVE = sys.modules["planner.milp.solve"]
GAP = 1e-4


def offer(usd: float, months: int, who: tuple[str, ...]) -> ApiData:
    tokens = dict.fromkeys(who, 100.0)
    return ApiData("api", "acct", dict.fromkeys(who, usd), (1.0,) * months, tokens, tokens)


def instance(
    months: int = 5, rent_usd: float = 4.0, api_usd: float = 0.003, peak: float = 2.2, growth: float = 1.15, lead: int = 1
) -> ProblemData:
    """Return a chat that grows and a batch, two owned and two rented pools of different size and speed, and an API for the batch."""
    pools = (
        S.own(
            "big",
            months,
            gpus_per_node_count=4,
            capex_usd_by_month=(9000.0,) * months,
            residual_usd_by_month=(4000.0,) * months,
            lead_months=lead,
        ),
        S.own("little", months, capex_usd_by_month=(5200.0,) * months, residual_usd_by_month=(2500.0,) * months, lead_months=lead),
        S.rent("rent", months, rent_usd, cold_start_hours=0.25),
        S.rent("rent4", months, rent_usd * 1.9, gpus_per_node_count=4),
    )
    both, chat = {"chat": 1.0, "nightly": 1.2}, {"chat": 2.3}
    candidates = (
        S.candidate("big", both), S.candidate("big", chat, gpus=2), S.candidate("little", both), S.candidate("rent", both),
        S.candidate("rent4", both), S.candidate("rent4", {"chat": 4.9}, gpus=4),
    )  # fmt: skip
    rates = tuple((peak * growth**m, 0.4 * peak * growth**m) for m in range(months))
    chats = replace(
        S.serving("chat", (1.0, 1.0), months=months), mean_req_per_s=tuple((0.8 * a, 0.8 * b) for a, b in rates), peak_req_per_s=rates
    )
    nightly = S.batch("nightly", (0.5, 0.5), months=months)
    return S.problem(pools, candidates, (chats, nightly), (offer(api_usd, months, ("nightly",)),), months=months)


def whole(d: ProblemData, gap: float = GAP) -> float:
    run = run_highs(to_lp(build(d)), gap_frac=gap, time_limit_s=60)
    assert run.status == "optimal"
    return run.objective


@pytest.fixture
def always_apart(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take months apart whatever the size, and look among the best pools first."""
    monkeypatch.setattr(SOLVE, "WHOLE_COUNT", 0)
    yield


def test_months_apart_give_the_cost_of_the_whole_program() -> None:
    d = instance()
    cost = whole(d, 1e-6)
    run = run_months(build(d), gap_frac=GAP, time_limit_s=60)
    assert run.status == "optimal" and not run.stopped_by_clock
    assert run.bound <= cost * (1 + 1e-6)
    assert cost * (1 - 1e-6) <= run.objective <= cost * (1 + 2 * GAP)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    rent_usd=st.floats(1.0, 12.0),
    api_usd=st.floats(0.0005, 0.01),
    peak=st.floats(0.3, 4.0),
    growth=st.floats(0.9, 1.3),
    lead=st.integers(0, 2),
)
def test_the_bound_never_passes_the_optimum_and_the_plan_never_lies_below_it(
    rent_usd: float, api_usd: float, peak: float, growth: float, lead: int
) -> None:
    d = instance(4, rent_usd, api_usd, peak, growth, lead)
    model, cost = build(d), whole(d, 1e-7)
    run = run_months(model, gap_frac=1e-3, time_limit_s=60)
    assert run.status in ("optimal", "feasible")
    assert run.bound <= cost * (1 + 1e-6) and run.objective >= cost * (1 - 1e-6)
    assert relaxed_bound(model) <= cost * (1 + 1e-6)
    sketch = run_months(model, gap_frac=1e-2, time_limit_s=None, is_sketch=True)
    assert sketch.bound <= cost * (1 + 1e-6) and sketch.objective >= cost * (1 - 1e-6)


def test_solve_takes_months_apart_and_its_answer_is_checked(always_apart: None) -> None:
    d = instance()
    answer = solve(d, gap_frac=GAP, time_limit_s=60)
    assert isinstance(answer, Solution) and answer.status == "optimal" and answer.is_reproducible
    assert answer.npv_cost_usd == pytest.approx(whole(d, 1e-6), rel=3 * GAP)


def test_variants_are_tried_one_by_one(always_apart: None) -> None:
    """Two formats of one model: each is best on one pool, but one workload keeps one variant; the whole program agrees."""
    d = instance()
    mine = [k for k in d.candidates if "chat" in k.req_per_s_by_workload and k.gpus_count == 1]
    other = tuple(replace(k, id=k.id + ".w", variant="w", req_per_s_by_workload={"chat": 1.4}) for k in mine)
    two = replace(d, candidates=d.candidates + other, variants=("v", "w"))
    assert len(SOLVE.choices(two)) == 2
    answer = solve(two, gap_frac=GAP, time_limit_s=60)
    assert isinstance(answer, Solution)
    assert answer.npv_cost_usd == pytest.approx(whole(two, 1e-6), rel=3 * GAP)


def test_more_pools_than_are_looked_at_first(always_apart: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SOLVE, "FOCUS_FROM_COUNT", 0)
    d = instance()
    dear: tuple[Any, ...] = tuple(S.rent(f"dear{i}", 5, 20.0 + i) for i in range(4))
    wide = replace(d, pools=d.pools + dear, candidates=d.candidates + tuple(S.candidate(p.id, {"chat": 1.0, "nightly": 1.0}) for p in dear))
    answer = solve(wide, gap_frac=GAP, time_limit_s=60)
    assert isinstance(answer, Solution)
    assert answer.npv_cost_usd == pytest.approx(whole(d, 1e-6), rel=3 * GAP)


def test_a_conflict_is_told(always_apart: None) -> None:
    d = instance()
    tight = replace(d, capex_budget_usd=100.0, opex_budget_usd_per_month=50.0)
    answer = solve(tight, gap_frac=GAP, time_limit_s=60)
    assert isinstance(answer, NoSolution)


@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    usd=st.lists(st.floats(0.5, 20.0), min_size=2, max_size=4),
    peak=st.floats(0.2, 6.0),
    fast=st.lists(st.floats(0.5, 4.0), min_size=4, max_size=4),
)
def test_what_others_cover_is_never_missed(usd: list[float], peak: float, fast: list[float]) -> None:
    """Dropping covered pools, and everything else that is pruned, leaves the optimum as it is."""
    pools = tuple(S.rent(f"p{i}", 2, x, cold_start_hours=0.25, gpus_per_node_count=2) for i, x in enumerate(usd))
    candidates = tuple(S.candidate(p.id, {"chat": fast[i]}, gpus=1 + i % 2) for i, p in enumerate(pools))
    d = S.problem(pools, candidates, (S.serving("chat", (0.7 * peak, 0.2 * peak), (peak, 0.3 * peak), months=2),), months=2)
    d = replace(d, apis=(offer(0.004, 2, ("chat",)),) if peak > 3 else ())
    fewer, covered = drop_covered(d)
    assert {p.id for p in fewer.pools} | {c.id for c in covered} == {p.id for p in d.pools}
    cost = whole(d, 0.0)
    assert whole(fewer, 0.0) == pytest.approx(cost, rel=1e-7)
    assert whole(prune(d)[0], 0.0) == pytest.approx(cost, rel=1e-7)


def test_what_no_limit_admits_is_left_out_by_name() -> None:
    d = replace(instance(), capex_budget_usd=6000.0)
    pruned, log = prune(d)
    told = {entry.id: entry.proof for entry in log}
    assert "the purchase budget is $6,000" in told["big"] and "big" not in {p.id for p in pruned.pools}
    dark = replace(instance(), sites=(replace(instance().sites[0], power_limit_w=1000.0),))
    assert {"big", "little"} <= {entry.id for entry in prune(dark)[1] if "the site feeds" in entry.proof}
    low = replace(instance(), sites=(replace(instance().sites[0], rack_units_limit_count=1),))
    assert {"big", "little"} <= {entry.id for entry in prune(low)[1] if "rack units" in entry.proof}


def test_a_workload_that_must_survive_keeps_its_pools() -> None:
    d = instance()
    strict = replace(d, workloads=tuple(replace(w, survive="replica") if w.id == "chat" else w for w in d.workloads))
    assert drop_covered(strict)[1] == ()
