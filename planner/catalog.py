"""Everything planner knows from files: shipped data with the user's folder laid over it, as frozen, checked objects."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import date
from functools import cache, cached_property
from pathlib import Path
from typing import TypeVar

from pydantic import BaseModel

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.prices_csv import read_price_csv
from planner.readers.yaml_file import parse_rows, read_rows
from planner.schema.efficiency import EfficiencyRow, LinkRow
from planner.schema.engine import EngineProfile
from planner.schema.hardware import Gpu, Node, Region
from planner.schema.llm import KvFormat, Llm, WeightFormat
from planner.schema.prices import ApiRow, OperatingRow, OwnRow, RentRow, SnapshotInfo

Row = TypeVar("Row", bound=BaseModel)
PRICE_FILES = ("rent.csv", "api.csv", "own.csv", "operating.csv")


@cache
def data_root() -> Path:
    """Return the folder that holds the shipped `hardware/ pricing/ workloads/ templates/`: in the wheel, or in a checkout."""
    package = Path(__file__).resolve().parent
    for root in (package / "_data", package.parent):
        if (root / "hardware").is_dir() and (root / "templates").is_dir():
            return root
    raise InputError([Fault("", None, "installation", "the shipped data folders are missing", "reinstall the package")])


def shown_path(path: Path) -> str:
    """Return a path as it may be written into a plan: `package:hardware/…` for shipped data, else as given."""
    try:
        return "package:" + path.resolve().relative_to(data_root()).as_posix()
    except ValueError:
        return path.as_posix()
