"""Read the JSON that a benchmark tool wrote: bounded in bytes and depth, one document, several after another, or a list of them."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from planner.errors import Fault, InputError
from planner.readers.bounded import decoded, read_bounded

MOST_BYTES = 50_000_000
MOST_BRACKETS = 2_000_000
"""Objects and lists take far more memory than the two bytes that open and close them."""
MOST_DOCUMENTS = 2_000
BLANKS = re.compile(r"\s*")
MOST_SEEN = 20_000
"""Values looked at when a key is searched for."""
WANTED = "a benchmark's JSON file, without the single requests (vllm: leave out --save-detailed)"
LEAN = "write it without the single requests (vllm: leave out --save-detailed), or keep the summary alone"


def read_documents(path: Path) -> list[Mapping[str, Any]]:
    """Return the JSON objects of a file, in order.

    Raises `InputError`: not a regular file, not readable, above 50 MB (its size is looked at first), not UTF-8, not JSON, nested too
    deep or too often, truncated, or no object at all.
    """
    file = str(path)
    raw = read_bounded(path, MOST_BYTES, WANTED)
    if raw.count(b"{") + raw.count(b"[") > MOST_BRACKETS:
        raise InputError([Fault(file, None, "", f"more than {MOST_BRACKETS:,} objects and lists", LEAN)])
    text = decoded(raw, file, WANTED)
    found = _parsed(file, text)
    if not found:
        raise InputError([Fault(file, None, "", "holds no JSON object", "give the JSON file as the tool wrote it")])
    return found


def _parsed(file: str, text: str) -> list[Mapping[str, Any]]:
    decoder = json.JSONDecoder()
    found: list[Mapping[str, Any]] = []
    at, count = BLANKS.match(text).end(), 0  # type: ignore[union-attr]
    try:
        while at < len(text):
            value, at = decoder.raw_decode(text, at)
            at = BLANKS.match(text, at).end()  # type: ignore[union-attr]
            count += 1
            found += [item for item in (value if isinstance(value, list) else [value]) if isinstance(item, dict)]
            if max(len(found), count) > MOST_DOCUMENTS:
                raise InputError([Fault(file, None, "", f"more than {MOST_DOCUMENTS:,} tests", "split the file")])
    except json.JSONDecodeError as error:
        what = f"is not JSON here: {error.msg}"
        raise InputError([Fault(file, error.lineno, f"column {error.colno}", what, "give the file as the tool wrote it")]) from error
    except RecursionError as error:
        raise InputError([Fault(file, None, "", "is nested too deep", "give the file as the tool wrote it")]) from error
    except ValueError as error:  # a whole number of thousands of digits
        raise InputError([Fault(file, None, "", "holds a number that is too long", "give the file as the tool wrote it")]) from error
    return found


def number_at(data: Any, *keys: str) -> float | None:
    """Return the finite number under a path of keys, or None where there is none; a number in text counts."""
    for key in keys:
        if not isinstance(data, Mapping):
            return None
        data = data.get(key)
    if isinstance(data, bool) or not isinstance(data, (int, float, str)):
        return None
    try:
        value = float(data)
    except (ValueError, OverflowError):
        return None
    return value if math.isfinite(value) else None


def count_at(data: Any, *keys: str) -> int | None:
    """Return the whole number of at least 0 under a path of keys, or None."""
    value = number_at(data, *keys)
    return int(value) if value is not None and 0 <= value <= 10**9 and value == int(value) else None


def text_at(data: Any, *keys: str) -> str:
    """Return the text under a path of keys, the first of a list; "" where there is none."""
    for key in keys:
        if not isinstance(data, Mapping):
            return ""
        data = data.get(key)
    if isinstance(data, Sequence) and not isinstance(data, str) and data:
        data = data[0]
    return data[:300] if isinstance(data, str) else ""


def found_below(data: Any, key: str) -> Iterator[Any]:
    """Yield what stands under a key anywhere inside, nearest to the top first."""
    level, seen = [data], 0
    while level and seen < MOST_SEEN:
        below: list[Any] = []
        for item in level:
            seen += 1
            if isinstance(item, Mapping):
                if key in item:
                    yield item[key]
                below += item.values()
            elif isinstance(item, list):
                below += item[:100]
        level = [item for item in below if isinstance(item, (Mapping, list))]
