"""The promise: properties that must hold whatever the numbers, reasons with figures, and an independent simulation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from planner.physics.links import Link
from planner.physics.serving import (
    Feasible,
    Infeasible,
    RequestMix,
    Targets,
    batch_limit,
    latency_at,
    latency_at_concurrency,
    lognormal_sigma,
    max_request_rate,
    max_throughput,
    peakedness,
    queue_decay_per_s,
)
from planner.physics.steps import Efficiency, EfficiencyBand, StepModel, step_model
from planner.physics.work import KvGroup, Work

NVLINK = Link("nvlink", 6e-6, 1e-6, 350e9, True)


def band() -> EfficiencyBand:
    low, typical, high = (Efficiency(0.6 * f, 0.5 * f, 0.5 * f, 2e-3 / f, 1e-5 / f) for f in (0.8, 1.0, 1.1))
    return EfficiencyBand(low, typical, high)


def dense(layers: int, hidden: int, params: float, kv_bytes: float, flop: float) -> Work:
    return Work(layers, hidden, params * 2, 0.0, 1, 1, params, params / 16, 0.0, (KvGroup(kv_bytes, flop, flop, math.inf, 8.0),))


W70 = replace(dense(80, 8192, 69.5e9, 327680.0, 2621440.0), every_step_bytes=69.5e9)
W8 = dense(32, 4096, 7.5e9, 131072.0, 524288.0)
S70 = step_model(W70, 3.35e12, 1979e12, band(), tp=2, link=NVLINK)
S8 = step_model(W8, 3.35e12, 989e12, band())
CHAT = RequestMix(1800, 7000, 260, 900, 0.35, 1.0)
ROOM = 400_000.0

mixes = st.builds(
    lambda p, pr, o, orr, c, cv: RequestMix(p, p * pr, o, o * orr, c, cv),
    st.floats(50, 8000), st.floats(1, 6), st.floats(10, 1000), st.floats(1, 5), st.floats(0, 0.8), st.floats(0.2, 4),
)
bandwidths = st.floats(2e11, 8e12)


def step_at(bandwidth: float, work: Work = W8) -> StepModel:
    return step_model(work, bandwidth, 989e12, band())


@given(bandwidths, st.floats(1, 4), st.integers(1, 512), st.floats(10, 60000))
def test_more_bandwidth_never_slows_and_longer_context_never_speeds(bandwidth: float, more: float, batch: int, context: float) -> None:
    slow, fast = step_at(bandwidth), step_at(bandwidth * more)
    assert fast.decode_step_s(batch, context) <= slow.decode_step_s(batch, context)
    assert slow.decode_step_s(batch, context * more) >= slow.decode_step_s(batch, context)
    assert slow.decode_step_s(batch + 1, context) / (batch + 1) <= slow.decode_step_s(batch, context) / batch * (1 + 1e-12)


@settings(max_examples=40, deadline=None)
@given(mixes, bandwidths, st.floats(0.3, 10), st.floats(0.01, 0.2), st.floats(0.3, 1))
def test_stricter_targets_and_burstier_arrivals_never_raise_the_rate(
    mix: RequestMix, bandwidth: float, ttft: float, tpot: float, stricter: float
) -> None:
    def rate(m: RequestMix, t: Targets) -> float:
        found = max_request_rate(step_at(bandwidth), m, t, ROOM, 256, with_band=False)
        return found.req_per_s if isinstance(found, Feasible) else 0.0

    loose = rate(mix, Targets(ttft, tpot))
    assert rate(mix, Targets(ttft * stricter, tpot * stricter)) <= loose * 1.01
    assert rate(replace(mix, arrival_cv=mix.arrival_cv * 1.5), Targets(ttft, tpot)) <= loose * 1.03 + 1e-9


@settings(max_examples=40, deadline=None)
@given(mixes, bandwidths, st.integers(1, 128))
@example(RequestMix(8000, 24000, 10, 20, 0.0), 5.98e12, 1)
@example(RequestMix(8000, 38000, 10, 20, 0.0), 5.04e12, 1)
@example(RequestMix(8000, 12000, 10, 20, 0.0), 1.3e12, 2)
def test_more_sessions_never_lower_the_total_and_users_times_rate_is_the_total(mix: RequestMix, bandwidth: float, users: int) -> None:
    fixed = replace(mix, arrival_cv=1.0)
    step = step_at(bandwidth)
    few, many = (latency_at_concurrency(step, fixed, n, 1e12, 1024) for n in (users, users + users // 2 + 1))
    assert many.req_per_s >= few.req_per_s * (1 - 1e-3)
    assert users / few.e2e_p50_s == pytest.approx(few.req_per_s, rel=0.02)


@pytest.mark.parametrize("prompt_tok", [4000, 8000, 32000])
def test_prompts_of_a_closed_loop_take_no_more_than_the_whole_prefill_budget(prompt_tok: float) -> None:
    """A mean prompt takes its arithmetic and its chunks' decode steps: with every client waiting for that, one a `service`."""
    mix = RequestMix(prompt_tok, prompt_tok, 50, 50)
    for count in (2, 16, 256):
        seen = latency_at_concurrency(S8, mix, count, 1e12, 1024)
        service_s = S8.prefill_busy_s(prompt_tok) + prompt_tok / S8.bubble_chunk_tok * S8.decode_step_s(seen.batch, seen.context_tok)
        assert seen.req_per_s * service_s <= 1.0 + 1e-6
    assert seen.req_per_s * service_s > 0.98


@settings(max_examples=40, deadline=None)
@given(mixes, bandwidths)
def test_p99_is_never_below_p50_and_rates_come_back(mix: RequestMix, bandwidth: float) -> None:
    step = step_at(bandwidth)
    top = max_throughput(step, mix, 1e9, 128)
    assert isinstance(top, Feasible)
    for share in (0.2, 0.6):
        seen = latency_at(step, mix, top.req_per_s * share, 1e9, 128)
        if seen.is_stable:
            assert seen.req_per_s == pytest.approx(top.req_per_s * share, rel=1e-3)
            assert seen.ttft_p50_s <= seen.ttft_p99_s
            assert seen.tpot_p50_s <= seen.tpot_p99_s
            assert seen.e2e_p50_s <= seen.e2e_p99_s


def test_burst_raises_p99_ttft_several_fold_at_equal_load() -> None:
    rate = 0.6 * max_throughput(S70, CHAT, 1e9, 131).req_per_s  # type: ignore[union-attr]
    calm, bursty = (latency_at(S70, replace(CHAT, arrival_cv=cv), rate, 1e9, 131) for cv in (1.0, 3.0))
    assert bursty.ttft_p99_s > 2.5 * calm.ttft_p99_s


def test_beyond_capacity_is_unstable_and_has_no_times() -> None:
    top = max_throughput(S70, CHAT, ROOM, 131)
    assert isinstance(top, Feasible)
    seen = latency_at(S70, CHAT, top.req_per_s * 1.05, ROOM, 131)
    assert not seen.is_stable
    assert math.isinf(seen.ttft_p99_s)


def test_feasible_carries_its_limit_and_band() -> None:
    found = max_request_rate(S70, CHAT, Targets(1.5, 0.06), ROOM, 256)
    assert isinstance(found, Feasible)
    assert found.ttft_p99_s <= 1.5
    assert found.tpot_p99_s <= 0.06
    assert found.band[0] < found.band[1] == found.req_per_s < found.band[2]
    assert found.tok_per_s == pytest.approx(found.req_per_s * 260)
    assert found.bound_by == "memory"
    assert found.limited_by in ("ttft_p99", "tpot_p99")


def test_a_promise_no_batch_keeps_is_refused_with_its_numbers() -> None:
    found = max_request_rate(S70, CHAT, Targets(3.0, 0.01), ROOM, 256)
    assert isinstance(found, Infeasible)
    assert "TPOT at batch 1 is" in found.reason
    assert "10.0 ms" in found.reason
    assert "times the bandwidth" in found.levers[1]
    slow = max_request_rate(S70, CHAT, Targets(0.1, 0.06), ROOM, 256)
    assert isinstance(slow, Infeasible)
    assert "p99 prompt (4,550 fresh tokens)" in slow.reason
    e2e = max_request_rate(S70, CHAT, Targets(e2e_p99_s=2.0), ROOM, 256)
    assert isinstance(e2e, Infeasible)
    assert "900 tokens" in e2e.reason


def test_one_p99_request_must_fit() -> None:
    found = max_request_rate(S70, CHAT, Targets(), 7000.0, 256)
    assert isinstance(found, Infeasible)
    assert "7,900" in found.reason
    assert isinstance(max_throughput(S70, CHAT, 7000.0, 256), Infeasible)
    assert batch_limit(CHAT, 1e9, 64) == 64


def test_queue_formulas_meet_textbook_cases() -> None:
    """M/M/1: θ = μ − λ; M/D/1: λ(exp(θs) − 1) = θ; burstier arrivals drain slower, a clock's fastest."""
    assert queue_decay_per_s(0.8, 1.0, 1.0, 1.0) == pytest.approx(0.2, rel=1e-3)
    constant = queue_decay_per_s(0.8, 1.0, 1.0, 0.0)
    assert 0.8 * math.expm1(constant) == pytest.approx(constant, rel=1e-3)
    assert queue_decay_per_s(0.8, 3.0, 1.0, 1.0) < queue_decay_per_s(0.8, 1.0, 1.0, 1.0) < queue_decay_per_s(0.8, 0.0, 1.0, 1.0)
    assert peakedness(1.0, 7.0) == pytest.approx(1.0)
    assert peakedness(3.0, 1e9) == 5.0


def test_lognormal_through_mean_and_p99() -> None:
    sigma = lognormal_sigma(1800, 7000)
    assert 1800 * math.exp(-(sigma**2) / 2 + 2.3263478740408408 * sigma) == pytest.approx(7000)
    assert lognormal_sigma(100, 100) == 0
    assert lognormal_sigma(1, 1000) == pytest.approx(2.3263, abs=1e-3)


@pytest.mark.parametrize(
    "bad", [{"prompt_mean_tok": 0}, {"prompt_p99_tok": 1}, {"cached_prefix_frac": 1.0}, {"arrival_cv": -1}, {"output_mean_tok": 0.5}]
)
def test_impossible_mixes_are_refused(bad: dict[str, float]) -> None:
    with pytest.raises(ValueError, match=r"request|p99|cached"):
        replace(CHAT, **bad)


CASES = {
    "70B chat": (S70, CHAT, 131),
    "8B chat": (S8, RequestMix(1800, 7000, 260, 900), 200),
    "8B short": (S8, RequestMix(300, 900, 400, 1200), 256),
}


@pytest.mark.parametrize("cv", [1.0, 3.0])
@pytest.mark.parametrize("load", [0.3, 0.6])
@pytest.mark.parametrize("name", CASES)
def test_closed_form_against_a_discrete_simulation(name: str, load: float, cv: float, discrete: Callable[..., Any]) -> None:
    """p99 TTFT within 20 %, p99 TPOT within 20 % (30 % at CV 3), medians within 25 % of an independent simulation.

    The simulation's own noise at 8,000 requests and CV 3 is about 10 %: bursts of five leave some 1,600 independent ones,
    of which the worst 16 make the p99. TPOT at CV 3 belongs to short answers inside a burst, which the closed form
    takes by one representative length.
    """
    step, mix, slots = CASES[name]
    mix = replace(mix, arrival_cv=cv)
    rate = load * max_throughput(step, mix, 1e9, slots).req_per_s  # type: ignore[union-attr]
    said = latency_at(step, mix, rate, 1e9, slots)
    seen = discrete(step, mix, rate, slots, 2048, 8000, seed=7)
    assert said.batch == pytest.approx(seen.batch, rel=0.15)
    assert said.ttft_p99_s == pytest.approx(seen.ttft_p99_s, rel=0.20)
    assert said.tpot_p99_s == pytest.approx(seen.tpot_p99_s, rel=0.20 if cv == 1.0 else 0.30)
    assert said.ttft_p50_s == pytest.approx(seen.ttft_p50_s, rel=0.25)
    assert said.tpot_p50_s == pytest.approx(seen.tpot_p50_s, rel=0.10)


@pytest.mark.parametrize(("cv", "tolerance"), [(1.0, 0.20), (3.0, 0.55)])
@pytest.mark.parametrize("name", CASES)
def test_near_saturation_the_closed_form_is_rougher(name: str, cv: float, tolerance: float, discrete: Callable[..., Any]) -> None:
    """At 80 % of capacity: p99 TTFT within 20 % at CV 1, within 55 % at CV 3, where the chance to wait for a slot is near 1 %.

    There p99 sits on the step between "no slot wait" and "slot wait", and two seeds of the simulation differ by 30 %.
    """
    step, mix, slots = CASES[name]
    mix = replace(mix, arrival_cv=cv)
    rate = 0.8 * max_throughput(step, mix, 1e9, slots).req_per_s  # type: ignore[union-attr]
    said = latency_at(step, mix, rate, 1e9, slots)
    seen = discrete(step, mix, rate, slots, 2048, 8000, seed=7)
    assert said.ttft_p99_s == pytest.approx(seen.ttft_p99_s, rel=tolerance)
    assert said.tpot_p99_s == pytest.approx(seen.tpot_p99_s, rel=0.25)
