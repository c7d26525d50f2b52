"""Page one: what to buy, rent and call, what it costs, how sure that is, what it beats, and who must act by when."""

from __future__ import annotations

from collections.abc import Iterator

from planner import formatting as f
from planner.report.blocks import Block, Cell, Column, Fact, Facts, Figures, Part, Row, Table, Text
from planner.report.load import Load
from planner.report.names import ACTIONS, Names
from planner.schema.plan import Decision, Plan
from planner.units import MONTHS_PER_YEAR

PRICE_KINDS = ("list_price", "quote", "published")


def page_one(plan: Plan, names: Names, load: Load) -> tuple[Part, ...]:
    """Return the parts of page one."""
    parts = [
        Part("What to do", (_decisions(plan, names),)),
        Part("What it costs", (_costs(plan),)),
        Part("How sure this is", (Facts(tuple(_certainty(plan))),)),
        Part("What it beats", (_beats(plan, names),)),
    ]
    bridge = tuple(_bridges(plan, names, load))
    if bridge:
        parts.insert(1, Part("Until the purchase serves", bridge))
    flips = tuple(_flips(plan, names))
    if flips:
        parts.append(Part("What would change it", (Facts(flips),)))
    return tuple(parts)


def how_many(decision: Decision) -> str:
    """Return the number with its unit: nodes, most nodes at once, or requests a month."""
    if decision.action == "call":
        return f"{f.big_count(decision.requests_per_month)} requests a month" if decision.requests_per_month else "as needed"
    if decision.action == "rent":
        return f"up to {f.plural(decision.count, 'node')}"
    return f.plural(decision.count, "node")


def when(plan: Plan, decision: Decision) -> str:
    """Return when to act and when it serves or ends."""
    first = f.month(plan.start, decision.month)
    if decision.action == "buy":
        serves = decision.in_service_month
        if serves is None or serves == decision.month:
            return f"order {first}, serves at once"
        return f"order {first}, serves from {f.month(plan.start, serves)}"
    if decision.until_month is not None:
        return f"{first} to {f.month(plan.start, decision.until_month - 1)}"
    return f"from {first}"


def _decisions(plan: Plan, names: Names) -> Table:
    rows = []
    for decision in plan.decisions:
        what = names.prose(decision.node_name) if decision.node_name else names.pool(decision.pool)
        place = []
        if decision.provider:
            place.append(f"from {names.provider(decision.provider)}")
        if decision.site:
            place.append(f"at {f.name_of(decision.site)}")
        many = how_many(decision)
        sub = f"{f.hours(decision.hours_per_month)} a month" if decision.hours_per_month else ""
        rows.append(
            Row(
                (
                    Cell(ACTIONS[decision.action]),
                    Cell(what, sub=", ".join(place)),
                    Cell(many, decision.count or decision.requests_per_month, sub=sub),
                    Cell(when(plan, decision), decision.month),
                    Cell(f.money(decision.usd), decision.usd),
                    Cell(f.sentence(names.prose(decision.reason))),
                )
            )
        )
    columns = (
        Column("", weight=0.7),
        Column("What", weight=1.5),
        Column("How many", weight=1.1),
        Column("When", weight=1.2),
        Column(f"Cost over {plan.horizon_months} month{'s' if plan.horizon_months > 1 else ''}", "number"),
        Column("Why", weight=2.2),
    )
    return Table(
        "decisions",
        "What to buy, rent and call",
        columns,
        tuple(rows),
        is_stacked=True,
        note="Undiscounted. Bought: the purchase price. Rented, reserved or called: all that is paid for it. "
        "Kept: its running cost over the term.",
    )


def _costs(plan: Plan) -> Figures:
    months = [sum(line.usd_by_month[m] for line in plan.cost_lines) for m in range(plan.horizon_months)]
    top = max(range(len(months)), key=lambda m: (months[m], -m))
    without = plan.tco_usd - plan.staff_usd
    return Figures(
        (
            Fact("Net present cost", f.money(plan.npv_cost_usd), f"discounted at {f.percent(plan.discount_frac_per_year)} a year", "#cost"),
            Fact("Paid over the term", f.money(plan.tco_usd), f"undiscounted, {f.term(plan.horizon_months)}", "#cost"),
            Fact("Without staff", f.money(without), f"staff: {f.money(plan.staff_usd)} over the term", "#cost"),
            Fact(
                "First year", f.money(plan.first_year_usd), f"{f.money(plan.first_year_usd / MONTHS_PER_YEAR)} a month on average", "#cost"
            ),
            Fact("Dearest month", f.money(months[top]), f.month(plan.start, top), "#cost"),
        )
    )


def _certainty(plan: Plan) -> Iterator[Fact]:
    solver = plan.solver
    room = max(0.0, plan.npv_cost_usd - solver.npv_bound_usd)
    if solver.status == "optimal":
        text = f"Proven: the cheapest plan possible under these rules is at most {f.money(room)} ({f.percent(solver.gap_frac)}) cheaper."
    else:
        text = f"Not proven optimal: a plan up to {f.money(room)} ({f.percent(solver.gap_frac)}) cheaper may exist."
    note = "" if solver.reproducible else "The clock ended this run: another machine may find another plan."
    yield Fact("Optimality", text, note, "#reproduce")
    yield Fact("Re-check", f.sentence(solver.rechecked))
    bands = [s.band for w in plan.workloads for s in w.supplies if s.band and s.band.typical > 0]
    if bands:
        assumed = sum(b.basis == "assumed" for b in bands)
        low, high = min(b.low / b.typical - 1 for b in bands), max(b.high / b.typical - 1 for b in bands)
        basis = f"{len(bands) - assumed} of {len(bands)} rest on measured runs, {assumed} on an assumption"
        yield Fact(
            "Speed predictions", f"{basis}; the widest band is {f.percent_difference(low)} to {f.percent_difference(high)}.", "", "#speed"
        )
    dated = [e.as_of for e in plan.evidence if e.kind in PRICE_KINDS and e.as_of]
    if dated:
        oldest, newest = min(dated), max(dated)
        yield Fact(
            "Age of prices",
            f"Read between {f.day(oldest)} and {f.day(newest)}: up to {f.plural((plan.as_of - oldest).days, 'day')} old "
            f"on the day of this decision, {f.day(plan.as_of)}.",
            "",
            "#sources",
        )
    assumed_count = sum(e.kind == "assumed" for e in plan.evidence)
    yield Fact(
        "Assumptions",
        f"{f.plural(len(plan.assumptions), 'assumption')} stated, {f.plural(assumed_count, 'figure')} chosen rather than sourced.",
        "",
        "#sources",
    )


def _beats(plan: Plan, names: Names) -> Table:
    rows = [
        Row(
            (
                Cell("This plan"),
                Cell(f.money(plan.npv_cost_usd), plan.npv_cost_usd),
                Cell(f.NOTHING),
                Cell("The cheapest that keeps every promise."),
            ),
            is_total=True,
        )
    ]
    for other in plan.alternatives:
        share = other.difference_usd / plan.npv_cost_usd if other.difference_usd is not None and plan.npv_cost_usd > 0 else None
        sub = f.percent_difference(share) if share is not None else ""
        rows.append(
            Row(
                (
                    Cell(names.prose(other.title)),
                    Cell(f.money(other.npv_cost_usd) if other.npv_cost_usd is not None else "not possible", other.npv_cost_usd),
                    Cell(f.money_difference(other.difference_usd), other.difference_usd, sub=sub),
                    Cell(f.sentence(names.prose(other.reason))),
                )
            )
        )
    columns = (Column("Plan", weight=1.2), Column("Net present cost", "number"), Column("Difference", "number"), Column("Why", weight=3))
    return Table("beats", "The best plan of each other kind", columns, tuple(rows), is_stacked=True)


def _bridges(plan: Plan, names: Names, load: Load) -> Iterator[Block]:
    for decision in plan.decisions:
        serves = decision.in_service_month
        if decision.action != "buy" or serves is None or serves <= decision.month:
            continue
        what = f"{f.plural(decision.count, 'node')} of {names.prose(decision.node_name or decision.pool)}"
        others = load.bridge(serves, decision.pool)
        until = "; until then the load is carried by " + " and ".join(others) if others else ""
        months = f.plural(serves - decision.month, "month")
        yield Text(
            f"Order {what} in {f.month(plan.start, decision.month)}: they serve from {f.month(plan.start, serves)}, {months} later{until}."
        )


def _flips(plan: Plan, names: Names) -> Iterator[Fact]:
    known = [b for b in plan.break_even if b.utilization_frac is not None and b.today_frac is not None]
    known.sort(key=lambda b: abs((b.today_frac or 0.0) - (b.utilization_frac or 0.0)))
    for pair in known[:3]:
        label = f"{names.prose(pair.node_name)} or {names.prose(pair.rival)}"
        away = abs((pair.today_frac or 0.0) - (pair.utilization_frac or 0.0)) * 100
        side = "below" if (pair.today_frac or 0.0) > (pair.utilization_frac or 0.0) else "above"
        note = f"{f.number(away, 2)} points away; use {side} it flips the choice."
        yield Fact(label, f.sentence(names.prose(pair.text)), note, "#alternatives")
