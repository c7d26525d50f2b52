"""The header of a GGUF file: its metadata and what tensors it holds, never their data.

The header is walked through a memory map, value by value, with every length held against the bytes that remain: a header that
lies is refused before anything of its size is made. Lists of texts (a tokenizer's words) are stepped over. The parts of a split
file share every limit: a thousand of them may hold no more than one.
Format: github:ggml-org/ggml docs/gguf.md, versions 2 and 3. Why not `gguf.GGUFReader`: docs/decisions/006_gguf_header.md.
"""

from __future__ import annotations

import mmap
import re
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import Fault, InputError

MAGIC = b"GGUF"
VERSIONS = (2, 3)
MOST_HEADER_BYTES = 256_000_000
MOST_KEYS = 20_000
MOST_TENSORS = 200_000
MOST_TEXTS = 4_000_000
"""Texts in all lists of a file: a tokenizer has up to about 260,000 words and twice as many merges."""
MOST_KEPT = 4096
"""Numbers of a list that are kept (one a layer); longer lists are known by their length."""
MOST_KEPT_IN_ALL = 1_000_000
"""Numbers kept of all lists of a file: later ones are known by their length."""
MOST_TEXT_BYTES = 65_536
MOST_TEXT_BYTES_IN_ALL = 64_000_000
"""Keys, names and values together, as they are kept; what is longer is no header of a model."""
MOST_DIMENSIONS = 8
MOST_ELEMENTS = 10**14
MOST_PARTS = 1000
MOST_NAMED = 20
"""Missing parts that are named one by one."""
NUMBERS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}
TEXT, LIST = 8, 9
PART = re.compile(r"(.*)-(\d{5})-of-(\d{5})\.gguf", re.DOTALL)
CURE = "download the file again, or give the model's config.json and the format with --weights"


@dataclass(frozen=True)
class Skipped:
    """A list that was stepped over: how many values it has."""

    count: int


@dataclass(frozen=True)
class Tensor:
    """One tensor as its header states it."""

    name: str
    dims: tuple[int, ...]
    """Innermost first: the length of a row, then the number of rows."""
    type_number: int

    @property
    def element_count(self) -> int:
        """Values of the tensor."""
        product = 1
        for dim in self.dims:
            product *= dim
        return product


@dataclass(frozen=True)
class Header:
    """Metadata and tensors of one file, or of all parts of a split one together."""

    metadata: Mapping[str, Any]
    tensors: tuple[Tensor, ...]


@dataclass
class _Spent:
    """What all parts of one file have used of each limit so far."""

    header_bytes: int = 0
    key_count: int = 0
    tensor_count: int = 0
    text_count: int = 0
    kept_count: int = 0
    text_bytes: int = 0


class _Walk:
    """A place in the mapped file, the fault that says where it ended, and what is spent."""

    def __init__(self, file: str, data: mmap.mmap, spent: _Spent) -> None:
        self.file, self.data, self.at, self.spent = file, data, 0, spent
        self.end = min(len(data), MOST_HEADER_BYTES - spent.header_bytes)
        self.order = "<"

    def refuse(self, place: str, what: str) -> InputError:
        return InputError([Fault(self.file, None, place, what, CURE)])

    def need(self, byte_count: int, place: str) -> None:
        if byte_count > self.end - self.at:
            longest = f", and all headers of a model may have {MOST_HEADER_BYTES:,} bytes" if self.end < len(self.data) else ""
            raise self.refuse(place, f"the header wants {byte_count:,} bytes at {self.at:,}, {self.end - self.at:,} are there{longest}")

    def number(self, code: str, place: str) -> Any:
        size = struct.calcsize("<" + code)
        self.need(size, place)
        (value,) = struct.unpack_from(self.order + code, self.data, self.at)
        self.at += size
        return value

    def text(self, place: str) -> str:
        length = self.number("Q", place)
        self.need(length, place)
        if length > MOST_TEXT_BYTES:
            self.at += length
            return ""
        self.spent.text_bytes += length
        if self.spent.text_bytes > MOST_TEXT_BYTES_IN_ALL:
            raise self.refuse(place, f"more than {MOST_TEXT_BYTES_IN_ALL:,} bytes of keys, names and texts")
        raw = self.data[self.at : self.at + length]
        self.at += length
        return raw.decode("utf-8", "replace")

    def value(self, kind: int, place: str) -> Any:
        if kind in NUMBERS:
            return self.number(NUMBERS[kind], place)
        if kind == TEXT:
            return self.text(place)
        if kind != LIST:
            raise self.refuse(place, f"a value of unknown kind {kind}")
        inner, count = self.number("I", place), self.number("Q", place)
        if inner in NUMBERS:
            size = count * struct.calcsize("<" + NUMBERS[inner])
            self.need(size, place)
            values: Any = Skipped(count)
            if count <= MOST_KEPT and self.spent.kept_count + count <= MOST_KEPT_IN_ALL:
                self.spent.kept_count += count
                values = list(struct.unpack_from(f"{self.order}{count}{NUMBERS[inner]}", self.data, self.at))
            self.at += size
            return values
        if inner != TEXT:
            raise self.refuse(place, f"a list of values of unknown kind {inner}")
        self.need(8 * count, place)
        self.spent.text_count += count
        if self.spent.text_count > MOST_TEXTS:
            raise self.refuse(place, f"more than {MOST_TEXTS:,} texts in lists")
        unpack, data, at, end = struct.Struct(self.order + "Q").unpack_from, self.data, self.at, self.end
        for _ in range(count):
            if at + 8 > end:
                break
            at += 8 + unpack(data, at)[0]
        else:
            if at <= end:
                self.at = at
                return Skipped(count)
        self.at = min(at, end)
        raise self.refuse(place, "a list of texts runs past the end of the header")


def read_header(path: Path) -> Header:
    """Return the header of a file, or of all parts of a split one (any part given; `-00001-of-000NN.gguf`).

    Raises `InputError`: no regular file, no GGUF, an unknown version, a header that lies or ends, a part missing.
    """
    spent = _Spent()
    match = PART.fullmatch(path.name)
    part_count = int(match[3]) if match is not None else 1
    if match is None or part_count < 2:
        return _joined(path, [_one(path, spent)])
    if part_count > MOST_PARTS:
        what = f"is one of {part_count:,} parts, more than {MOST_PARTS:,}"
        raise InputError([Fault(str(path), None, "", what, "join them with llama-gguf-split --merge")])
    parts = [path.with_name(f"{match[1]}-{number:05d}-of-{match[3]}.gguf") for number in range(1, part_count + 1)]
    gone = [part for part in parts if not part.is_file()]
    cure = "put it beside the others"
    missing = [Fault(str(part), None, "", "this part of the split file is missing", cure) for part in gone[:MOST_NAMED]]
    if len(gone) > MOST_NAMED:
        missing.append(Fault(str(path.parent), None, "", f"{len(gone) - MOST_NAMED:,} more parts are missing", cure))
    if missing:
        raise InputError(missing)
    return _joined(path, [_one(part, spent) for part in parts])


def _joined(path: Path, headers: list[Header]) -> Header:
    """Return all parts as one; raises `InputError` where a tensor stands in two of them or their number is not the one stated."""
    tensors = tuple(tensor for header in headers for tensor in header.tensors)
    stated = headers[0].metadata.get("split.tensors.count")
    if len({tensor.name for tensor in tensors}) != len(tensors):
        raise InputError([Fault(str(path), None, "", "two parts hold the same tensor", "put the parts of one model beside each other")])
    if isinstance(stated, int) and stated not in (0, len(tensors)):
        what = f"the whole has {stated:,} tensors, {len(tensors):,} are here"
        raise InputError([Fault(str(path), None, "split.tensors.count", what, "give a part under its own name, with all others beside it")])
    return Header(headers[0].metadata, tensors)


def _one(path: Path, spent: _Spent) -> Header:
    file = str(path)
    try:
        if not path.is_file():
            raise InputError([Fault(file, None, "", "is not a regular file", "give the path of a .gguf file")])
        with path.open("rb") as stream:
            if stream.read(4) != MAGIC:
                raise InputError([Fault(file, None, "", "does not begin as a GGUF file", CURE)])
            with mmap.mmap(stream.fileno(), 0, access=mmap.ACCESS_READ) as data:
                return _walk(_Walk(file, data, spent))
    except OSError as error:
        raise InputError([Fault(file, None, "", f"cannot be read: {error.strerror or error}", "check the path")]) from error


def _walk(walk: _Walk) -> Header:
    walk.at = 4
    version = walk.number("I", "version")
    if version & 0xFFFF == 0 and version:
        walk.order, walk.at = ">", 4
        version = walk.number("I", "version")
    if version not in VERSIONS:
        raise walk.refuse("version", f"GGUF version {version} is not known, only {' and '.join(map(str, VERSIONS))}")
    tensor_count, key_count = walk.number("Q", "tensor_count"), walk.number("Q", "metadata_kv_count")
    spent = walk.spent
    for place, count, before, most in (
        ("tensor_count", tensor_count, spent.tensor_count, MOST_TENSORS), ("metadata_kv_count", key_count, spent.key_count, MOST_KEYS),
    ):
        if before + count > most:
            earlier = f", with {before:,} in the parts before," if before else ""
            raise walk.refuse(place, f"{count:,}{earlier} is more than {most:,}")
    spent.tensor_count += tensor_count
    spent.key_count += key_count
    metadata: dict[str, Any] = {}
    for index in range(key_count):
        place = f"metadata[{index}]"
        key = walk.text(place)
        if key in metadata:
            raise walk.refuse(key[:80], "this key stands twice")
        metadata[key] = walk.value(walk.number("I", key[:80] or place), key[:80] or place)
    tensors: dict[str, Tensor] = {}
    for index in range(tensor_count):
        tensor = _tensor(walk, f"tensors[{index}]")
        if tensor.name in tensors:
            raise walk.refuse(tensor.name[:80], "this tensor stands twice")
        tensors[tensor.name] = tensor
    spent.header_bytes += walk.at
    return Header(metadata, tuple(tensors.values()))


def _tensor(walk: _Walk, place: str) -> Tensor:
    name = walk.text(place)
    dimension_count = walk.number("I", place)
    if not 0 < dimension_count <= MOST_DIMENSIONS:
        raise walk.refuse(name[:80] or place, f"a tensor of {dimension_count} dimensions")
    dims = tuple(walk.number("Q", place) for _ in range(dimension_count))
    tensor = Tensor(name, dims, walk.number("I", place))
    walk.number("Q", place)
    if not 0 < tensor.element_count <= MOST_ELEMENTS:
        raise walk.refuse(name[:80] or place, f"a tensor of {' x '.join(map(str, dims))} values")
    return tensor
