"""What every row of data shares: frozen models that refuse unknown keys, ids, and a dated source."""

from __future__ import annotations

import re
from datetime import date
from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints, model_validator

ID_PATTERN = r"^[a-z0-9_.]+$"
Id = Annotated[str, StringConstraints(pattern=ID_PATTERN, min_length=1, max_length=100)]
"""Lower-case letters, digits, `_` and `.`: a file, a row, a YAML key and an HTML anchor spell it alike."""

Text = Annotated[str, StringConstraints(min_length=1, max_length=2000)]
Frac = Annotated[float, Field(ge=0.0, le=1.0, allow_inf_nan=False)]
Positive = Annotated[float, Field(gt=0.0, le=1e18, allow_inf_nan=False)]
NonNegative = Annotated[float, Field(ge=0.0, le=1e18, allow_inf_nan=False)]
PositiveCount = Annotated[int, Field(ge=1, le=10**9)]
NonNegativeCount = Annotated[int, Field(ge=0, le=10**9)]

SourceKind = Literal["measured", "datasheet", "list_price", "quote", "published", "derived", "assumed"]
Confidence = Literal["high", "medium", "low"]
_LOCATOR = re.compile(r"^(https?://\S+|(github|pypi|doi|arxiv|doc):\S.*)$")


class Frozen(BaseModel):
    """A checked, immutable value that refuses keys it does not know."""

    model_config = ConfigDict(frozen=True, extra="forbid", str_strip_whitespace=True)


class Source(Frozen):
    """Where a figure was read, when, and what kind of figure it is.

    `locator` is a URL, or `github:owner/repo path@commit`, `pypi:package==version file`, `doi:`, `arxiv:`, `doc:`.
    A `derived` or `assumed` figure needs a `note` with its working or its reason; every other kind needs a `locator`.
    """

    kind: SourceKind
    locator: Annotated[str, StringConstraints(max_length=1000)] | None = None
    retrieved_on: date
    as_printed: Annotated[str, StringConstraints(max_length=500)] | None = None
    confidence: Confidence | None = None
    note: Annotated[str, StringConstraints(max_length=2000)] | None = None

    @model_validator(mode="after")
    def _complete(self) -> Source:
        if self.kind in ("derived", "assumed"):
            if not self.note:
                raise ValueError(f"a {self.kind} figure needs a note with its working or reason")
        elif not self.locator:
            raise ValueError(f"a {self.kind} figure needs a locator (the page or file it was read from)")
        if self.locator is not None and not _LOCATOR.match(self.locator):
            raise ValueError("locator must be a URL or start with github:, pypi:, doi:, arxiv: or doc:")
        return self


class Sourced(Frozen):
    """A row whose figures all come from `sources['default']` unless a field has its own entry."""

    sources: dict[str, Source]

    @model_validator(mode="after")
    def _sources_name_fields(self) -> Sourced:
        if "default" not in self.sources:
            raise ValueError("sources needs a 'default' entry")
        known = set(type(self).model_fields)
        for key in self.sources:
            if key != "default" and key.split(".")[0] not in known:
                raise ValueError(f"sources.{key} names no field of this row")
        return self

    def source_of(self, field: str) -> Source:
        """Return the source of one field (`a.b` falls back to `a`, then to `default`)."""
        return self.sources.get(field) or self.sources.get(field.split(".")[0]) or self.sources["default"]
