"""Workload file + catalog + snapshot → the decision as numbers, with everything the report needs to tell of it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from planner.candidates.asks import Planned, Variant, ask_of, tokens_of, variants
from planner.candidates.check import check_file
from planner.candidates.offers import Offer, offers
from planner.candidates.supply import Ledger, Pool, owned_pools, rented_pools, served, sites_data
from planner.catalog import Catalog, Snapshot
from planner.demand import Demand, demand
from planner.errors import AnswerIsNo
from planner.feasibility import Assessment, Shape, assess, best_shape, runs_on, shape_sizes, shapes
from planner.physics.serving import Infeasible
from planner.readers.profiles import shipped_profiles
from planner.schema.hardware import Node
from planner.schema.problem import CandidateData, ProblemData, WorkloadData
from planner.schema.workload import Batch, WorkloadFile


@dataclass(frozen=True)
class Candidate:
    """A candidate as the integer program sees it, with its shape and what it promises each workload."""

    data: CandidateData
    pool: Pool
    variant: Variant
    shape: Shape
    assessments: Mapping[str, Assessment]


@dataclass(frozen=True)
class Prepared:
    """Everything that was decided before the solver is asked."""

    file: WorkloadFile
    catalog: Catalog
    snapshot: Snapshot
    as_of: date
    problem: ProblemData
    demand: Demand
    workloads: Mapping[str, Planned]
    pools: Mapping[str, Pool]
    candidates: Mapping[str, Candidate]
    offers: Mapping[str, Offer]
    variants: Mapping[str, Variant]
    ledger: Ledger
    allow_stale: bool
    timeslice_count: int


def prepare(
    file: WorkloadFile, catalog: Catalog, snapshot: Snapshot, as_of: date, *, allow_stale: bool = False, timeslice_count: int = 8
) -> Prepared:
    """Return the problem. Raises `InputError` for names it does not know, `AnswerIsNo` where staleness leaves no price of a kind."""
    check_file(file, catalog, snapshot)
    ledger = Ledger()
    load = demand(file, timeslice_count=timeslice_count, profiles=shipped_profiles())
    planned = served(file)
    found_pools = [
        *owned_pools(file, catalog, snapshot, as_of, allow_stale, ledger),
        *rented_pools(file, catalog, snapshot, as_of, allow_stale, ledger),
    ]
    found_offers = offers(file, catalog, snapshot, as_of, allow_stale, ledger)
    if not allow_stale:
        refuse_stale(file, ledger, as_of)
    found_variants = variants(file, catalog)
    found = candidates(catalog, found_pools, found_variants, planned, ledger)
    used_pools = {c.pool.data.id for c in found}
    problem = ProblemData(
        months_count=file.plan.horizon_months,
        discount_frac_per_year=file.plan.discount_frac_per_year,
        hours_by_slice=load.timeslices.hours_per_month,
        slice_of_hour=load.timeslices.slice_of_hour,
        workloads=tuple(workload_data(name, w, load, catalog) for name, w in planned.items()),
        variants=tuple(v.id for v in found_variants),
        pools=tuple(p.data for p in found_pools if p.data.id in used_pools or p.data.kind == "existing"),
        candidates=tuple(c.data for c in found),
        apis=tuple(o.data for o in found_offers),
        sites=sites_data(file),
        staff_usd_per_month=file.plan.staff.usd_per_month_self_host if file.plan.staff else 0.0,
        capex_budget_usd=file.plan.budgets.capex_usd,
        opex_budget_usd_per_month=file.plan.budgets.opex_usd_per_month,
        carbon_usd_per_t=file.plan.carbon.usd_per_t,
    )
    return Prepared(
        file, catalog, snapshot, as_of, problem, load, planned, {p.data.id: p for p in found_pools},
        {c.data.id: c for c in found}, {o.data.id: o for o in found_offers}, {v.id: v for v in found_variants},
        ledger, allow_stale, timeslice_count,
    )


def refuse_stale(file: WorkloadFile, ledger: Ledger, as_of: date) -> None:
    """Raise `AnswerIsNo("stale_prices")` where a kind of supply that is allowed has prices, and all of them are too old."""
    limits = file.plan.max_price_age_days
    allowed = {way for w in served(file).values() for way in w.privacy.allow}
    lines = []
    for way, days in (("own", limits.buy), ("rent", limits.rent), ("api", limits.api)):
        stale = ledger.stale.get(way, [])
        if way in allowed and stale and not ledger.fresh_count.get(way):
            newest = max(row.retrieved_on for row in stale)
            which = f"all {len(stale)} {way} prices are" if len(stale) > 1 else f"the one {way} price is"
            lines.append(
                f"{which} older than {days} days on {as_of}, the newest is of {newest}; "
                "take a newer snapshot (--prices), raise plan.max_price_age_days, or accept them with --allow-stale"
            )
    if lines:
        raise AnswerIsNo("stale_prices", lines)


def workload_data(name: str, workload: Planned, load: Demand, catalog: Catalog) -> WorkloadData:
    """Return one workload's rates in requests a second and its rules."""
    months, slices = len(load.workloads[name].month_factor), len(load.timeslices.hours_per_month)
    per_request = 1.0
    if isinstance(workload, Batch):
        tokens = tokens_of(workload)
        per_request = tokens.prompt.mean + tokens.output.mean
    mean = tuple(tuple(load.mean_rate(name, m, t) / per_request for t in range(slices)) for m in range(months))
    peak = tuple(tuple(load.peak_rate(name, m, t) / per_request for t in range(slices)) for m in range(months))
    interruptible = workload.availability.interruptible
    return WorkloadData(
        id=name, kind=workload.kind, mean_req_per_s=mean, peak_req_per_s=mean if isinstance(workload, Batch) else peak,
        survive=workload.availability.survive, min_replicas_count=workload.min_replicas, is_mix_allowed=workload.mix,
        is_interruptible=interruptible,
        firm_floor_frac=catalog.planning["spot_firm_floor_frac"].value if interruptible else 0.0,
        deadline_hours=workload.deadline_hours if isinstance(workload, Batch) else None,
    )


def candidates(
    catalog: Catalog, pools: list[Pool], found_variants: tuple[Variant, ...], planned: Mapping[str, Planned], ledger: Ledger
) -> list[Candidate]:
    """Return every (variant, pool, size) that serves at least one workload; smaller sizes that do as well per GPU replace larger ones."""
    cache: dict[tuple[str, int, int, str], tuple[Shape, dict[str, Assessment]] | str] = {}
    found: list[Candidate] = []
    told: set[tuple[str, str, str]] = set()
    for pool in pools:
        for variant in found_variants:
            who = tuple(name for name in variant.workloads if name in pool.workloads)
            if not who:
                continue
            kept: list[Candidate] = []
            reasons: list[str] = []
            for size in shape_sizes(pool.node):
                key = (pool.node.gpu, size, min(pool.node.fast_link_domain_gpu_count, size), variant.id)
                if key not in cache:
                    cache[key] = _shape(catalog, variant, pool.node, size, planned)
                result = cache[key]
                if isinstance(result, str):
                    reasons.append(result)
                    continue
                shape, assessments = result
                rates = {name: assessments[name].req_per_s for name in who if assessments[name].req_per_s > 0}
                if not rates:
                    reasons.extend(a.result.reason for n, a in assessments.items() if n in who and isinstance(a.result, Infeasible))
                    continue
                if any(_as_good(small, size, rates) for small in kept):
                    continue
                data = CandidateData(f"{pool.data.id}.{variant.id}.g{size}", variant.id, pool.data.id, size, 1, rates)
                kept.append(Candidate(data, pool, variant, shape, {n: assessments[n] for n in rates}))
            found.extend(kept)
            if not kept and reasons:
                for name in who:
                    option = f"{variant.formats.weights.id} on {pool.node.name}"
                    if (name, option, reasons[-1]) not in told:
                        told.add((name, option, reasons[-1]))
                        kind = "memory" if "GB per GPU" in reasons[-1] else "engine" if "engine" in reasons[-1] else "latency"
                        ledger.exclude(name, option, kind, reasons[-1])
    return found


def _as_good(small: Candidate, size: int, rates: Mapping[str, float]) -> bool:
    """Say whether replicas of a smaller size in the same GPUs serve every workload at no lower a rate."""
    copies = size // small.data.gpus_count
    return all(small.data.req_per_s_by_workload.get(n, 0.0) * copies >= rate for n, rate in rates.items())


def _shape(
    catalog: Catalog, variant: Variant, node: Node, size: int, planned: Mapping[str, Planned]
) -> tuple[Shape, dict[str, Assessment]] | str:
    refusal = runs_on(variant.formats, catalog.gpus[node.gpu])
    if refusal is not None:
        return refusal
    options, reason = shapes(catalog, variant.formats, node, size, variant.context_tok)
    if not options:
        return reason or "no layout"
    asks = tuple(ask_of(planned[name], variant) for name in variant.workloads)
    shape = options[0] if len(options) == 1 else best_shape(options, asks)[0]
    return shape, {name: assess(shape, ask) for name, ask in zip(variant.workloads, asks, strict=True)}

