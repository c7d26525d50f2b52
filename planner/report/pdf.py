"""The report as a PDF, by the typst wheel: A4, tagged, PDF/A, from data only."""

from __future__ import annotations

import dataclasses
import json
import re
import unicodedata
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Any

from planner.report.blocks import ReportView, Table
from planner.report.html import template_folder

STANDARDS = ("a-2a",)
"""PDF/A-2a: archived, tagged, text extractable, fonts embedded."""
LONGEST_RUN = 18
MANY_COLUMNS = 5
LONG_TITLE = 12
_LONG = re.compile(rf"[^\s\u200b]{{{LONGEST_RUN + 1},}}")
_BREAKS = re.compile(r"(?<=[/_.\-?&=:,])(?=[^\s])")
_NO_BREAK_NUMBER = re.compile(r"^[\s\d$€.,+−–%]*$")
_COVERED = (
    (0x0020, 0x007E),
    (0x00A0, 0x017F),
    (0x0391, 0x03A1),
    (0x03A3, 0x03C9),
    (0x0410, 0x044F),
    (0x05D0, 0x05EA),
    (0x0621, 0x063A),
    (0x0641, 0x064A),
    (0x1E00, 0x1EFF),
    (0x2010, 0x2016),
    (0x2018, 0x2022),
    (0x2026, 0x2026),
    (0x2030, 0x2030),
    (0x2032, 0x2033),
    (0x2039, 0x203A),
    (0x2070, 0x2070),
    (0x2074, 0x2079),
    (0x2080, 0x2089),
    (0x20AC, 0x20AC),
    (0x2122, 0x2122),
    (0x2190, 0x2194),
    (0x2200, 0x2200),
    (0x2202, 0x2203),
    (0x2206, 0x2206),
    (0x2208, 0x2208),
    (0x220F, 0x220F),
    (0x2211, 0x2212),
    (0x221A, 0x221A),
    (0x221E, 0x221E),
    (0x2248, 0x2248),
    (0x2260, 0x2260),
    (0x2264, 0x2265),
    (0x27E8, 0x27E9),
)
"""Characters that the two fonts inside the typst wheel draw; a test holds this table against the wheel."""


def is_drawn(character: str) -> bool:
    """Return whether the wheel's own fonts hold the character (what the machine has installed plays no part: same bytes everywhere)."""
    code = ord(character)
    return any(low <= code <= high for low, high in _COVERED)


def drawable(text: str) -> str:
    """Return `text` with characters that no font of the wheel holds written by their Unicode name.

    >>> drawable("ship 🚀 now")
    'ship [rocket] now'
    """
    if all(map(is_drawn, text)):
        return text
    return "".join(c if is_drawn(c) or c == "\u200b" else " " if c.isspace() else _named(c) for c in text)


def _named(character: str) -> str:
    name = unicodedata.name(character, "").lower()
    return f"[U+{ord(character):04X}]" if not name or name.startswith(("cjk", "hangul")) else f"[{name}]"


def breakable(text: str) -> str:
    """Return `text` with places to break inside runs too long for a column: after punctuation, else every few characters."""

    def parts(found: re.Match[str]) -> str:
        pieces = _BREAKS.sub("\u200b", found.group()).split("\u200b")
        return "\u200b".join("\u200b".join(p[i : i + LONGEST_RUN] for i in range(0, len(p), LONGEST_RUN)) for p in pieces)

    return _LONG.sub(parts, text)


def _shown(value: Any) -> Any:
    if isinstance(value, str):
        return breakable(drawable(value))
    if isinstance(value, (list, tuple)):
        return [_shown(item) for item in value]
    if isinstance(value, dict) and value.get("block") == "code":
        return {**value, "text": drawable(value["text"])}  # to be copied: no invisible breaks inside
    if isinstance(value, dict):
        return {
            key: item if key in ("href", "name", "block", "kind", "tone") else _shown(item) for key, item in value.items() if key != "spec"
        }
    return value


def _wraps(table: Table, index: int) -> bool:
    """Return whether a column of figures (a second line, words, a long title) shares the width instead of taking what it needs."""
    if len(table.columns) > MANY_COLUMNS and len(table.columns[index].title) > LONG_TITLE:
        return True
    return any(row.cells[index].sub or len(row.cells[index].text) > LONGEST_RUN for row in table.rows)


def report_data(view: ReportView) -> dict[str, Any]:
    """Return the view as plain data for the template, with every string drawable and breakable."""
    data: dict[str, Any] = _shown(dataclasses.asdict(view))
    blocks = [b for part in (*view.page_one, *(p for s in view.sections for p in s.parts)) for b in part.blocks]
    tables = iter([b for b in blocks if isinstance(b, Table)])
    for part in (*data["page_one"], *(p for s in data["sections"] for p in s["parts"])):
        for block in part["blocks"]:
            if block["block"] == "table":
                table = next(tables)
                for i, column in enumerate(block["columns"]):
                    column["wraps"] = _wraps(table, i)
            elif block["block"] == "chart":
                block["width_frac"] = 1.0
    title = view.title if len(view.title) <= 60 else view.title[:59] + "…"
    data["short_title"] = breakable(drawable(title))
    return data


def render_pdf(view: ReportView, svgs: Mapping[str, str], as_of: datetime) -> bytes:
    """Return the report as PDF bytes: the same view gives the same bytes (its time is `as_of`, its fonts are the wheel's)."""
    import typst

    fonts = typst.Fonts(include_system_fonts=False)
    compile_pdf: Any = typst.compile  # its types do not know `Fonts` beside bytes
    result = compile_pdf(
        (template_folder() / "report.typ").read_bytes(),
        font_paths=fonts,
        ignore_system_fonts=True,
        format="pdf",
        sys_inputs={
            "report": json.dumps(report_data(view), ensure_ascii=False),
            "svgs": json.dumps({name: drawable(svg) for name, svg in svgs.items()}, ensure_ascii=False),
        },
        pdf_standards=list(STANDARDS),
        timestamp=as_of.astimezone(UTC),
    )
    return bytes(result)
