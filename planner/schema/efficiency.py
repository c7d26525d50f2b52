"""What engines achieve on GPU families, and what links do: rows of `hardware/efficiency/*.yaml`, fitted or assumed."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.schema.base import Frozen, Id, NonNegative, NonNegativeCount, Positive, Sourced, Text

FormatClass = Literal["any", "bits16", "bits8", "bits4"]
"""Weights in 16 bit, in 8 (fp8, int8, Q8_0), in 4 to 6 (awq, gptq, Q4_K_M, nvfp4, mxfp4)."""
Phase = Literal["decode", "prefill"]


class Band(Frozen):
    """Slow end, typical and fast end of a constant. For an overhead `low` is still the slow end, so the larger number."""

    low: Positive
    typical: Positive
    high: Positive

    @model_validator(mode="after")
    def _ordered(self) -> Band:
        if not (self.low <= self.typical <= self.high or self.low >= self.typical >= self.high):
            raise ValueError("low, typical and high must be in order")
        return self


class EfficiencyRow(Sourced):
    """Constants of one engine, GPU family, phase and format class, with how many measurements stand behind them."""

    id: Id
    engine: Id
    gpu_family: Id
    phase: Phase
    format_class: FormatClass
    mbu_frac: Band | None = None
    """Achieved over peak bandwidth, decode."""
    mfu_frac: Band
    """Achieved over dense peak FLOP/s at the compute dtype."""
    step_overhead_ms: NonNegative = 0.0
    """Added to every step, whatever the model."""
    layer_overhead_us: NonNegative = 0.0
    """Added to every step for each layer: kernel launches."""
    request_overhead_ms: NonNegative = 0.0
    """Added to the first token of every request (prefill rows): parsing, tokenising, scheduling."""
    kind: Literal["measured", "assumed"]
    row_count: NonNegativeCount
    """Measured rows fitted."""
    group_count: NonNegativeCount = 0
    """Groups of source × accelerator × model among them."""
    spread_frac: Annotated[float, Field(ge=0.0, le=100.0)] | None = None
    """Median absolute error of the fit on its own rows."""
    origin: tuple[Text, ...] = ()
    """Publications that the rows come from."""

    @model_validator(mode="after")
    def _honest(self) -> EfficiencyRow:
        if self.kind == "measured" and (self.row_count < 1 or not self.origin or self.spread_frac is None):
            raise ValueError("a measured row needs row_count, spread_frac and origin")
        if self.phase == "decode" and self.mbu_frac is None:
            raise ValueError("a decode row needs mbu_frac")
        return self


class LinkRow(Sourced):
    """All-reduce constants of one kind of link: base + peer × (n − 1) + 2(n − 1)/n · bytes / bus rate."""

    id: Id
    name: Text
    gpu_families: tuple[Id, ...] = ()
    """Families whose fast link this is; empty for PCIe and networks."""
    base_latency_us: NonNegative
    peer_latency_us: NonNegative
    bus_gb_per_s: Positive
    """Achieved bus rate of large messages at the link the row was measured on."""
    nominal_gb_per_s: Positive
    """Printed rate of that link: the row's bus rate scales with it."""
    is_fast: bool
    kind: Literal["measured", "assumed"]
    row_count: NonNegativeCount
    spread_frac: Annotated[float, Field(ge=0.0, le=100.0)] | None = None


class EfficiencyFile(Frozen):
    """One file of `hardware/efficiency/`."""

    steps: tuple[EfficiencyRow, ...] = ()
    links: tuple[LinkRow, ...] = ()
