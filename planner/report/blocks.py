"""What a report is made of: sections of text, facts, tables and charts, as finished words. Every output places these and adds none."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

Tone = Literal["plain", "good", "warn", "bad"]


@dataclass(frozen=True)
class Cell:
    """Text of a table cell; `sort` orders it where the text would not, `href` is an anchor of this report or a web page."""

    text: str
    sort: float | None = None
    href: str | None = None
    sub: str = ""
    """A second, quieter line."""


@dataclass(frozen=True)
class Column:
    """Head of a column; text columns share the width left over by `weight`."""

    title: str
    kind: Literal["text", "number"] = "text"
    weight: float = 1.0


@dataclass(frozen=True)
class Row:
    """Cells of one row; `anchor` makes it a target of links."""

    cells: tuple[Cell, ...]
    anchor: str | None = None
    is_total: bool = False


@dataclass(frozen=True)
class Table:
    """A table whose first cell in each row names the row. `is_stacked`: on a phone each row becomes a card."""

    name: str
    caption: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    note: str = ""
    is_stacked: bool = False
    is_sortable: bool = False
    block: Literal["table"] = "table"


@dataclass(frozen=True)
class Chart:
    """A Vega-Lite chart and what it shows in words, for those who cannot see it."""

    name: str
    title: str
    alt: str
    spec: dict[str, Any]
    note: str = ""
    block: Literal["chart"] = "chart"


@dataclass(frozen=True)
class Text:
    """A paragraph."""

    text: str
    tone: Tone = "plain"
    block: Literal["text"] = "text"


@dataclass(frozen=True)
class Notes:
    """A list of sentences."""

    items: tuple[str, ...]
    title: str = ""
    block: Literal["notes"] = "notes"


@dataclass(frozen=True)
class Fact:
    """A label and what holds; `href` leads to the detail."""

    label: str
    value: str
    note: str = ""
    href: str | None = None


@dataclass(frozen=True)
class Facts:
    """Labels and values, a line each."""

    items: tuple[Fact, ...]
    title: str = ""
    block: Literal["facts"] = "facts"


@dataclass(frozen=True)
class Figures:
    """A few large numbers side by side."""

    items: tuple[Fact, ...]
    block: Literal["figures"] = "figures"


@dataclass(frozen=True)
class Code:
    """A command to copy."""

    text: str
    block: Literal["code"] = "code"


Block = Table | Chart | Text | Notes | Facts | Figures | Code


@dataclass(frozen=True)
class Part:
    """Blocks under a smaller heading."""

    title: str
    blocks: tuple[Block, ...]


@dataclass(frozen=True)
class Section:
    """A heading, one sentence on what it answers, and its parts."""

    name: str
    title: str
    lead: str
    parts: tuple[Part, ...]


@dataclass(frozen=True)
class ReportView:
    """Everything a report shows, in order."""

    title: str
    subtitle: str
    headline: str
    digest: str
    """First digits of the plan's digest: which plan this is."""
    prices_day: str
    as_of: str
    planner_version: str
    warnings: tuple[str, ...]
    page_one: tuple[Part, ...]
    sections: tuple[Section, ...]
    signatures: tuple[str, ...]

    def charts(self) -> tuple[Chart, ...]:
        """Return the charts in order."""
        parts = [*self.page_one, *(part for section in self.sections for part in section.parts)]
        return tuple(block for part in parts for block in part.blocks if isinstance(block, Chart))


_HIDDEN = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff\ufff9-\ufffb]|[\ud800-\udfff]")
_UNIT_GAP = re.compile(r"(?<=\d) (?=[%MkhGT](?:$|[\s.,;)]|i?B\b))")
T = TypeVar("T")


def visible(text: str) -> str:
    """Return `text` with control and direction-changing characters written out, so that none can hide or reorder what is shown;
    a figure keeps its unit on its line.

    >>> visible("safe\\u202eelif.exe")
    'safe⟨U+202E⟩elif.exe'
    """
    return _UNIT_GAP.sub("\u00a0", _HIDDEN.sub(lambda found: f"⟨U+{ord(found.group()):04X}⟩", text))


def all_visible(value: T) -> T:
    """Return a view (or any part of it) with every string made `visible`; chart data included."""
    return _walk(value)  # type: ignore[no-any-return]


def _walk(value: Any) -> Any:
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, tuple):
        return tuple(_walk(item) for item in value)
    if isinstance(value, list):
        return [_walk(item) for item in value]
    if isinstance(value, dict):
        return {_walk(key): _walk(item) for key, item in value.items()}
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return dataclasses.replace(value, **{f.name: _walk(getattr(value, f.name)) for f in dataclasses.fields(value)})
    return value
