"""The models of the workload file hold their rules also where no file is read."""

from datetime import date
from typing import Any

import pytest
from pydantic import TypeAdapter, ValidationError

from planner.schema.export import field_docs
from planner.schema.workload import (
    Length,
    Load,
    Month,
    NodeOverride,
    PlanSettings,
    Privacy,
    Serving,
    WorkloadSpec,
)


def serving(**changes: Any) -> dict[str, Any]:
    return {
        "llm": "qwen3_32b",
        "privacy": {"allow": ["own", "rent"]},
        "weights": ["fp8"],
        "kv_cache": ["fp16"],
        "tokens": {"prompt": {"mean": 100, "p99": 500}, "output": {"mean": 50, "p99": 200}},
        "max_context_tok": 4096,
        "load": {"requests_per_day": 1000},
        "latency": {"ttft_p99_ms": 1000, "tpot_p99_ms": 50},
        **changes,
    }


def spec(**changes: Any) -> dict[str, Any]:
    return {"plan": {"start": "2026-12"}, "workloads": {"chat": serving()}, **changes}


def test_a_small_file_needs_little() -> None:
    found = WorkloadSpec.model_validate(spec())
    chat = found.workloads["chat"]
    assert isinstance(chat, Serving)
    assert (found.plan.horizon_months, chat.load.profile, chat.load.arrival_cv) == (36, "flat", 1.0)


def test_values_are_frozen() -> None:
    found = WorkloadSpec.model_validate(spec())
    with pytest.raises(ValidationError):
        found.plan.horizon_months = 3  # type: ignore[misc]


@pytest.mark.parametrize(
    ("value", "month"),
    [("2026-12", date(2026, 12, 1)), ("2026-12-01", date(2026, 12, 1)), (date(2026, 12, 1), date(2026, 12, 1))],
)
def test_months(value: Any, month: date) -> None:
    adapter = TypeAdapter(Month)
    assert adapter.validate_python(value) == month
    assert adapter.dump_python(month, mode="json") == "2026-12"


@pytest.mark.parametrize("value", ["2026-13", "2026-00", "26-12", "2026-12-15", date(2026, 12, 15), 2026, None, True, "2026-1٢", "0000-01"])
def test_what_is_no_month(value: Any) -> None:
    with pytest.raises(ValidationError, match="is not a month"):
        TypeAdapter(Month).validate_python(value)


@pytest.mark.parametrize(
    "load",
    [
        {},
        {"requests_per_day": 1, "concurrency": 2},
        {"users": 5},
        {"concurrency": 5, "active_frac": 0.1},
        {"requests_per_day": 5, "think_time_s": 3},
        {"requests_per_day": 0},
        {"requests_per_day": float("nan")},
        {"requests_per_day": True},
        {"requests_per_day": "60000"},
        {"concurrency": 1.5},
        {"trace": "log.csv"},
    ],
)
def test_loads_that_are_refused(load: dict[str, Any]) -> None:
    with pytest.raises(ValidationError):
        Load.model_validate(load)


def test_two_rules_give_two_faults() -> None:
    with pytest.raises(ValidationError) as caught:
        Load.model_validate({"requests_per_day": 5, "active_frac": 0.1, "think_time_s": 3})
    assert {e["loc"] for e in caught.value.errors()} == {("active_frac",), ("think_time_s",)}


def test_sessions_need_both_targets() -> None:
    for latency in ({"ttft_p99_ms": 1000}, {"tpot_p99_ms": 50}, {"e2e_p99_ms": 5000}):
        with pytest.raises(ValidationError, match="sessions become a rate"):
            Serving.model_validate(serving(load={"concurrency": 32}, latency=latency))
        Serving.model_validate(serving(latency=latency))


def test_lengths() -> None:
    Length(mean=100, p50=90, p99=100)
    with pytest.raises(ValidationError, match="below the mean"):
        Length(mean=100, p99=99)


def test_privacy() -> None:
    assert Privacy.model_validate({"allow": "own"}).allow == ("own",)
    for allow in ([], ["cloud"], ["own", "own"]):
        with pytest.raises(ValidationError):
            Privacy.model_validate({"allow": allow})


def test_tenants_stay_within_the_workload() -> None:
    tenant = {"name": "Legal", "max_context_tok": 8192, "max_concurrency": 4}
    with pytest.raises(ValidationError, match="exceed the workload's max_context_tok 4096"):
        Serving.model_validate(serving(tenants=[tenant]))
    assert Serving.model_validate(serving(tenants=[{**tenant, "max_context_tok": 4096}])).tenants[0].max_concurrency == 4


def test_every_further_key_of_the_design_is_taken() -> None:
    further = {
        "start_month": 3, "min_replicas": 1, "mix": False, "max_provider_share_frac": 0.5, "api_unproven": "accept", "api_cached_frac": 0.2,
        "evaluations": [{"weights": "awq_int4", "metric": "mmlu", "score": 0.81, "baseline": 0.82, "date": "2026-10-01"}],
        "privacy": {"allow": ["own", "rent", "api"]}, "api_equivalents": ["openai.gpt_4.1_mini"],
    }  # fmt: skip
    residual = [{"age_months": 36, "typical_frac": 0.3}]
    whole = spec(
        workloads={"chat": serving(**further)},
        nodes={"l40s_x4": {"life_months": 60, "lead_months": 2, "residual": residual, "warranty_frac_per_year": 0.05}},
        providers={"openai": {"quotas": {"max_req_per_min": 500}}},
    )
    found = WorkloadSpec.model_validate(whole)
    assert found.providers["openai"].quotas.max_req_per_min == 500
    assert found.nodes["l40s_x4"].residual is not None


def test_residual_points_are_ordered() -> None:
    with pytest.raises(ValidationError, match="out of order"):
        NodeOverride.model_validate({"residual": [{"age_months": 12, "low_frac": 0.6, "typical_frac": 0.5}]})


def test_faults_of_sections_and_of_the_whole_come_together() -> None:
    wrong = spec(owned=[{"node": "l40s_x4", "count": 0, "site": "attic", "in_service": "2025-03"}])
    with pytest.raises(ValidationError) as caught:
        WorkloadSpec.model_validate(wrong)
    assert {e["loc"] for e in caught.value.errors()} == {("owned", 0, "count"), ("owned", 0, "site")}


def test_field_docs_come_from_the_source() -> None:
    docs = field_docs(PlanSettings)
    assert docs["horizon_months"] == "Months planned."
    assert field_docs(Serving)["weights"].startswith("Weight formats"), "inherited fields too"
