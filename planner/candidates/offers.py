"""API offers that the user judges equal, filtered by privacy and proof, priced by the request."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date

from planner.candidates.asks import Planned, context_of, targets_of, tokens_of
from planner.candidates.supply import Ledger, in_regions, judged, provider_name, served, trend, why_stale
from planner.catalog import Catalog, Snapshot
from planner.finance import api_usd_per_request
from planner.physics.serving import Targets
from planner.schema.prices import ApiRow
from planner.schema.problem import ApiData
from planner.schema.workload import Batch, WorkloadFile

MS_PER_S = 1000.0


@dataclass(frozen=True)
class Offer:
    """An API offer as the integer program sees it, and its row."""

    data: ApiData
    row: ApiRow
    name: str


def usd_per_request(row: ApiRow, workload: Planned) -> float:
    """Return the expected bill of one request: batch prices for batch work where the offer has them, tiers as expectations."""
    tokens = tokens_of(workload)
    is_batch = isinstance(workload, Batch) and row.usd_per_mtok_batch_input is not None and row.usd_per_mtok_batch_output is not None
    fresh = row.usd_per_mtok_batch_input if is_batch and row.usd_per_mtok_batch_input is not None else row.usd_per_mtok_input
    out = row.usd_per_mtok_batch_output if is_batch and row.usd_per_mtok_batch_output is not None else row.usd_per_mtok_output

    def number(value: object) -> float | None:
        return None if value is None else float(str(value))

    return api_usd_per_request(
        prompt_mean_tok=tokens.prompt.mean, prompt_p99_tok=tokens.prompt.p99, output_mean_tok=tokens.output.mean,
        max_context_tok=context_of(workload), usd_per_mtok_input=float(fresh), usd_per_mtok_output=float(out),
        cached_frac=0.0 if is_batch else workload.api_cached_frac,
        usd_per_mtok_cached_input=number(row.usd_per_mtok_cached_input), tier_threshold_tok=row.tier_threshold_tok,
        usd_per_mtok_tier_input=number(row.usd_per_mtok_tier_input), usd_per_mtok_tier_output=number(row.usd_per_mtok_tier_output),
    )


def offer_name(row: ApiRow, catalog: Catalog) -> str:
    """Return what a reader calls an offer: the open-weight model's own name where it is one, else the provider's."""
    model = catalog.llm(row.llm).name if row.llm is not None and row.llm in catalog.model_files else row.model
    return f"{model} by {provider_name(row.provider)}"


def why_not(row: ApiRow, workload: Planned, catalog: Catalog) -> tuple[str, str] | None:
    """Return (kind, reason) why a workload may not call an offer, or None where it may."""
    privacy = workload.privacy
    if "api" not in privacy.allow:
        return "privacy", f"privacy allows only {' and '.join(privacy.allow)}"
    if privacy.regions is not None and not any(in_regions(catalog, place, privacy.regions) for place in row.regions):
        stated = f"processes in {' and '.join(row.regions)}" if row.regions else "states no processing region"
        return "region", f"{stated}; the data must stay in {' or '.join(privacy.regions)}"
    missing = [name for name in privacy.require if name not in row.attributes]
    if missing:
        unknown = " and ".join(m.replace("_", " ") for m in missing)
        return "attribute", f"no sourced statement of {unknown}: what is not stated counts as not met"
    if row.max_context_tok is not None and row.max_context_tok < context_of(workload):
        return "limit", f"takes at most {row.max_context_tok:,} tokens, {context_of(workload):,} are asked for"
    targets = targets_of(workload)
    if targets != Targets():
        late = late_by(row, targets)
        if late is not None:
            return "latency", late
        if not is_proven(row, targets) and workload.api_unproven != "accept":
            return "limit", "no sourced p99 latency: api_unproven: accept would allow it"
    elif not has_limits(row) and workload.api_unproven != "accept":
        return "limit", "no sourced rate limit: api_unproven: accept would allow it"
    return None


def late_by(row: ApiRow, targets: Targets) -> str | None:
    """Return how a published p99 misses a promise, or None."""
    for name, published_ms, wanted_s in (("TTFT", row.ttft_p99_ms, targets.ttft_p99_s), ("TPOT", row.tpot_p99_ms, targets.tpot_p99_s)):
        if published_ms is not None and wanted_s is not None and published_ms > wanted_s * MS_PER_S:
            return f"publishes a p99 {name} of {published_ms:,.0f} ms, the promise is {wanted_s * MS_PER_S:,.0f} ms"
    return None


def has_limits(row: ApiRow) -> bool:
    """Say whether any rate limit of the offer is sourced."""
    return any(v is not None for v in (row.max_req_per_min, row.max_input_tok_per_min, row.max_output_tok_per_min))


def is_proven(row: ApiRow, targets: Targets) -> bool:
    """Say whether latency (where promised) and a rate limit of the offer are sourced."""
    has_ttft = targets.ttft_p99_s is None or row.ttft_p99_ms is not None
    has_tpot = targets.tpot_p99_s is None or row.tpot_p99_ms is not None
    return has_ttft and has_tpot and targets.e2e_p99_s is None and has_limits(row)


def offers(
    file: WorkloadFile, catalog: Catalog, snapshot: Snapshot, as_of: date, allow_stale: bool, ledger: Ledger
) -> tuple[Offer, ...]:
    """Return every offer that some workload names and may call."""
    planned = served(file)
    named = sorted({a for w in planned.values() if "api" in w.privacy.allow for a in w.api_equivalents})
    rows = [snapshot.api[name] for name in named]
    fresh = {r.id for r in judged(rows, "api", as_of, file.plan.max_price_age_days.api, allow_stale, ledger)}
    for name, workload in planned.items():
        for barred in (snapshot.api[a] for a in workload.api_equivalents if a not in named):
            ledger.exclude(name, offer_name(barred, catalog), "privacy", f"privacy allows only {' and '.join(workload.privacy.allow)}")
    found = []
    for row in rows:
        who: dict[str, Planned] = {}
        label = offer_name(row, catalog)
        for name, workload in planned.items():
            if row.id not in workload.api_equivalents:
                continue
            reason = why_not(row, workload, catalog)
            if reason is not None:
                ledger.exclude(name, label, *reason)
            elif row.id not in fresh:
                why = why_stale(row, as_of, file.plan.max_price_age_days.api)
                ledger.exclude(name, label, "stale", why)
            else:
                who[name] = workload
        if not who:
            continue
        lengths: Mapping[str, tuple[float, float]] = {n: (tokens_of(w).prompt.mean, tokens_of(w).output.mean) for n, w in who.items()}
        data = ApiData(
            id=row.id, account=f"{row.provider}.{'.'.join(row.regions) or 'any'}",
            usd_per_request_by_workload={n: usd_per_request(row, w) for n, w in who.items()},
            usd_factor_by_month=trend(1.0, file.plan.price_trend_frac_per_year.api, file.plan.horizon_months),
            input_tok_per_request_by_workload={n: p for n, (p, _) in lengths.items()},
            output_tok_per_request_by_workload={n: o for n, (_, o) in lengths.items()},
            max_req_per_min=row.max_req_per_min, max_input_tok_per_min=row.max_input_tok_per_min,
            max_output_tok_per_min=row.max_output_tok_per_min, price_ids=(row.id,),
        )
        found.append(Offer(data, row, label))
    return tuple(found)
