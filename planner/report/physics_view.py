"""Memory, speed and limits: why these machines hold what was promised."""

from __future__ import annotations

import math
from collections.abc import Iterator

from planner import formatting as f
from planner.report import charts
from planner.report.blocks import Block, Cell, Column, Part, Row, Section, Table, Text
from planner.report.names import LIMITS, POOL_KINDS, TERMS, Names
from planner.schema.plan import MemoryByTerm, Plan, Supply, WorkloadPlan
from planner.units import BYTES_PER_GB, BYTES_PER_GIB


def hosted(plan: Plan) -> list[tuple[int, WorkloadPlan, Supply]]:
    """Return the (number, workload, supply) triples that run on GPUs, numbered from 1 as the charts label them."""
    found = [(w, s) for w in plan.workloads for s in w.supplies if s.memory is not None or s.roofline]
    return [(i + 1, w, s) for i, (w, s) in enumerate(found)]


def _gpus(supply: Supply) -> str:
    return f"{supply.gpus_per_replica_count}× {supply.gpu_name or f.name_of(supply.gpu)}"


def memory_section(plan: Plan) -> Section | None:
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
        per_tok = f"{f.count(m.kv_bytes_per_tok)} bytes a token while every layer still fills"
        kv = f"{f.plural(m.sequences_count, 'sequence')} × {each} each; {per_tok}"
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
                Cell(f"largest: {dominant}"),
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
        (
            "Free",
            m.usable_bytes - m.total_bytes,
            f"{f.percent(1 - m.total_bytes / m.usable_bytes if m.usable_bytes > 0 else None)} of the room",
        ),
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
            per = f.rate(s.band.typical, f.unit_words(s.band.unit)) if s.band else f.NOTHING
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
        note="First token: from sending to the first token, queueing included. Per token: mean gap after it. "
        "A batch has a deadline instead. "
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
