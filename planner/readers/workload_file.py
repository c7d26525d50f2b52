"""Reads a workload file: bounded, checked with every fault at once, resolved, and stamped with its digest."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.profiles import shipped_profiles
from planner.readers.yaml_file import Document, parse_yaml, read_bytes, validate
from planner.schema.workload import WorkloadFile, WorkloadSpec

MAX_WORKLOAD_BYTES = 1_000_000


def load_workload(path: Path | str, *, profile_names: Iterable[str] | None = None, shown_as: str | None = None) -> WorkloadFile:
    """Return a checked workload file with `plan.defaults` laid under every workload.

    `profile_names` are the profiles that may be named (the shipped ones, if left out); `shown_as` is the path that faults
    and the plan carry (the path as given, if left out). Raises `InputError` with every fault, each with file, line and cure.
    """
    where = Path(path)
    file = shown_as if shown_as is not None else str(path)
    raw = read_bytes(where, max_bytes=MAX_WORKLOAD_BYTES, file=file)
    return parse_workload(raw, file, profile_names=profile_names)


def parse_workload(raw: bytes, file: str, *, profile_names: Iterable[str] | None = None) -> WorkloadFile:
    """Return the checked workload file that these bytes hold; see `load_workload`."""
    document = parse_yaml(raw, file)
    known = frozenset(shipped_profiles() if profile_names is None else profile_names)
    faults = list(_unknown_profiles(document, known))
    try:
        spec = validate(WorkloadSpec, document)
    except InputError as error:
        raise InputError([*error.faults, *faults]) from None
    if faults:
        raise InputError(faults)
    values = {name: getattr(spec, name) for name in WorkloadSpec.model_fields}
    written = {*spec.model_fields_set, "path", "sha256"}
    return WorkloadFile.model_construct(written, **values, path=file, sha256=hashlib.sha256(raw).hexdigest())


def _unknown_profiles(document: Document, known: frozenset[str]) -> Iterator[Fault]:
    workloads = document.data.get("workloads") if isinstance(document.data, dict) else None
    for name, workload in workloads.items() if isinstance(workloads, dict) else ():
        for section in ((), ("load",)):
            part: Any = workload
            for step in section:
                part = part.get(step) if isinstance(part, dict) else None
            profile = part.get("profile") if isinstance(part, dict) else None
            if isinstance(profile, str) and profile not in known:
                place = ("workloads", name, *section, "profile")
                cure = did_you_mean(profile, known, "or list 168 numbers")
                yield Fault(document.file, document.line_of(place), ".".join(place), f"no profile '{profile[:60]}'", cure)


def defaults_used(model: BaseModel, place: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (place, value) for every key that was left out and has a value other than nothing: the report lists them as assumed.

    `plan.defaults` does not count as left out, for the user wrote it.
    """
    for name in type(model).model_fields:
        value = getattr(model, name)
        here = f"{place}.{name}" if place else name
        if name not in model.model_fields_set:
            if isinstance(value, BaseModel):
                yield from defaults_used(value, here)
            elif value is not None and value != () and value != {}:
                yield here, value
        elif isinstance(value, BaseModel):
            yield from defaults_used(value, here)
        elif isinstance(value, Mapping):
            for key, item in value.items():
                if isinstance(item, BaseModel):
                    yield from defaults_used(item, f"{here}.{key}")
