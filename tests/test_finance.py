"""Money: worked figures (capex and rent of a published break-even table, annuities, API bills, energy) and properties."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import integrate, stats

from planner import finance


@pytest.mark.parametrize(("rent", "hours"), [(98.32, 8556.2), (80.62, 10455.2), (68.80, 12274.5), (55.06, 15386.7)])
def test_break_even_of_a_bought_server(rent: float, hours: float) -> None:
    assert finance.break_even_hours(833_806, 0.87, rent) == pytest.approx(hours, abs=0.1)


@pytest.mark.parametrize("rent", [0.87, 0.5])
def test_rent_below_the_running_cost_never_breaks_even(rent: float) -> None:
    assert finance.break_even_hours(833_806, 0.87, rent) is None


@pytest.mark.parametrize(("rate", "years", "part"), [(0.03, 25, 0.057428), (0.08, 4, 0.301921), (0.08, 5, 0.250456)])
def test_annuity(rate: float, years: int, part: float) -> None:
    assert finance.annuity_frac_per_year(rate, years) == pytest.approx(part, abs=5e-7)


def test_annuity_edges() -> None:
    assert finance.annuity_frac_per_year(0.0, 4) == 0.25
    with pytest.raises(ValueError, match="swapped"):
        finance.annuity_frac_per_year(4, 0.08)
    with pytest.raises(ValueError, match="swapped"):
        finance.annuity_frac_per_year(0.08, 0.5)


def test_annualized_server() -> None:
    assert finance.annualized_usd_per_year(320_000, 0.08, 4) == pytest.approx(96_614.66, abs=0.01)
    assert finance.annualized_usd_per_year(320_000, 0.08, 4, 0.15) == pytest.approx(85_962.46, abs=0.01)


def bill(**kw: float | None) -> float:
    base: dict[str, float | None] = {
        "prompt_mean_tok": 1000,
        "output_mean_tok": 100,
        "usd_per_mtok_input": 10,
        "usd_per_mtok_output": 50,
        "cached_frac": 0.2,
        "usd_per_mtok_cached_input": 1,
    }
    return finance.api_usd_per_request(**(base | kw))  # type: ignore[arg-type]


def test_api_request() -> None:
    assert bill() == pytest.approx(0.0132)
    assert bill(uplift_frac=0.1) == pytest.approx(0.01452)
    assert bill(usd_per_mtok_cached_input=None) == pytest.approx(0.015)
    assert bill(tier_threshold_tok=900, usd_per_mtok_tier_input=20, usd_per_mtok_tier_output=60) == pytest.approx(0.0224)
    assert bill(batch_discount_frac=0.5) == pytest.approx(0.0066)


def test_api_month() -> None:
    """5M input and 5M output tokens a day at 1.25 and 10 USD per M: 56.25 USD a day."""
    day = finance.api_usd_per_request(prompt_mean_tok=5e6, output_mean_tok=5e6, usd_per_mtok_input=1.25, usd_per_mtok_output=10)
    assert day * 30 == pytest.approx(1687.5)
    assert finance.api_usd_per_month(1 / 86400, day) == pytest.approx(1710.94, abs=0.01)


def test_reserved_against_tokens() -> None:
    assert finance.break_even_tok_per_month(6.40, 10, 720) == pytest.approx(460.8e6)
    assert finance.break_even_tok_per_month(6.40, 10) == pytest.approx(467.2e6)


def test_utilisation_at_which_owning_wins() -> None:
    """7,300 USD a month against 25 USD an hour: owned pays from 40 % of hours billed; against 5 USD an hour never."""
    assert finance.break_even_utilization_frac(7300, 25) == pytest.approx(0.4)
    assert finance.break_even_utilization_frac(7300, 5) is None


def test_energy() -> None:
    assert finance.energy_kwh(55, 10 / 3600) == pytest.approx(0.000153, abs=5e-7)
    assert finance.energy_kwh(55, 10 / 3600, pue=1.5) == pytest.approx(0.000229, abs=5e-7)
    with pytest.raises(ValueError, match="pue"):
        finance.energy_kwh(55, 1, pue=0.9)


@given(mean=st.floats(50, 5000), ratio=st.floats(1.2, 9), at=st.floats(0.3, 4), cap=st.floats(1.1, 6))
def test_tiers_agree_with_integration(mean: float, ratio: float, at: float, cap: float) -> None:
    """The tier's parts equal numerical integrals over min(length, max_context)."""
    threshold, top = mean * at, mean * at * cap
    mu, sigma = finance.lognormal_through(mean, mean * ratio)
    law = stats.lognorm(s=sigma, scale=math.exp(mu))
    requests, tokens = finance.tier_fracs(mean, mean * ratio, threshold, top)
    assert requests == pytest.approx(law.sf(threshold), abs=1e-9)
    edges = [law.ppf(1e-12), threshold, top]
    low = integrate.quad(lambda x: x * law.pdf(x), min(edges[0], threshold), threshold, limit=200)[0]
    high = integrate.quad(lambda x: x * law.pdf(x), threshold, top, limit=200)[0] + top * law.sf(top)
    assert tokens == pytest.approx(high / (low + high), abs=1e-5)


def test_no_lognormal_is_refused() -> None:
    with pytest.raises(ValueError, match="no lognormal"):
        finance.lognormal_through(100, 2000)
    with pytest.raises(ValueError, match="p99"):
        finance.lognormal_through(100, 90)


@given(age=st.floats(0, 80), older=st.floats(0, 20))
def test_residual_only_falls(age: float, older: float) -> None:
    points = [(0.0, 0.8), (24.0, 0.5), (48.0, 0.2)]
    assert finance.residual_frac(age + older, 60, points) <= finance.residual_frac(age, 60, points) + 1e-12
    assert finance.residual_frac(60 + older, 60, points) == 0.0


def test_commitment_and_tail() -> None:
    upfront, monthly = finance.commitment_usd(2.0, 36, 1 / 3)
    assert upfront + 36 * monthly == pytest.approx(2.0 * 730 * 36)
    assert finance.tail_months_count(0, 12, 36) == 0
    assert finance.tail_months_count(35, 12, 36) == 11
