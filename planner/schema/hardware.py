"""Accelerators and the nodes built from them, as written in `hardware/gpus/*.yaml` and `hardware/nodes/*.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.schema.base import Frac, Frozen, Id, Positive, PositiveCount, Sourced, Text

Dtype = Literal["fp32", "tf32", "bf16", "fp16", "fp8", "int8", "fp4", "fp16_acc16"]
MemoryKind = Literal["hbm", "gddr", "unified", "ddr"]
GpuKind = Literal["gpu", "unified", "apu", "asic", "tpu", "cpu"]
Rung = Literal["laptop", "workstation", "node", "cluster"]


class Gpu(Sourced):
    """One accelerator: its memory as the device shows it, its bandwidth, its dense peaks and its power.

    `memory_device_mib` is what the driver reports; where nobody published it, `memory_label_gb` (10⁹ bytes as printed
    on the box) is used and the field is absent. `dense_tflop_per_s` holds peaks without structured sparsity only.
    """

    id: Id
    name: Text
    vendor: Id
    family: Id
    """Architecture family (`hopper`, `ada`, `cdna3`, `apple_m3`): efficiency rows are fitted per family."""
    kind: GpuKind
    form_factor: Id | None = None
    """`sxm`, `pcie`, `nvl`, `oam`…: two form factors are two rows."""
    memory_kind: MemoryKind
    memory_label_gb: Positive
    memory_device_mib: Positive | None = None
    gpu_memory_share_frac: Frac | None = None
    """Unified memory only: the part that the GPU may use."""
    memory_bandwidth_gb_per_s: Positive
    dense_tflop_per_s: dict[Dtype, Positive] = Field(default_factory=dict)
    matmul_measured_tflop_per_s: dict[Dtype, Positive] = Field(default_factory=dict)
    """Best measured matrix product, where somebody measured one: the honest ceiling of prefill."""
    fast_link_gb_per_s: Positive | None = None
    """Bidirectional bandwidth of NVLink, Infinity Fabric, ICI… per GPU; absent where there is none."""
    fast_link_name: Text | None = None
    fast_link_max_gpu_count: PositiveCount | None = None
    pcie_gb_per_s: Positive | None = None
    """One direction, the full slot."""
    tdp_w: Positive | None = None
    idle_w: Positive | None = None
    release_year: Annotated[int, Field(ge=2010, le=2030)] | None = None
    notes: Text | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Gpu:
        if self.idle_w is not None and self.tdp_w is not None and self.idle_w >= self.tdp_w:
            raise ValueError("idle_w must be below tdp_w")
        if (self.kind in ("unified", "apu")) != (self.memory_kind == "unified"):
            raise ValueError("kind 'unified' or 'apu' and memory_kind 'unified' go together")
        return self


class Node(Sourced):
    """A machine that is bought or rented whole: some GPUs of one type in one chassis."""

    id: Id
    name: Text
    gpu: Id
    gpu_count: Annotated[int, Field(ge=1, le=1024)]
    fast_link_domain_gpu_count: Annotated[int, Field(ge=1, le=1024)] = 1
    """GPUs joined by the fast link (8 on an HGX board, 2 on a bridge, 1 where only PCIe joins them)."""
    rung: Rung
    nameplate_w: Positive
    """IT power at full load, the whole machine: site power limits count this."""
    idle_w: Positive
    rack_units_count: PositiveCount | None = None
    life_months: Annotated[int, Field(ge=1, le=240)]
    lead_months: Annotated[float, Field(ge=0, le=36)]
    warranty_frac_per_year: Frac
    """Support and warranty a year, as a share of the purchase price."""
    network_gb_per_s: Positive | None = None
    """Node to node, one direction, all ports."""
    notes: Text | None = None

    @model_validator(mode="after")
    def _coherent(self) -> Node:
        if self.idle_w >= self.nameplate_w:
            raise ValueError("idle_w must be below nameplate_w")
        if self.gpu_count % self.fast_link_domain_gpu_count:
            raise ValueError("fast_link_domain_gpu_count must divide gpu_count")
        return self


class Region(Frozen):
    """A place code and the codes that contain it: `eu_west` lies in `eu`."""

    id: Id
    name: Text
    within: tuple[Id, ...] = ()
