"""Every figure that the plan rests on, with the walk back to its source; what is assumed, what is not proven, when not to use it."""

from __future__ import annotations

from collections.abc import Iterable
from datetime import date
from pathlib import Path
from typing import Any

from planner.candidates.build import Candidate, Prepared
from planner.catalog import digest_of, shown_path
from planner.plan.words import names, plain
from planner.readers.profiles import profiles_path
from planner.readers.workload_file import defaults_used
from planner.schema.base import Source, Sourced
from planner.schema.plan import Evidence, PlanInput, Risk, WorkloadPlan
from planner.schema.prices import OperatingRow, PriceRow
from planner.schema.problem import ProblemData, Solution

PRICE_WORDS = {
    "usd_per_node": "purchase price",
    "usd_per_node_hour": "price an hour",
    "usd_per_mtok_input": "price of input tokens",
    "usd_per_mtok_cached_input": "price of cached input tokens",
    "usd_per_mtok_output": "price of output tokens",
}
FIELD_WORDS = {
    "nameplate_w": "power at full load",
    "idle_w": "power when idle",
    "life_months": "life in service",
    "lead_months": "time from order to service",
    "warranty_frac_per_year": "support and warranty",
    "memory_device_mib": "memory that the device shows",
    "memory_label_gb": "memory on the label",
    "memory_bandwidth_gb_per_s": "memory bandwidth",
}
MONTH_NOTE = "A month has 730 hours (8,760 / 12), so every year costs the same."


def used_candidates(prepared: Prepared, solution: Solution) -> list[Candidate]:
    """Return the candidates that run at some time."""
    return [prepared.candidates[k] for k in sorted({k for k, _, _ in solution.replicas})]


def used_rows(prepared: Prepared, solution: Solution) -> list[PriceRow]:
    """Return the price rows of the pools and offers in the plan."""
    pools = {p for p, _, _ in solution.nodes} | {p for p, _ in solution.buy}
    rows: dict[str, PriceRow] = {}
    for p in sorted(pools):
        rows |= {row.id: row for row in prepared.pools[p].rows}
    for a in sorted({a for _, a, _, _ in solution.call}):
        rows[a] = prepared.offers[a].row
    return [rows[k] for k in sorted(rows)]


def evidence(prepared: Prepared, problem: ProblemData, solution: Solution) -> tuple[Evidence, ...]:
    """Return the plan's figures: prices, hardware, model shapes, formats, efficiencies, planning choices, and the user's own inputs."""
    found: list[Evidence] = []
    for row in used_rows(prepared, solution):
        found.extend(_price(row, row_name(prepared, row)))
    candidates = used_candidates(prepared, solution)
    for node in {c.pool.node.id: c.pool.node for c in candidates}.values():
        for field, unit in (
            ("nameplate_w", "W"),
            ("idle_w", "W"),
            ("life_months", "months"),
            ("lead_months", "months"),
            ("warranty_frac_per_year", "of the price a year"),
        ):
            found.append(_fact(f"node.{node.id}.{field}", f"{node.name}: {FIELD_WORDS[field]}", getattr(node, field), unit, node, field))
    for gpu in {c.shape.gpu.id: c.shape.gpu for c in candidates}.values():
        memory = ("memory_device_mib", "MiB") if gpu.memory_device_mib is not None else ("memory_label_gb", "GB")
        for field, unit in (memory, ("memory_bandwidth_gb_per_s", "GB/s")):
            found.append(_fact(f"gpu.{gpu.id}.{field}", f"{gpu.name}: {FIELD_WORDS[field]}", getattr(gpu, field), unit, gpu, field))
    for c in {(c.shape.gpu.id, c.shape.compute_dtype): c for c in candidates}.values():
        name = f"{c.shape.gpu.name}: dense {c.shape.compute_dtype} peak"
        found.append(
            _fact(
                f"gpu.{c.shape.gpu.id}.peak.{c.shape.compute_dtype}",
                name,
                c.shape.peak_flop_per_s / 1e12,
                "TFLOP/s",
                c.shape.gpu,
                "dense_tflop_per_s",
            )
        )
    for c in {c.shape.formats.llm.id: c for c in candidates}.values():
        llm = c.shape.formats.llm
        found.append(_fact(f"model.{llm.id}.params", f"{llm.name}: parameters", llm.params.total_count, "parameters", llm, "params"))
        found.append(
            Evidence(
                id=f"model.{llm.id}.kv",
                name=f"{llm.name}: KV cache per token in {c.shape.formats.kv.name}",
                value=c.shape.formats.footprint.kv_bytes_per_tok,
                unit="bytes",
                formula="sum over layers of 2 x KV heads x head size x bytes",
                source=_where(llm.source_of("attention")),
                as_of=llm.source_of("attention").retrieved_on,
                kind="derived",
            )
        )
        found.append(
            Evidence(
                id=f"model.{llm.id}.weights.{c.shape.formats.weights.id}",
                name=f"{llm.name}: weights in {c.shape.formats.weights.name}",
                value=c.shape.formats.footprint.weights_bytes,
                unit="bytes",
                formula="sum over components of parameters x bits / 8",
                source=_where(c.shape.formats.weights.source_of("bits_per_weight")),
                as_of=c.shape.formats.weights.source_of("bits_per_weight").retrieved_on,
                kind="derived",
            )
        )
    rows = {row.id: row for row in prepared.catalog.efficiency}
    for row_id in sorted({r for c in candidates for r in c.shape.efficiency.row_ids}):
        e = rows[row_id]
        source = e.source_of("mfu_frac")
        value = e.mbu_frac.typical if e.mbu_frac is not None and e.phase == "decode" else e.mfu_frac.typical
        label = "share of peak bandwidth reached in decode" if e.phase == "decode" else "share of peak compute reached in prefill"
        found.append(
            Evidence(
                id=f"efficiency.{row_id}",
                name=f"{e.engine} on {plain(e.gpu_family)}: {label}",
                value=value,
                unit="fraction",
                formula=f"fitted to {e.row_count} measured rows" if e.row_count else None,
                source=_where(source),
                as_of=source.retrieved_on,
                kind=source.kind,
                note=source.note,
            )
        )
    for figure in prepared.catalog.planning.values():
        source = figure.source_of("value")
        found.append(
            Evidence(
                id=f"planning.{figure.id}",
                name=figure.name,
                value=figure.value,
                unit=figure.unit,
                formula=None,
                source=source.locator,
                as_of=source.retrieved_on,
                kind=source.kind,
                note=f"range {figure.low:g} to {figure.high:g}; {source.note}",
            )
        )
    bought = {q for q, _ in solution.buy}
    families = {prepared.catalog.gpus[p.gpu].family for p in problem.pools if p.kind == "own" and p.id in bought}
    curve = [r for r in prepared.snapshot.operating.values() if r.category == "residual_value" and r.age_months is not None]
    own_curves = {r.applies_to for r in curve} & families
    used = own_curves | ({None} if families - own_curves else set())
    if families:
        found.extend(_residual(op) for op in sorted((r for r in curve if r.applies_to in used), key=lambda r: r.id))
    found.extend(_inputs_said(prepared))
    rank = {"assumed": 0, "derived": 1}
    return tuple(sorted(found, key=lambda e: (rank.get(e.kind, 2), e.id)))


def _residual(op: OperatingRow) -> Evidence:
    return Evidence(
        id=f"price.{op.id}",
        name=f"Residual value at {op.age_months} months ({op.name})",
        value=float(op.value),
        unit="of the price",
        formula=None,
        source=op.source,
        as_of=op.retrieved_on,
        kind=op.kind,
        note=op.note,
    )


def row_name(prepared: Prepared, row: PriceRow) -> str:
    """Return what a reader calls a price row: the machine and its deal, or the model and its host."""
    if row.id in prepared.offers:
        return prepared.offers[row.id].name
    for pool in prepared.pools.values():
        if row in pool.rows:
            return pool.name if pool.data.kind != "own" else f"{pool.node.name}, bought"
    return row.id


def _price(row: PriceRow, label: str) -> Iterable[Evidence]:
    for field, unit in (
        ("usd_per_node", "USD a node"),
        ("usd_per_node_hour", "USD a node-hour"),
        ("usd_per_mtok_input", "USD a million input tokens"),
        ("usd_per_mtok_cached_input", "USD a million cached tokens"),
        ("usd_per_mtok_output", "USD a million output tokens"),
    ):
        value = getattr(row, field, None)
        if value is not None:
            low, high = getattr(row, "usd_per_node_low", None), getattr(row, "usd_per_node_high", None)
            seen = f"seen from {low} to {high}; " if low is not None and high is not None and field == "usd_per_node" else ""
            printed = f"printed: {row.as_printed}; " if row.as_printed else ""
            yield Evidence(
                id=f"price.{row.id}.{field}",
                name=f"{label}: {PRICE_WORDS[field]}",
                value=float(value),
                unit=unit,
                formula=None,
                source=row.source,
                as_of=row.retrieved_on,
                kind=row.kind,
                note=(seen + printed + (row.note or "")).strip("; ") or None,
            )


def _fact(key: str, name: str, value: float, unit: str, row: Sourced, field: str) -> Evidence:
    source = row.source_of(field)
    return Evidence(
        id=key,
        name=name,
        value=value,
        unit=unit,
        formula=None,
        source=_where(source),
        as_of=source.retrieved_on,
        kind=source.kind,
        note=source.note,
    )


def _where(source: Source) -> str | None:
    return source.locator


def _inputs_said(prepared: Prepared) -> Iterable[Evidence]:
    plan = prepared.file.plan
    yield Evidence(
        id="input.discount",
        name="Real discount rate",
        value=plan.discount_frac_per_year,
        unit="a year",
        formula="d = (1 + r)^(1/12) - 1",
        source=prepared.file.path,
        as_of=None,
        kind="input",
    )
    for name, site in prepared.file.sites.items():
        yield Evidence(
            id=f"input.site.{name}.energy",
            name=f"Electricity at {plain(name)}",
            value=site.usd_per_kwh,
            unit="USD/kWh",
            formula=None,
            source=prepared.file.path,
            as_of=None,
            kind="input",
        )
        yield Evidence(
            id=f"input.site.{name}.pue",
            name=f"PUE of {plain(name)}",
            value=site.pue,
            unit="facility / IT power",
            formula=None,
            source=prepared.file.path,
            as_of=None,
            kind="input",
        )


def assumptions(prepared: Prepared, solution: Solution) -> tuple[str, ...]:
    """Return what was assumed, in sentences: keys left out of the file, chosen planning figures, derived prices."""
    found = [MONTH_NOTE, "All money is real US dollars of the snapshot's day; every month has the same week, scaled by growth."]
    plan = prepared.file.plan
    flat = [k for k in ("rent", "api", "buy") if getattr(plan.price_trend_frac_per_year, k) == 0.0]
    if flat:
        found.append(f"Prices to {names(flat)} stay flat over the horizon: rents rose in 2026, so this is a choice, not a forecast.")
    for place, value in defaults_used(prepared.file):
        is_choice = (
            isinstance(value, (int, float, str)) and not isinstance(value, bool) and value not in (0, "none", "exclude", "serving", 1.0)
        )
        if is_choice and not place.startswith(("plan.max_price_age", "plan.price_trend", "path", "sha256")):
            found.append(f"{place} was left out of the file: {value} is taken.")
    for name, w in prepared.workloads.items():
        if w.tokens is None:
            found.append(
                f"{plain(name)}: request lengths are assumed (2,000 prompt tokens, its own output ratio, p99 three times the mean)."
            )
    used = [prepared.candidates[k] for k in sorted({k for k, _, _ in solution.replicas})]
    assumed = sorted({c.shape.gpu.name for c in used if c.shape.efficiency.band.basis == "assumed"})
    if assumed:
        found.append(f"Speed on {names(assumed)} is taken from the nearest measured family and widened.")
    return tuple(found)


LIMITATIONS = (
    "Latency is predicted in closed form, not measured: no simulator has replayed arrivals against this plan. Measure before you promise.",
    "Replicas lie within one node; models too large for a node are left out.",
    "Loading a model when a node changes its work takes no time in the plan, except for the cold start of rented nodes.",
    "Purchases are whole nodes of one type under one price; discounts for volume are not modelled.",
    "An API is taken at its listed price and, where accepted as unproven, without a sourced latency or rate limit.",
    "Within a timeslice requests are split in fixed proportions; bursts inside an hour enter through arrival_cv alone.",
    "Network, storage and data egress are not priced.",
)


def risks(prepared: Prepared, solution: Solution, plans: tuple[WorkloadPlan, ...]) -> tuple[Risk, ...]:
    """Return conditions under which the plan should not be used, those that apply first."""
    found: list[Risk] = []
    if any(s.band is not None and s.band.basis == "assumed" for w in plans for s in w.supplies):
        found.append(
            Risk(
                name="Speed not measured here",
                text="At least one supply's speed comes from a neighbouring GPU family.",
                mitigation="Rent one such node for a day, run your own load, compare with the band, then order.",
            )
        )
    derived = [row_name(prepared, r) for r in used_rows(prepared, solution) if r.kind in ("derived", "assumed")]
    if derived:
        found.append(
            Risk(
                name="Derived prices",
                text=f"Not list prices or quotes: {names(derived)}.",
                mitigation="Get a quote and put it into your own pricing folder; the plan is then solved again.",
            )
        )
    if solution.call:
        found.append(
            Risk(
                name="API latency and limits",
                text="No provider publishes a p99 latency; rate limits depend on your account.",
                mitigation="Ask for limits in writing and measure p99 at your peak hour.",
            )
        )
    if any(prepared.workloads[w.id].availability.survive == "none" and w.kind == "serving" for w in plans):
        fragile = [plain(w.id) for w in plans if w.kind == "serving" and prepared.workloads[w.id].availability.survive == "none"]
        found.append(
            Risk(
                name="No spare",
                text=f"{names(fragile)} would miss the promise while a replica or node is down.",
                mitigation="Set availability.survive to replica or node and compare the cost.",
            )
        )
    found.append(
        Risk(
            name="Load differs",
            text="Growth and the weekly shape are inputs; capacity is bought for them.",
            mitigation="Compare the first two months with the plan and solve again.",
        )
    )
    return tuple(found)


def inputs(prepared: Prepared, solution: Solution) -> tuple[PlanInput, ...]:
    """Return the files that the plan rests on with their digests."""
    catalog = prepared.catalog
    used = used_candidates(prepared, solution)
    found = [PlanInput(role="workload", path=prepared.file.path, sha256=prepared.file.sha256)]
    found.append(
        PlanInput(role="snapshot", path=f"pricing/{prepared.snapshot.day}", sha256=prepared.snapshot.digest, as_of=prepared.snapshot.day)
    )
    files: dict[tuple[str, Path], None] = {}
    for c in used:
        files[("hardware", catalog.origin["gpu", c.shape.gpu.id])] = None
        files[("hardware", catalog.origin["node", c.pool.node.id])] = None
        files[("hardware", catalog.origin["weights", c.shape.formats.weights.id])] = None
        files[("engine", catalog.origin["engine", c.shape.formats.engine.id])] = None
        if c.shape.formats.llm.id in catalog.model_files:
            files[("model", catalog.model_files[c.shape.formats.llm.id])] = None
        for row in c.shape.efficiency.row_ids:
            files[("efficiency", catalog.origin["efficiency", row])] = None
    files[("hardware", catalog.origin["planning", "margin_frac"])] = None
    files[("profiles", profiles_path())] = None
    for (role, path), _ in sorted(files.items(), key=lambda item: (item[0][0], shown_path(item[0][1]))):
        found.append(PlanInput.model_validate({"role": role, "path": shown_path(path), "sha256": digest_of((path,))}))
    return tuple(found)


def data_used(prepared: Prepared, solution: Solution) -> dict[str, Any]:
    """Return every catalog row that the plan uses, by kind and id, as plain values."""
    used = used_candidates(prepared, solution)
    rows: dict[str, dict[str, Any]] = {
        "gpus": {},
        "nodes": {},
        "models": {},
        "weight_formats": {},
        "kv_formats": {},
        "engines": {},
        "prices": {},
    }
    for c in used:
        f = c.shape.formats
        for kind, row in (
            ("gpus", c.shape.gpu),
            ("nodes", c.pool.node),
            ("models", f.llm),
            ("weight_formats", f.weights),
            ("kv_formats", f.kv),
            ("engines", f.engine),
        ):
            rows[kind][row.id] = row.model_dump(mode="json", exclude_none=True)
    for price in used_rows(prepared, solution):
        rows["prices"][price.id] = price.model_dump(mode="json", exclude_none=True)
    return {kind: dict(sorted(found.items())) for kind, found in rows.items()}


def oldest(rows: Iterable[PriceRow]) -> date | None:
    """Return the date of the oldest price in use."""
    return min((row.retrieved_on for row in rows), default=None)
