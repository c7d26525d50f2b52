"""The matrix of `nvidia-smi topo -m`: as drivers print it, as terminals spoil it, and refused where it is broken."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.readers.topology import PATHS, read_topology, topology_of

EIGHT = "\t" + "\t".join(f"GPU{i}" for i in range(8)) + "\tNIC0\tNIC1\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\n" + "".join(
    f"GPU{i}\t" + "\t".join(" X " if i == j else "NV18" for j in range(8)) + "\tPIX\tSYS\t0-47,96-143\t0\t\tN/A\n" for i in range(8)
) + "NIC0\tPIX\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \tSYS\nNIC1\tSYS\tPIX\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\tSYS\t X \n" + """
Legend:

  X    = Self
  SYS  = Connection traversing PCIe as well as the SMP interconnect between NUMA nodes (e.g., QPI/UPI)
  NV#  = Connection traversing a bonded set of # NVLinks

NIC Legend:

  NIC0: mlx5_0
  NIC1: mlx5_1
"""
"""Laid out as driver 550 prints it."""
BRIDGED = """\
        GPU0    GPU1    GPU2    GPU3    mlx5_0  CPU Affinity    NUMA Affinity
GPU0     X      NV4     SYS     SYS     NODE    0-31    0
GPU1    NV4      X      SYS     SYS     PHB     0-31    0
GPU2    SYS     SYS      X      NV4     SYS     32-63   1
GPU3    SYS     SYS     NV4      X      SYS     32-63   1
mlx5_0  NODE    PHB     SYS     SYS      X
"""


def test_a_switched_board_with_network_cards() -> None:
    found = topology_of(EIGHT, "t")
    assert found.gpus == tuple(range(8))
    assert set(found.links.values()) == {"NV18"}
    assert len(found.links) == 28
    assert found.line(0) == 2


def test_pairs_on_bridges() -> None:
    found = topology_of(BRIDGED, "t")
    assert found.link(0, 1) == found.link(3, 2) == "NV4"
    assert found.link(0, 3) == found.link(2, 1) == "SYS"


@pytest.mark.parametrize("spoil", [
    lambda t: t.replace("GPU0", "\x1b[4mGPU0\x1b[0m").replace(" X ", "\x1b[1;31m X \x1b[0m"),
    lambda t: t.replace("\n", "\r\n"),
    lambda t: t.replace("\t", "   "),
    lambda t: "$ nvidia-smi topo -m\n" + t.replace("    ", "\t"),
    lambda t: "\ufeff".lstrip("\ufeff") + t.replace(" ", "\xa0"),
    lambda t: t.replace("SYS", "SOC"),
    lambda t: t.replace("NV4", "nv4"),
])
def test_what_terminals_and_older_drivers_do_to_it(spoil: object) -> None:
    assert topology_of(spoil(BRIDGED), "t").links == topology_of(BRIDGED, "t").links  # type: ignore[operator]


def test_one_gpu_alone() -> None:
    found = topology_of("\tGPU0\tCPU Affinity\tNUMA Affinity\tGPU NUMA ID\nGPU0\t X \t0-15\t0\t\tN/A\n", "t")
    assert (found.gpus, found.links) == ((0,), {})


@pytest.mark.parametrize(("text", "line", "word"), [
    ("", None, "no matrix"),
    ("== NVSMI LOG ==\nTimestamp : now\n", None, "no matrix"),
    ("GPU[0] : (Topology) Numa Node: 0\n", None, "no matrix"),
    (BRIDGED.replace("NV4      X ", "NV9      X "), 3, "in line 2"),
    (BRIDGED.replace("GPU2    SYS     SYS      X ", "GPU2    SYS     QPI      X "), 4, "'QPI' is no link"),
    (BRIDGED.replace("GPU2    SYS     SYS      X ", "GPU2    SYS     NV0      X "), 4, "'NV0' is no link"),
    (BRIDGED.replace("GPU2    SYS     SYS      X      NV4     SYS     32-63   1", "GPU2    SYS     SYS"), 4, "cut or wrapped"),
    (BRIDGED.replace("GPU2    SYS     SYS      X ", "GPU2    SYS     SYS      SYS "), 4, "meets itself"),
    (BRIDGED.replace("GPU3    SYS     SYS     NV4      X      SYS     32-63   1\n", ""), None, "no row"),
    (BRIDGED + BRIDGED, 7, "second header"),
    (BRIDGED + "GPU1    NV4      X      SYS     SYS     PHB     0-31    0\n", 7, "in line 3 too"),
    (BRIDGED + "GPU7    NV4      X      SYS     SYS     PHB     0-31    0\n", 7, "no column"),
    (BRIDGED.replace("GPU1    GPU2", "GPU2    GPU2", 1), 1, "stands twice"),
    (BRIDGED.split("\n", 1)[1], 1, "before the header"),
    ("GPU0 " + " ".join(f"GPU{i}" for i in range(1, 400)) + "\n", 1, "at most 256"),
])
def test_broken_ones_are_refused_with_their_line(text: str, line: int | None, word: str) -> None:
    with pytest.raises(InputError) as wrong:
        topology_of(text, "topo.txt")
    assert any(word in f.what + f.cure and f.line == line for f in wrong.value.faults), [str(f) for f in wrong.value.faults]
    assert all(f.file == "topo.txt" for f in wrong.value.faults)


def test_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "topo.txt"
    path.write_text(EIGHT, encoding="utf-8")
    assert read_topology(path).links == topology_of(EIGHT, "t").links
    with pytest.raises(InputError, match="no such file"):
        read_topology(tmp_path / "none.txt")
    path.write_bytes(b"\tGPU0\xff\n")
    with pytest.raises(InputError, match="not UTF-8"):
        read_topology(path)


@given(st.integers(2, 8).flatmap(lambda n: st.tuples(
    st.just(n), st.lists(st.sampled_from((*PATHS, "NV1", "NV12")), min_size=n * n, max_size=n * n),
    st.lists(st.sampled_from(("\t", "  ", "\x1b[0m\t", "\t\t ")), min_size=4, max_size=4),
)))
def test_any_matrix_reads_back(drawn: tuple[int, list[str], list[str]]) -> None:
    n, codes, gaps = drawn
    wanted = {(i, j): codes[i * n + j] for i in range(n) for j in range(i + 1, n)}
    cells = {**wanted, **{(j, i): code for (i, j), code in wanted.items()}, **{(i, i): " X " for i in range(n)}}
    lines = [gaps[0] + gaps[1].join(f"GPU{i}" for i in range(n)) + gaps[2] + "CPU Affinity"]
    lines += [f"GPU{i}" + gaps[3] + gaps[1].join(cells[i, j] for j in range(n)) + gaps[2] + "0-7" for i in range(n)]
    assert topology_of("\n".join(lines), "t").links == wanted


@given(st.text(alphabet="GPU0123 XNVSYPIHB\t\n\x1b[m", max_size=300))
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        found = topology_of(text, "t")
    except InputError as wrong:
        assert wrong.faults
    else:
        assert len(found.links) == len(found.gpus) * (len(found.gpus) - 1) // 2
