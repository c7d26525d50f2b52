"""Read a CSV of speed measurements (columns of `MeasuredRow`): every malformed line is told at once."""

from __future__ import annotations

import csv
import io
import math
from pathlib import Path

from planner.errors import Fault, InputError
from planner.readers.bounded import decoded, read_bounded
from planner.schema.measured import MeasuredRow

MOST_BYTES = 50_000_000
WANTED = "a CSV file of measurements"
MOST_FAULTS = 50
REQUIRED = ("id", "engine", "model", "weight_format", "accelerator", "metric", "value")
KNOWN = (
    *REQUIRED, "engine_version", "kv_format", "n_accel", "tp", "pp", "ep", "input_tokens", "output_tokens", "concurrency_or_batch",
    "requests",
)
FREE = ("source_url_or_repo_path", "params_note", "unit", "note", "date")


def read_measured_csv(path: Path) -> list[MeasuredRow]:
    """Return the rows of a file of measurements.

    Raises `InputError`: not readable, too large, a column missing or doubled, a value that is no positive number, an id twice.
    """
    file = str(path)
    text = decoded(read_bounded(path, MOST_BYTES, WANTED), file, WANTED)
    reader = csv.reader(io.StringIO(text, newline=""), strict=True)
    faults: list[Fault] = []
    rows: list[MeasuredRow] = []
    try:
        header = next(reader, None)
        columns = _columns(file, header)
        seen: dict[str, int] = {}
        for cells in reader:
            if not any(cell.strip() for cell in cells):
                continue
            row = _row(file, reader.line_num, columns, cells, faults)
            if row is None:
                continue
            if row.id in seen:
                faults.append(Fault(file, row.line, "id", f"'{row.id}' stands in line {seen[row.id]} too", "give each row its own id"))
            seen[row.id] = row.line
            rows.append(row)
    except csv.Error as error:
        faults.append(Fault(file, reader.line_num, "", f"is not CSV here: {error}", "quote fields that hold commas, quotes or line breaks"))
    if faults:
        more = len(faults) - MOST_FAULTS
        kept = faults[:MOST_FAULTS]
        if more > 0:
            kept.append(Fault(file, None, "", f"{more} more lines at fault", "mend these first"))
        raise InputError(kept)
    return rows


def _columns(file: str, header: list[str] | None) -> dict[str, int]:
    """Return column → position. Unknown columns are left alone: a user's file may hold more."""
    if header is None:
        raise InputError([Fault(file, None, "", "is empty", f"first line: {','.join(REQUIRED)},…")])
    names = [name.strip() for name in header]
    cure = f"add it; a full header is {','.join(KNOWN)}"
    faults = [Fault(file, 1, name, "this column is missing", cure) for name in REQUIRED if name not in names]
    faults += [Fault(file, 1, name, "this column stands twice", "keep one") for name in (*KNOWN, *FREE) if names.count(name) > 1]
    if faults:
        raise InputError(faults)
    return {name: at for at, name in enumerate(names)}


def _row(file: str, line: int, columns: dict[str, int], cells: list[str], faults: list[Fault]) -> MeasuredRow | None:
    if len(cells) != len(columns):
        faults.append(Fault(file, line, "", f"{len(cells)} fields, the header has {len(columns)}", "quote fields that hold commas"))
        return None

    def text(name: str) -> str:
        return cells[columns[name]].strip() if name in columns else ""

    def number(name: str) -> float | None:
        try:
            value = float(text(name).lstrip("~"))
        except ValueError:
            return None
        return value if math.isfinite(value) and value >= 0 else None

    def count(name: str) -> int | None:
        value = number(name)
        return int(value) if value is not None and value == int(value) and 1 <= value <= 10**6 else None

    value = number("value")
    name = text("id")
    if not name:
        faults.append(Fault(file, line, "id", "empty", "give each row an id"))
    if not value:
        what = f"'{text('value')[:40]}' is no positive number"
        faults.append(Fault(file, line, "value", what, "write what was measured, or leave the row out"))
    if not name or not value:
        return None
    return MeasuredRow(
        id=name, source=text("source_url_or_repo_path"), engine=text("engine"), engine_version=text("engine_version"), model=text("model"),
        params_note=text("params_note"), weight_format=text("weight_format"), kv_format=text("kv_format"), accelerator=text("accelerator"),
        gpu_count=count("n_accel"), tp=count("tp"), pp=count("pp"), ep=count("ep"), input_tok=number("input_tokens"),
        output_tok=number("output_tokens"), load=text("concurrency_or_batch"), metric=text("metric"), value=value, unit=text("unit"),
        note=text("note"), line=line, request_count=count("requests"),
    )
