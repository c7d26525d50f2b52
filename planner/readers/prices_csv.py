"""A price table in CSV, read into checked rows: every fault of the file at once, each with its line, column and cure.

The standard `csv` module and not pandas: it keeps every cell as the text that was written (a price stays an exact
`Decimal`, an empty cell an unknown), tells the line of each record, and imports in a thousandth of the time.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any, TypeVar, get_args

from pydantic import TypeAdapter, ValidationError

from planner.errors import Fault, InputError, did_you_mean, one_line
from planner.readers.bounded import decoded, read_bounded
from planner.readers.model_faults import model_faults
from planner.readers.yaml_nodes import Place
from planner.schema.prices import PriceRow

Row = TypeVar("Row", bound=PriceRow)

MAX_BYTES = 20_000_000
WANTED = "a CSV file of prices"
LIST_SEPARATOR = ";"
"""Between the values of a cell that holds several (`regions`, `attributes`)."""
FREE_TEXT = frozenset({"note", "as_printed", "attributes_source"})
PLACEHOLDERS = frozenset({"n/a", "na", "nan", "null", "none", "nil", "-", "--", "–", "?", "tbd", "tba", "unknown", "#n/a"})
_NUMBER = re.compile(r"[+-]?(\d+(\.\d*)?|\.\d+)([eE][+-]?\d+)?", re.ASCII)


def read_price_csv(path: Path, model: type[Row], shown: str | None = None) -> tuple[Row, ...]:
    """Return the rows of a price file, in its order; an empty cell is an absent value.

    `shown` is the path to name in faults (the one given, if left out). Raises one `InputError` that holds every fault:
    unknown, repeated or missing columns, ragged rows, empty required cells, placeholders such as `N/A`, numbers that are
    zero, negative, infinite or too large, ids written twice.
    """
    file = shown or path.as_posix()
    text = _text_of(path, file)
    faults: list[Fault] = []
    rows: list[Row] = []
    lines: dict[str, int] = {}
    adapter, shape = _adapter(model), _shape(model)
    for cells in _records(text, file, model, shape, faults):
        values = _values(cells, shape, faults)
        try:
            row = adapter.validate_python(values)
        except ValidationError as error:
            found = [f for f in model_faults(model, error, cells) if f.place not in cells.told]
            faults.extend(f if f.place else Fault(f.file, f.line, str(values.get("id", "row")), f.what, f.cure) for f in found)
            continue
        if row.id in lines:
            faults.append(Fault(file, cells.line, "id", f"'{row.id}' was used on line {lines[row.id]}", "give each row its own id"))
        lines.setdefault(row.id, cells.line)
        rows.append(row)
    if faults:
        raise InputError(faults)
    return tuple(rows)


def lines_of(path: Path) -> Mapping[str, int]:
    """Return id → line number of a price file that was read before, so that a later finding can name its line."""
    table = csv.reader(io.StringIO(_text_of(path, path.as_posix()), newline=""))
    header = [name.strip() for name in next(table, [])]
    at = header.index("id") if "id" in header else 0
    found: dict[str, int] = {}
    before = table.line_num
    for record in table:
        if len(record) > at:
            found.setdefault(record[at].strip(), before + 1)
        before = table.line_num
    return found


@dataclass(frozen=True)
class _Shape:
    """What the model asks of each column."""

    columns: frozenset[str]
    required: frozenset[str]
    lists: frozenset[str]
    numbers: frozenset[str]


@dataclass
class _Cells:
    """One record: it knows its line and what was typed, which is what `model_faults` asks for."""

    file: str
    line: int
    data: dict[str, Any]
    told: set[str] = field(default_factory=set)
    """Columns whose fault is already reported."""

    def line_of(self, place: Place) -> int | None:  # noqa: ARG002 (a record stands on one line)
        return self.line

    def plain_text(self, place: Place) -> str | None:  # noqa: ARG002 (a cell is its own text)
        return None


@cache
def _adapter(model: type[Row]) -> TypeAdapter[Row]:
    return TypeAdapter(model)


@cache
def _shape(model: type[PriceRow]) -> _Shape:
    fields = model.model_fields
    inside = {name: set(_types(info.annotation)) for name, info in fields.items()}
    return _Shape(
        columns=frozenset(fields),
        required=frozenset(name for name, info in fields.items() if info.is_required()),
        lists=frozenset(name for name, types in inside.items() if tuple in types),
        numbers=frozenset(name for name, types in inside.items() if types & {Decimal, float, int}),
    )


def _types(annotation: Any) -> Iterator[Any]:
    origin = getattr(annotation, "__origin__", None)
    yield origin if origin is not None else annotation
    for part in get_args(annotation):
        yield from _types(part)


def _text_of(path: Path, file: str) -> str:
    return decoded(read_bounded(path, MAX_BYTES, WANTED, file=file), file, WANTED)


def _records(text: str, file: str, model: type[PriceRow], shape: _Shape, faults: list[Fault]) -> Iterator[_Cells]:
    table = csv.reader(io.StringIO(text, newline=""), strict=True)
    try:
        header = [name.strip() for name in next(table, [])]
        if not any(header):
            faults.append(Fault(file, 1, "", "the file is empty", f"begin it with a line of column names: {', '.join(model.model_fields)}"))
            return
        faults.extend(_header_faults(header, file, shape))
        known = [name if name in shape.columns and name not in header[:i] else None for i, name in enumerate(header)]
        before = table.line_num
        for record in table:
            line, before = before + 1, table.line_num
            if not any(cell.strip() for cell in record):
                continue
            if len(record) != len(header):
                cure = "quote cells that hold a comma" if len(record) > len(header) else "add the missing commas"
                faults.append(Fault(file, line, "", f"{len(record)} cells under {len(header)} columns", cure))
                continue
            yield _Cells(file, line, {name: cell.strip() for name, cell in zip(known, record, strict=True) if name})
    except csv.Error as error:
        cure = "quote cells that hold a comma, double the quotes inside"
        faults.append(Fault(file, table.line_num, "", f"not CSV: {one_line(str(error), 120)}", cure))


def _header_faults(header: list[str], file: str, shape: _Shape) -> Iterator[Fault]:
    for i, name in enumerate(header):
        if name in header[:i]:
            yield Fault(file, 1, name, "this column stands twice", "keep one of them")
        elif name not in shape.columns:
            yield Fault(file, 1, name or "(no name)", "unknown column", did_you_mean(name, shape.columns))
    for name in sorted(shape.required.difference(header)):
        yield Fault(file, 1, name, "this column is missing", "add it: it is required")


def _values(cells: _Cells, shape: _Shape, faults: list[Fault]) -> dict[str, Any]:
    """Return the filled cells as the model takes them; report here what pydantic would say less plainly or let pass."""
    values: dict[str, Any] = {}

    def fault(column: str, what: str, cure: str) -> None:
        cells.told.add(column)
        faults.append(Fault(cells.file, cells.line, column, what, cure))

    for column, cell in cells.data.items():
        if not cell:
            if column in shape.required:
                fault(column, "empty, but required", "fill it in, or remove the row if it is not known")
            continue
        if column not in FREE_TEXT and cell.lower() in PLACEHOLDERS:
            cure = "fill it in" if column in shape.required else "leave the cell empty where the value is not known"
            fault(column, f"'{cell}' is a placeholder", cure)
            continue
        if column in shape.numbers and not _NUMBER.fullmatch(cell):
            cure = "write digits with a decimal point: no separators, units or currency signs"
            fault(column, f"'{one_line(cell, 60)}' is not a number", cure)
            continue
        values[column] = tuple(part.strip() for part in cell.split(LIST_SEPARATOR) if part.strip()) if column in shape.lists else cell
    cells.told |= shape.required.difference(cells.data)
    cells.data = values
    return values
