"""YAML files read with care: refused by size before reading, parsed within bounds, validated with every fault at once."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import TypeAdapter, ValidationError

from planner.errors import Fault, InputError
from planner.readers.bounded import decoded, read_bounded
from planner.readers.model_faults import model_faults
from planner.readers.yaml_nodes import Builder, FastLoader, Node, Place

SHIPPED_MAX_BYTES = 16_000_000
WANTED = "a YAML file"
T = TypeVar("T")
_NEEDS_CARE = re.compile(r"(?m)(?:^|[\s\[{,:-])\*[A-Za-z0-9_]|(?:- ){30}|(?:[\[{]\s*){30}|^ {240}")
"""Aliases and deep nesting, which the fast reader would follow without bounds."""


@dataclass
class Document:
    """A file's content as plain Python values (`data`), able to say on which line each place stands."""

    data: Any
    file: str
    root: Node

    def line_of(self, place: Place) -> int | None:
        """Return the 1-based line of a place's key or item, or of the nearest parent that is written in the file."""
        lines = [line for line, _ in self._walk(place)]
        return lines[-1] if lines else None

    def plain_text(self, place: Place) -> str | None:
        """Return a plain scalar as it was typed (`no` for False); None where the place is missing, quoted or not a scalar."""
        steps = list(self._walk(place))
        return steps[-1][1].plain if len(steps) == len(place) + 1 else None

    def _walk(self, place: Place) -> Iterator[tuple[int, Node]]:
        node = self.root
        yield node.line, node
        for step in place:
            found = node.children.get(step)
            if found is None:
                return
            yield found
            node = found[1]


def read_yaml(path: Path, *, max_bytes: int, file: str | None = None) -> Document:
    """Read one YAML document of at most `max_bytes`.

    `file` is the name that faults carry (the path as given, if left out). Raises `InputError` for anything that is not
    one well-formed, bounded UTF-8 document of plain values: the faults carry the line.
    """
    name = str(path) if file is None else file
    return parse_yaml(read_bytes(path, max_bytes=max_bytes, file=name), name)


def parse_yaml(raw: bytes, file: str) -> Document:
    """Parse the bytes of one YAML document; see `read_yaml`."""
    root = Builder(file).build(_decoded(raw, file))
    return Document(root.data, file, root)


def read_yaml_fast(path: Path, *, max_bytes: int = SHIPPED_MAX_BYTES) -> Any:
    """Return the plain values of a data file, read several times faster because no lines are kept.

    For files of this package or of the user's own catalog: when they do not validate, `read_yaml` them for the lines.
    Aliases and deep nesting are left to the careful reader, as is everything that this one refuses.
    """
    name = str(path)
    raw = read_bytes(path, max_bytes=max_bytes, file=name)
    text = _decoded(raw, name)
    if _NEEDS_CARE.search(text):
        return parse_yaml(raw, name).data
    with suppress(yaml.YAMLError, RecursionError):
        return yaml.load(text, Loader=FastLoader)
    return parse_yaml(raw, name).data


def read_bytes(path: Path, *, max_bytes: int, file: str) -> bytes:
    """Return a file's bytes; see `read_bounded`. A pipe is read, for a workload may come from another program."""
    return read_bounded(path, max_bytes, WANTED, file=file, may_be_pipe=True)


def _decoded(raw: bytes, file: str) -> str:
    if b"\0" in raw:
        line = raw[: raw.index(b"\0")].count(b"\n") + 1
        raise InputError([Fault(file, line, "", "a NUL byte: this is not a text file", "give a YAML file saved as UTF-8 text")])
    return decoded(raw, file, WANTED)


def validate(model: type[T], document: Document, file: str | None = None, *, under: str | None = None) -> T:
    """Return the document, or what stands under its key `under`, as a checked `model` (a pydantic model or `list[Model]`).

    Raises `InputError` with every fault, each with file, line and cure. `file` is the name that faults carry.
    """
    name = document.file if file is None else file
    data = document.data
    if under is not None:
        if not isinstance(data, dict) or under not in data:
            raise InputError([Fault(name, 1, under, f"'{under}' is missing", f"put the entries below `{under}:`")])
        data = data[under]
    try:
        return TypeAdapter(model).validate_python(data)
    except ValidationError as error:
        faults = model_faults(model, error, document, () if under is None else (under,))
    raise InputError(Fault(name, f.line, f.place, f.what, f.cure) for f in faults)
