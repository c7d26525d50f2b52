"""Reads `workloads/profiles.yaml`: the named shapes of the week, shipped with the package or the user's own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from pydantic import TypeAdapter, ValidationError

from planner.errors import Fault, InputError
from planner.readers.yaml_file import read_yaml, read_yaml_fast, validate
from planner.schema.profile import WeekProfile

MAX_PROFILE_BYTES = 1_000_000


def profiles_path() -> Path:
    """Return where the shipped profiles lie: in the wheel, or in a checkout."""
    package = Path(__file__).resolve().parents[1]
    for root in (package / "_data", package.parent):
        path = root / "workloads" / "profiles.yaml"
        if path.is_file():
            return path
    raise InputError([Fault("", None, "installation", "workloads/profiles.yaml is missing", "reinstall the package")])


def read_profiles(path: Path, file: str | None = None) -> Mapping[str, WeekProfile]:
    """Return the profiles of one file by id. Raises `InputError` with every fault."""
    try:
        rows = TypeAdapter(list[WeekProfile]).validate_python(read_yaml_fast(path, max_bytes=MAX_PROFILE_BYTES))
    except ValidationError:
        rows = validate(list[WeekProfile], read_yaml(path, max_bytes=MAX_PROFILE_BYTES, file=file))
    found: dict[str, WeekProfile] = {}
    for row in rows:
        if row.id in found:
            raise InputError([Fault(file or str(path), None, row.id, "this profile stands twice", "keep one")])
        found[row.id] = row
    return found


@cache
def shipped_profiles() -> Mapping[str, WeekProfile]:
    """Return the profiles that come with the package."""
    return read_profiles(profiles_path(), "package:workloads/profiles.yaml")
