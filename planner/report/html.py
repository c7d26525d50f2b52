"""The report as one HTML file: no network, no evaluated code, everything a plan says shown as text."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from functools import cache
from pathlib import Path

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from planner.catalog import data_root
from planner.report.blocks import ReportView


def template_folder() -> Path:
    """Return the folder of the report's templates, shipped beside the data."""
    return data_root() / "templates"


@cache
def environment() -> Environment:
    """Return the template environment: autoescape always on, an unknown name is an error."""
    return Environment(autoescape=True, loader=FileSystemLoader(template_folder()), undefined=StrictUndefined, keep_trailing_newline=True)


def _asset(name: str) -> str:
    return (template_folder() / name).read_text(encoding="utf-8").strip()


def content_policy(script: str) -> str:
    """Return the content-security policy: nothing loads, only this very script runs, nothing is evaluated."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    return (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; base-uri 'none'; form-action 'none'"
    )


def render_html(view: ReportView, svgs: Mapping[str, str]) -> str:
    """Return the report as one HTML document; `svgs` are the charts, drawn, by name."""
    script = _asset("report.js")
    return (
        environment()
        .get_template("report.html.j2")
        .render(
            view=view,
            svgs={name: Markup(svg) for name, svg in svgs.items()},
            css=Markup(_asset("report.css")),
            script=Markup(script),
            policy=content_policy(script),
        )
    )
