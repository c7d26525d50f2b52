"""What tensor parallelism and pipelines cost over the links that a machine really has, as `nvidia-smi topo -m` names them.

An all-reduce runs as a ring, so it is as fast as the slowest link of the best ring: NVLink where one can be closed over
it alone, else the nearest way over PCIe that all hops allow. Over NVLink a GPU sends through all links it has to the
others, at most as many as the card carries: behind a switch every pair shows the card's full count.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import combinations, islice

from planner.errors import Fault, InputError
from planner.physics.efficiency import link_between
from planner.physics.links import NO_LINK, Link
from planner.readers.topology import NVLINK, Topology
from planner.schema.efficiency import LinkRow
from planner.schema.hardware import Gpu
from planner.schema.interconnect import NvlinkRow, PciePath, PciePathRow
from planner.units import BYTES_PER_GB

PATH_OF: dict[str, PciePath] = {"PIX": "switch", "PXB": "switch", "PHB": "bridge", "NODE": "bridge", "SYS": "socket"}
LEVELS = ("socket", "bridge", "switch", "nvlink")
"""Slowest first."""
WORDS = {
    "PIX": "one PCIe switch", "PXB": "several PCIe switches", "PHB": "the PCIe host bridge",
    "NODE": "host bridges of one socket", "SYS": "between the sockets, through the host",
}
MOST_SEARCHED = 10
"""GPUs up to which a ring is searched for where the count of neighbours does not prove one."""
MOST_SUBSETS = 5000


@dataclass(frozen=True)
class Pair:
    """Two GPUs, the code that joins them, and what that link is printed to carry in one direction."""

    a: int
    b: int
    code: str
    nominal_bytes_per_s: float

    @property
    def words(self) -> str:
        """The pair as people read it."""
        kind = f"{self.code[2:]} NVLinks" if self.code.startswith("NV") else WORDS[self.code]
        return f"GPU{self.a}-GPU{self.b} ({self.code}, {kind}, {self.nominal_bytes_per_s / BYTES_PER_GB:,.4g} GB/s one way)"


@dataclass(frozen=True)
class PricedTopology:
    """The links of the chosen GPUs: what tensor parallelism and stages run over, and the slowest pair."""

    gpus: tuple[int, ...]
    link: Link
    stage_link: Link | None
    pairs: tuple[Pair, ...]
    """Every pair within a tensor-parallel group, slowest first."""
    better_gpus: tuple[int, ...] | None
    """GPUs of the machine whose tensor-parallel group is joined by a faster kind of link, where there are some."""

    @property
    def worst(self) -> Pair | None:
        """The slowest pair of a tensor-parallel group; None where nothing is split by tensor."""
        return self.pairs[0] if self.pairs else None


@dataclass(frozen=True)
class Machine:
    """A topology together with what is known about its cards and their links."""

    topology: Topology
    gpu: Gpu
    nvlinks: Sequence[NvlinkRow]
    paths: Sequence[PciePathRow]
    links: Sequence[LinkRow]

    def card_links_count(self) -> float:
        """Return the NVLinks of one card: its rate over that of one link; 0 where it has none that is known."""
        row = self._nvlink()
        return self.gpu.fast_link_gb_per_s / row.link_gb_per_s if row and self.gpu.fast_link_gb_per_s else 0.0

    def _nvlink(self) -> NvlinkRow | None:
        return next((row for row in self.nvlinks if self.gpu.id in row.gpus), None)

    def check(self) -> None:
        """Raise `InputError` where the file cannot be one of such cards: NVLinks that the card lacks, no PCIe rate known."""
        most, faults = self.card_links_count(), []
        for (a, b), code in sorted(self.topology.links.items()):
            count = nvlink_count(code)
            if count > most:
                what = f"{code}, but {self.gpu.id} has {most:.0f} NVLinks" if most else f"{code}, but no NVLink of {self.gpu.id} is known"
                cure = "is --gpu the card of this machine? Else add it to hardware/interconnect.yaml, nvlinks"
                faults.append(Fault(self.topology.file, self.topology.line(a), f"GPU{a}-GPU{b}", what, cure))
        if not faults and self.gpu.pcie_gb_per_s is None and any(code in PATH_OF for code in self.topology.links.values()):
            what = f"no PCIe rate of {self.gpu.id} is known"
            faults.append(Fault("", None, f"{self.gpu.id}.pcie_gb_per_s", what, "add it with its source to hardware/gpus"))
        if faults:
            raise InputError(faults[:20])

    def pair(self, a: int, b: int) -> Pair:
        """Return two GPUs with their link's printed rate in one direction."""
        code = self.topology.link(a, b)
        row, count = self._nvlink(), nvlink_count(code)
        gb_per_s = count * row.link_gb_per_s / 2 if row and count else self.gpu.pcie_gb_per_s or 0.0
        return Pair(min(a, b), max(a, b), code, gb_per_s * BYTES_PER_GB)

    def group_link(self, gpus: Sequence[int]) -> Link:
        """Return what an all-reduce over these GPUs runs at; nothing for one."""
        if len(gpus) < 2:
            return NO_LINK
        level = self.level(gpus)
        if level != "nvlink":
            return self._pcie(level)
        most = self.card_links_count()
        used = min(min(sum(nvlink_count(self.topology.link(a, b)) for b in gpus if b != a), most) for a in gpus)
        full = link_between(self.links, self.gpu, 2, domain_gpu_count=2)
        return replace(full, name=f"{full.name}, {used:.0f} of {most:.0f} links", bus_bytes_per_s=full.bus_bytes_per_s * used / most)

    def level(self, gpus: Sequence[int]) -> str:
        """Return the slowest kind of hop in the best ring over these GPUs."""
        return next(level for level in reversed(LEVELS) if has_ring(gpus, self._at_least(level)))

    def _at_least(self, level: str) -> Callable[[int, int], bool]:
        return lambda a, b: LEVELS.index(PATH_OF.get(self.topology.link(a, b), "nvlink")) >= LEVELS.index(level)

    def _pcie(self, level: str) -> Link:
        slot_gb_per_s = self.gpu.pcie_gb_per_s or 0.0
        rows = [row for row in self.paths if row.path == level]
        if not rows:
            raise InputError([Fault("", None, "hardware/interconnect.yaml", f"no row for the path '{level}'", "add one with its source")])
        row = min(rows, key=lambda r: (abs(r.nominal_gb_per_s - slot_gb_per_s), r.id))
        bus = row.bus_gb_per_s * BYTES_PER_GB * slot_gb_per_s / row.nominal_gb_per_s
        return Link(row.id, row.base_latency_us / 1e6, row.peer_latency_us / 1e6, bus, False)


def nvlink_count(code: str) -> int:
    """Return how many NVLinks a code counts; 0 for a way over PCIe.

    >>> nvlink_count("NV12"), nvlink_count("SYS")
    (12, 0)
    """
    match = NVLINK.fullmatch(code)
    return int(match[1]) if match else 0


def has_ring(gpus: Sequence[int], joined: Callable[[int, int], bool]) -> bool:
    """Return whether a ring passes every GPU once over allowed hops; two GPUs need one hop.

    Enough neighbours (half of all) prove one (Dirac 1952). Beyond ten GPUs nothing else is tried and the answer is no.
    """
    near = {a: [b for b in gpus if b != a and joined(a, b)] for a in gpus}
    if len(gpus) <= 3:
        return all(len(near[a]) == len(gpus) - 1 for a in gpus)
    if all(2 * len(near[a]) >= len(gpus) for a in gpus):
        return True
    if len(gpus) > MOST_SEARCHED or any(len(near[a]) < 2 for a in gpus):
        return False
    first = gpus[0]

    def closes(path: list[int]) -> bool:
        if len(path) == len(gpus):
            return first in near[path[-1]]
        return any(closes([*path, b]) for b in near[path[-1]] if b not in path)

    return closes([first])


def chosen_gpus(topology: Topology, wanted: Sequence[int] | None, count: int) -> tuple[int, ...]:
    """Return the GPUs that run: those asked for, else the first `count`.

    Raises `InputError`: a GPU that the machine lacks, one named twice, another number of them than `count`.
    """
    found = tuple(wanted) if wanted is not None else topology.gpus[:count]
    known = ", ".join(map(str, topology.gpus[:16]))
    faults = [
        Fault(topology.file, None, "--gpus", f"GPU{g} is not in this machine", f"it has {known}") for g in found if g not in topology.gpus
    ]
    twice = sorted({g for g in found if found.count(g) > 1})
    faults += [Fault("", None, "--gpus", f"GPU{g} stands twice", "name each once") for g in twice]
    if not faults and len(found) != count:
        place, cure = ("--gpus", f"name {count}, or set --count {len(found)}") if wanted is not None else ("--count", f"it has {known}")
        faults.append(Fault(topology.file, None, place, f"{len(found)} GPUs where {count} are asked for", cure))
    if faults:
        raise InputError(faults)
    return found


def priced(machine: Machine, gpus: Sequence[int], tp: int, pp: int) -> PricedTopology:
    """Return the links of replicas of tp × pp GPUs laid over `gpus` in their order, the slowest group's standing for all.

    Raises `InputError` where the file does not fit the card.
    """
    machine.check()
    groups = [tuple(gpus[i : i + tp]) for i in range(0, len(gpus), tp)]
    pairs = sorted(
        (machine.pair(a, b) for group in groups for a, b in combinations(group, 2)),
        key=lambda p: (LEVELS.index(PATH_OF.get(p.code, "nvlink")), p.nominal_bytes_per_s, p.a, p.b),
    )
    link = max((machine.group_link(group) for group in groups), key=_slowness)
    stage = None
    if pp > 1:
        hops = _stage_hops(groups, pp)
        stage = max((machine.group_link(hop) for hop in hops), key=_slowness)
    return PricedTopology(tuple(gpus), link, stage, tuple(pairs), _better(machine, groups, tp) if tp > 1 and pp == 1 else None)


def _slowness(link: Link) -> tuple[bool, float]:
    return not link.is_fast, 1.0 / link.bus_bytes_per_s


def _stage_hops(groups: Sequence[tuple[int, ...]], pp: int) -> Iterator[tuple[int, int]]:
    """Yield the GPUs that hand activations on: the same rank of neighbouring stages."""
    for i, group in enumerate(groups[:-1]):
        if (i + 1) % pp:
            yield from zip(group, groups[i + 1], strict=True)


def _better(machine: Machine, groups: Sequence[tuple[int, ...]], tp: int) -> tuple[int, ...] | None:
    """Return the first GPUs of the machine that make a single group faster than the chosen one; None where none do or many are chosen."""
    if len(groups) > 1:
        return None
    now = LEVELS.index(machine.level(groups[0]))
    for group in islice(combinations(machine.topology.gpus, tp), MOST_SUBSETS):
        if LEVELS.index(machine.level(group)) > now:
            return group
    return None
