"""`planner schema` prints a JSON Schema that an editor can use and that agrees with what we accept."""

import copy
import datetime
import json
from pathlib import Path
from typing import Any

import jsonschema
import pytest
from click.testing import CliRunner

from planner.cli.schema import schema
from planner.errors import InputError
from planner.readers.yaml_file import read_yaml

STARTER = Path(__file__).parents[2] / "templates" / "starter.workload.yaml"


def as_json(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: as_json(v) for k, v in value.items()}
    if isinstance(value, list):
        return [as_json(v) for v in value]
    return value.isoformat() if isinstance(value, datetime.date) else value


@pytest.fixture(scope="module")
def printed() -> dict[str, Any]:
    result = CliRunner().invoke(schema, [])
    assert result.exit_code == 0
    found: dict[str, Any] = json.loads(result.output)
    return found


@pytest.fixture
def starter() -> Any:
    return as_json(read_yaml(STARTER, max_bytes=100_000).data)


def test_it_is_a_valid_schema(printed: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(printed)


def test_it_accepts_the_starter(printed: dict[str, Any], starter: Any) -> None:
    assert [e.message for e in jsonschema.Draft202012Validator(printed).iter_errors(starter)] == []


@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("plan", "horizon_month"), 36),
        (("plan", "horizon_months"), 0),
        (("plan", "start"), "december"),
        (("workloads", "support_chat", "load", "requests_per_day"), "many"),
        (("workloads", "nightly_summaries", "kind"), "bach"),
        (("workloads", "nightly_summaries", "deadline_hour"), 3),
        (("workloads", "Support Chat"), {}),
        (("sites", "office_rack", "pue"), 0.5),
    ],
)
def test_it_refuses_what_we_refuse(printed: dict[str, Any], starter: Any, place: tuple[str, ...], value: Any) -> None:
    wrong = copy.deepcopy(starter)
    part = wrong
    for step in place[:-1]:
        part = part[step]
    part[place[-1]] = value
    assert list(jsonschema.Draft202012Validator(printed).iter_errors(wrong))


def test_fields_carry_descriptions(printed: dict[str, Any]) -> None:
    assert "real discount rate" in printed["$defs"]["PlanSettings"]["properties"]["discount_frac_per_year"]["description"].lower()
    assert printed["properties"]["workloads"]["description"] == "What to serve, by name."


def test_defaulted_keys_are_not_asked_for(printed: dict[str, Any]) -> None:
    for name in ("Serving", "Batch", "Finetune"):
        assert not {"llm", "privacy"} & set(printed["$defs"][name]["required"])


def test_unknown_name_is_one_fault_with_the_nearest() -> None:
    with pytest.raises(InputError, match="did you mean 'workload'"):
        CliRunner().invoke(schema, ["--for", "workloads"], catch_exceptions=False)
