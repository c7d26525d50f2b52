"""The shipped price snapshots: every row loads, every id resolves, every figure is dated and sourced, nothing changes unseen."""

from __future__ import annotations

import re
from datetime import date
from decimal import Decimal

import pytest

from planner.catalog import Catalog, Snapshot, load_catalog
from planner.prices import check_snapshot

DIGESTS = {
    "2025-07-31": "f8d0e7e136f31a5c12ee9b71a55b741749ca33d4ce686c6fbc9284166a6ce368",
    "2026-01-31": "bd6f32421209893afa20e370bf2f163dc12031ad267eadf015ba85425af411a1",
    "2026-11-30": "c4b35b0542c1de0dde385e3b83b7471865417d885231c6765183cb9ebea7d0bf",
}
"""A merged snapshot stays as it is: a correction is a new folder, not a new digest here."""

LEAST_ROWS = {"2025-07-31": (100, 100, 3, 100), "2026-01-31": (140, 200, 10, 100), "2026-11-30": (600, 450, 25, 150)}
REGISTRY_HOSTS = re.compile(r"pypi\.org|pythonhosted|npmjs|crates\.io|proxy\.golang")


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module", params=sorted(DIGESTS))
def snapshot(request: pytest.FixtureRequest, catalog: Catalog) -> Snapshot:
    return catalog.snapshot(date.fromisoformat(request.param))


def every_row(snapshot: Snapshot) -> list:  # type: ignore[type-arg]
    return [*snapshot.rent.values(), *snapshot.api.values(), *snapshot.own.values(), *snapshot.operating.values()]


def test_the_snapshots_are_these(catalog: Catalog) -> None:
    assert [day.isoformat() for day in catalog.snapshot_days] == sorted(DIGESTS)


def test_nothing_has_changed(snapshot: Snapshot) -> None:
    assert snapshot.digest == DIGESTS[snapshot.day.isoformat()]


def test_enough_is_there(snapshot: Snapshot) -> None:
    counts = tuple(len(t) for t in (snapshot.rent, snapshot.api, snapshot.own, snapshot.operating))
    assert all(got >= least for got, least in zip(counts, LEAST_ROWS[snapshot.day.isoformat()], strict=True)), counts
    assert snapshot.info.gaps


def test_the_check_finds_nothing(snapshot: Snapshot, catalog: Catalog) -> None:
    assert [str(fault) for fault in check_snapshot(snapshot, catalog)] == []


def test_no_row_is_later_than_its_folder(snapshot: Snapshot) -> None:
    assert snapshot.info.closed_on == snapshot.day
    assert max(row.retrieved_on for row in every_row(snapshot)) <= snapshot.day


def test_every_row_is_sourced(snapshot: Snapshot) -> None:
    for row in every_row(snapshot):
        assert not REGISTRY_HOSTS.search(row.source), row.id
        if row.kind in ("derived", "assumed"):
            assert len(row.note) > 20, row.id
        else:
            assert row.as_printed, row.id


def test_form_factors_are_never_merged(snapshot: Snapshot, catalog: Catalog) -> None:
    """H100 SXM, PCIe and NVL differ up to twofold in price: the accelerator of a row is the one of its node."""
    for row in snapshot.rent.values():
        node = catalog.nodes[row.node]
        assert (node.gpu, node.gpu_count) == (row.gpu, row.gpu_count), row.id
        assert row.id.startswith(f"{row.provider}.{row.node}."), row.id
        assert row.term in row.id, row.id


def test_spot_and_reserved_lie_below_on_demand(snapshot: Snapshot) -> None:
    base = {(r.provider, r.node, r.region, r.instance): r.usd_per_node_hour for r in snapshot.rent.values() if r.term == "on_demand"}
    compared = 0
    for row in snapshot.rent.values():
        key = (row.provider, row.node, row.region, row.instance)
        if row.term != "on_demand" and key in base:
            assert row.usd_per_node_hour < base[key], row.id
            compared += 1
    assert compared > 10


def test_spot_says_that_its_availability_is_assumed(snapshot: Snapshot) -> None:
    for row in snapshot.rent.values():
        if row.term == "spot":
            assert row.availability_frac == float(snapshot.operating["spot_availability.assumed"].value)
            assert "assumed" in row.note, row.id


def test_derived_boards_are_count_times_price(snapshot: Snapshot) -> None:
    checked = 0
    for row in snapshot.rent.values():
        work = re.match(r"(\d+) x ([\d.]+) per GPU", row.note or "")
        if work:
            assert row.kind == "derived"
            assert int(work[1]) == row.gpu_count
            assert row.usd_per_node_hour == int(work[1]) * Decimal(work[2]), row.id
            checked += 1
    assert checked >= 5


def test_derived_commitments_show_their_working(catalog: Catalog) -> None:
    rows = [r for r in catalog.snapshot(date(2026, 11, 30)).rent.values() if r.term.startswith("reserved") and r.kind == "derived"]
    hyper = [r for r in rows if r.provider in ("aws", "azure", "gcp", "oci")]
    assert len(hyper) > 100
    for row in hyper:
        work = re.match(r"([\d.]+) x \(1 - ([\d.]+)\)", row.note or "")
        assert work, row.id
        assert abs(row.usd_per_node_hour - Decimal(work[1]) * (1 - Decimal(work[2]))) <= Decimal("0.0001"), row.id
        assert (row.upfront_frac, row.confidence) == (0.0, "low")
        assert "CPU families" in row.note


@pytest.mark.parametrize(
    ("row_id", "usd"),
    [
        ("aws.h100_sxm_x8.us_east_1.on_demand", "55.04"),
        ("azure.h100_sxm_x8.eastus.on_demand", "98.32"),
        ("coreweave.h100_sxm_x8.on_demand", "49.24"),
        ("hyperstack.h100_sxm_x8.on_demand", "25.6"),
        ("lambda.h100_sxm_x1.on_demand", "4.29"),
        ("nebius.h200_sxm_x1.on_demand", "5.4"),
        ("verda.h200_sxm_x1.on_demand", "4.732"),
    ],
)
def test_known_rents_of_october_2026(catalog: Catalog, row_id: str, usd: str) -> None:
    """Read on 2026-10-10 and 2026-10-01 from the providers' pages; the H100 node spans 25.60 to 98.32, 3.8 times."""
    assert catalog.snapshot(date(2026, 11, 30)).rent[row_id].usd_per_node_hour == Decimal(usd)


def test_rents_rose_in_2026(catalog: Catalog) -> None:
    """Nebius H100 2.95 → 4.50, H200 3.50 → 5.40; Lambda 1x H100 SXM 3.29 → 4.29; CoreWeave's list has not moved."""
    before, after = catalog.snapshot(date(2026, 1, 31)).rent, catalog.snapshot(date(2026, 11, 30)).rent
    moved = {k: (before[k].usd_per_node_hour, after[k].usd_per_node_hour) for k in before.keys() & after.keys()}
    assert moved["nebius.h100_sxm_x1.on_demand"] == (Decimal("2.95"), Decimal("4.5"))
    assert moved["lambda.h100_sxm_x1.on_demand"] == (Decimal("3.29"), Decimal("4.29"))
    assert moved["coreweave.h100_sxm_x8.on_demand"] == (Decimal("49.24"), Decimal("49.24"))


def test_offers_that_examples_name_are_there(catalog: Catalog) -> None:
    newest = catalog.snapshot()
    for name in ("openai.gpt_4.1_mini", "mistral.small_3.2", "alibaba.qwen3_32b", "together.llama_3.3_70b", "deepinfra.qwen3_32b"):
        assert name in newest.api
    assert newest.api["alibaba.qwen3_32b"].llm == "qwen3_32b"
    assert newest.api["openai.gpt_4.1_mini"].usd_per_mtok_output == Decimal("1.6")
    assert "no_training" in newest.api["openai.gpt_4.1_mini"].attributes
    assert "zero_retention" in newest.api["groq.gpt_oss_120b"].attributes


def test_no_attribute_without_its_source(snapshot: Snapshot) -> None:
    for row in snapshot.api.values():
        assert bool(row.attributes) <= bool(row.attributes_source), row.id
        assert not row.regions or row.attributes_source or row.note, row.id


@pytest.mark.parametrize("node", ["h100_sxm_x8", "h200_sxm_x8", "b200_sxm_x8", "b300_sxm_x8", "l40s_x4"])
def test_whole_servers_have_a_purchase_price(catalog: Catalog, node: str) -> None:
    assert catalog.snapshot().own[f"lenovo.{node}"].kind == "published"


def test_residual_values_fall_with_age(catalog: Catalog) -> None:
    curves: dict[str | None, list[tuple[int, Decimal]]] = {}
    for row in catalog.snapshot().operating.values():
        if row.category == "residual_value":
            assert row.age_months is not None
            curves.setdefault(row.applies_to, []).append((row.age_months, row.value))
    assert {None, "hopper", "ampere"} <= curves.keys()
    for curve in curves.values():
        values = [value for _, value in sorted(curve)]
        assert values == sorted(values, reverse=True)
