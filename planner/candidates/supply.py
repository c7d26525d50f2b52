"""Prices, sites and what is already there → the pools a plan may use, each with the workloads that may be served from it.

An offer that a workload may not use is kept as an `Exclusion` with its reason; offers that are alike but dearer are counted.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date

from planner.catalog import Catalog, Snapshot
from planner.finance import residual_frac
from planner.schema.hardware import Node
from planner.schema.plan import Exclusion
from planner.schema.prices import OwnRow, PriceRow, RentRow
from planner.schema.problem import PoolData, SiteData
from planner.schema.workload import Batch, Serving, Site, WorkloadFile
from planner.units import MONTHS_PER_YEAR

TERM_MONTHS = {"reserved_1y": 12, "reserved_3y": 36}
W_PER_KW = 1000.0


@dataclass(frozen=True)
class Pool:
    """A pool as the integer program sees it, and what the report says of it."""

    data: PoolData
    node: Node
    workloads: tuple[str, ...]
    """Workloads whose privacy rules admit it."""
    name: str
    region: str | None
    rows: tuple[PriceRow, ...] = ()


@dataclass
class Ledger:
    """What is noted on the way: exclusions, stale rows that were used or left out, and warnings for page one."""

    exclusions: list[Exclusion] = field(default_factory=list)
    stale: dict[str, list[PriceRow]] = field(default_factory=dict)
    """Kind of supply (`own`, `rent`, `api`) → rows that are older than the file's limit."""
    fresh_count: dict[str, int] = field(default_factory=dict)
    """Kind of supply → rows young enough."""

    def exclude(self, workload: str, option: str, kind: str, reason: str) -> None:
        """Keep one exclusion."""
        self.exclusions.append(Exclusion.model_validate({"workload": workload, "option": option, "kind": kind, "reason": reason}))


def served(file: WorkloadFile) -> dict[str, Serving | Batch]:
    """Return the workloads that are planned."""
    return {name: w for name, w in file.workloads.items() if isinstance(w, (Serving, Batch))}


def is_fresh(row: PriceRow, as_of: date, max_age_days: int) -> bool:
    """Say whether a row's own date is at most `max_age_days` before the day of the decision, and not after it."""
    return 0 <= (as_of - row.retrieved_on).days <= max_age_days


def judged(rows: Iterable[PriceRow], kind: str, as_of: date, max_age_days: int, allow_stale: bool, ledger: Ledger) -> list[PriceRow]:
    """Return the rows young enough (all of them where stale ones are allowed), noting both kinds in the ledger."""
    kept = []
    for row in rows:
        if is_fresh(row, as_of, max_age_days):
            ledger.fresh_count[kind] = ledger.fresh_count.get(kind, 0) + 1
            kept.append(row)
        else:
            ledger.stale.setdefault(kind, []).append(row)
            if allow_stale:
                kept.append(row)
    return kept


def exclude_way(ledger: Ledger, file: WorkloadFile, option: str) -> None:
    """Keep a way to serve that no workload allows as one exclusion of each."""
    for name, workload in served(file).items():
        ledger.exclude(name, option, "privacy", f"privacy allows only {' and '.join(workload.privacy.allow)}")


def why_stale(row: PriceRow, as_of: date, max_age_days: int) -> str:
    """Return why a row may not be used on the day of the decision."""
    if row.retrieved_on > as_of:
        return f"the price is of {row.retrieved_on}, after the day of the decision, {as_of}"
    return f"the price is of {row.retrieved_on}, older than {max_age_days} days"


def exclude_stale(
    ledger: Ledger, file: WorkloadFile, way: str, row: PriceRow, option: str, as_of: date, max_age_days: int
) -> None:
    """Keep a row that is too old as an exclusion of every workload that may be served that way."""
    for name, workload in served(file).items():
        if way in workload.privacy.allow:
            ledger.exclude(name, option, "stale", why_stale(row, as_of, max_age_days))


def trend(first_usd: float, trend_frac_per_year: float, months_count: int) -> tuple[float, ...]:
    """Return a price in each month under a yearly trend.

    >>> trend(100.0, -0.5, 13)[12]
    50.0
    """
    factor = 1.0 + trend_frac_per_year
    return tuple(first_usd * factor ** (m / MONTHS_PER_YEAR) for m in range(months_count))


def in_regions(catalog: Catalog, place: str | None, regions: tuple[str, ...] | None) -> bool:
    """Say whether a place lies in one of the regions; a place that is not stated lies in none."""
    if regions is None:
        return True
    return place is not None and any(place in catalog.places_within(code) for code in regions)


def residual_curve(file: WorkloadFile, catalog: Catalog, snapshot: Snapshot, node: Node, end: str = "typical") -> list[tuple[float, float]]:
    """Return (age in months, part of the price) points for a node: the user's, its GPU family's, or the general ones.

    `end` is low, typical or high. The first point is the first-day value of `hardware/planning.yaml`, unless the user gave points.
    """
    override = file.nodes.get(node.id)
    if override is not None and override.residual is not None:
        return [
            (float(p.age_months), {"low": p.low_frac, "high": p.high_frac}.get(end) or p.typical_frac)
            for p in sorted(override.residual, key=lambda p: p.age_months)
        ]
    family = catalog.gpus[node.gpu].family
    rows = [r for r in snapshot.operating.values() if r.category == "residual_value" and r.age_months is not None]
    own = [r for r in rows if r.applies_to == family] or [r for r in rows if r.applies_to is None]
    first = catalog.planning["residual_first_day_frac"]
    points = [(0.0, {"low": first.low, "high": first.high}.get(end, first.value))] if own else []
    for row in sorted(own, key=lambda r: r.age_months or 0):
        value = {"low": row.value_low, "high": row.value_high}.get(end) or row.value
        points.append((float(row.age_months or 0), min(float(value), points[-1][1])))
    return points


def life_months(file: WorkloadFile, node: Node) -> int:
    """Return a node's life in service, the user's override first."""
    override = file.nodes.get(node.id)
    return override.life_months if override is not None and override.life_months is not None else node.life_months


def lead_months(file: WorkloadFile, node: Node) -> int:
    """Return whole months from order to service."""
    override = file.nodes.get(node.id)
    lead = override.lead_months if override is not None and override.lead_months is not None else node.lead_months
    return math.ceil(lead)


def admits(ledger: Ledger, catalog: Catalog, file: WorkloadFile, way: str, place: str | None, option: str) -> tuple[str, ...]:
    """Return the workloads whose privacy rules allow a way to serve at a place; the others are kept as exclusions."""
    allowed = []
    for name, workload in served(file).items():
        if way not in workload.privacy.allow:
            ledger.exclude(name, option, "privacy", f"privacy allows only {' and '.join(workload.privacy.allow)}")
        elif not in_regions(catalog, place, workload.privacy.regions):
            where = "states no region" if place is None else f"lies in {place}"
            ledger.exclude(name, option, "region", f"{where}; the data must stay in {' or '.join(workload.privacy.regions or ())}")
        else:
            allowed.append(name)
    return tuple(allowed)


def own_price(rows: list[OwnRow]) -> OwnRow:
    """Return the cheapest typical price of one node."""
    return min(rows, key=lambda r: (r.usd_per_node, r.id))


def _site_fields(site: Site, node: Node) -> dict[str, float]:
    return {
        "hosting_usd_per_node_month": site.hosting_usd_per_kw_month * node.nameplate_w / W_PER_KW,
        "ops_usd_per_node_month": site.ops.usd_per_node_month,
        "idle_w": node.idle_w,
        "full_w": node.nameplate_w,
        "nameplate_w": node.nameplate_w,
        "rack_units_count": node.rack_units_count or 0,
        "pue": site.pue,
        "usd_per_kwh": site.usd_per_kwh,
        "carbon_g_per_kwh": site.carbon_g_per_kwh or 0.0,
    }


def owned_pools(file: WorkloadFile, catalog: Catalog, snapshot: Snapshot, as_of: date, allow_stale: bool, ledger: Ledger) -> list[Pool]:
    """Return a pool for every node with a purchase price at every site, and one for every entry of `owned:`."""
    plan, months = file.plan, file.plan.horizon_months
    by_node: dict[str, list[OwnRow]] = {}
    if not any("own" in w.privacy.allow for w in served(file).values()):
        exclude_way(ledger, file, "Every owned node")
        return []
    if file.sites:
        wanted = [row for row in snapshot.own.values() if plan.supply.buy is None or row.node in plan.supply.buy]
        fresh = judged(wanted, "own", as_of, plan.max_price_age_days.buy, allow_stale, ledger)
        for row in fresh:
            assert isinstance(row, OwnRow)
            by_node.setdefault(row.node, []).append(row)
        for row in wanted:
            if row not in fresh and row.node not in by_node:
                exclude_stale(ledger, file, "own", row, f"{catalog.nodes[row.node].name}, bought", as_of, plan.max_price_age_days.buy)
    pools: list[Pool] = []
    for site_id, site in sorted(file.sites.items()):
        for node_id, rows in sorted(by_node.items()):
            node, row = catalog.nodes[node_id], own_price(rows)
            workloads = admits(ledger, catalog, file, "own", site.region, f"{node.name} at {_words(site_id)}")
            if not workloads:
                continue
            life, lead = life_months(file, node), lead_months(file, node)
            override = file.nodes.get(node_id)
            warranty = override.warranty_frac_per_year if override is not None else None
            points = residual_curve(file, catalog, snapshot, node)
            capex = trend(float(row.usd_per_node), plan.price_trend_frac_per_year.buy, months)
            residual = tuple(
                price * residual_frac(max(months - m - lead, 0), life, points) if points and m + lead <= months else 0.0
                for m, price in enumerate(capex)
            )
            data = PoolData(
                id=f"own.{node_id}.{site_id}",
                kind="own",
                node=node_id,
                gpu=node.gpu,
                gpus_per_node_count=node.gpu_count,
                site=site_id,
                price_ids=(row.id,),
                capex_usd_by_month=capex,
                residual_usd_by_month=residual,
                lead_months=lead,
                life_months=life,
                support_usd_per_node_month=float(row.usd_per_node)
                * (warranty if warranty is not None else node.warranty_frac_per_year)
                / MONTHS_PER_YEAR,
                **_site_fields(site, node),  # type: ignore[arg-type]
            )
            pools.append(Pool(data, node, workloads, f"{node.name} at {_words(site_id)}", site.region, (row,)))
    for index, entry in enumerate(file.owned):
        node, site = catalog.nodes[entry.node], file.sites[entry.site]
        workloads = admits(ledger, catalog, file, "own", site.region, f"{entry.count} x {node.name} already at {_words(entry.site)}")
        age = (plan.start.year - entry.in_service.year) * MONTHS_PER_YEAR + plan.start.month - entry.in_service.month
        left = life_months(file, node) - age
        if left <= 0:
            for name in workloads:
                label = f"{node.name} already at {_words(entry.site)}"
                ledger.exclude(name, label, "limit", f"past its life of {life_months(file, node)} months")
            continue
        if workloads:
            price = next((float(own_price(rows).usd_per_node) for n, rows in by_node.items() if n == entry.node), 0.0)
            data = PoolData(
                id=f"existing.{entry.node}.{entry.site}.{index}",
                kind="existing",
                node=entry.node,
                gpu=node.gpu,
                gpus_per_node_count=node.gpu_count,
                site=entry.site,
                life_months=life_months(file, node),
                existing_count=entry.count,
                retires_month=left if left < months else None,
                support_usd_per_node_month=price * node.warranty_frac_per_year / MONTHS_PER_YEAR,
                **_site_fields(site, node),  # type: ignore[arg-type]
            )
            pools.append(Pool(data, node, workloads, f"{node.name} already at {_words(entry.site)}", site.region))
    return pools


def rented_pools(file: WorkloadFile, catalog: Catalog, snapshot: Snapshot, as_of: date, allow_stale: bool, ledger: Ledger) -> list[Pool]:
    """Return a pool for the cheapest offer of each (node, term, set of workloads that may use it)."""
    plan, months = file.plan, file.plan.horizon_months
    if not any("rent" in w.privacy.allow for w in served(file).values()):
        exclude_way(ledger, file, "Every rented node")
        return []
    interruptible = {n for n, w in served(file).items() if w.availability.interruptible}
    choice = plan.supply

    def is_chosen(row: RentRow) -> bool:
        is_deal = (row.term != "spot" or bool(interruptible)) and (choice.deals is None or row.term in choice.deals)
        return is_deal and (choice.providers is None or row.provider in choice.providers)

    chosen = {row.id for row in snapshot.rent.values() if is_chosen(row)}
    behind_spot = {(r.provider, r.node, r.region) for r in snapshot.rent.values() if r.id in chosen and r.term == "spot"}
    asked = [
        row for row in snapshot.rent.values()
        if row.id in chosen or (row.term == "on_demand" and (row.provider, row.node, row.region) in behind_spot)
    ]  # fmt: skip
    rows = judged(asked, "rent", as_of, plan.max_price_age_days.rent, allow_stale, ledger)
    kept = {row.id for row in rows}
    for old in asked:
        if old.id in chosen and old.id not in kept:
            label = f"{catalog.nodes[old.node].name} from {provider_name(old.provider)}{_at(old.region)}"
            exclude_stale(ledger, file, "rent", old, label, as_of, plan.max_price_age_days.rent)
    groups: dict[tuple[str, str, tuple[str, ...]], list[RentRow]] = {}
    for row in rows:
        assert isinstance(row, RentRow)
        if row.id not in chosen:
            continue
        node = catalog.nodes[row.node]
        workloads = admits(ledger, catalog, file, "rent", row.region, f"{node.name} from {provider_name(row.provider)}{_at(row.region)}")
        if row.term == "spot":
            workloads = tuple(n for n in workloads if n in interruptible)
        if workloads:
            groups.setdefault((row.node, row.term, workloads), []).append(row)
    on_demand = {(r.provider, r.node, r.region): r for r in rows if isinstance(r, RentRow) and r.term == "on_demand"}
    cold = catalog.planning["cold_start_hours"].value
    pools = []
    for (node_id, term, workloads), offers in sorted(groups.items()):
        if term == "spot":
            offers = [o for o in offers if (o.provider, o.node, o.region) in on_demand and o.availability_frac]
            if not offers:
                continue
        row = min(offers, key=lambda o: (o.usd_per_node_hour, o.id))
        node = catalog.nodes[node_id]
        others = len(offers) - 1
        if others:
            label = f"{others} other {term.replace('_', ' ')} offer{'s' if others > 1 else ''} of {node.name}"
            for name in workloads:
                better = f"{provider_name(row.provider)}{_at(row.region)}"
                ledger.exclude(name, label, "dominated", f"the same machine at no lower price than {better}")
        prices = trend(float(row.usd_per_node_hour), plan.price_trend_frac_per_year.rent, months)
        fields: dict[str, object] = {"cold_start_hours": cold if term in ("on_demand", "spot") else 0.0}
        used: list[PriceRow] = [row]
        if term in TERM_MONTHS:
            fields |= {"term_months": TERM_MONTHS[term], "upfront_frac": row.upfront_frac or 0.0}
        if term == "spot":
            fallback = on_demand[row.provider, row.node, row.region]
            used.append(fallback)
            fields |= {
                "availability_frac": row.availability_frac,
                "fallback_usd_per_node_hour_by_month": trend(
                    float(fallback.usd_per_node_hour), plan.price_trend_frac_per_year.rent, months
                ),
            }
        data = PoolData(
            id=row.id,
            kind="reserved" if term in TERM_MONTHS else term,  # type: ignore[arg-type]
            node=node_id,
            gpu=row.gpu,
            gpus_per_node_count=row.gpu_count,
            provider=row.provider,
            price_ids=tuple(r.id for r in used),
            usd_per_node_hour_by_month=prices,
            **fields,  # type: ignore[arg-type]
        )
        deal = {"on_demand": "on demand", "spot": "spot", "reserved_1y": "reserved 1 year", "reserved_3y": "reserved 3 years"}[term]
        label = f"{node.name}, {deal}, {provider_name(row.provider)}{_at(row.region)}"
        pools.append(Pool(data, node, workloads, label, row.region, tuple(used)))
    return pools


def sites_data(file: WorkloadFile) -> tuple[SiteData, ...]:
    """Return the sites' fixed costs and limits."""
    return tuple(
        SiteData(
            name,
            site.ops.usd_per_month_fixed,
            None if site.power_limit_kw is None else site.power_limit_kw * W_PER_KW,
            site.rack_units_count,
        )
        for name, site in sorted(file.sites.items())
    )


PROVIDER_NAMES: Mapping[str, str] = {
    "aws": "AWS",
    "gcp": "Google Cloud",
    "oci": "Oracle",
    "openai": "OpenAI",
    "coreweave": "CoreWeave",
    "digitalocean": "DigitalOcean",
    "deepinfra": "DeepInfra",
    "bedrock": "AWS Bedrock",
    "vertex": "Google Vertex AI",
    "azure": "Azure",
    "runpod_secure": "RunPod Secure Cloud",
    "runpod_community": "RunPod Community Cloud",
    "hf_groq": "Hugging Face (Groq)",
    "ovh": "OVH",
    "ibm": "IBM",
    "xai": "xAI",
    "tensorwave": "TensorWave",
    "fluidstack": "FluidStack",
}


def provider_name(provider: str) -> str:
    """Return a provider's id as people write it.

    >>> provider_name("aws"), provider_name("runpod_secure")
    ('AWS', 'RunPod Secure Cloud')
    """
    return PROVIDER_NAMES.get(provider) or _words(provider).title()


def _words(name: str) -> str:
    return name.replace("_", " ")


def _at(region: str | None) -> str:
    return f" in {region}" if region else ""
