"""Price snapshots judged and listed: `check_snapshot` finds what cannot be true, `summary` and `rent_offers` show what is there."""

from planner.prices.check import aged_rows, check_snapshot
from planner.prices.listing import SnapshotSummary, api_offers, operating_figures, purchase_offers, rent_offers, summary

__all__ = [
    "SnapshotSummary",
    "aged_rows",
    "api_offers",
    "check_snapshot",
    "operating_figures",
    "purchase_offers",
    "rent_offers",
    "summary",
]
