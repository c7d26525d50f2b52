"""Rounding: what is printed is near what it stands for, and nothing prints None, nan or a bare minus zero."""

from __future__ import annotations

import inspect
import math
from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner import formatting as f

FIGURES = st.floats(min_value=-1e12, max_value=1e12, allow_nan=False)
ONE_NUMBER = (
    f.number,
    f.count,
    f.decimals,
    f.money,
    f.money_short,
    f.price,
    f.money_difference,
    f.percent,
    f.percent_difference,
    f.gb,
    f.gib,
    f.data_size,
    f.hours,
    f.rate,
    f.milliseconds,
    f.seconds,
    f.tokens,
    f.big_count,
    f.hours_on_all_month,
    f.quantity,
)


@pytest.mark.parametrize("show", ONE_NUMBER)
def test_nothing_is_a_dash(show: object) -> None:
    assert callable(show) and show(None) == "–"


@pytest.mark.parametrize("show", [*ONE_NUMBER[:3], *ONE_NUMBER[3:9], *ONE_NUMBER[12:18]])
@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_what_is_not_finite_is_a_dash(show: object, value: float) -> None:
    assert callable(show) and show(value) == "–"


@given(FIGURES)
def test_money_is_near_and_never_minus_zero(usd: float) -> None:
    text = f.money(usd)
    shown = float(text.replace("$", "").replace(",", "").replace("−", "-"))
    assert abs(shown - usd) <= 0.5 + 1e-6
    assert text != "−$0" and "-" not in text


@given(st.floats(min_value=1e-9, max_value=1e12))
def test_number_keeps_three_digits(value: float) -> None:
    shown = float(f.number(value).replace(",", ""))
    assert shown == pytest.approx(value, rel=5.1e-3)


@given(st.floats(min_value=1e-6, max_value=1e6))
def test_a_price_above_zero_never_shows_as_zero(usd: float) -> None:
    assert float(f.price(usd).replace("$", "").replace(",", "")) == pytest.approx(usd, rel=5.1e-3)


@given(st.floats(min_value=10.0, max_value=1e9))
def test_short_money_is_near(usd: float) -> None:
    text = f.money_short(usd)
    scale = {"k": 1e3, "M": 1e6}.get(text[-1], 1.0)
    assert float(text.strip("$kM ").replace(",", "")) * scale == pytest.approx(usd, rel=0.06)


@given(st.lists(st.floats(min_value=0.0, max_value=1e4), min_size=1, max_size=8))
def test_rounded_parts_add_up_to_the_rounded_sum(parts: list[float]) -> None:
    shown = f.sums_up(parts)
    assert round(sum(shown), 1) == round(round(math.fsum(parts) * 10) / 10, 1)
    assert all(abs(a - b) <= 0.1 + 1e-9 for a, b in zip(shown, parts, strict=True))


@given(st.integers(min_value=0, max_value=1200))
def test_months_count_on_over_years(index: int) -> None:
    name = f.month("2026-12", index)
    assert int(name[-4:]) == 2026 + (11 + index) // 12


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (f.percent(0.004), "0.4 %"),
        (f.percent(0.9999), "100 %"),
        (f.percent(-1e-9), "−0.0000001 %"),
        (f.money_short(999_499), "$999 k"),
        (f.gb(0.0), "0.0 GB"),
        (f.day(date(2026, 1, 5)), "5 Jan 2026"),
        (f.day(None), "–"),
        (f.term(12), "12 months (1 year)"),
        (f.name_of("own.l40s_x4.office_rack"), "own l40s x4 office rack"),
        (f.name_of("mistral.small_3.2"), "mistral small 3.2"),
        (f.name_of(""), "–"),
        (f.format_name("gptq_int4"), "GPTQ INT4"),
        (f.quantity(3350.0, "gb_per_s"), "3,350 GB/s"),
        (f.quantity(0.00042, "usd_per_request"), "$0.00042 per request"),
        (f.quantity(43_250.0, "usd"), "$43,250"),
        (f.quantity(2.0, "USD/kWh"), "$2.00 /kWh"),
        (f.unit_words(None), ""),
        (f.sentence(""), ""),
    ],
)
def test_worked_by_hand(shown: str, expected: str) -> None:
    assert shown == expected


def test_every_public_function_is_documented() -> None:
    for name, function in inspect.getmembers(f, inspect.isfunction):
        if not name.startswith("_") and function.__module__ == f.__name__:
            assert ">>>" in (function.__doc__ or "") or name in ("day",), name
