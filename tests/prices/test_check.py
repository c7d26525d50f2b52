"""Planted faults: each thing that cannot be true of a snapshot is found, at its line, and nothing else is."""

from __future__ import annotations

from dataclasses import replace
from datetime import date, timedelta
from decimal import Decimal
from typing import Any

import pytest

from planner.catalog import Catalog, Snapshot, load_catalog
from planner.prices import aged_rows, check_snapshot
from planner.schema.prices import OperatingRow, OwnRow, PriceRow

DAY = date(2026, 11, 30)


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="module")
def clean(catalog: Catalog) -> Snapshot:
    return catalog.snapshot(DAY)


def planted(clean: Snapshot, kind: str, row_id: str, **change: Any) -> Snapshot:
    table: dict[str, PriceRow] = dict(getattr(clean, kind))
    table[row_id] = table[row_id].model_copy(update=change)
    return replace(clean, **{kind: table})


@pytest.mark.parametrize(
    ("kind", "row_id", "change", "column", "said"),
    [
        ("rent", "aws.h100_sxm_x8.us_east_1.on_demand", {"node": "h100_sxm_x9"}, "node", "did you mean 'h100_sxm_x"),
        ("rent", "aws.h100_sxm_x8.us_east_1.on_demand", {"region": "us_est_1"}, "region", "or 'us_east_1'"),
        ("rent", "aws.h100_sxm_x8.us_east_1.on_demand", {"gpu_count": 4}, "gpu_count", "has 8"),
        ("rent", "aws.h100_sxm_x8.us_east_1.on_demand", {"gpu": "h100_pcie_80gb"}, "gpu", "has 'h100_sxm_80gb'"),
        ("rent", "azure.h100_sxm_x8.eastus.spot", {"usd_per_node_hour": Decimal("98.32")}, "usd_per_node_hour", "not below"),
        ("rent", "lambda.h100_sxm_x1.on_demand", {"usd_per_node_hour": Decimal("42.90")}, "usd_per_node_hour", "median"),
        ("rent", "lambda.h100_sxm_x1.on_demand", {"usd_per_node_hour": Decimal("0.429")}, "usd_per_node_hour", "median"),
        ("rent", "lambda.h100_sxm_x1.on_demand", {"retrieved_on": DAY + timedelta(days=1)}, "retrieved_on", "after 2026-11-30"),
        ("api", "groq.gpt_oss_120b", {"llm": "gpt_oss_12b"}, "llm", "did you mean 'gpt_oss_120b'"),
        ("api", "openai.gpt_4.1", {"regions": ("uss",)}, "regions", "did you mean 'us'"),
        ("api", "openai.gpt_4.1", {"usd_per_mtok_cached_input": Decimal(3)}, "usd_per_mtok_cached_input", "dearer than a fresh one"),
        ("api", "openai.gpt_4.1", {"usd_per_mtok_batch_output": Decimal(9)}, "usd_per_mtok_batch_output", "above the base price"),
        ("api", "openai.gpt_5.4", {"usd_per_mtok_tier_input": Decimal("0.5")}, "usd_per_mtok_tier_input", "below the base price"),
        ("api", "together.llama_3.3_70b", {"usd_per_mtok_output": Decimal(104)}, "usd_per_mtok_output", "median"),
        ("own", "lenovo.h100_sxm_x8", {"usd_per_node": Decimal("25014.18")}, "usd_per_node", "slipped decimal point"),
        ("own", "lenovo.l40s_x4", {"node": "l40s_x3"}, "node", "did you mean 'l40s_x"),
    ],
)
def test_a_planted_fault_is_found_at_its_line(
    clean: Snapshot, catalog: Catalog, kind: str, row_id: str, change: dict[str, Any], column: str, said: str
) -> None:
    found = check_snapshot(planted(clean, kind, row_id, **change), catalog)
    assert found, "nothing found"
    texts = [str(fault) for fault in found]
    assert any(said in text for text in texts), texts
    for fault in found:
        assert fault.file == f"package:pricing/2026-11-30/{kind}.csv"
        assert fault.line is not None
        assert fault.place.endswith(f".{column}")
    path = next(p for p in clean.files if p.name == f"{kind}.csv")
    lines = path.read_text(encoding="utf-8").splitlines()
    assert all(lines[(fault.line or 0) - 1].startswith(fault.place.removesuffix(f".{column}") + ",") for fault in found)


def test_the_eightfold_error_is_found(clean: Snapshot, catalog: Catalog) -> None:
    """A node's price filed under one GPU: 8 x the H100 rent, which lies near the middle of the market."""
    row = clean.rent["crusoe.h100_sxm_x1.on_demand"]
    wrong = planted(clean, "rent", row.id, usd_per_node_hour=row.usd_per_node_hour * 8)
    (fault,) = check_snapshot(wrong, catalog)
    assert "per GPU or per node" in fault.cure


def test_operating_figures_that_cannot_be(clean: Snapshot, catalog: Catalog) -> None:
    table = dict(clean.operating)
    pue = next(r for r in table.values() if r.category == "pue")
    residual = next(r for r in table.values() if r.category == "residual_value")
    table[pue.id] = pue.model_copy(update={"value": Decimal("0.9")})
    table[residual.id] = residual.model_copy(update={"value": Decimal(40), "age_months": None})
    said = " ".join(map(str, check_snapshot(replace(clean, operating=table), catalog)))
    assert "a PUE of 0.9" in said
    assert "40 is no share" in said
    assert "residual value without an age" in said
    assert isinstance(pue, OperatingRow)


def test_a_folder_named_by_another_day(clean: Snapshot, catalog: Catalog) -> None:
    (fault,) = check_snapshot(replace(clean, day=date(2026, 12, 1)), catalog)
    assert "the folder is named 2026-12-01" in fault.what


def test_few_peers_are_not_judged(clean: Snapshot, catalog: Catalog) -> None:
    """With fewer than four other providers of a thing, none of its prices is out of proportion."""
    rent = {k: r for k, r in clean.rent.items() if r.provider in ("lambda", "nebius", "crusoe", "verda")}
    row = rent["lambda.h100_sxm_x1.on_demand"]
    rent[row.id] = row.model_copy(update={"usd_per_node_hour": Decimal(429)})
    assert check_snapshot(replace(clean, rent=rent), catalog) == []


def test_ages_are_counted_from_the_rows_own_dates(clean: Snapshot) -> None:
    on_the_day = aged_rows(clean, DAY)
    assert clean.rent["crusoe.h100_sxm_x1.reserved_1y"] in on_the_day["rent"]
    assert clean.rent["aws.h100_sxm_x8.us_east_1.on_demand"] not in on_the_day["rent"]
    row = clean.rent["aws.h100_sxm_x8.us_east_1.on_demand"]
    assert row not in aged_rows(clean, row.retrieved_on + timedelta(days=90))["rent"]
    assert row in aged_rows(clean, row.retrieved_on + timedelta(days=91))["rent"]
    later = aged_rows(clean, date(2030, 1, 1))
    assert len(later["rent"]) == len(clean.rent)
    assert all(isinstance(r, OwnRow) for r in later["own"])
