"""The plan as a file: the same plan gives the same bytes, `run` aside."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError

from planner.errors import Fault, InputError, one_line
from planner.schema.plan import PLAN_KIND, Plan

AS_WRITTEN = frozenset({"resolved_workload", "extensions"})
"""Mappings in the user's own order; every other mapping is sorted by key."""
MAX_PLAN_BYTES = 200_000_000
MAX_FAULTS_COUNT = 20


def plan_json(plan: Plan) -> str:
    """Return the plan as JSON: fields in the schema's order, other mappings by key, floats as their shortest exact form.

    Raises `ValueError` where a figure is not finite: such a plan must not be written.
    """
    return json.dumps(_plain(plan), ensure_ascii=False, allow_nan=False, indent=1) + "\n"


def plan_digest(plan: Plan) -> str:
    """Return the SHA-256 of the plan without its `run`."""
    plain = _plain(plan)
    del plain["run"]
    text = json.dumps(plain, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _plain(value: Any, keeps_order: bool = False) -> Any:
    if isinstance(value, BaseModel):
        return {name: _plain(getattr(value, name), name in AS_WRITTEN) for name in type(value).model_fields}
    if isinstance(value, Mapping):
        keys = list(value) if keeps_order else sorted(value, key=str)
        return {str(key): _plain(value[key], keeps_order) for key in keys}
    if isinstance(value, (list, tuple)):
        return [_plain(item, keeps_order) for item in value]
    if isinstance(value, (set, frozenset)):
        return sorted(_plain(item) for item in value)
    if isinstance(value, float):
        return value + 0.0  # −0.0 and 0.0 are one figure
    if value is None or isinstance(value, (str, int)):
        return value
    return value.isoformat() if hasattr(value, "isoformat") else str(value)


def read_plan(path: Path) -> Plan:
    """Return the plan in a file; what is wrong with it is an `InputError`, a line for each fault."""
    shown = path.as_posix()

    def fault(place: str, what: str, cure: str, line: int | None = None) -> Fault:
        return Fault(shown, line, place, what, cure)

    again = "write it again with `planner solve`"
    try:
        if path.is_dir():
            raise InputError([fault("", "is a folder", f"give the file {shown.rstrip('/')}/plan.json")])
        too_large = InputError([fault("", f"is larger than {MAX_PLAN_BYTES // 1_000_000} MB", "give a plan.json that planner wrote")])
        if path.stat().st_size > MAX_PLAN_BYTES:
            raise too_large
        with path.open("rb") as stream:  # bounded: a device has no size and no end
            raw = stream.read(MAX_PLAN_BYTES + 1)
        if len(raw) > MAX_PLAN_BYTES:
            raise too_large
        text = raw.decode("utf-8-sig")
    except FileNotFoundError:
        raise InputError([fault("", "no such file", "give the plan.json that `planner solve --out` wrote")]) from None
    except OSError as error:
        raise InputError([fault("", f"cannot be read: {error.strerror}", "check its permissions")]) from None
    except UnicodeDecodeError:
        raise InputError([fault("", "is not UTF-8 text", "give the plan.json, not a report")]) from None
    try:
        document = json.loads(text, parse_constant=_refuse_constant)
    except json.JSONDecodeError as error:
        raise InputError([fault("", f"is not JSON: {error.msg}", again, error.lineno)]) from None
    except (ValueError, RecursionError) as error:
        raise InputError([fault("", f"is not a plan: {one_line(str(error), 80)}", again)]) from None
    if not isinstance(document, dict) or document.get("kind") != PLAN_KIND:
        raise InputError([fault("kind", f"is not '{PLAN_KIND}'", "give the plan.json that `planner solve --out` wrote")])
    try:
        return Plan.model_validate_json(text)
    except ValidationError as error:
        found = [fault(".".join(map(str, e["loc"])), one_line(e["msg"], 160), again) for e in error.errors()[:MAX_FAULTS_COUNT]]
        raise InputError(found) from None


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is no figure")
