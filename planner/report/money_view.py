"""Money: cash by line, month and quarter, the ledger, the alternatives and the break-even of owning."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner import formatting as f
from planner.report import charts
from planner.report.blocks import Block, Cell, Column, Part, Row, Section, Table
from planner.report.names import ACTIONS, Names
from planner.report.page_one import how_many
from planner.schema.plan import CostLine, Plan
from planner.units import MONTHS_PER_YEAR

MONTHS_PER_QUARTER = 3
SHOWN_LINES_COUNT = 5
_DECIDED = ("capex", "rent", "api", "reserved", "spot", "commitment", "cold_start", "provisioned")
"""Beginnings of the names of cost lines that decisions already account for."""


def cost_section(plan: Plan, names: Names) -> Section:
    """Return cost by line, by month and by quarter, and the ledger."""
    return Section(
        "cost",
        "What it costs",
        "Cash as it is paid, in US dollars of the price day, and its discounted sum.",
        (
            Part("By month", (_by_month(plan, names),)),
            Part("By line", (_by_line(plan, names),)),
            Part("By quarter", (_by_quarter(plan, names),)),
            Part("Ledger", (_ledger(plan, names),)),
            Part("By workload", (_by_workload(plan),)),
        ),
    )


def _grouped(plan: Plan, names: Names, limit: int) -> dict[str, list[float]]:
    """Return the `limit` largest lines by name, month by month, the rest as `Other`."""
    lines = [line for line in plan.cost_lines if any(line.usd_by_month)]
    largest = sorted(lines, key=lambda line: -math.fsum(map(abs, line.usd_by_month)))[:limit]
    shown = {names.prose(line.title): list(line.usd_by_month) for line in lines if line in largest}
    rest = [line for line in lines if line not in largest]
    if rest:
        shown["Other lines"] = [math.fsum(line.usd_by_month[m] for line in rest) for m in range(plan.horizon_months + 1)]
    return shown


def _by_month(plan: Plan, names: Names) -> Block:
    months = [f.month(plan.start, m) for m in range(plan.horizon_months)] + ["end"]
    totals = [math.fsum(line.usd_by_month[m] for line in plan.cost_lines) for m in range(plan.horizon_months)]
    alt = (
        f"Stacked bars of cash a month by cost line over {f.term(plan.horizon_months)}: {f.money(totals[0])} in {months[0]}, "
        f"{f.money(totals[-1])} in {months[-2]}; the table by quarter gives every figure."
    )
    return charts.cost_by_month("cost_by_month", "Cash by month and line", alt, months, _grouped(plan, names, 8))


def _by_line(plan: Plan, names: Names) -> Table:
    rows = []
    for line in plan.cost_lines:
        if not any(line.usd_by_month):
            continue
        first = math.fsum(line.usd_by_month[:MONTHS_PER_YEAR])
        share = line.npv_usd / plan.npv_cost_usd if plan.npv_cost_usd > 0 else None
        rows.append(_money_row(names.prose(line.title), (first, line.total_usd, line.npv_usd), Cell(f.percent(share), share)))
    rows.append(_money_row("Total", (plan.first_year_usd, plan.tco_usd, plan.npv_cost_usd), Cell("100 %", 1.0), is_total=True))
    columns = (
        Column("Line"),
        Column("First year", "number"),
        Column("Over the term", "number"),
        Column("Net present cost", "number"),
        Column("Share", "number"),
    )
    return Table(
        "cost_lines",
        "Cost by line",
        columns,
        tuple(rows),
        is_sortable=True,
        note="Below zero: money that comes back. The net present costs add up to the figure that was minimised.",
    )


def _money_row(title: str, amounts: tuple[float, ...], *more: Cell, is_total: bool = False) -> Row:
    return Row((Cell(title), *(Cell(f.money(usd), usd) for usd in amounts), *more), is_total=is_total)


def _by_quarter(plan: Plan, names: Names) -> Table:
    shown = _grouped(plan, names, SHOWN_LINES_COUNT)
    rows = []
    for first in range(0, plan.horizon_months, MONTHS_PER_QUARTER):
        last = min(first + MONTHS_PER_QUARTER, plan.horizon_months)
        label = f.month(plan.start, first) if last == first + 1 else f"{f.month(plan.start, first)} to {f.month(plan.start, last - 1)}"
        amounts = [math.fsum(usd[first:last]) for usd in shown.values()]
        total = math.fsum(math.fsum(line.usd_by_month[first:last]) for line in plan.cost_lines)
        rows.append(Row((Cell(label, first), *(Cell(f.money(usd), usd) for usd in amounts), Cell(f.money(total), total))))
    ends = [usd[plan.horizon_months] for usd in shown.values()]
    if any(ends):
        end = math.fsum(line.usd_by_month[plan.horizon_months] for line in plan.cost_lines)
        rows.append(
            Row((Cell("End of the term", plan.horizon_months), *(Cell(f.money(usd), usd) for usd in ends), Cell(f.money(end), end)))
        )
    sums = [math.fsum(usd) for usd in shown.values()]
    rows.append(Row((Cell("Total"), *(Cell(f.money(usd), usd) for usd in sums), Cell(f.money(plan.tco_usd), plan.tco_usd)), is_total=True))
    columns = (Column("Quarter", weight=1.6), *(Column(title, "number") for title in shown), Column("All lines", "number"))
    return Table("quarters", "Cash by quarter of the plan, undiscounted", columns, tuple(rows))


def _is_decided(line: CostLine) -> bool:
    return line.name.startswith(_DECIDED)


def _ledger(plan: Plan, names: Names) -> Table:
    rows = []
    for decision in plan.decisions:
        is_used = decision.action in ("rent", "call")
        what = names.prose(decision.node_name) if decision.node_name else names.pool(decision.pool)
        item = f"{ACTIONS[decision.action]}: {what}{'*' if is_used else ''}"
        if decision.action == "buy":
            quantity, monthly = how_many(decision), Cell("once", 0.0, sub=f.money(decision.usd / max(1, decision.count)) + " each")
        else:
            length = plan.horizon_months if decision.until_month is None else max(1, decision.until_month - decision.month)
            quantity = f"{f.hours(decision.hours_per_month)} a month" if decision.hours_per_month else how_many(decision)
            monthly = Cell(f.money(decision.usd / length), decision.usd / length)
        total = Cell(f.money(decision.usd), decision.usd)
        if decision.action == "keep":
            monthly, total = Cell(f.NOTHING), Cell("in the lines below", 0.0)
        rows.append(Row((Cell(item), Cell(quantity), Cell(f.month(plan.start, decision.month), decision.month), monthly, total)))
    for line in plan.cost_lines:
        if _is_decided(line) or not any(line.usd_by_month):
            continue
        paid = [m for m, usd in enumerate(line.usd_by_month[: plan.horizon_months]) if usd]
        star = "*" if line.name.startswith(("energy", "carbon")) else ""
        if not paid:
            cells = (Cell(f.NOTHING), Cell("at the end", plan.horizon_months), Cell("once", 0.0))
        else:
            mean = math.fsum(line.usd_by_month[: plan.horizon_months]) / len(paid)
            cells = (Cell(f.plural(len(paid), "month")), Cell(f.month(plan.start, paid[0]), paid[0]), Cell(f.money(mean), mean))
        rows.append(Row((Cell(names.prose(line.title) + star), *cells, Cell(f.money(line.total_usd), line.total_usd))))
    itemised = math.fsum(d.usd for d in plan.decisions if d.action != "keep") + math.fsum(
        line.total_usd for line in plan.cost_lines if not _is_decided(line)
    )
    rest = plan.tco_usd - itemised
    if abs(rest) >= 1:
        rows.append(Row((Cell("Not itemised above"), Cell(f.NOTHING), Cell(f.NOTHING), Cell(f.NOTHING), Cell(f.money(rest), rest))))
    rows.append(Row((Cell("Total over the term"), Cell(""), Cell(""), Cell(""), Cell(f.money(plan.tco_usd), plan.tco_usd)), is_total=True))
    columns = (
        Column("Item", weight=2.6),
        Column("Quantity", weight=1.4),
        Column("From", weight=0.9),
        Column("Mean a month", "number"),
        Column("Over the term", "number"),
    )
    return Table(
        "ledger",
        "Every item with its quantity and cost",
        columns,
        tuple(rows),
        note="* varies with use; the figure is the plan's forecast, its month the mean over the whole term.",
    )


def _by_workload(plan: Plan) -> Table:
    rows = []
    for w in plan.workloads:
        volume = Cell(
            f.big_count(w.requests_per_month_first),
            w.requests_per_month_first,
            sub=f"{f.big_count(w.requests_per_month_last)} in the last",
        )
        share = w.npv_usd / plan.npv_cost_usd if plan.npv_cost_usd > 0 else None
        rows.append(
            Row(
                (
                    Cell(f.name_of(w.id), sub=w.llm_name),
                    volume,
                    Cell(f.money(w.npv_usd), w.npv_usd),
                    Cell(f.percent(share), share),
                    Cell(f.price(w.usd_per_mtok), w.usd_per_mtok),
                    Cell(f.price(w.usd_per_request), w.usd_per_request),
                )
            )
        )
    columns = (
        Column("Workload", weight=1.5),
        Column("Requests in the first month", "number"),
        Column("Net present cost", "number"),
        Column("Share", "number"),
        Column("Per million tokens", "number"),
        Column("Per request", "number"),
    )
    return Table(
        "workload_costs",
        "What each workload costs",
        columns,
        tuple(rows),
        is_sortable=True,
        note="API bills whole; nodes by the share of GPU-hours that the workload uses.",
    )


def alternatives_section(plan: Plan, names: Names) -> Section:
    """Return the alternatives with their difference or the reason why not, and the break-even of owning."""
    parts = [Part("The best plan of each kind", tuple(_alternatives(plan, names)))]
    if plan.break_even:
        parts.append(Part("When owning pays", tuple(_break_even(plan, names))))
    return Section(
        "alternatives", "What else was possible", "Each alternative is the best plan of its kind under the same promises.", tuple(parts)
    )


def _alternatives(plan: Plan, names: Names) -> Iterator[Block]:
    priced = {names.prose(a.title): a.npv_cost_usd for a in plan.alternatives if a.npv_cost_usd is not None}
    if priced:
        bars = {"This plan": plan.npv_cost_usd, **priced}
        alt = "Bars of net present cost: " + ", ".join(f"{key} {f.money(usd)}" for key, usd in bars.items()) + "."
        yield charts.alternatives("alternatives_npv", "Net present cost of each plan", alt, bars)
    lines = {
        line.name: names.prose(line.title) for source in (plan.cost_lines, *(a.cost_lines for a in plan.alternatives)) for line in source
    }
    compared = [a for a in plan.alternatives if a.cost_lines]
    if compared:
        rows = []
        for name, title in lines.items():
            amounts = [
                next((x.npv_usd for x in source if x.name == name), 0.0) for source in (plan.cost_lines, *(a.cost_lines for a in compared))
            ]
            if any(amounts):
                rows.append(Row((Cell(title), *(Cell(f.money(usd), usd) for usd in amounts))))
        totals = (plan.npv_cost_usd, *(a.npv_cost_usd for a in compared))
        rows.append(Row((Cell("Net present cost"), *(Cell(f.money(usd), usd) for usd in totals)), is_total=True))
        columns = (Column("Line"), Column("This plan", "number"), *(Column(names.prose(a.title), "number") for a in compared))
        yield Table("alternative_lines", "Net present cost by line", columns, tuple(rows))


def _break_even(plan: Plan, names: Names) -> Iterator[Block]:
    titles = {"hours_billed": "hours billed, of a month", "share_of_capacity": "use, of what the node can serve"}
    pairs = plan.break_even[:4]
    panels = [
        {
            "title": (names.prose(b.node_name), f"or {names.prose(b.rival)}"),
            "own": b.own_usd_per_month,
            "rival_full": b.rival_usd_per_month_full,
            "flip": b.utilization_frac,
            "today": b.today_frac,
            "x_title": titles[b.meaning],
        }
        for b in pairs
    ]
    alt = "Cost a month against use, owning flat and the rival rising: " + " ".join(f.sentence(names.prose(b.text)) for b in pairs)
    yield charts.break_even("break_even", "Cost a month against use", alt, panels)
    rows = tuple(
        Row(
            (
                Cell(names.prose(b.node_name), sub=f"at {f.name_of(b.site)}"),
                Cell(names.prose(b.rival), sub=f"for {f.name_of(b.workload)}" if b.workload else ""),
                Cell(f.money(b.own_usd_per_month), b.own_usd_per_month),
                Cell(f.money(b.rival_usd_per_month_full), b.rival_usd_per_month_full),
                Cell(f.percent(b.utilization_frac) if b.utilization_frac is not None else "not reached", b.utilization_frac),
                Cell(f.percent(b.today_frac), b.today_frac),
                Cell(f.sentence(names.prose(b.text))),
            )
        )
        for b in plan.break_even
    )
    columns = (
        Column("Owning", weight=1.3),
        Column("Rival", weight=1.4),
        Column("Owning a month", "number"),
        Column("Rival, full use", "number"),
        Column("Break-even", "number"),
        Column("The plan", "number"),
        Column("In words", weight=2),
    )
    yield Table("break_even_table", "From which use owning is cheaper", columns, rows, is_stacked=True)
