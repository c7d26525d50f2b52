"""A named shape of the week: how load spreads over 168 hours, with where it was measured or why it was assumed."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field, model_validator

from planner.schema.base import Id, NonNegative, Sourced, Text

Day = Annotated[tuple[NonNegative, ...], Field(min_length=24, max_length=24)]


class WeekProfile(Sourced):
    """One entry of `workloads/profiles.yaml`: hourly load relative to any base, Monday 00:00 first, in local time.

    Either `week` (seven days of 24 numbers) or `day` (24 numbers, the same every day).
    """

    id: Id
    name: Text
    week: Annotated[tuple[Day, ...], Field(min_length=7, max_length=7)] | None = None
    day: Day | None = None

    @model_validator(mode="after")
    def _one_shape(self) -> WeekProfile:
        if (self.week is None) == (self.day is None):
            raise ValueError("exactly one of week and day is due; remove one")
        if not any(self.hours()):
            raise ValueError("all hours are zero; give at least one hour some load")
        return self

    def hours(self) -> tuple[float, ...]:
        """Return the 168 numbers as written, not yet normalised."""
        days = self.week or (() if self.day is None else (self.day,) * 7)
        return tuple(value for day in days for value in day)
