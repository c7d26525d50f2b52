"""Words that a plan carries: months, stretches of the week, cost lines, the decision in one sentence."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import date

from planner.schema.plan import Alternative, Decision
from planner.units import HOURS_PER_WEEK, MONTHS_PER_YEAR

DAYS = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")
HOURS_PER_DAY = 24
LINE_TITLES = {
    "capex": "Purchases", "residual": "Residual value at the end", "support": "Support and warranty", "hosting": "Hosting",
    "energy": "Energy", "carbon": "Carbon price", "node_ops": "Operations by node", "site_ops": "Operations by site",
    "rent_on_demand": "Rent on demand", "rent_reserved_upfront": "Reserved, paid upfront", "rent_reserved_monthly": "Reserved, monthly",
    "commitment_tail": "Commitments beyond the horizon", "rent_spot": "Spot rent", "spot_fallback": "On demand in place of spot",
    "cold_starts": "Cold starts", "api_tokens": "API calls", "staff": "Staff to operate serving",
}  # fmt: skip
"""Cost line → what a reader calls it."""


def month_label(start: date, month: int) -> str:
    """Return the calendar month of a plan's month.

    >>> month_label(date(2026, 12, 1), 2)
    '2027-02'
    """
    index = start.year * MONTHS_PER_YEAR + start.month - 1 + month
    return f"{index // MONTHS_PER_YEAR}-{index % MONTHS_PER_YEAR + 1:02d}"


def week_label(hours: Sequence[int]) -> str:
    """Return hours of the week in words: stretches of hours by group of days, the longest groups first, at most three of them.

    >>> week_label([h for d in range(5) for h in range(d * 24 + 9, d * 24 + 17)])
    'Mon-Fri 09-17'
    >>> week_label(range(168))
    'every hour'
    """
    chosen = set(hours)
    if len(chosen) == HOURS_PER_WEEK:
        return "every hour"
    by_pattern: dict[tuple[tuple[int, int], ...], list[int]] = {}
    for day in range(len(DAYS)):
        stretches = _stretches([h for h in range(HOURS_PER_DAY) if day * HOURS_PER_DAY + h in chosen])
        if stretches:
            by_pattern.setdefault(stretches, []).append(day)
    groups = sorted(by_pattern.items(), key=lambda item: (-len(item[1]) * sum(b - a for a, b in item[0]), item[1]))
    parts = [f"{_days(days)} {'+'.join(_hours(a, b) for a, b in pattern)}" for pattern, days in groups[:3]]
    more = len(groups) - 3
    return ", ".join(parts) + (f" and {more} more" if more > 0 else "")


def _hours(a: int, b: int) -> str:
    return "all day" if (a, b) == (0, HOURS_PER_DAY) else f"{a:02d}-{b:02d}"


def _stretches(hours: Sequence[int]) -> tuple[tuple[int, int], ...]:
    found: list[tuple[int, int]] = []
    for h in hours:
        if found and found[-1][1] == h:
            found[-1] = (found[-1][0], h + 1)
        else:
            found.append((h, h + 1))
    return tuple(found)


def _days(days: Sequence[int]) -> str:
    runs: list[list[int]] = []
    for d in days:
        if runs and runs[-1][-1] == d - 1:
            runs[-1].append(d)
        else:
            runs.append([d])
    return ",".join(DAYS[r[0]] if len(r) == 1 else f"{DAYS[r[0]]}-{DAYS[r[-1]]}" for r in runs)


def names(items: Iterable[str]) -> str:
    """Return names joined as in a sentence.

    >>> names(["a", "b", "c"])
    'a, b and c'
    """
    listed = list(items)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} and {listed[-1]}" if listed else ""


def plain(name: str) -> str:
    """Return an id as words.

    >>> plain("support_chat")
    'support chat'
    """
    return name.replace("_", " ")


def usd(value: float) -> str:
    """Return whole dollars for a sentence."""
    return f"${value:,.0f}" if value >= 0 else f"-${-value:,.0f}"


def headline(decisions: Sequence[Decision], npv_cost_usd: float, horizon_months: int, alternatives: Sequence[Alternative]) -> str:
    """Return the decision in one sentence: what to buy, rent and call, its cost, and what it beats."""
    parts: list[str] = []
    for action, verb in (("buy", "Buy"), ("reserve", "reserve"), ("rent", "rent"), ("call", "call"), ("keep", "keep")):
        mine = [d for d in decisions if d.action == action]
        if not mine:
            continue
        if action == "call":
            what = names(dict.fromkeys(d.pool for d in mine))
        else:
            counts: dict[str, int] = {}
            for d in mine:
                label = (d.node_name or d.pool) + (f" from {d.provider}" if d.provider and action != "buy" else "")
                counts[label] = counts.get(label, 0) + d.count
            what = names(f"{'up to ' if action == 'rent' else ''}{n} node{'s' if n > 1 else ''} ({label})" for label, n in counts.items())
        parts.append(f"{verb.lower()} {what}")
    text = "; ".join(parts) or "nothing to buy, rent or call"
    text = text[0].upper() + text[1:]
    rivals = [a for a in alternatives if a.npv_cost_usd is not None and a.name in ("all_own", "all_rent", "all_api", "today")]
    span = f"{horizon_months} month{'s' if horizon_months > 1 else ''}"
    tail = f": {usd(npv_cost_usd)} over {span} (net present cost)"
    if rivals:
        best = min(rivals, key=lambda a: (a.npv_cost_usd or 0.0, a.name))
        saved = (best.npv_cost_usd or 0.0) - npv_cost_usd
        if saved > 0.005 * abs(npv_cost_usd):
            tail += f", {usd(saved)} less than {best.title[0].lower() + best.title[1:]}"
        else:
            tail += f", as {best.title[0].lower() + best.title[1:]} would"
    return text + tail + "."
