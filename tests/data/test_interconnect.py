"""Checks on `hardware/interconnect.yaml`: ids resolve, every NVLink card is covered once, counts of links are whole."""

from __future__ import annotations

from collections import Counter

import pytest

from planner.catalog import Catalog, load_catalog


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def test_ids_resolve(catalog: Catalog) -> None:
    i = catalog.interconnect
    assert {gpu for row in (*i.nvlinks, *i.chip_memories) for gpu in row.gpus} <= set(catalog.gpus)


def test_every_card_with_nvlink_has_a_whole_number_of_links(catalog: Catalog) -> None:
    covered = Counter(gpu for row in catalog.interconnect.nvlinks for gpu in row.gpus)
    wanted = {g.id for g in catalog.gpus.values() if "NVLink" in (g.fast_link_name or "") and g.fast_link_gb_per_s}
    assert covered == Counter(wanted)
    for row in catalog.interconnect.nvlinks:
        for gpu in row.gpus:
            count = catalog.gpus[gpu].fast_link_gb_per_s / row.link_gb_per_s  # type: ignore[operator]
            assert count == int(count)


def test_what_was_copied_is_less_than_what_the_links_carry(catalog: Catalog) -> None:
    for row in catalog.interconnect.nvlinks:
        if row.copied_gb_per_s is not None:
            assert row.copied_of_gb_per_s is not None
            assert 0.5 < row.copied_gb_per_s / row.copied_of_gb_per_s < 1


def test_a_chip_is_faster_and_smaller_than_its_memory(catalog: Catalog) -> None:
    for row in catalog.interconnect.chip_memories:
        for gpu in map(catalog.gpu, row.gpus):
            assert row.memory_gb_per_s is None or row.memory_gb_per_s > gpu.memory_bandwidth_gb_per_s
            assert row.capacity_mib is None or row.capacity_mib < gpu.memory_label_gb * 1000


def test_each_generation_has_every_path(catalog: Catalog) -> None:
    paths = {(row.nominal_gb_per_s, row.path) for row in catalog.interconnect.pcie_paths}
    assert paths == {(rate, path) for rate in (32, 64) for path in ("switch", "bridge", "socket")}
