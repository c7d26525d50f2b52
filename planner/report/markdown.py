"""The report as Markdown: the first page and the cost by line, for a pull request."""

from __future__ import annotations

import re

from jinja2 import Environment, FileSystemLoader, StrictUndefined

from planner.report.blocks import Cell, ReportView, Row
from planner.report.html import template_folder

_MARKS = re.compile(r"([\\`*_{}\[\]#|$~])")
_STARTS = re.compile(r"^(\d*)([-+.)=])(?=\s|=)")


def escape(text: str) -> str:
    """Return text that Markdown shows as it stands: no markup, no HTML, no formula, no mention.

    >>> escape("<b> *x* | $y$ @team")
    '&lt;b&gt; \\\\*x\\\\* \\\\| \\\\$y\\\\$ &#64;team'
    """
    flat = " ".join(text.split())
    marked = _MARKS.sub(r"\\\1", flat.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")).replace("@", "&#64;")
    marked = marked.replace("://", ":&#47;/")
    return _STARTS.sub(r"\1\\\2", marked)


def _cell(cell: Cell) -> str:
    return escape(cell.text) + (f"<br>{escape(cell.sub)}" if cell.sub else "")


def _row(row: Row) -> str:
    cells = [_cell(cell) for cell in row.cells]
    if row.is_total:
        cells = [f"**{cell}**" if cell else "" for cell in cells]
    return "| " + " | ".join(cells) + " |"


def render_markdown(view: ReportView) -> str:
    """Return `summary.md`: page one, cost by line, and the command that repeats the plan."""
    environment = Environment(
        autoescape=False,
        loader=FileSystemLoader(template_folder()),
        undefined=StrictUndefined,
        keep_trailing_newline=True,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters.update(md=escape, md_row=_row)
    shown = [s for s in view.sections if s.name in ("cost", "exclusions", "reproduce")]
    tables = ("cost_lines", "exclusions")
    text = environment.get_template("summary.md.j2").render(view=view, sections=shown, tables=tables)
    return re.sub(r"\n{3,}", "\n\n", text).strip() + "\n"
