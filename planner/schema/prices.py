"""Rows of a dated price snapshot: `pricing/<date>/{rent,api,own,operating}.csv` and `snapshot.yaml`.

Each CSV carries provenance as columns: `source` (a locator), `retrieved_on` (the row's own date: the day the price was
true), `kind`, `confidence`, `as_printed`, `note`. An empty cell is an unknown, never a zero. Prices stay `Decimal`.
"""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.schema.base import _LOCATOR, Confidence, Frac, Frozen, Id, PositiveCount, SourceKind, Text

Usd = Annotated[Decimal, Field(gt=0, lt=Decimal("1e9"), allow_inf_nan=False)]
"""A purchase price. The bounds are far outside every price seen: they catch a slipped point, not a dear offer."""
UsdRate = Annotated[Decimal, Field(gt=0, le=Decimal("100000"), allow_inf_nan=False)]
"""A price by the node-hour or by the million tokens."""
RentTerm = Literal["on_demand", "spot", "reserved_1y", "reserved_3y"]


class PriceRow(Frozen):
    """What every price row carries beside its price."""

    id: Id
    source: Text
    retrieved_on: date
    kind: SourceKind
    confidence: Confidence | None = None
    as_printed: str | None = None
    note: str | None = None

    @model_validator(mode="after")
    def _explained(self) -> PriceRow:
        if self.kind in ("derived", "assumed") and not self.note:
            raise ValueError(f"a {self.kind} price needs a note with its working")
        if not _LOCATOR.match(self.source):
            raise ValueError("source must be a URL or start with github:, pypi:, doi:, arxiv: or doc:")
        return self


class RentRow(PriceRow):
    """A node rented by the hour under one deal."""

    provider: Id
    instance: Text
    region: Id | None = None
    """An id of `hardware/regions.yaml`; absent where the source does not state one."""
    node: Id
    """An id of `hardware/nodes`: the machine the price is for."""
    gpu: Id
    gpu_count: PositiveCount
    term: RentTerm
    usd_per_node_hour: UsdRate
    upfront_frac: Frac | None = None
    """Part of a commitment paid at its start; absent on other terms."""
    availability_frac: Frac | None = None
    """Spot only: the part of the hours asked for that is delivered."""

    @model_validator(mode="after")
    def _of_its_term(self) -> RentRow:
        if self.availability_frac is not None and self.term != "spot":
            raise ValueError("availability_frac belongs to spot rows only; leave it empty")
        if self.availability_frac == 0:
            raise ValueError("availability_frac 0 is an offer that is never delivered; remove the row")
        if self.upfront_frac is not None and not self.term.startswith("reserved"):
            raise ValueError("upfront_frac belongs to reserved rows only; leave it empty")
        return self


class ApiRow(PriceRow):
    """A model called by the token. A tier's price replaces the base price for the whole prompt beyond its threshold."""

    provider: Id
    model: Text
    """The maker's or host's name for it, as the API takes it."""
    llm: Id | None = None
    """The open-weight model served, an id of `workloads/models`; absent for closed models."""
    regions: tuple[Id, ...] = ()
    """Where the offer states that data is processed; empty where it does not say."""
    usd_per_mtok_input: UsdRate
    usd_per_mtok_cached_input: UsdRate | None = None
    usd_per_mtok_cache_write: UsdRate | None = None
    usd_per_mtok_output: UsdRate
    usd_per_mtok_batch_input: UsdRate | None = None
    usd_per_mtok_batch_output: UsdRate | None = None
    tier_threshold_tok: PositiveCount | None = None
    usd_per_mtok_tier_input: UsdRate | None = None
    usd_per_mtok_tier_output: UsdRate | None = None
    max_context_tok: PositiveCount | None = None
    max_req_per_min: PositiveCount | None = None
    max_input_tok_per_min: PositiveCount | None = None
    max_output_tok_per_min: PositiveCount | None = None
    ttft_p99_ms: Annotated[float, Field(gt=0, le=1e7)] | None = None
    tpot_p99_ms: Annotated[float, Field(gt=0, le=1e6)] | None = None
    attributes: tuple[Id, ...] = ()
    """Sourced promises on data: `zero_retention`, `no_training`, `hipaa_baa`, `soc2`, `iso27001`…"""
    attributes_source: str | None = None

    @model_validator(mode="after")
    def _tiers(self) -> ApiRow:
        if self.usd_per_mtok_tier_input is not None and self.tier_threshold_tok is None:
            raise ValueError("a tier price needs tier_threshold_tok")
        if self.tier_threshold_tok is not None and self.usd_per_mtok_tier_input is None:
            raise ValueError("tier_threshold_tok needs usd_per_mtok_tier_input")
        if self.usd_per_mtok_tier_output is not None and self.tier_threshold_tok is None:
            raise ValueError("a tier price needs tier_threshold_tok")
        if self.attributes and not self.attributes_source:
            raise ValueError("attributes need attributes_source")
        return self


class OwnRow(PriceRow):
    """The purchase price of a node, with the range it was seen in."""

    node: Id
    usd_per_node: Usd
    usd_per_node_low: Usd | None = None
    usd_per_node_high: Usd | None = None
    vendor: Text | None = None

    @model_validator(mode="after")
    def _range(self) -> OwnRow:
        low, high = self.usd_per_node_low, self.usd_per_node_high
        if (low is not None and low > self.usd_per_node) or (high is not None and high < self.usd_per_node):
            raise ValueError("usd_per_node must lie between its low and high")
        return self


class OperatingRow(PriceRow):
    """Any other figure of running machines: electricity, PUE, colocation, residual value by age, discounts, carbon."""

    category: Id
    region: Id | None = None
    name: Text
    value: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)]
    value_low: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)] | None = None
    value_high: Annotated[Decimal, Field(ge=0, allow_inf_nan=False)] | None = None
    unit: Text
    age_months: Annotated[int, Field(ge=0, le=240)] | None = None
    """`residual_value` rows: the age the share of the purchase price holds at."""
    applies_to: Id | None = None
    """A provider, GPU family or term that the figure is limited to."""

    @model_validator(mode="after")
    def _range(self) -> OperatingRow:
        low, high = self.value_low, self.value_high
        if (low is not None and low > self.value) or (high is not None and high < self.value):
            raise ValueError("value must lie between its low and high")
        return self


class SnapshotInfo(Frozen):
    """`snapshot.yaml`: the day the folder was closed and what it holds."""

    closed_on: date
    currency: Literal["USD"]
    description: Text
    gaps: tuple[Text, ...] = ()
