"""Load against capacity over the week and the term, hours paid against hours used, and what binds."""

from __future__ import annotations

from collections.abc import Iterator

from planner import formatting as f
from planner.report import charts
from planner.report.blocks import Block, Cell, Column, Part, Row, Section, Table
from planner.report.load import Load
from planner.report.names import POOL_KINDS, Names
from planner.schema.plan import Plan


def load_section(plan: Plan, names: Names, load: Load) -> Section:
    """Return load against capacity over the week and the term, and hours paid against hours used."""
    parts = [Part("Over the week", tuple(_week(plan, load)))]
    if load.has_gpus and plan.horizon_months > 1:
        parts.append(Part("Over the term", (_horizon(plan, load),)))
    if plan.usage:
        parts.append(Part("Hours paid and hours used", (_usage(plan, names),)))
    parts.append(Part("The hour that binds", (_binding(plan, names),)))
    return Section(
        "load",
        "Load and capacity",
        "Owned and reserved nodes are paid for every hour; what is rented on demand only while it is held.",
        tuple(parts),
    )


def _week(plan: Plan, load: Load) -> Iterator[Block]:
    month = load.shown_month
    label = f.month(plan.start, month)
    by_slice = {t.index: load.requests_by_supply(month, t.index) for t in plan.timeslices}
    supplies = load.in_order(name for rates in by_slice.values() for name in rates)
    hours = load.slice_of_hour
    if supplies:
        series = {s: [by_slice[t].get(s, 0.0) if t is not None else 0.0 for t in hours] for s in supplies}
        peak = max(plan.timeslices, key=lambda t: sum(by_slice[t.index].values()))
        alt = (
            f"Requests a second over the 168 hours of a week in {label}, stacked by who serves them: highest in {peak.label} with "
            + ", ".join(f"{f.rate(v)} by {k}" for k, v in by_slice[peak.index].items())
            + "."
        )
        yield charts.requests_over_week("requests_over_week", f"Who serves which hour, {label}", alt, series)
    if load.has_gpus:
        held, running, needed = (
            [fn(month, t) if t is not None else 0.0 for t in hours] for fn in (load.gpus_held, load.gpus_running, load.gpus_needed)
        )
        alt = (
            f"GPUs over the week in {label}: up to {f.number(max(held))} paid for, {f.number(max(running))} running, "
            f"{f.number(max(needed))} filled."
        )
        yield charts.gpus_over_week("gpus_over_week", f"GPUs filled, running and paid for, {label}", alt, held, running, needed)
    rows = []
    for t in plan.timeslices:
        mean = sum(load.rate(w.id, month, t.index, "mean_req_per_s") for w in plan.workloads)
        top = sum(load.rate(w.id, month, t.index) for w in plan.workloads)
        cells = [
            Cell(t.label, t.index),
            Cell(f.hours(t.hours_per_month), t.hours_per_month),
            Cell(f.rate(mean), mean),
            Cell(f.rate(top), top),
        ]
        if load.has_gpus:
            held_, needed_ = load.gpus_held(month, t.index), load.gpus_needed(month, t.index)
            cells += [Cell(f.number(held_), held_), Cell(f.number(needed_), needed_)]
        rows.append(Row(tuple(cells)))
    columns = [
        Column("Hours of the week"),
        Column("Hours a month", "number"),
        Column("Mean load", "number"),
        Column("Highest hour", "number"),
    ]
    if load.has_gpus:
        columns += [Column("GPUs paid for", "number"), Column("GPUs filled at the peak", "number")]
    yield Table(
        "timeslices",
        f"The week as the plan sees it, {label}",
        tuple(columns),
        tuple(rows),
        note=f"Times in {plan.timezone}. A month has 730 hours. Filled: share of the peak × GPUs; the rest is room for a lost replica, "
        "whole nodes and growth.",
    )


def _horizon(plan: Plan, load: Load) -> Block:
    months = [f.month(plan.start, m) for m in range(plan.horizon_months)]
    highest = [max((load.gpus_needed(m, t.index), load.gpus_held(m, t.index)) for t in plan.timeslices) for m in range(len(months))]
    needed, held = [filled for filled, _ in highest], [paid for _, paid in highest]
    alt = (
        f"GPUs filled in the highest timeslice of each month against GPUs held in it: "
        f"{f.number(needed[0])} of {f.number(held[0])} in {months[0]}, "
        f"{f.number(needed[-1])} of {f.number(held[-1])} in {months[-1]}."
    )
    return charts.gpus_over_horizon("gpus_over_horizon", "GPUs filled and held, month by month", alt, months, held, needed)


def _usage(plan: Plan, names: Names) -> Table:
    rows = tuple(
        Row(
            (
                Cell(names.prose(u.name), sub=POOL_KINDS.get(u.kind, f.name_of(u.kind))),
                Cell(f.count(u.node_hours_paid), u.node_hours_paid),
                Cell(f.count(u.node_hours_used), u.node_hours_used),
                Cell(f.percent(u.utilization_frac), u.utilization_frac),
                Cell(f.percent(u.peak_utilization_frac), u.peak_utilization_frac),
            )
        )
        for u in plan.usage
    )
    columns = (
        Column("Nodes", weight=2),
        Column("Node-hours paid", "number"),
        Column("Node-hours used", "number"),
        Column("Used", "number"),
        Column("Used at the peak", "number"),
    )
    return Table("usage", "Node-hours over the term", columns, rows, is_sortable=True)


def _binding(plan: Plan, names: Names) -> Table:
    rows = tuple(
        Row(
            (
                Cell(f.name_of(w.id)),
                Cell(f.rate(w.peak_req_per_s_first), w.peak_req_per_s_first),
                Cell(f.rate(w.peak_req_per_s_last), w.peak_req_per_s_last),
                Cell(f.sentence(names.prose(w.binding)) if w.binding else "Nothing binds."),
            )
        )
        for w in plan.workloads
    )
    columns = (
        Column("Workload"),
        Column("Peak, first month", "number"),
        Column("Peak, last month", "number"),
        Column("What binds", weight=2.5),
    )
    return Table("binding", "What limits each workload", columns, rows)
