"""Links of a real machine: rings, NVLinks counted, ways over PCIe, the slowest pair and a better choice."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.errors import InputError
from planner.physics.links import allreduce_s
from planner.physics.topology import Machine, PricedTopology, chosen_gpus, has_ring, priced
from planner.readers.topology import topology_of


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def matrix(size: int, code: object) -> str:
    """Return a matrix with `code(i, j)` between i < j."""
    names = [f"GPU{i}" for i in range(size)]
    rows = [
        names[i] + "\t" + "\t".join("X" if i == j else code(min(i, j), max(i, j)) for j in range(size))  # type: ignore[operator]
        for i in range(size)
    ]
    return "\n".join(["\t" + "\t".join(names), *rows])


BRIDGES = matrix(4, lambda i, j: "NV4" if (i, j) in ((0, 1), (2, 3)) else "SYS")
CUBE_LINKS = {
    (0, 1): 1, (0, 2): 1, (0, 3): 2, (0, 4): 2, (1, 2): 2, (1, 3): 1, (1, 5): 2, (2, 3): 1, (2, 6): 2, (3, 7): 2,
    (4, 5): 1, (4, 6): 1, (4, 7): 2, (5, 6): 2, (5, 7): 1, (6, 7): 1,
}
"""A hybrid cube mesh of eight V100: six links each, no switch."""
CUBE = matrix(8, lambda i, j: f"NV{CUBE_LINKS[i, j]}" if (i, j) in CUBE_LINKS else "SYS")


def price(catalog: Catalog, text: str, gpu: str, gpus: tuple[int, ...], tp: int, pp: int = 1) -> PricedTopology:
    i = catalog.interconnect
    machine = Machine(topology_of(text, "topo.txt"), catalog.gpu(gpu), i.nvlinks, i.pcie_paths, catalog.links)
    return priced(machine, gpus, tp, pp)


def test_behind_a_switch_every_group_has_the_cards_full_rate(catalog: Catalog) -> None:
    """NV18 between all: 18 x 50 GB/s = the 900 GB/s of the card, so the price is the catalog's own."""
    found = price(catalog, matrix(8, lambda i, j: "NV18"), "h100_sxm_80gb", tuple(range(8)), 8)
    own = next(row for row in catalog.links if row.id == "nvlink_hopper")
    assert found.link.bus_bytes_per_s == pytest.approx(own.bus_gb_per_s * 1e9)
    assert found.worst is not None and found.worst.nominal_bytes_per_s == 450e9
    assert found.better_gpus is None


def test_bridged_pairs(catalog: Catalog) -> None:
    """Two cards on a bridge run over it; two of different bridges cross the sockets, and the bridge is named."""
    on, across = (price(catalog, BRIDGES, "rtx_3090_24gb", pair, 2) for pair in ((0, 1), (1, 2)))
    assert on.link.is_fast and "4 of 4 links" in on.link.name
    assert on.worst is not None and on.worst.nominal_bytes_per_s == 56.25e9
    assert (across.link.name, across.better_gpus) == ("pcie_gen4_socket", (0, 1))
    assert across.worst is not None and (across.worst.code, across.worst.nominal_bytes_per_s) == ("SYS", 32e9)
    assert allreduce_s(2**20, 2, across.link) > 5 * allreduce_s(2**20, 2, on.link)


def test_four_cards_on_two_bridges_are_as_fast_as_the_way_between(catalog: Catalog) -> None:
    found = price(catalog, BRIDGES, "rtx_3090_24gb", (0, 1, 2, 3), 4)
    assert found.link.name == "pcie_gen4_socket"
    assert len(found.pairs) == 6
    assert found.pairs[-1].code == "NV4"


def test_groups_in_the_order_given_and_stages_between_them(catalog: Catalog) -> None:
    """Two replicas of two: 0-1 and 2-3 are bridged, 0-2 and 1-3 are not; two stages of two hand over between the sockets."""
    assert price(catalog, BRIDGES, "rtx_3090_24gb", (0, 1, 2, 3), 2).link.is_fast
    assert not price(catalog, BRIDGES, "rtx_3090_24gb", (0, 2, 1, 3), 2).link.is_fast
    staged = price(catalog, BRIDGES, "rtx_3090_24gb", (0, 1, 2, 3), 2, 2)
    assert staged.link.is_fast and staged.stage_link is not None and staged.stage_link.name == "pcie_gen4_socket"
    alone = price(catalog, BRIDGES, "rtx_3090_24gb", (0, 2), 1, 2)
    assert alone.worst is None and alone.stage_link is not None and not alone.stage_link.is_fast


def test_a_mesh_without_a_switch_closes_its_ring_over_nvlink(catalog: Catalog) -> None:
    """All eight send over six links each; 0 and 1 alone share one of the six; 0 and 5 share none."""
    full = price(catalog, CUBE, "v100_sxm_32gb", tuple(range(8)), 8)
    pair = price(catalog, CUBE, "v100_sxm_32gb", (0, 1), 2)
    none = price(catalog, CUBE, "v100_sxm_32gb", (0, 5), 2)
    assert full.link.is_fast and "6 of 6" in full.link.name
    assert full.worst is not None and full.worst.code == "SYS"
    assert pair.link.bus_bytes_per_s == pytest.approx(full.link.bus_bytes_per_s / 6)
    assert not none.link.is_fast
    assert none.link.bus_bytes_per_s < pair.link.bus_bytes_per_s


@pytest.mark.parametrize("gpu", ["l40s_48gb", "rtx_4090_24gb", "rtx_5090_32gb", "t4_16gb"])
def test_nearer_over_pcie_is_never_slower(catalog: Catalog, gpu: str) -> None:
    times = [
        allreduce_s(2**20, 2, price(catalog, matrix(2, lambda i, j, c=code: c), gpu, (0, 1), 2).link)
        for code in ("PIX", "PXB", "PHB", "NODE", "SYS")
    ]
    assert times == sorted(times)
    assert times[0] == times[1] < times[2] == times[3] < times[4]


def test_the_file_must_fit_the_card(catalog: Catalog) -> None:
    with pytest.raises(InputError, match="no NVLink of l40s_48gb is known") as wrong:
        price(catalog, BRIDGES, "l40s_48gb", (0, 1), 2)
    assert [f.line for f in wrong.value.faults] == [2, 4]
    with pytest.raises(InputError, match="a100_sxm_80gb has 12 NVLinks"):
        price(catalog, matrix(2, lambda i, j: "NV18"), "a100_sxm_80gb", (0, 1), 2)


@pytest.mark.parametrize(("wanted", "count", "word"), [
    ([0, 9], 2, "GPU9 is not in this machine"), ([0, 0], 2, "stands twice"), ([0], 2, "1 GPUs where 2"), (None, 9, "4 GPUs where 9"),
])
def test_gpus_that_are_not_there(wanted: list[int] | None, count: int, word: str) -> None:
    with pytest.raises(InputError, match=word):
        chosen_gpus(topology_of(BRIDGES, "topo.txt"), wanted, count)


def test_the_first_ones_without_a_choice() -> None:
    assert chosen_gpus(topology_of(BRIDGES, "t"), None, 2) == (0, 1)


@given(st.integers(4, 7), st.data())
def test_rings_against_every_order(size: int, data: st.DataObject) -> None:
    from itertools import permutations

    hops = {pair for pair in ((a, b) for a in range(size) for b in range(a + 1, size)) if data.draw(st.booleans())}

    def joined(a: int, b: int) -> bool:
        return (min(a, b), max(a, b)) in hops

    wanted = any(
        all(joined(a, b) for a, b in zip((0, *order), (*order, 0), strict=True)) for order in permutations(range(1, size))
    )
    assert has_ring(range(size), joined) == wanted


@settings(deadline=None)
@given(st.lists(st.sampled_from(("NV1", "NV6", "PIX", "PHB", "SYS")), min_size=6, max_size=6))
def test_a_better_link_never_makes_a_ring_worse(catalog: Catalog, codes: list[str]) -> None:
    pairs = [(0, 1), (0, 2), (0, 3), (1, 2), (1, 3), (2, 3)]
    given_codes = dict(zip(pairs, codes, strict=True))
    better = {**given_codes, (0, 1): "NV6"}
    before, after = (
        price(catalog, matrix(4, lambda i, j, m=m: m[i, j]), "v100_sxm_32gb", (0, 1, 2, 3), 4).link for m in (given_codes, better)
    )
    assert allreduce_s(2**26, 4, after) <= allreduce_s(2**26, 4, before) * 1.0001
