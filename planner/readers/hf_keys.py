"""Typed look-ups in one section of a config.json that collect every fault instead of stopping at the first."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from planner.errors import Fault

LARGEST_COUNT = 10**9
MOST_LAYERS = 10_000
PAIR = 2
LAYER_KEYS = frozenset({"num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_decoder_layers", "decoder_layers", "encoder_layers",
                        "num_transformer_layers"})
"""Keys whose number is walked one by one: bounded, so that an absurd file costs no time."""


class Keys:
    """One JSON object of the file, its place in it, and the list of faults it shares with its siblings."""

    def __init__(self, data: Mapping[str, Any], file: str, place: str, faults: list[Fault], model_type: str) -> None:
        self._data, self._file, self._place, self.faults, self.model_type = data, file, place, faults, model_type

    def fault(self, key: str, what: str, cure: str) -> None:
        """Note one fault at `key`."""
        place = f"{self._place}.{key}" if self._place else key
        self.faults.append(Fault(self._file, None, place, what, cure))

    def has(self, key: str) -> bool:
        """Return whether the key is there and not null."""
        return self._data.get(key) is not None

    def _first(self, names: tuple[str, ...]) -> tuple[str, Any]:
        for name in names:
            if self._data.get(name) is not None:
                return name, self._data[name]
        return names[0], None

    def count(self, *names: str, default: int | None = None) -> int:
        """Return the first of `names` as a whole number of at least 1; 1 after noting a fault."""
        name, value = self._first(names)
        if value is None:
            if default is not None:
                return default
            self.fault(name, "missing", "add it: this architecture's shape cannot be read without it")
            return 1
        return self._whole(name, value, 1)

    def count_or_first(self, *names: str, default: int | None = None) -> int:
        """Return `count`, or the first entry where the file lists one number a layer; 0 is allowed where `default` is 0."""
        name, value = self._first(names)
        if isinstance(value, list) and value and len(value) <= MOST_LAYERS:
            value = value[0]
        if default == 0 and value == 0 and not isinstance(value, bool):
            return 0
        if value is None:
            return self.count(*names, default=default)
        return self._whole(name, value, 1)

    def optional_first(self, *names: str) -> int | None:
        """Return the first of `names` that is there as a whole number of at least 1, or None where none is, or it is 0."""
        return next((found for name in names if (found := self.optional_count(name)) is not None), None)

    def optional_count(self, name: str) -> int | None:
        """Return a whole number of at least 1, or None where the key is absent, null, or 0."""
        value = self._data.get(name)
        return None if value is None or (value == 0 and not isinstance(value, bool)) else self._whole(name, value, 1)

    def index(self, name: str, default: int) -> int:
        """Return a whole number of at least 0; of a list, its first entry."""
        value = self._data.get(name)
        if isinstance(value, list) and value:
            value = value[0]
        return default if value is None else self._whole(name, value, 0)

    def _whole(self, name: str, value: Any, least: int) -> int:
        most = MOST_LAYERS if name in LAYER_KEYS else LARGEST_COUNT
        if isinstance(value, bool) or not isinstance(value, int) or not least <= value <= most:
            self.fault(name, f"{str(value)[:40]!r} is not a whole number from {least} to {most}", "write a plain integer")
            return 1
        return value

    def number(self, name: str) -> float:
        """Return a positive finite number; 1 after noting a fault."""
        value = self._data.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not 0 < value <= LARGEST_COUNT:
            self.fault(name, f"{str(value)[:40]!r} is not a positive number", "write a plain number")
            return 1.0
        return float(value)

    def positive_numbers(self, name: str, n: int) -> list[float]:
        """Return the first `n` of a list of positive finite numbers; ones after noting a fault."""
        value = self._data.get(name)
        if isinstance(value, list) and n <= len(value) <= MOST_LAYERS and all(
            isinstance(x, int | float) and not isinstance(x, bool) and 0 < x <= MOST_LAYERS for x in value
        ):
            return [float(x) for x in value[:n]]
        self.fault(name, f"is not a list of {n} positive numbers", "write one number a layer")
        return [1.0] * n

    def flag(self, name: str, default: bool = False) -> bool:
        """Return a true or false."""
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, bool):
            self.fault(name, f"{str(value)[:40]!r} is neither true nor false", "write true or false")
            return default
        return value

    def text(self, name: str, default: str) -> str:
        """Return a string."""
        value = self._data.get(name)
        if value is None:
            return default
        if not isinstance(value, str) or len(value) > MOST_LAYERS:
            self.fault(name, "is not a short string", "write a string")
            return default
        return value

    def _list(self, name: str, kind: type) -> list[Any]:
        value = self._data.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or len(value) > MOST_LAYERS or not all(isinstance(x, kind) for x in value):
            word = {int: "whole numbers", str: "strings"}.get(kind, "objects")
            self.fault(name, f"is not a list of {word}", "write one entry a layer")
            return []
        return value

    def names(self, name: str) -> list[str]:
        """Return a list of strings, empty where the key is absent."""
        return self._list(name, str)

    def numbers(self, name: str) -> list[int]:
        """Return a list of whole numbers, empty where the key is absent."""
        return self._list(name, int)

    def section(self, name: str) -> Keys:
        """Return a nested object; an empty one after noting a fault."""
        value = self._data.get(name)
        if not isinstance(value, Mapping):
            self.fault(name, "is not an object", "copy the file as published")
            value = {}
        return Keys(value, self._file, f"{self._place}.{name}" if self._place else name, self.faults, self.model_type)

    def sections(self, name: str) -> list[Keys]:
        """Return a list of nested objects."""
        place = f"{self._place}.{name}" if self._place else name
        return [Keys(x, self._file, f"{place}[{i}]", self.faults, self.model_type) for i, x in enumerate(self._list(name, dict))]

    def layer_entry(self, name: str, index: int) -> Keys:
        """Return one layer's object of a table by layer number (`per_layer_config`), an empty one where there is none."""
        table = self._data.get(name)
        for spelled in (str(index), f"{index:02d}", f"{index:03d}"):
            if isinstance(table, Mapping) and isinstance(table.get(spelled), Mapping):
                place = f"{self._place}.{name}.{spelled}" if self._place else f"{name}.{spelled}"
                return Keys(table[spelled], self._file, place, self.faults, self.model_type)
        return self.empty(f"{name}.{index}")

    def empty(self, name: str) -> Keys:
        """Return an object without keys at the place of `name`, for a section that may be left out."""
        return Keys({}, self._file, f"{self._place}.{name}" if self._place else name, self.faults, self.model_type)

    def second(self, name: str) -> int | None:
        """Return the second entry of a list as a whole number of at least 1, None where there is none or it is 0."""
        value = self._data.get(name)
        if not isinstance(value, list) or len(value) != PAIR or value[1] == 0:
            return None
        return self._whole(name, value[1], 1)

    def plain_int(self, name: str) -> int | None:
        """Return the key's value where it is a whole number of any sign, else None."""
        value = self._data.get(name)
        return value if isinstance(value, int) and not isinstance(value, bool) and abs(value) <= LARGEST_COUNT else None

    def is_text(self, name: str) -> bool:
        """Return whether the key holds a string."""
        return isinstance(self._data.get(name), str)

    def is_list(self, name: str) -> bool:
        """Return whether the key holds a list."""
        return isinstance(self._data.get(name), list)
