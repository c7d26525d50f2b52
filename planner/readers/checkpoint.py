"""A model as a file states it: its shape, its weight format and, where the file holds tensors, their exact bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from planner.schema.llm import Llm, WeightFormat


@dataclass(frozen=True)
class Checkpoint:
    """A model read from a file or folder.

    `weights_bytes_by_component` holds every `Component` with the bytes of the file's own tensors; None where the file states
    the shape and the format only. `notes` say what was assumed, left out or counted apart, one sentence each.
    """

    llm: Llm
    weights: WeightFormat
    weights_bytes_by_component: Mapping[str, float] | None
    path: Path
    notes: tuple[str, ...] = ()
