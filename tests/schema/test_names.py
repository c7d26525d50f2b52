"""Every number in every schema says its unit in its name, and every unit is one that a unit library can read."""

import types
import typing
from decimal import Decimal
from importlib import import_module
from pkgutil import iter_modules
from typing import Annotated, Any, get_args, get_origin

import pint
import pytest
from pydantic import BaseModel
from pydantic.fields import FieldInfo

import planner.schema
from planner import units
from planner.schema.workload import NAMES_FOR_PEOPLE

NUMBERS = (int, float, Decimal)
BAND = "low, typical and high take the unit of the field that holds the band"
INDEX = "a place in a list or a calendar, no quantity"
SIZE = "a width of matrices, written bare like hidden_size"
SAYS_UNIT_ELSEWHERE: dict[str, str] = {
    "OperatingRow.value": "its unit stands in `unit`",
    "OperatingRow.value_low": "its unit stands in `unit`",
    "OperatingRow.value_high": "its unit stands in `unit`",
    "PlanningFigure.value": "its unit stands in `unit`",
    "PlanningFigure.low": "its unit stands in `unit`",
    "PlanningFigure.high": "its unit stands in `unit`",
    "Evidence.value": "its unit stands in `unit`",
    "Supply.limits": "the keys of the mapping say the unit",
    "DispatchRow.nodes": "the keys of the mapping are pools, the values counts",
    "DispatchRow.replicas": "the keys of the mapping are candidates, the values counts",
    "DispatchRow.shares": "the keys of the mapping are supplies, the values parts of one",
    "Band.low": BAND,
    "Band.typical": BAND,
    "Band.high": BAND,
    "Gpu.release_year": INDEX,
    "Plan.version": INDEX,
    "Timeslice.index": INDEX,
    "DispatchRow.timeslice": INDEX,
    "Decision.in_service_month": INDEX,
    "Decision.until_month": INDEX,
    "Decision.requests_per_month": "said by the name",
    "WorkloadPlan.requests_per_month_first": "said by the name",
    "WorkloadPlan.requests_per_month_last": "said by the name",
    "Run.solve_seconds": "seconds, spelled out as the design's JSON spells it",
    "Run.total_seconds": "seconds, spelled out as the design's JSON spells it",
    "EngineProfile.max_tp": "a degree of parallelism, written bare like tp",
    "EngineProfile.memory_fraction": "a part of one, named as the engines name it",
    "WeightFormat.rule_bytes_per_param": "bytes for each parameter",
    "MlpGroup.expert_input_size": SIZE,
    "MlpGroup.shared_expert_intermediate_size": SIZE,
    "WeekProfile.day": "relative to any base",
    "WeekProfile.week": "relative to any base",
    "AttentionGroup.kv_compression": "tokens over entries",
}
"""Numbers whose name says no unit of `units.SUFFIXES`, each with where the unit stands instead."""


def models() -> list[type[BaseModel]]:
    found: dict[str, type[BaseModel]] = {}
    for module in iter_modules(planner.schema.__path__, "planner.schema."):
        for value in vars(import_module(module.name)).values():
            if isinstance(value, type) and issubclass(value, BaseModel) and value.__module__ == module.name:
                found[f"{module.name}.{value.__name__}"] = value
    return list(found.values())


def holds_number(annotation: Any) -> bool:
    if isinstance(annotation, FieldInfo):
        return holds_number(annotation.annotation)
    origin, arguments = get_origin(annotation), get_args(annotation)
    if origin is Annotated:
        return holds_number(arguments[0])
    if origin in (typing.Union, types.UnionType, tuple, list):
        return any(holds_number(a) for a in arguments)
    if origin is dict:
        return holds_number(arguments[1])
    return isinstance(annotation, type) and issubclass(annotation, NUMBERS) and annotation is not bool


def says_its_unit(name: str) -> bool:
    """A unit ends the name, begins it (`usd_per_mtok_input`), or stands before a qualifier (`node_hours_paid`)."""
    for suffix in units.SUFFIXES:
        if name.endswith(suffix) or name == suffix[1:] or name.startswith(f"{suffix[1:]}_"):
            return True
        if len(suffix) >= 4 and f"{suffix}_" in name:
            return True
    return False


NUMBER_FIELDS = sorted({(m.__name__, name) for m in models() for name, info in m.model_fields.items() if holds_number(info)})


def test_the_walk_finds_the_numbers() -> None:
    assert len(models()) > 30
    assert {("Node", "nameplate_w"), ("PlanSettings", "horizon_months"), ("RentRow", "usd_per_node_hour")} <= set(NUMBER_FIELDS)
    assert ("Node", "name") not in NUMBER_FIELDS


@pytest.mark.parametrize(("model", "name"), NUMBER_FIELDS, ids=[f"{m}.{n}" for m, n in NUMBER_FIELDS])
def test_a_number_names_its_unit(model: str, name: str) -> None:
    bare = units.BARE | NAMES_FOR_PEOPLE
    assert name in bare or says_its_unit(name) or f"{model}.{name}" in SAYS_UNIT_ELSEWHERE, f"{model}.{name} says no unit"


@pytest.mark.parametrize("name", ["speed", "memory", "price", "gpu_memory", "kwatt"])
def test_a_name_without_a_unit_is_noticed(name: str) -> None:
    assert not says_its_unit(name)


def registry() -> "pint.UnitRegistry[Any]":
    found: pint.UnitRegistry[Any] = pint.UnitRegistry()
    for line in (
        "usd = [money]", "tok = [token]", "mtok = 1e6 * tok", "req = [request]", "requests = req", "flop = [operation]",
        "tflop = 1e12 * flop", "gb = 1e9 * byte", "gib = 2**30 * byte", "mib = 2**20 * byte", "frac = 1", "cv = 1", "node = [node]",
        "gpu = [gpu]", "weight = [weight]", "value = [value]", "sequence = [sequence]", "unit = [currency]", "co2_t = 1000 * kilogram",
    ):  # fmt: skip
        found.define(line)
    return found


def spoken(suffix: str) -> str:
    """Return a suffix as an expression: `_usd_per_node_hour` → `usd / (node * hour)`."""
    ours = {"w": "watt", "kw": "kilowatt", "kwh": "kilowatt_hour", "t": "co2_t", "g": "gram"}
    ours |= {"s": "second", "ms": "millisecond", "us": "microsecond", "min": "minute", "bytes": "byte", "bits": "bit"}
    over = suffix[1:].split("_per_")
    parts = [" * ".join(ours.get(word, word) for word in part.split("_")) for part in over]
    return " / ".join(f"({part})" for part in parts)


@pytest.mark.parametrize("suffix", units.SUFFIXES)
def test_every_suffix_is_a_unit(suffix: str) -> None:
    unit = registry().parse_expression(spoken(suffix)) if suffix != "_count" else 1
    assert unit is not None


def test_suffixes_mean_what_the_constants_say() -> None:
    found = registry()
    assert found("gib").to("byte").magnitude == units.BYTES_PER_GIB
    assert found("gb").to("byte").magnitude == units.BYTES_PER_GB
    assert found("mtok").to("tok").magnitude == units.TOK_PER_MTOK
    per_kwh = found.parse_expression(spoken("_usd_per_kwh"))
    assert per_kwh.to("usd / joule").magnitude == pytest.approx(1 / 3.6e6)
