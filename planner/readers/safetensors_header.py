"""Read the header of a safetensors file, or of all shards of one, without its data: names, dtypes, shapes and exact bytes.

The format is read directly, not with the `safetensors` package: the package wants the whole file, while the first kilobytes of a
shard (a range download) already hold every size. The layout is that of `github:huggingface/safetensors README.md`: eight bytes of
header length (little endian), a JSON object, then the data without a gap.
"""

from __future__ import annotations

import json
import math
import re
import stat
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from planner.errors import Fault, InputError
from planner.readers.bounded import read_bounded

MOST_HEADER_BYTES = 100_000_000
"""The format's own limit, for one header; here for all headers of one model together."""
MOST_INDEX_BYTES = 50_000_000
MOST_SHARDS = 2_000
MOST_BYTES = 10**15
MOST_TENSORS = 500_000
"""Tensors of one model: Kimi-K2, of 384 experts in each of 60 layers, holds about 280,000 in four tensors a matrix."""
MOST_NAME_PARTS = 64
"""Modules that lie within each other in a tensor's name."""
BITS = {
    **dict.fromkeys(("BOOL", "U8", "I8", "F8_E5M2", "F8_E4M3", "F8_E8M0", "F8_E4M3FNUZ", "F8_E5M2FNUZ"), 8),
    **dict.fromkeys(("I16", "U16", "F16", "BF16"), 16), **dict.fromkeys(("I32", "U32", "F32"), 32),
    **dict.fromkeys(("I64", "U64", "F64", "C64"), 64), "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6,
}
"""Bits of one element by dtype, as `pypi:safetensors==0.8.0` knows them."""
SHARD = re.compile(r"^(.*)-(\d{5,6})-of-(\d{5,6})\.safetensors$")
COPY = "download the file again: it is not as published"


@dataclass(frozen=True)
class Tensor:
    """One tensor as the header states it; `byte_count` are its bytes in the file."""

    name: str
    dtype: str
    shape: tuple[int, ...]
    byte_count: int


@dataclass(frozen=True)
class Index:
    """`model.safetensors.index.json`: the shards it names, the tensors, and the bytes of all of them where it states those."""

    shards: tuple[str, ...]
    names: tuple[str, ...]
    total_bytes: int | None


def _refuse(path: Path, place: str, what: str, cure: str = COPY) -> InputError:
    return InputError([Fault(str(path), None, place[:120], what, cure)])


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data:
            raise ValueError(f"'{key[:80]}' is written twice")
        data[key] = value
    return data


def load_json(path: Path, raw: bytes, what: str) -> dict[str, Any]:
    """Return a JSON object from bytes. Raises `InputError`: not UTF-8, not JSON, a key twice, too deep, NaN, not an object."""
    if raw.count(b"{") + raw.count(b"[") > 3 * MOST_TENSORS or raw.count(b",") > 12 * MOST_TENSORS:
        raise _refuse(path, what, f"holds more values than {MOST_TENSORS:,} tensors take")

    def constant(name: str) -> float:
        raise ValueError(f"holds {name}, which is no JSON number")

    try:
        data = json.loads(raw.decode("utf-8"), object_pairs_hook=_once, parse_constant=constant)
    except UnicodeDecodeError as error:
        raise _refuse(path, what, "is not UTF-8 text") from error
    except RecursionError as error:
        raise _refuse(path, what, "is nested too deeply") from error
    except ValueError as error:
        raise _refuse(path, what, f"is no JSON to rely on: {str(error)[:160]}") from error
    if not isinstance(data, dict):
        raise _refuse(path, what, "is JSON, but not an object")
    return data


def _size(path: Path) -> int:
    status = path.stat()
    if not stat.S_ISREG(status.st_mode):
        raise _refuse(path, "", "is not a regular file", "give the path of a file")
    return status.st_size


def _header(path: Path, most_bytes: int) -> tuple[list[Tensor], bool, int]:
    """Return the tensors of one file, whether its data is there too, and the bytes of its header, at most `most_bytes`.

    Raises `InputError`: a length beyond the file or the format's limit, unknown dtypes, shapes and offsets that contradict each
    other, overlap, leave a gap, or end before the file does.
    """
    try:
        size = _size(path)
        with path.open("rb") as file:
            start = file.read(8)
            length = int.from_bytes(start, "little")
            if len(start) < 8 or length < 2:
                raise _refuse(path, "header", "is too short for a safetensors file")
            if length > MOST_HEADER_BYTES:
                raise _refuse(path, "header", f"a length of {length} bytes, more than the format's {MOST_HEADER_BYTES}")
            if length > most_bytes:
                raise _refuse(path, "header", f"the shards' headers together pass {MOST_HEADER_BYTES:,} bytes")
            if 8 + length > size:
                raise _refuse(path, "header", f"a length of {length} bytes in a file of {size}", "fetch at least the whole header")
            raw = file.read(length)
    except OSError as error:
        raise _refuse(path, "", f"cannot be read: {error.strerror}", "check the path") from error
    entries = load_json(path, raw, "header")
    entries.pop("__metadata__", None)
    if len(entries) > MOST_TENSORS:
        raise _refuse(path, "header", f"{len(entries):,} tensors, more than {MOST_TENSORS:,}")
    spans = sorted((_span(path, name, entry) for name, entry in entries.items()), key=lambda item: item[:2])
    end = 0
    for begin, stop, tensor in spans:
        if begin != end:
            raise _refuse(path, tensor.name, f"begins at byte {begin} where the one before ends at {end}: an overlap or a gap")
        end = stop
    if 8 + length + end < size:
        raise _refuse(path, "header", f"accounts for {8 + length + end} bytes of a file of {size}")
    return [tensor for _, _, tensor in spans], 8 + length + end == size, length


def _span(path: Path, name: str, entry: Any) -> tuple[int, int, Tensor]:
    """Return where a tensor begins and ends in the data, and the tensor."""
    if name.count(".") >= MOST_NAME_PARTS:
        raise _refuse(path, name, f"a name of more than {MOST_NAME_PARTS} parts")
    if not isinstance(entry, Mapping):
        raise _refuse(path, name, "is not an object of dtype, shape and data_offsets")
    dtype, shape, offsets = entry.get("dtype"), _wholes(entry.get("shape")), _wholes(entry.get("data_offsets"))
    if not isinstance(dtype, str) or dtype not in BITS:
        raise _refuse(path, name, f"dtype {str(dtype)[:40]!r} is not known", f"known: {', '.join(BITS)}")
    if shape is None:
        raise _refuse(path, name, "shape is not a short list of whole numbers of at least 0")
    if offsets is None or len(offsets) != 2:
        raise _refuse(path, name, "data_offsets are not two whole numbers of at least 0")
    bits = math.prod(shape) * BITS[dtype]
    begin, stop = offsets
    if bits % 8 or stop - begin != bits // 8:
        raise _refuse(path, name, f"{dtype} of shape {str(shape)[:60]} is {bits // 8} bytes, its offsets say {stop - begin}")
    return begin, stop, Tensor(name, dtype, tuple(shape), stop - begin)


def _wholes(value: Any) -> list[int] | None:
    """Return a short list of whole numbers of at least 0, else None."""
    return value if isinstance(value, list) and len(value) <= 32 and all(type(x) is int and 0 <= x <= MOST_BYTES for x in value) else None


def read_index(path: Path) -> Index:
    """Return what an index of shards states. Raises `InputError`: no `weight_map`, names that leave the folder, an absurd total."""
    data = load_json(path, read_bounded(path, MOST_INDEX_BYTES, "the index.json"), "")
    weight_map = data.get("weight_map")
    if not isinstance(weight_map, Mapping) or not weight_map:
        raise _refuse(path, "weight_map", "missing or empty", "give a model.safetensors.index.json")
    shards: set[str] = set()
    for name, shard in weight_map.items():
        if not isinstance(shard, str) or not re.fullmatch(r"[\w.-]+\.safetensors", shard):
            raise _refuse(path, f"weight_map.{name}", f"{str(shard)[:80]!r} is not the name of a .safetensors file beside the index")
        shards.add(shard)
    if len(shards) > MOST_SHARDS:
        raise _refuse(path, "weight_map", f"names {len(shards)} shards, more than {MOST_SHARDS}")
    metadata = data.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, Mapping) else None
    if isinstance(total, float) and total.is_integer() and total >= 0:
        total = int(total)
    if total is not None and (type(total) is not int or not 0 < total <= MOST_BYTES):
        raise _refuse(path, "metadata.total_size", f"{str(total)[:40]!r} is not a count of bytes from 1 to {MOST_BYTES}")
    return Index(tuple(sorted(shards)), tuple(weight_map), total)


def shards_of(path: Path) -> list[str]:
    """Return the names of all shards that a file is one of (`model-00001-of-00003.safetensors`), itself alone where it is whole."""
    match = SHARD.match(path.name)
    if match is None:
        return [path.name]
    stem, width, count = match[1], len(match[3]), int(match[3])
    if not 1 <= int(match[2]) <= count <= MOST_SHARDS:
        raise _refuse(path, "", f"is shard {int(match[2])} of {count}", "give a shard as published")
    return [f"{stem}-{number:0{width}}-of-{match[3]}.safetensors" for number in range(1, count + 1)]


def read_shards(folder: Path, names: list[str] | tuple[str, ...]) -> tuple[list[Tensor], bool]:
    """Return the tensors of all shards, and whether all their data is there. A tensor in two shards is refused.

    All shards share the limits of one header: its bytes and its tensors. Raises `InputError` as for one file.
    """
    tensors: dict[str, Tensor] = {}
    is_whole, header_bytes = True, 0
    for name in names:
        found, is_there, own_bytes = _header(folder / name, MOST_HEADER_BYTES - header_bytes)
        is_whole = is_whole and is_there
        header_bytes += own_bytes
        if len(tensors) + len(found) > MOST_TENSORS:
            raise _refuse(folder / name, "header", f"the shards together hold more than {MOST_TENSORS:,} tensors")
        for tensor in found:
            if tensor.name in tensors:
                raise _refuse(folder / name, tensor.name, "is in two shards", "keep the shards of one model in the folder")
            tensors[tensor.name] = tensor
    return list(tensors.values()), is_whole
