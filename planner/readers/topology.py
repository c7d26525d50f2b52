"""Read the text of `nvidia-smi topo -m`: which link joins each pair of GPUs.

The matrix has a header (`GPU0 GPU1 … NIC0 … CPU Affinity …`) and a row for each device; a legend may follow. Terminals
add colour codes, tabs and odd widths, which carry no meaning. What stands around the matrix (a prompt, the legend, rows
of network cards) is passed over; inside it every cell is checked.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.bounded import decoded, read_bounded

MOST_BYTES = 1_000_000
MOST_GPUS = 256
MOST_FAULTS = 20
WANTED = "the text that `nvidia-smi topo -m` prints"
ANSI = re.compile(r"\x1b(?:\[[0-9;:?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)|[@-Z\\-_])")
GPU = re.compile(r"GPU(\d{1,4})")
NVLINK = re.compile(r"NV(\d{1,3})")
PATHS = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""Ways over PCIe, nearest first: one switch, several, the host bridge, bridges of one socket, the link between sockets."""
OLDER = {"SOC": "SYS"}
"""What older drivers wrote."""


@dataclass(frozen=True)
class Topology:
    """The links of one machine: GPU numbers in order, the code of every pair, and the line each GPU's row stood in."""

    file: str
    gpus: tuple[int, ...]
    links: Mapping[tuple[int, int], str]
    """(lower, higher GPU number) → `NV4`, `PIX`, `PXB`, `PHB`, `NODE` or `SYS`."""
    lines: Mapping[int, int]

    def link(self, a: int, b: int) -> str:
        """Return the code that joins two different GPUs."""
        return self.links[min(a, b), max(a, b)]

    def line(self, gpu: int) -> int:
        """Return the line of a GPU's row."""
        return self.lines[gpu]


def read_topology(path: Path) -> Topology:
    """Return the topology in a file. Raises `InputError`: not readable, too large, or no such matrix (`topology_of`)."""
    file = str(path)
    return topology_of(decoded(read_bounded(path, MOST_BYTES, WANTED, may_be_pipe=True), file, WANTED), file)


def topology_of(text: str, file: str) -> Topology:
    """Return the topology in a text.

    Raises `InputError` with file and line: no header, a row missing, doubled, short or cut, an unknown code, a pair whose two
    cells differ, more than 256 GPUs.
    """
    header: list[int] = []
    others = 0
    faults: list[Fault] = []
    rows: dict[int, list[str]] = {}
    lines: dict[int, int] = {}
    for number, raw in enumerate(re.split(r"\r\n|\r|\n", text), 1):
        words = ANSI.sub("", raw).replace("\xa0", " ").split()
        if not words or GPU.fullmatch(words[0]) is None:
            continue
        columns = _leading_gpus(words)
        is_header = len(columns) > 1 or (len(words) > 1 and words[1] in ("CPU", "GPU", "NUMA") and not header) or len(words) == 1
        if is_header and not header:
            header, others = columns, _other_columns(words[len(columns):])
            faults += _header_faults(file, number, header)
            continue
        if is_header:
            faults.append(Fault(file, number, words[0], "a second header or a wrapped line", "print one matrix with each row on one line"))
            continue
        if not header:
            what = "a row before the header that names the columns"
            raise InputError([Fault(file, number, words[0], what, "keep the first line, GPU0 GPU1 …")])
        gpu = columns[0]
        if gpu in rows:
            faults.append(Fault(file, number, words[0], f"this row stands in line {lines[gpu]} too", "keep one matrix"))
            continue
        if gpu not in header:
            faults.append(Fault(file, number, words[0], "has a row and no column", "paste the whole matrix"))
            continue
        rows[gpu], lines[gpu] = words[1:], number
        if len(words) - 1 < len(header) + others:
            what = f"has {len(words) - 1} cells, the header names {len(header) + others} devices: the line is cut or wrapped"
            faults.append(Fault(file, number, words[0], what, "write the output to a file instead of copying it from a terminal"))
        if len(faults) >= MOST_FAULTS:
            break
    if not header:
        raise InputError([Fault(file, None, "", "holds no matrix of GPUs (no line GPU0 GPU1 …)", f"give {WANTED}")])
    if not faults:
        faults += [Fault(file, None, f"GPU{g}", "has a column and no row", "paste the whole matrix") for g in header if g not in rows]
    links = {} if faults else _links(file, header, rows, lines, faults)
    if faults:
        raise InputError(faults[:MOST_FAULTS])
    return Topology(file, tuple(header), links, lines)


def _leading_gpus(words: Sequence[str]) -> list[int]:
    """Return the numbers of the GPUs that a line begins with."""
    found = []
    for word in words:
        match = GPU.fullmatch(word)
        if match is None:
            break
        found.append(int(match[1]))
    return found


def _other_columns(words: Sequence[str]) -> int:
    """Return how many network cards follow the GPUs in a header, up to the columns of affinity."""
    ends = ("CPU", "NUMA", "GPU", "Affinity")
    return next((i for i, word in enumerate(words) if word in ends), len(words))


def _header_faults(file: str, line: int, header: list[int]) -> list[Fault]:
    if len(header) > MOST_GPUS:
        raise InputError([Fault(file, line, "", f"{len(header)} GPUs in one machine", f"at most {MOST_GPUS} are read")])
    twice = sorted({g for g in header if header.count(g) > 1})
    return [Fault(file, line, f"GPU{g}", "this column stands twice", "keep one matrix") for g in twice]


def _links(
    file: str, header: list[int], rows: Mapping[int, list[str]], lines: Mapping[int, int], faults: list[Fault]
) -> dict[tuple[int, int], str]:
    links: dict[tuple[int, int], str] = {}
    for gpu in header:
        for other, cell in zip(header, rows[gpu], strict=False):
            code = OLDER.get(cell.upper(), cell.upper())
            place = f"GPU{gpu}-GPU{other}"
            if gpu == other:
                if code != "X":
                    what = f"'{cell}' where a GPU meets itself"
                    faults.append(Fault(file, lines[gpu], place, what, "X stands there: is a cell missing?"))
                continue
            if code not in PATHS and (NVLINK.fullmatch(code) is None or code == "NV0"):
                cure = did_you_mean(code, (*PATHS, "NV1", "NV2", "NV4", "NV12", "NV18"))
                faults.append(Fault(file, lines[gpu], place, f"'{cell}' is no link that nvidia-smi names", cure))
                continue
            pair = (min(gpu, other), max(gpu, other))
            if links.setdefault(pair, code) != code:
                what = f"'{code}' here and '{links[pair]}' in line {lines[other]}"
                faults.append(Fault(file, lines[gpu], place, what, "a link has one kind: paste the output unchanged"))
    return links
