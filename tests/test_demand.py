"""Load becomes rates by hand-checked sums; timeslices keep every mean, every peak and every hour."""

import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.demand import Demand, demand, month_factors, profile_hours, requests_per_s, session_requests_per_s
from planner.errors import InputError
from planner.readers.profiles import shipped_profiles
from planner.readers.workload_file import load_workload
from planner.schema.workload import WorkloadFile
from planner.timeslices import Timeslices, excess, make_timeslices
from planner.units import HOURS_PER_WEEK

EXAMPLE = Path(__file__).parent / "data" / "design_example.workload.yaml"
TOKENS = {"prompt": {"mean": 1800, "p99": 7000}, "output": {"mean": 260, "p99": 900}}


def of(load: dict[str, Any] | None = None, **workloads: dict[str, Any]) -> Demand:
    serving = {
        "llm": "qwen3_32b", "privacy": {"allow": ["rent"]}, "weights": ["fp8"], "kv_cache": ["fp16"],
        "tokens": TOKENS, "max_context_tok": 8192,
        "latency": {"ttft_p99_ms": 1500, "tpot_p99_ms": 60},
    }  # fmt: skip
    chat = {"chat": {**serving, "load": load}} if load is not None else {}
    whole = {"plan": {"start": "2026-12", "horizon_months": 12}, "workloads": {**chat, **workloads}, "path": "f.yaml", "sha256": "0" * 64}
    return demand(WorkloadFile.model_validate(whole))


# --- load to rate ---------------------------------------------------------------------------------------------------------


def test_requests_a_day() -> None:
    """60,000 a day are 60000 / 86400 = 0.694 a second; the week's mean keeps it whatever the profile."""
    for profile in shipped_profiles():
        hourly = of({"requests_per_day": 60000, "profile": profile}).workloads["chat"].hourly_rate
        assert math.fsum(hourly) * 3600 == pytest.approx(7 * 60000, rel=1e-12)
    assert requests_per_s(60000) == pytest.approx(0.694444, abs=1e-6)


def test_concurrency() -> None:
    """32 sessions, each 1.5 s + 260 x 0.06 s = 17.1 s a turn: 32 / 17.1 = 1.871 requests a second; 40.0 s with 22.9 s of thought: 0.8."""
    chat = of({"concurrency": 32}).workloads["chat"]
    assert list(chat.hourly_rate) == pytest.approx([32 / 17.1] * HOURS_PER_WEEK)
    assert chat.held_sessions_count == 32
    assert of({"concurrency": 32, "think_time_s": 22.9}).workloads["chat"].hourly_rate[0] == pytest.approx(0.8)


def test_sessions_are_those_of_the_busiest_hour() -> None:
    chat = of({"concurrency": 32, "profile": "office_hours"}).workloads["chat"]
    assert max(chat.hourly_rate) == pytest.approx(32 / 17.1)
    assert min(chat.hourly_rate) < 0.1 * max(chat.hourly_rate)


def test_users() -> None:
    """500 people of whom 8 % have a session open are 40 sessions."""
    users = of({"users": 500, "active_frac": 0.08}).workloads["chat"]
    assert users.held_sessions_count == 40
    assert users.hourly_rate == pytest.approx(of({"concurrency": 40}).workloads["chat"].hourly_rate)
    assert session_requests_per_s(40, 1.5, 260, 0.06, 0) == pytest.approx(2.3392, abs=1e-4)


def test_batch_and_finetune() -> None:
    """430e6 tokens a day are 4,976.85 a second; 2 runs of 200e6 in 730 hours are 152.2 a second."""
    found = demand(load_workload(EXAMPLE)).workloads
    batch, tuning = found["nightly_summaries"], found["monthly_finetune"]
    assert (batch.unit, batch.deadline_hours) == ("tok_per_s", 24)
    assert list(batch.hourly_rate) == pytest.approx([430e6 / 86400] * HOURS_PER_WEEK)
    assert batch.hourly_rate[0] * batch.output_tok_per_unit * 86400 == pytest.approx(30e6)
    assert tuning.hourly_rate[0] == pytest.approx(400e6 / (730 * 3600))
    assert tuning.deadline_hours == 365


def test_growth_compounds_from_month_0_and_nothing_comes_before_the_start() -> None:
    assert month_factors(0.03, 0, 3) == pytest.approx((1.0, 1.03, 1.0609))
    assert month_factors(0.03, 2, 4) == pytest.approx((0.0, 0.0, 1.0609, 1.092727))
    found = of({"requests_per_day": 1000, "growth_frac_per_month": 0.03})
    assert found.mean_rate("chat", 2, 0) == pytest.approx(1000 / 86400 * 1.0609)
    assert found.peak_rate("chat", 2, 0) == pytest.approx(1000 / 86400 * 1.0609)


def test_listed_numbers_are_a_shape() -> None:
    numbers = [float(h % 24 >= 12) for h in range(HOURS_PER_WEEK)]
    hourly = of({"requests_per_day": 86400, "profile": numbers}).workloads["chat"].hourly_rate
    assert (hourly[0], hourly[12]) == (0.0, pytest.approx(2.0))


def test_an_unknown_profile_is_a_fault() -> None:
    with pytest.raises(InputError, match=r"workloads\.chat: no profile 'ofice_hours'; did you mean 'office_hours'"):
        of({"requests_per_day": 1, "profile": "ofice_hours"})


def test_profiles_used_are_kept_for_the_evidence() -> None:
    assert set(demand(load_workload(EXAMPLE)).profiles_used) == {"office_hours", "flat"}


@pytest.mark.parametrize("name", sorted(shipped_profiles()))
def test_shipped_profiles_have_mean_1_and_a_dated_source(name: str) -> None:
    profile = shipped_profiles()[name]
    assert math.fsum(profile_hours(name, shipped_profiles())) / HOURS_PER_WEEK == pytest.approx(1, rel=1e-12)
    assert profile.source_of("default").note
    assert profile.hours() != (0.0,) * HOURS_PER_WEEK


def test_office_hours_follow_the_office() -> None:
    """The week starts on Monday: weekdays carry 3 times the weekend, and 14:00 is far above 04:00."""
    hours = profile_hours("office_hours", shipped_profiles())
    weekdays, weekend = sum(hours[:120]) / 120, sum(hours[120:]) / 48
    assert weekdays > 2.5 * weekend
    assert hours[14] > 5 * hours[4]


# --- timeslices -----------------------------------------------------------------------------------------------------------

level = st.one_of(st.integers(0, 4).map(float), st.floats(0, 1e6, allow_subnormal=False))
week = st.one_of(st.lists(level, min_size=168, max_size=168), st.lists(level, min_size=24, max_size=24).map(lambda day: day * 7))
weeks = st.dictionaries(st.sampled_from(["a", "b", "c"]), week, min_size=1, max_size=3)


@settings(max_examples=40, deadline=None)
@given(rates=weeks, count=st.integers(1, 10))
def test_nothing_is_lost(rates: dict[str, list[float]], count: int) -> None:
    slices = make_timeslices(rates, count)
    made = len(slices.hours_per_month)
    distinct = len(set(zip(*rates.values(), strict=True)))
    assert 1 <= made <= min(count, distinct)
    assert sum(slices.hours_per_month) == pytest.approx(730, rel=1e-12)
    assert set(slices.slice_of_hour) == set(range(made)), "no timeslice is empty"
    for name, hourly in rates.items():
        hours = [len(slices.hours_in(s)) for s in range(made)]
        total = math.fsum(h * m for h, m in zip(hours, slices.mean[name], strict=True))
        assert total == pytest.approx(math.fsum(hourly), rel=1e-12, abs=1e-300)
        for hour, rate in enumerate(hourly):
            assert rate <= slices.peak[name][slices.slice_of_hour[hour]]
        assert max(slices.peak[name]) == max(hourly)
        assert all(mean <= peak for mean, peak in zip(slices.mean[name], slices.peak[name], strict=True))


@settings(max_examples=15, deadline=None)
@given(rates=weeks, scale=st.sampled_from([2.0**-7, 8.0, 2.0**20]))
def test_units_do_not_move_hours(rates: dict[str, list[float]], scale: float) -> None:
    scaled = {name: [rate * scale for rate in hourly] for name, hourly in rates.items()}
    assert make_timeslices(scaled, 5).slice_of_hour == make_timeslices(rates, 5).slice_of_hour


@settings(max_examples=15, deadline=None)
@given(rates=weeks)
def test_the_order_of_workloads_does_not_matter(rates: dict[str, list[float]]) -> None:
    turned = dict(reversed(rates.items()))
    assert make_timeslices(rates, 4) == make_timeslices(turned, 4)


def best_single(values: list[float], count: int) -> float:
    """Exact least excess of one workload: contiguous cuts of the sorted hours, by recursion over small input."""
    ordered = sorted(values)

    def cost(start: int, end: int) -> float:
        return sum(ordered[end - 1] - v for v in ordered[start:end])

    best = {(0, 0): 0.0}
    for end in range(1, len(ordered) + 1):
        for k in range(1, count + 1):
            best[end, k] = min((best[start, k - 1] + cost(start, end) for start in range(end) if (start, k - 1) in best), default=math.inf)
    return min(best[len(ordered), k] for k in range(1, count + 1))


@settings(max_examples=10, deadline=None)
@given(day=st.lists(st.integers(0, 50), min_size=24, max_size=24).filter(any), count=st.integers(1, 5))
def test_one_workload_is_grouped_at_least_cost(day: list[int], count: int) -> None:
    """Seven equal days cost seven times one day, whose best grouping is found by recursion."""
    rates = {"a": [float(v) for v in day * 7]}
    expected = 7 * best_single([v / max(day) for v in day], count)
    assert excess(rates, make_timeslices(rates, count)) == pytest.approx(expected, abs=1e-9)


def test_eight_timeslices_leave_little_excess() -> None:
    """Two shapes that peak at different hours: 114 % capacity-hours too many with one timeslice, below 16 % with eight."""
    known = shipped_profiles()
    rates = {name: profile_hours(name, known) for name in ("office_hours", "global_24x7")}
    need = sum(sum(hourly) / max(hourly) for hourly in rates.values())
    assert excess(rates, make_timeslices(rates, 1)) / need > 1.1
    assert excess(rates, make_timeslices(rates, 8)) / need < 0.16
    assert excess(rates, make_timeslices(rates, HOURS_PER_WEEK)) == 0


def test_equal_hours_make_one_timeslice() -> None:
    slices = make_timeslices({"a": [5.0] * HOURS_PER_WEEK}, 8)
    assert slices == Timeslices((pytest.approx(730),), (0,) * HOURS_PER_WEEK, {"a": (5.0,)}, {"a": (5.0,)})  # type: ignore[arg-type]


def test_the_busiest_comes_first() -> None:
    rates = {"a": [float(h % 24) for h in range(HOURS_PER_WEEK)]}
    peaks = make_timeslices(rates, 6).peak["a"]
    assert list(peaks) == sorted(peaks, reverse=True)


@pytest.mark.parametrize(
    ("rates", "count"),
    [({"a": [1.0] * 167}, 8), *(({"a": [rate] * 168}, 8) for rate in (-1.0, math.nan, math.inf)), ({"a": [1.0] * 168}, 0)],
)
def test_rates_that_are_none(rates: dict[str, list[float]], count: int) -> None:
    with pytest.raises(ValueError, match=r"hourly rates|finite and not negative|at least one timeslice"):
        make_timeslices(rates, count)
