"""Load, memory, speed and limits: why these machines hold what was promised."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner import formatting as f
from planner.report import charts
from planner.report.blocks import Block, Cell, Column, Part, Row, Section, Table, Text
from planner.report.load import Load
from planner.report.names import LIMITS, POOL_KINDS, TERMS, Names
from planner.schema.plan import MemoryByTerm, Plan, Supply, WorkloadPlan
from planner.units import BYTES_PER_GB, BYTES_PER_GIB


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
    supplies = list(dict.fromkeys(name for rates in by_slice.values() for name in rates))
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
        alt = f"GPUs over the week in {label}: up to {f.number(max(held))} paid for, {f.number(max(running))} running, {f.number(max(needed))} filled."
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
        note=f"Times in {plan.timezone}. A month has 730 hours. Filled: share of the peak × GPUs; the rest is room for a lost replica, whole "
        "nodes and growth.",
    )


def _horizon(plan: Plan, load: Load) -> Block:
    months = [f.month(plan.start, m) for m in range(plan.horizon_months)]
    top = [
        max((t.index for t in plan.timeslices), key=lambda i, m=m: (load.gpus_needed(m, i), load.gpus_held(m, i)))
        for m in range(len(months))
    ]  # type: ignore[misc]
    needed = [load.gpus_needed(m, t) for m, t in enumerate(top)]
    held = [load.gpus_held(m, t) for m, t in enumerate(top)]
    alt = (
        f"GPUs filled in the highest timeslice of each month against GPUs held in it: {f.number(needed[0])} of {f.number(held[0])} in {months[0]}, "
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


def hosted(plan: Plan) -> list[tuple[int, WorkloadPlan, Supply]]:
    """Return the (number, workload, supply) triples that run on GPUs, numbered from 1 as the charts label them."""
    found = [(w, s) for w in plan.workloads for s in w.supplies if s.memory is not None or s.roofline]
    return [(i + 1, w, s) for i, (w, s) in enumerate(found)]


def _gpus(supply: Supply) -> str:
    return f"{supply.gpus_per_replica_count}× {supply.gpu_name or f.name_of(supply.gpu)}"


def memory_section(plan: Plan, names: Names) -> Section | None:
    """Return memory by term against the cards, or nothing where everything is called."""
    rows = [(no, w, s, s.memory) for no, w, s in hosted(plan) if s.memory is not None]
    if not rows:
        return None
    labels = {no: f"{no}  {f.name_of(w.id)} on {_gpus(s)}" for no, w, s, _ in rows}
    bars = {labels[no]: {title: size / BYTES_PER_GB for title, size in _terms(m)} for no, _, _, m in rows}
    alt = (
        "Memory by term of one replica: "
        + "; ".join(f"{labels[no]} needs {f.gb(m.total_bytes)} of {f.gb(m.usable_bytes)}" for no, _, _, m in rows)
        + "."
    )
    chart = charts.memory_by_term(
        "memory_by_term",
        "Memory of one replica against its GPUs",
        alt,
        bars,
        {labels[no]: m.usable_bytes / BYTES_PER_GB for no, _, _, m in rows},
        {labels[no]: m.device_bytes / BYTES_PER_GB for no, _, _, m in rows},
    )
    tables = tuple(_memory_table(no, w, s, m) for no, w, s, m in rows)
    return Section(
        "memory",
        "Memory",
        "Weights, the KV cache of the sessions, activations and overhead, against the room that may be used.",
        (Part("At a glance", (chart,)), Part("The sum on paper", tables)),
    )


def _terms(memory: MemoryByTerm) -> tuple[tuple[str, float], ...]:
    return (
        ("Weights", memory.weights_bytes),
        ("KV cache", memory.kv_bytes),
        ("Activations", memory.activation_bytes),
        ("Runtime overhead", memory.overhead_bytes),
    )


def _memory_table(no: int, workload: WorkloadPlan, supply: Supply, m: MemoryByTerm) -> Table:
    terms = _terms(m)
    in_gb = f.sums_up([size / BYTES_PER_GB for _, size in terms])
    in_gib = f.sums_up([size / BYTES_PER_GIB for _, size in terms])
    product = m.sequences_count * m.context_tok * m.kv_bytes_per_tok
    if math.isclose(product, m.kv_bytes, rel_tol=2e-3):
        kv = f"{f.plural(m.sequences_count, 'sequence')} × {f.count(m.context_tok)} tokens × {f.count(m.kv_bytes_per_tok)} bytes"
    else:
        each = f.data_size(m.kv_bytes / m.sequences_count) if m.sequences_count else f.NOTHING
        kv = f"{f.plural(m.sequences_count, 'sequence')} × {each} each; {f.count(m.kv_bytes_per_tok)} bytes a token while every layer still fills"
    working = {"Weights": f"in {f.format_name(supply.weights)}", "KV cache": f"{kv}, in {f.format_name(supply.kv_cache)}"}
    rows = [
        Row((Cell(title), Cell(f.decimals(gb), gb), Cell(f.decimals(gib), gib), Cell(working.get(title, ""))))
        for (title, _), gb, gib in zip(terms, in_gb, in_gib, strict=True)
    ]
    need_gb, need_gib = sum(in_gb), sum(in_gib)
    dominant = TERMS.get(m.dominant_term.removesuffix("_bytes"), f.name_of(m.dominant_term))
    rows.append(
        Row(
            (
                Cell("Need"),
                Cell(f.decimals(need_gb), need_gb),
                Cell(f.decimals(need_gib), need_gib),
                Cell(f"{dominant} weigh most" if dominant in ("weights", "activations") else f"{dominant} weighs most"),
            ),
            is_total=True,
        )
    )
    for title, size, note in (
        (
            "Room that may be used",
            m.usable_bytes,
            f"holds {f.plural(m.max_sequences_count, 'sequence')} of {f.count(m.context_tok)} tokens",
        ),
        ("Free", m.usable_bytes - m.total_bytes, f"{f.percent(1 - m.total_bytes / m.usable_bytes)} of the room"),
        ("All memory of the GPUs", m.device_bytes, _gpus(supply)),
    ):
        rows.append(Row((Cell(title), Cell(f.decimals(size / BYTES_PER_GB)), Cell(f.decimals(size / BYTES_PER_GIB)), Cell(note))))
    columns = (Column("Term"), Column("GB", "number"), Column("GiB", "number"), Column("Working", weight=2.6))
    return Table(f"memory_{no}", f"{no}. {f.name_of(workload.id)} ({workload.llm_name}) on {_gpus(supply)}", columns, tuple(rows))


def speed_section(plan: Plan, names: Names) -> Section:
    """Return the promises against the predictions, the roofline, and what to configure."""
    parts = [Part("Promises and predictions", tuple(_promises(plan, names)))]
    if any(s.roofline for _, _, s in hosted(plan)):
        parts.append(Part("Roofline", tuple(_roofline(plan))))
    limits = tuple(_limits(plan, names))
    if limits:
        parts.append(Part("What to configure", limits))
    return Section(
        "speed",
        "Speed and limits",
        "Predicted at the worst hour of the week, beside the promise; what was measured and what was assumed.",
        tuple(parts),
    )


def _promise(predicted: float | None, target: float | None) -> Cell:
    if target is None:
        return Cell("no promise" if predicted is None else f.milliseconds(predicted), predicted)
    shown = f.milliseconds(predicted) if predicted is not None else "not stated"
    return Cell(shown, predicted, sub=f"promise {f.milliseconds(target)}")


def _promises(plan: Plan, names: Names) -> Iterator[Block]:
    rows = []
    for w in plan.workloads:
        for s in w.supplies:
            lat = s.latency
            cells = (
                [_promise(lat.ttft_p99_ms, lat.ttft_p99_target_ms), _promise(lat.tpot_p99_ms, lat.tpot_p99_target_ms)]
                if lat
                else [Cell(f.NOTHING)] * 2
            )
            per = f.rate(s.band.typical, s.band.unit) if s.band else f.NOTHING
            band = f"{f.number(s.band.low)} to {f.number(s.band.high)}, {s.band.basis}" if s.band else ""
            rows.append(
                Row(
                    (
                        Cell(f.name_of(w.id), sub=w.llm_name),
                        Cell(names.prose(s.name), sub=POOL_KINDS[s.kind]),
                        Cell(f.percent(s.request_share_frac), s.request_share_frac),
                        *cells,
                        Cell(per, s.band.typical if s.band else None, sub=band),
                        Cell(f.count(s.replicas_max_count), s.replicas_max_count),
                    )
                )
            )
    columns = (
        Column("Workload", weight=1.2),
        Column("Served by", weight=1.8),
        Column("Of requests", "number"),
        Column("First token, p99", "number"),
        Column("Per token, p99", "number"),
        Column("A replica serves", "number"),
        Column("Replicas", "number"),
    )
    yield Table(
        "promises",
        "Latency and rate by supply",
        columns,
        tuple(rows),
        is_stacked=True,
        note="First token: from sending to the first token, queueing included. Per token: mean gap after it. A batch has a deadline instead. "
        "The second line under a rate is its band: from the spread of measured runs, or wider where assumed.",
    )
    for w in plan.workloads:
        for warning in w.warnings:
            yield Text(f"{f.name_of(w.id)}: {f.sentence(names.prose(warning))}", "warn")


def _roofline(plan: Plan) -> Iterator[Block]:
    roofs: dict[str, tuple[float, float]] = {}
    points, rows, no = [], [], 0
    for _, w, s in hosted(plan):
        for p in s.roofline:
            no += 1
            roof = f"{s.gpu_name or f.name_of(s.gpu)}, {f.format_name(p.dtype)}"
            roofs[roof] = (p.peak_tflop_per_s, p.bandwidth_gb_per_s)
            points.append(
                {
                    "workload": f.name_of(w.id),
                    "phase": p.phase,
                    "intensity": p.intensity_flop_per_byte,
                    "tflop": p.achieved_tflop_per_s,
                    "roof": roof,
                    "no": str(no),
                }
            )
            reached = p.achieved_tflop_per_s / p.attainable_tflop_per_s if p.attainable_tflop_per_s else None
            rows.append(
                Row(
                    (
                        Cell(f"{no}  {f.name_of(w.id)}, {p.phase}", no),
                        Cell(roof),
                        Cell(f.number(p.intensity_flop_per_byte), p.intensity_flop_per_byte),
                        Cell(f.number(p.ridge_flop_per_byte), p.ridge_flop_per_byte),
                        Cell(f.number(p.achieved_tflop_per_s), p.achieved_tflop_per_s),
                        Cell(f.number(p.attainable_tflop_per_s), p.attainable_tflop_per_s, sub=f"{f.percent(reached)} reached"),
                        Cell(f.name_of(p.bound_by)),
                    )
                )
            )
    alt = (
        "Roofline: "
        + "; ".join(f"point {r.cells[0].text} at {r.cells[2].text} FLOP per byte, bound by {r.cells[6].text}" for r in rows)
        + "."
    )
    yield charts.roofline("roofline", "Where each phase stands under the roof of its GPU", alt, roofs, points)
    columns = (
        Column("Point", weight=1.8),
        Column("GPU and type", weight=1.5),
        Column("Intensity, FLOP/byte", "number"),
        Column("Ridge, FLOP/byte", "number"),
        Column("TFLOP/s reached", "number"),
        Column("TFLOP/s possible", "number"),
        Column("Bound by"),
    )
    yield Table(
        "roofline_points",
        "The points of the chart",
        columns,
        tuple(rows),
        is_sortable=True,
        note="Left of the ridge memory bandwidth binds, right of it compute. Peaks are dense, at the type in use; one GPU.",
    )


def _limit(key: str, value: float) -> str:
    if key.endswith("_frac"):
        return f.decimals(value, 2)
    return f"{f.count(value)} tokens" if key.endswith("_tok") else f.number(value, 6)


def _limits(plan: Plan, names: Names) -> Iterator[Block]:
    found = [(w, s) for w in plan.workloads for s in w.supplies if s.limits]
    keys = list(
        dict.fromkeys([k for k in LIMITS if any(k in s.limits for _, s in found)] + [k for _, s in found for k in sorted(s.limits)])
    )
    if not keys:
        return
    rows = tuple(
        Row(
            (
                Cell(f.name_of(w.id)),
                Cell(names.prose(s.name), sub=f"weights {f.format_name(s.weights)}, KV cache {f.format_name(s.kv_cache)}"),
                *(Cell(_limit(k, s.limits[k]) if k in s.limits else f.NOTHING, s.limits.get(k)) for k in keys),
            )
        )
        for w, s in found
    )
    columns = (Column("Workload"), Column("On", weight=2), *(Column(LIMITS.get(k, f.name_of(k)), "number") for k in keys))
    yield Table("limits", "Settings that keep each replica inside its plan", columns, rows, is_stacked=True)
