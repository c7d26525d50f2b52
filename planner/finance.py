"""Money as pure functions of a few numbers: discounting, annuities, break-even, energy, commitments, residual value, API bills.

All money is real USD. A month has 730 hours (`units.HOURS_PER_MONTH`).
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import NormalDist

from planner.units import HOURS_PER_MONTH, MONTHS_PER_YEAR, SECONDS_PER_HOUR, TOK_PER_MTOK

_NORMAL = NormalDist()
_Z99 = _NORMAL.inv_cdf(0.99)
W_PER_KW = 1000.0
G_PER_T = 1e6


def discount_frac_per_month(discount_frac_per_year: float) -> float:
    """Return the monthly rate d = (1+r)^(1/12) − 1 that compounds to the yearly rate r (a fraction, 0 or more).

    >>> round(discount_frac_per_month(0.08), 9)
    0.00643403
    """
    if not 0 <= discount_frac_per_year <= 1:
        raise ValueError(f"discount_frac_per_year must lie in 0..1, not {discount_frac_per_year}: 8 % is 0.08")
    return float((1.0 + discount_frac_per_year) ** (1.0 / MONTHS_PER_YEAR)) - 1.0


def discount_factor_frac(discount_frac_per_year: float, after_months: int) -> float:
    """Return what a dollar paid `after_months` months from the start is worth today: (1+d)^−months.

    >>> round(discount_factor_frac(0.08, 12), 9)
    0.925925926
    """
    if after_months < 0:
        raise ValueError(f"after_months must be 0 or more, not {after_months}")
    return float((1.0 + discount_frac_per_month(discount_frac_per_year)) ** -after_months)


def annuity_frac_per_year(rate_frac_per_year: float, over_years: float) -> float:
    """Return the yearly part of a sum that repays it with interest: r/(1−(1+r)^−n); 1/n at a rate of 0.

    Arguments the wrong way round are refused (a rate above 1, or a term below one year).

    >>> round(annuity_frac_per_year(0.08, 4), 6)
    0.301921
    """
    if not 0 <= rate_frac_per_year <= 1:
        raise ValueError(f"rate_frac_per_year must lie in 0..1, not {rate_frac_per_year}: are the arguments swapped?")
    if over_years < 1:
        raise ValueError(f"over_years must be 1 or more, not {over_years}: are the arguments swapped?")
    if rate_frac_per_year == 0:
        return 1.0 / over_years
    return float(rate_frac_per_year / -math.expm1(-over_years * math.log1p(rate_frac_per_year)))


def annualized_usd_per_year(capex_usd: float, rate_frac_per_year: float, over_years: float, residual_frac: float = 0.0) -> float:
    """Return capex as a level yearly payment, less the residual value got back at the end. For display and break-even only.

    >>> round(annualized_usd_per_year(320_000, 0.08, 4), 2)
    96614.66
    """
    if not 0 <= residual_frac <= 1:
        raise ValueError(f"residual_frac must lie in 0..1, not {residual_frac}")
    annuity = annuity_frac_per_year(rate_frac_per_year, over_years)
    left_frac = float((1.0 + rate_frac_per_year) ** -over_years)
    return capex_usd * (1.0 - residual_frac * left_frac) * annuity


def break_even_hours(capex_usd: float, own_usd_per_hour: float, rent_usd_per_hour: float) -> float | None:
    """Return the hours of rent after which owning has paid for itself, or None where rent is no dearer than running: never.

    >>> round(break_even_hours(833_806, 0.87, 98.32), 1)
    8556.2
    """
    saved_usd_per_hour = rent_usd_per_hour - own_usd_per_hour
    return capex_usd / saved_usd_per_hour if saved_usd_per_hour > 0 else None


def break_even_tok_per_month(usd_per_hour: float, api_usd_per_mtok: float, hours_per_month: float = HOURS_PER_MONTH) -> float:
    """Return the tokens a month at which an hourly price, paid all month, equals an API's price per token.

    >>> round(break_even_tok_per_month(6.40, 10, 720) / 1e6, 1)
    460.8
    """
    if api_usd_per_mtok <= 0:
        raise ValueError("api_usd_per_mtok must be above 0")
    return usd_per_hour * hours_per_month / api_usd_per_mtok * TOK_PER_MTOK


def break_even_utilization_frac(own_usd_per_month: float, rent_usd_per_hour: float) -> float | None:
    """Return the part of a month's 730 hours BILLED at which renting costs what owning does; None where it never does (above 1).

    >>> round(break_even_utilization_frac(7300, 25), 2)
    0.4
    """
    if rent_usd_per_hour <= 0:
        return None
    frac = own_usd_per_month / (rent_usd_per_hour * HOURS_PER_MONTH)
    return frac if frac <= 1 else None


def energy_kwh(device_w: float, for_hours: float, pue: float = 1.0, count: float = 1.0, load_frac: float = 1.0) -> float:
    """Return energy at the meter: count × W × load × hours × PUE.

    >>> round(energy_kwh(55, 10 / 3600, pue=1.5), 6)
    0.000229
    """
    if pue < 1:
        raise ValueError(f"pue is facility power over IT power, 1 or more, not {pue}")
    if not 0 <= load_frac <= 1:
        raise ValueError(f"load_frac must lie in 0..1, not {load_frac}")
    return count * device_w * load_frac * for_hours * pue / W_PER_KW


def node_energy_kwh(idle_w: float, full_w: float, utilization_frac: float, for_hours: float, pue: float) -> float:
    """Return a node's energy at the meter: (idle + utilisation × (full − idle)) × hours × PUE.

    >>> node_energy_kwh(idle_w=1000, full_w=5000, utilization_frac=0.5, for_hours=10, pue=1.2)
    36.0
    """
    return energy_kwh(idle_w, for_hours, pue) + energy_kwh(full_w - idle_w, for_hours, pue, load_frac=utilization_frac)


def energy_usd(kwh: float, usd_per_kwh: float, carbon_g_per_kwh: float = 0.0, carbon_usd_per_t: float = 0.0) -> float:
    """Return the bill for energy at the meter, with the carbon price where one is set.

    >>> energy_usd(1000, 0.21, 230, 50)
    221.5
    """
    return kwh * usd_per_kwh + kwh * carbon_g_per_kwh / G_PER_T * carbon_usd_per_t


def commitment_usd(usd_per_node_hour: float, term_months: int, upfront_frac: float) -> tuple[float, float]:
    """Return (paid when the term begins, paid in each month of it) for one node committed at an hourly price.

    >>> commitment_usd(10, 12, 0.5)
    (43800.0, 3650.0)
    """
    if term_months < 1:
        raise ValueError(f"term_months must be 1 or more, not {term_months}")
    if not 0 <= upfront_frac <= 1:
        raise ValueError(f"upfront_frac must lie in 0..1, not {upfront_frac}")
    per_month = usd_per_node_hour * HOURS_PER_MONTH
    return upfront_frac * per_month * term_months, (1.0 - upfront_frac) * per_month


def tail_months_count(begins_month: int, term_months: int, horizon_months: int) -> int:
    """Return how many monthly payments of a commitment fall beyond the horizon: all are charged (`commitment_tail`).

    >>> tail_months_count(begins_month=30, term_months=12, horizon_months=36)
    6
    """
    return min(term_months, max(0, begins_month + term_months - horizon_months))


def residual_frac(age_months: float, life_months: float, points: Sequence[tuple[float, float]]) -> float:
    """Return the part of its price that a node sells for at an age: straight lines through (age in months, part); 0 past life.

    The first point carries the first-day drop; between the last point and the end of life the value falls straight to 0.

    >>> round(residual_frac(18, 60, [(0, 0.8), (36, 0.4)]), 9)
    0.6
    """
    if not points or any(b[0] <= a[0] for a, b in itertools.pairwise(points)):
        raise ValueError("residual points must rise in age, and there must be at least one")
    if any(not 0 <= part <= 1 for _, part in points):
        raise ValueError("residual parts must lie in 0..1")
    if age_months >= life_months:
        return 0.0
    line = [p for p in points if p[0] < life_months]
    line.append((life_months, 0.0))
    if age_months <= line[0][0]:
        return line[0][1]
    for (age0, part0), (age1, part1) in itertools.pairwise(line):
        if age_months <= age1:
            return part0 + (part1 - part0) * (age_months - age0) / (age1 - age0)
    return 0.0


def lognormal_through(mean_tok: float, p99_tok: float) -> tuple[float, float]:
    """Return (mu, sigma) of the lognormal with this mean and 99th percentile.

    Refused where none exists: a p99 below the mean, or above e^(z²/2) ≈ 15 times it.

    >>> mu, sigma = lognormal_through(1800, 7000)
    >>> round(math.exp(mu + sigma**2 / 2)), round(math.exp(mu + _Z99 * sigma))
    (1800, 7000)
    """
    if mean_tok <= 0 or p99_tok < mean_tok:
        raise ValueError(f"a p99 of {p99_tok:g} tokens needs a mean above 0 and no higher than it, not {mean_tok:g}")
    room = _Z99**2 - 2 * math.log(p99_tok / mean_tok)
    if room < 0:
        raise ValueError(f"no lognormal has a mean of {mean_tok:g} and a p99 of {p99_tok:g}: the ratio must be at most 14.9")
    sigma = _Z99 - math.sqrt(room)
    return math.log(mean_tok) - sigma**2 / 2, sigma


def tier_fracs(mean_tok: float, p99_tok: float | None, threshold_tok: float, max_context_tok: float | None = None) -> tuple[float, float]:
    """Return (part of requests, part of prompt tokens) whose prompt is longer than a tier's threshold.

    Prompt lengths are lognormal through mean and p99, cut at the longest context; without a p99 every prompt has the mean length.

    >>> tier_fracs(1000, None, 2000)
    (0.0, 0.0)
    >>> requests, tokens = tier_fracs(1800, 7000, 4000, 8192)
    >>> round(requests, 4), round(tokens, 4)
    (0.0657, 0.1996)
    """
    top = math.inf if max_context_tok is None else max_context_tok
    if threshold_tok >= top:
        return 0.0, 0.0
    mu, sigma = lognormal_through(mean_tok, mean_tok if p99_tok is None else p99_tok)
    if sigma == 0:
        over = float(min(mean_tok, top) > threshold_tok)
        return over, over

    def above(tok: float) -> float:
        return 1.0 - _NORMAL.cdf((math.log(tok) - mu) / sigma) if tok < math.inf else 0.0

    def tok_above(tok: float) -> float:
        return mean_tok * (1.0 - _NORMAL.cdf((math.log(tok) - mu - sigma**2) / sigma)) if tok < math.inf else 0.0

    cut_tok = top * above(top) if top < math.inf else 0.0
    whole = mean_tok - tok_above(top) + cut_tok
    tier = tok_above(threshold_tok) - tok_above(top) + cut_tok
    return above(threshold_tok), tier / whole


def api_usd_per_request(
    *,
    prompt_mean_tok: float,
    output_mean_tok: float,
    usd_per_mtok_input: float,
    usd_per_mtok_output: float,
    prompt_p99_tok: float | None = None,
    max_context_tok: float | None = None,
    cached_frac: float = 0.0,
    usd_per_mtok_cached_input: float | None = None,
    tier_threshold_tok: float | None = None,
    usd_per_mtok_tier_input: float | None = None,
    usd_per_mtok_tier_output: float | None = None,
    uplift_frac: float = 0.0,
    batch_discount_frac: float = 0.0,
) -> float:
    """Return the expected bill of one request.

    Cached tokens without a cached price cost the full input rate. A prompt beyond the tier's threshold pays the tier's prices for
    the whole request (a cached price scales with the tier's input price); expectations are over the length distribution of
    `tier_fracs`. The regional uplift and the batch discount multiply the price of each tier.

    >>> round(api_usd_per_request(prompt_mean_tok=1000, output_mean_tok=100, usd_per_mtok_input=10, usd_per_mtok_output=50,
    ...     cached_frac=0.2, usd_per_mtok_cached_input=1), 6)
    0.0132
    """
    if not 0 <= cached_frac <= 1:
        raise ValueError(f"cached_frac must lie in 0..1, not {cached_frac}")
    if not 0 <= batch_discount_frac <= 1 or uplift_frac < 0:
        raise ValueError("batch_discount_frac must lie in 0..1 and uplift_frac be 0 or more")
    cached = usd_per_mtok_input if usd_per_mtok_cached_input is None else usd_per_mtok_cached_input

    def usd(prompt_tok: float, output_tok: float, input_usd: float, cached_usd: float, output_usd: float) -> float:
        fresh = prompt_tok * (1.0 - cached_frac) * input_usd
        return (fresh + prompt_tok * cached_frac * cached_usd + output_tok * output_usd) / TOK_PER_MTOK

    req_over = tok_over = 0.0
    if tier_threshold_tok is not None:
        req_over, tok_over = tier_fracs(prompt_mean_tok, prompt_p99_tok, tier_threshold_tok, max_context_tok)
    tier_in = usd_per_mtok_input if usd_per_mtok_tier_input is None else usd_per_mtok_tier_input
    tier_out = usd_per_mtok_output if usd_per_mtok_tier_output is None else usd_per_mtok_tier_output
    tier_cached = cached * (tier_in / usd_per_mtok_input) if usd_per_mtok_input > 0 else cached
    base = usd(prompt_mean_tok * (1 - tok_over), output_mean_tok * (1 - req_over), usd_per_mtok_input, cached, usd_per_mtok_output)
    tier = usd(prompt_mean_tok * tok_over, output_mean_tok * req_over, tier_in, tier_cached, tier_out)
    return (base + tier) * (1.0 + uplift_frac) * (1.0 - batch_discount_frac)


def api_usd_per_month(req_per_s: float, usd_per_request: float) -> float:
    """Return the bill of a mean request rate over a month of 730 hours.

    >>> api_usd_per_month(1.0, 0.001)
    2628.0
    """
    return req_per_s * SECONDS_PER_HOUR * HOURS_PER_MONTH * usd_per_request
