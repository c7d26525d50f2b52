"""The metadata keys of a GGUF file's architecture, with the faults of those that a shape cannot do without."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from planner.errors import Fault


class Keys:
    """Metadata of the architecture, with the faults of the keys that are needed."""

    def __init__(self, file: str, arch: str, metadata: Mapping[str, Any]) -> None:
        self.file, self.arch, self.metadata = file, arch, metadata
        self.faults: list[Fault] = []

    def raw(self, name: str) -> Any:
        """Return a key as the file has it, None where it has none."""
        return self.metadata.get(f"{self.arch}.{name}")

    def number(self, name: str, fallback: int | None = None) -> int:
        """Return a whole number above 0; the fallback where there is none, a fault where there is no fallback either."""
        value = self.raw(name)
        if isinstance(value, list) and value:
            value = max(v for v in value)
        if isinstance(value, int) and not isinstance(value, bool) and 0 < value <= 10**9:
            return value
        if fallback is None:
            what = "missing" if value is None else f"{str(value)[:40]!r} is no count"
            self.faults.append(Fault(self.file, None, f"{self.arch}.{name}", what, "convert the model again"))
            return 1
        return fallback

    def by_layer(self, name: str, layer_count: int, fallback: int) -> list[int]:
        """Return a figure of each layer: a list of the file's, or one number for all."""
        value = self.raw(name)
        if isinstance(value, list) and all(isinstance(v, int) and 0 <= v <= 10**6 for v in value):
            if len(value) >= layer_count:
                return [int(v) for v in value[:layer_count]]
            what = f"{len(value)} values for {layer_count} layers"
            self.faults.append(Fault(self.file, None, f"{self.arch}.{name}", what, "convert the model again"))
        if isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= 10**6:
            return [value] * layer_count
        return [fallback] * layer_count
