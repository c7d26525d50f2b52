"""Write a plan and its reports: all of them or none, each file whole."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Sequence
from datetime import UTC, datetime, time
from pathlib import Path

from planner.errors import Fault, InputError, did_you_mean
from planner.report.plan_file import plan_json
from planner.schema.plan import Plan

FILES = {"json": "plan.json", "html": "report.html", "pdf": "report.pdf", "md": "summary.md"}
"""Format → the file it is written to."""


def check_formats(formats: Sequence[str]) -> tuple[str, ...]:
    """Return the formats in the order of `FILES`, each once; an unknown one is an `InputError`."""
    if not formats:
        raise InputError([Fault("", None, "--format", "no format is named", f"name some of {', '.join(FILES)}")])
    unknown = [name for name in formats if name not in FILES]
    if unknown:
        raise InputError(Fault("", None, "--format", f"no format '{name}'", did_you_mean(name, FILES)) for name in unknown)
    return tuple(name for name in FILES if name in formats)


def render_reports(plan: Plan, formats: Sequence[str]) -> dict[str, bytes]:
    """Return file name → bytes for each format; the charts are drawn once for HTML and PDF. Same plan, same bytes (`run` aside)."""
    wanted = check_formats(formats)
    made: dict[str, bytes] = {}
    if "json" in wanted:
        made[FILES["json"]] = plan_json(plan).encode()
    if not {"html", "pdf", "md"}.intersection(wanted):
        return made
    from planner.report.view import build_view

    view = build_view(plan)
    svgs: dict[str, str] = {}
    if {"html", "pdf"}.intersection(wanted):
        from planner.report.charts import draw_all

        svgs = draw_all(view.charts())
    if "html" in wanted:
        from planner.report.html import render_html

        made[FILES["html"]] = render_html(view, svgs).encode()
    if "pdf" in wanted:
        from planner.report.pdf import render_pdf

        made[FILES["pdf"]] = render_pdf(view, svgs, datetime.combine(plan.as_of, time(), UTC))
    if "md" in wanted:
        from planner.report.markdown import render_markdown

        made[FILES["md"]] = render_markdown(view).encode()
    return made


def write_reports(plan: Plan, out: Path, formats: Sequence[str] = ("json", "html", "pdf", "md")) -> list[Path]:
    """Write the formats into `out` (made if missing) and return the paths.

    Everything is rendered before anything is written; each file then appears whole, by a rename within its folder, over what
    stood there. If one cannot be written, no file is touched.
    """
    made = render_reports(plan, formats)
    waiting: list[tuple[Path, Path]] = []
    try:
        out.mkdir(parents=True, exist_ok=True)
        for name, content in made.items():
            if (out / name).is_dir():
                raise IsADirectoryError(21, "is a folder", (out / name).as_posix())
            handle, temporary = tempfile.mkstemp(prefix=f".{name}.", dir=out)
            waiting.append((Path(temporary), out / name))
            with os.fdopen(handle, "wb") as file:
                file.write(content)
                file.flush()
                os.fsync(file.fileno())
            Path(temporary).chmod(0o666 & ~_umask())
        for temporary_path, path in waiting:
            temporary_path.replace(path)
    except OSError as error:
        where = Path(error.filename).as_posix() if error.filename else out.as_posix()
        raise InputError(
            [Fault(out.as_posix(), None, "--out", f"cannot be written: {error.strerror} ({where})", "give a folder that you may write to")]
        ) from None
    finally:
        for temporary_path, _ in waiting:
            temporary_path.unlink(missing_ok=True)
    return [path for _, path in waiting]


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
