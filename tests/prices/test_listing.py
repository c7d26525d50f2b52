"""Listings choose and sort; they never change a row."""

from __future__ import annotations

from datetime import date
from decimal import Decimal

import pytest

from planner.catalog import Snapshot, load_catalog
from planner.prices import api_offers, operating_figures, purchase_offers, rent_offers, summary
from planner.prices.listing import usd_per_gpu_hour


@pytest.fixture(scope="module")
def snapshot() -> Snapshot:
    return load_catalog().snapshot(date(2026, 11, 30))


def test_the_gpu_hour_is_the_node_over_its_gpus(snapshot: Snapshot) -> None:
    """AWS p5.48xlarge: 55.04 / 8 = 6.88."""
    assert usd_per_gpu_hour(snapshot.rent["aws.h100_sxm_x8.us_east_1.on_demand"]) == Decimal("6.88")


def test_rent_offers_are_chosen_and_sorted(snapshot: Snapshot) -> None:
    rows = rent_offers(snapshot, gpu="h100_sxm_80gb")
    assert {r.gpu for r in rows} == {"h100_sxm_80gb"}
    assert [usd_per_gpu_hour(r) for r in rows] == sorted(usd_per_gpu_hour(r) for r in rows)
    assert {r.id for r in rent_offers(snapshot)} == set(snapshot.rent)
    assert {r.provider for r in rent_offers(snapshot, node="h100_sxm_x8", provider="azure")} == {"azure"}
    assert rent_offers(snapshot, gpu="h100_pcie_80gb", node="h100_sxm_x8") == []


def test_api_purchase_and_operating(snapshot: Snapshot) -> None:
    rows = api_offers(snapshot, llm="qwen3_32b")
    blend = [3 * r.usd_per_mtok_input + r.usd_per_mtok_output for r in rows]
    assert blend == sorted(blend)
    assert len(rows) >= 5
    assert [r.id for r in purchase_offers(snapshot, frozenset({"l40s_x4"}))] == ["lenovo.l40s_x4"]
    assert len(purchase_offers(snapshot, vendor="LENOVO")) == 5
    assert {r.applies_to for r in operating_figures(snapshot, "aws")} == {"aws"}


def test_the_summary_counts(snapshot: Snapshot) -> None:
    told = summary(snapshot)
    assert told.rent_count == len(snapshot.rent)
    assert told.digest == snapshot.digest
    assert {"aws", "openai", "nebius"} <= set(told.providers)
    assert told.newest is not None
    assert told.newest <= told.day
