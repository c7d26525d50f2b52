"""Planning assumptions, as written in `hardware/planning.yaml`: chosen figures with their reason and range."""

from __future__ import annotations

from pydantic import model_validator

from planner.schema.base import Id, NonNegative, Sourced, Text


class PlanningFigure(Sourced):
    """One chosen figure; `unit` is a suffix of `units.SUFFIXES` without its underscore."""

    id: Id
    name: Text
    value: NonNegative
    low: NonNegative
    high: NonNegative
    unit: Text

    @model_validator(mode="after")
    def _ordered(self) -> PlanningFigure:
        if not self.low <= self.value <= self.high:
            raise ValueError("write low <= value <= high")
        return self
