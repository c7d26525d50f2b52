"""What a snapshot holds, chosen and sorted for a reader: offers by price per GPU-hour, figures by category."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date
from decimal import Decimal

from planner.catalog import Snapshot
from planner.schema.prices import ApiRow, OperatingRow, OwnRow, PriceRow, RentRow


@dataclass(frozen=True)
class SnapshotSummary:
    """One snapshot in a line: its day, its rows by file, who is in it, the span of its rows' own dates, and its digest."""

    day: date
    rent_count: int
    api_count: int
    own_count: int
    operating_count: int
    providers: tuple[str, ...]
    oldest: date | None
    newest: date | None
    digest: str


def summary(snapshot: Snapshot) -> SnapshotSummary:
    """Return the summary of a snapshot."""
    tables: tuple[Iterable[PriceRow], ...] = (
        snapshot.rent.values(),
        snapshot.api.values(),
        snapshot.own.values(),
        snapshot.operating.values(),
    )
    dates = sorted(row.retrieved_on for table in tables for row in table)
    providers = {row.provider for row in snapshot.rent.values()} | {row.provider for row in snapshot.api.values()}
    return SnapshotSummary(
        day=snapshot.day,
        rent_count=len(snapshot.rent),
        api_count=len(snapshot.api),
        own_count=len(snapshot.own),
        operating_count=len(snapshot.operating),
        providers=tuple(sorted(providers)),
        oldest=dates[0] if dates else None,
        newest=dates[-1] if dates else None,
        digest=snapshot.digest,
    )


def usd_per_gpu_hour(row: RentRow) -> Decimal:
    """Return the node's price by the hour over its accelerators: the figure that offers of different sizes share."""
    return row.usd_per_node_hour / row.gpu_count


def rent_offers(snapshot: Snapshot, gpu: str | None = None, node: str | None = None, provider: str | None = None) -> list[RentRow]:
    """Return the rent rows of an accelerator, node or provider (all, where none is named), cheapest GPU-hour first."""
    rows = (row for row in snapshot.rent.values() if _is(row.gpu, gpu) and _is(row.node, node) and _is(row.provider, provider))
    return sorted(rows, key=lambda row: (usd_per_gpu_hour(row), row.id))


def api_offers(snapshot: Snapshot, llm: str | None = None, provider: str | None = None) -> list[ApiRow]:
    """Return the API rows of an open-weight model or a provider, cheapest first by a prompt of three tokens for each answered."""
    rows = (row for row in snapshot.api.values() if _is(row.llm, llm) and _is(row.provider, provider))
    return sorted(rows, key=lambda row: (3 * row.usd_per_mtok_input + row.usd_per_mtok_output, row.id))


def purchase_offers(snapshot: Snapshot, nodes: frozenset[str] | None = None, vendor: str | None = None) -> list[OwnRow]:
    """Return the purchase rows of some nodes or of a vendor (told without regard to case), cheapest first."""
    wanted = vendor.casefold() if vendor is not None else None
    rows = (
        row
        for row in snapshot.own.values()
        if (nodes is None or row.node in nodes) and (wanted is None or (row.vendor or "").casefold() == wanted)
    )
    return sorted(rows, key=lambda row: (row.usd_per_node, row.id))


def operating_figures(snapshot: Snapshot, provider: str | None = None) -> list[OperatingRow]:
    """Return the operating rows (those that apply to a provider, if one is named), by category and name."""
    rows = (row for row in snapshot.operating.values() if _is(row.applies_to, provider))
    return sorted(rows, key=lambda row: (row.category, row.name, row.age_months or 0, row.id))


def _is(value: str | None, wanted: str | None) -> bool:
    return wanted is None or value == wanted
