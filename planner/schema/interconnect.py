"""Links between accelerators and the memories on their chips, as written in `hardware/interconnect.yaml`."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from planner.schema.base import Id, NonNegative, NonNegativeCount, Positive, Sourced, Text

PciePath = Literal["switch", "bridge", "socket"]
"""Ways over PCIe: one switch or several (PIX, PXB), host bridges of one socket (PHB, NODE), between sockets (SYS)."""


class NvlinkRow(Sourced):
    """What one NVLink of some cards carries: `NV4` in a topology means four of them."""

    id: Id
    name: Text
    gpus: tuple[Id, ...] = Field(min_length=1)
    link_gb_per_s: Positive
    """Of one link, both directions together, as vendors print it."""
    copied_gb_per_s: Positive | None = None
    """Best measured copy from one GPU to another over all links, one direction."""
    copied_of_gb_per_s: Positive | None = None
    """What those links carry in that direction."""


class PciePathRow(Sourced):
    """All-reduce constants of one way over PCIe of one generation: base + peer × (n − 1) + 2(n − 1)/n · bytes / bus rate."""

    id: Id
    name: Text
    path: PciePath
    base_latency_us: NonNegative
    peer_latency_us: NonNegative
    bus_gb_per_s: Positive
    """Achieved bus rate of large messages at the slot the row was measured in."""
    nominal_gb_per_s: Positive
    """One direction of that slot: the row's bus rate scales with it."""
    row_count: NonNegativeCount
    spread_frac: NonNegative


class ChipMemoryRow(Sourced):
    """A memory on the chip: the shared memory of all SMs, or the last cache before device memory."""

    id: Id
    name: Text
    gpus: tuple[Id, ...] = Field(min_length=1)
    level: Literal["sm", "l2"]
    capacity_mib: Positive | None = None
    memory_gb_per_s: Positive | None = None
    """Read by all SMs at once."""


class HostPathRow(Sourced):
    """What a copy between host and GPU reaches of a PCIe slot."""

    id: Id
    copied_gb_per_s: Positive
    nominal_gb_per_s: Positive
    """One direction of the slot it was measured in."""
