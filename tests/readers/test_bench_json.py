"""JSON of benchmark tools: what each says under which key, and that what is no such file is refused at once and in bounded time.

The documents are written after the tools' own code (named in `planner/readers/bench_json.py`); the figures are made up.
"""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.readers.bench_file import MOST_BRACKETS, MOST_DOCUMENTS
from planner.readers.bench_json import read_bench_json

SERVE: dict[str, Any] = {
    "date": "20261201-070000", "endpoint_type": "openai", "backend": "openai", "label": None,
    "model_id": "meta-llama/Llama-3.1-8B-Instruct", "tokenizer_id": "meta-llama/Llama-3.1-8B-Instruct",
    "num_prompts": 80, "request_rate": "inf", "burstiness": 1.0, "max_concurrency": 8,
    "duration": 20.0, "completed": 80, "failed": 0, "total_input_tokens": 81920, "total_output_tokens": 10240, "request_throughput": 4.0,
    "request_goodput": None, "output_throughput": 512.0, "total_token_throughput": 4608.0, "mean_ttft_ms": 60.0, "median_ttft_ms": 55.0,
    "std_ttft_ms": 5.0, "p99_ttft_ms": 120.0, "mean_tpot_ms": 10.5, "median_tpot_ms": 10.3, "p99_tpot_ms": 13.0, "mean_itl_ms": 10.6,
    "median_itl_ms": 10.0, "p99_itl_ms": 40.0,
}


def spread(mean: float, unit_factor: float = 1.0) -> dict[str, Any]:
    return {"successful": {"mean": mean, "median": mean * 0.9, "percentiles": {"p50": mean * 0.9, "p99": mean * 2 * unit_factor}}}


GUIDELLM: dict[str, Any] = {
    "metadata": {"version": 1},
    "benchmarks": [
        {
            "config": {"strategy": {"type_": kind, **strategy}, "backend": {"model": "Qwen/Qwen3-32B"}},
            "metrics": {
                "request_totals": {"successful": 100, "errored": 4, "incomplete": 2, "total": 106},
                "request_concurrency": spread(7.6), "prompt_token_count": spread(1000.0), "output_token_count": spread(200.0),
                "time_to_first_token_ms": spread(80.0), "time_per_output_token_ms": spread(14.0), "inter_token_latency_ms": spread(12.0),
                "output_tokens_per_second": spread(600.0), "request_latency": spread(2.5),
            },
        }
        for kind, strategy in (
            ("concurrent", {"streams": 8}), ("poisson", {"rate": 2.5}), ("synchronous", {}), ("throughput", {"max_concurrency": 512}),
            ("concurrent", {"max_concurrency": 16}),
        )
    ],
}
AIPERF: dict[str, Any] = {
    "schema_version": "1.0", "aiperf_version": "0.3.0", "request_count": {"unit": "requests", "avg": 50.0},
    "request_throughput": {"unit": "requests/sec", "avg": 3.0}, "output_token_throughput": {"unit": "tokens/sec", "avg": 300.0},
    "request_latency": {"unit": "ms", "avg": 1500.0, "p50": 1400.0, "p99": 2000.0},
    "time_to_first_token": {"unit": "ms", "avg": 90.0, "p50": 80.0, "p99": 200.0},
    "inter_token_latency": {"unit": "ms", "avg": 14.0, "p50": 13.5, "p99": 18.0},
    "input_sequence_length": {"unit": "tokens", "avg": 550.0}, "output_sequence_length": {"unit": "tokens", "avg": 100.0},
    "input_config": {"endpoint": {"model_names": ["Qwen/Qwen3-8B"]}, "loadgen": {"concurrency": 5, "request_rate": None}},
}


def write(tmp_path: Path, data: Any, name: str = "x.json") -> Path:
    path = tmp_path / name
    path.write_text(data if isinstance(data, str) else json.dumps(data), encoding="utf-8")
    return path


def refused(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_bench_json(path)
    return "\n".join(map(str, caught.value.faults))


def test_vllm_bench_serve(tmp_path: Path) -> None:
    """Lengths are totals over answered requests: 81,920 / 80 = 1,024 and 10,240 / 80 = 128; ITL's own percentiles are not a request's."""
    (test,) = read_bench_json(write(tmp_path, SERVE))
    assert (test.model, test.input_tok, test.output_tok, test.load) == ("meta-llama/Llama-3.1-8B-Instruct", 1024.0, 128.0, "8")
    assert test.values == (
        ("ttft_mean_ms", 60.0, "ms"), ("ttft_p50_ms", 55.0, "ms"), ("ttft_p99_ms", 120.0, "ms"), ("tpot_mean_ms", 10.5, "ms"),
        ("tpot_p50_ms", 10.3, "ms"), ("tpot_p99_ms", 13.0, "ms"), ("server_output_tok_s", 512.0, "tok/s"),
    )
    assert (test.request_count, test.failed_count, test.note) == (80, 0, "")


@pytest.mark.parametrize(
    ("changed", "load"),
    [
        ({"max_concurrency": None}, "all 80 requests at once"), ({"max_concurrency": 100}, "all 80 requests at once"),
        ({"max_concurrency": None, "request_rate": 4.0}, "4 requests/s (cv 1)"),
        ({"max_concurrency": None, "request_rate": 4.0, "burstiness": 0.25}, "4 requests/s (cv 2)"),
        ({"request_rate": 4.1}, "4.1 requests/s (cv 1)"), ({"request_rate": 10.0}, "8"),
    ],
)
def test_loads_of_vllm(tmp_path: Path, changed: dict[str, Any], load: str) -> None:
    """vllm's burstiness is the shape of gamma arrivals: CV 1/sqrt(0.25) = 2. Above what is answered, the limit on clients is the load."""
    (test,) = read_bench_json(write(tmp_path, {**SERVE, **changed}))
    assert test.load == load


def test_failures_drafts_and_several_documents(tmp_path: Path) -> None:
    """--append-result writes one object after another."""
    drafted = {**SERVE, "completed": 60, "spec_decode_acceptance_rate": 0.7}
    first, second = read_bench_json(write(tmp_path, json.dumps(SERVE) + "\n" + json.dumps(drafted) + "\n"))
    assert (first.place, second.place) == ("document 1", "document 2")
    assert (second.failed_count, second.note) == (20, "speculative decoding")
    assert len(read_bench_json(write(tmp_path, [SERVE, SERVE]))) == 2


def test_vllm_bench_latency_and_throughput(tmp_path: Path) -> None:
    (latency,) = read_bench_json(write(tmp_path, {"avg_latency": 2.0, "latencies": [2.0], "percentiles": {"50": 2.0}}))
    assert latency.batch_s == 2.0 and latency.values == ()
    offline = {"elapsed_time": 10.0, "num_requests": 100, "total_num_tokens": 30000, "tokens_per_second": 3000.0}
    (test,) = read_bench_json(write(tmp_path, offline))
    assert (test.load, test.total_tok_per_request) == ("all 100 requests at once", 300.0)
    assert test.values == (("server_total_tok_s", 3000.0, "tok/s"),)


def test_guidellm(tmp_path: Path) -> None:
    """TPOT is GuideLLM's inter-token latency: its own time per output token counts the wait for the first."""
    tests = read_bench_json(write(tmp_path, GUIDELLM))
    assert [t.load for t in tests] == ["8", "2.5 requests/s (cv 1)", "1", "8", "16"]
    first = tests[0]
    assert (first.model, first.input_tok, first.output_tok, first.failed_count) == ("Qwen/Qwen3-32B", 1000.0, 200.0, 4)
    values = {metric: value for metric, value, _ in first.values}
    assert values == pytest.approx({
        "ttft_mean_ms": 80.0, "ttft_p50_ms": 72.0, "ttft_p99_ms": 160.0, "tpot_mean_ms": 12.0, "tpot_p50_ms": 10.8, "tpot_p99_ms": 24.0,
        "server_output_tok_s": 600.0,
    })


def test_guidellm_of_2025_keeps_its_strategy_under_args(tmp_path: Path) -> None:
    item = GUIDELLM["benchmarks"][0]
    old = {"benchmarks": [{
        "args": {"profile": {"type_": "sweep"}, "strategy": {"type_": "constant", "rate": 3.0}},
        "worker": {"backend_model": "Qwen/Qwen3-8B"}, "metrics": item["metrics"],
    }]}
    (test,) = read_bench_json(write(tmp_path, old))
    assert (test.load, test.model) == ("3 requests/s (cv 0)", "Qwen/Qwen3-8B")


def test_aiperf_and_genai_perf(tmp_path: Path) -> None:
    (test,) = read_bench_json(write(tmp_path, AIPERF, "profile_export_aiperf.json"))
    assert (test.tool, test.model, test.load, test.input_tok, test.output_tok) == ("AIPerf", "Qwen/Qwen3-8B", "5", 550.0, 100.0)
    assert {m: v for m, v, _ in test.values}["tpot_p99_ms"] == 18.0 and not any(m.startswith("e2e") for m, _, _ in test.values)
    genai = {
        **{k: v for k, v in AIPERF.items() if k not in ("aiperf_version", "time_to_first_token", "inter_token_latency")},
        "request_latency": {"unit": "s", "avg": 1.5}, "input_config": {"model": ["m"], "request_rate": 2.0, "concurrency": None},
    }
    (plain,) = read_bench_json(write(tmp_path, genai, "profile_export_genai_perf.json"))
    assert (plain.tool, plain.model, plain.load) == ("GenAI-Perf", "m", "2 requests/s (cv 1)")
    assert plain.values == (("e2e_mean_ms", 1500.0, "ms"), ("server_output_tok_s", 300.0, "tok/s"))


@pytest.mark.parametrize(
    ("content", "word"),
    [
        ("", "no JSON object"), ("[]", "no JSON object"), ("3", "no JSON object"), ('{"a": 1}', "no known tool"), ('{"a": ', "not JSON"),
        (json.dumps(SERVE)[:300], "not JSON"), ("[" * 200_000, "too deep"), ('{"a":' * 200_000, "too deep"),
        ('{"mean_ttft_ms": ' + "9" * 10_000 + "}", "too long"), ('{"benchmarks": []}', "no benchmark"),
        ('{"benchmarks": [1, {"metrics": {}}]}', "has no 'metrics'"), ('{"mean_ttft_ms": NaN}', "no latency and no throughput"),
        (json.dumps({**AIPERF, "time_to_first_token": {"unit": "fortnight", "avg": 1}}), "unit 'fortnight'"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: str, word: str) -> None:
    assert word in refused(write(tmp_path, content))


def test_hostile_files_end_at_once(tmp_path: Path) -> None:
    """A gigabyte is refused by its size; a folder, a pipe and a device by what they are; many documents by their number."""
    started = time.process_time()
    huge = tmp_path / "huge.json"
    with huge.open("wb") as stream:
        stream.truncate(10**9)
    assert "at most 50,000,000 bytes" in refused(huge)
    assert "objects and lists" in refused(write(tmp_path, "[" + "[]," * MOST_BRACKETS + "[]]"))
    os.mkfifo(tmp_path / "pipe.json")
    assert "not a regular file" in refused(tmp_path / "pipe.json") and "is a folder" in refused(tmp_path)
    assert "no such file" in refused(tmp_path / "none.json")
    assert "split the file" in refused(write(tmp_path, "{}" * (MOST_DOCUMENTS + 1)))
    assert "split the file" in refused(write(tmp_path, "1 " * 20_000_000))
    assert "no JSON object" in refused(write(tmp_path, " " * 40_000_000))
    assert "split the file" in refused(write(tmp_path, {"benchmarks": [1] * (MOST_DOCUMENTS + 1)}))
    (tmp_path / "bytes.json").write_bytes(b"\xff\xfe{}")
    assert "UTF-8" in refused(tmp_path / "bytes.json")
    assert time.process_time() - started < 5.0


WORDS = [
    *SERVE, "benchmarks", "metrics", "successful", "mean", "unit", "avg", "config", "strategy", "streams", "rate", "request_latency",
    "time_to_first_token", "input_config", "concurrency", "avg_latency", "latencies",
]
JSONS = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.sampled_from(WORDS), inner, max_size=6),
    max_leaves=25,
)


@given(JSONS)
@settings(max_examples=200, deadline=None)
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: Any) -> None:
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    try:
        tests = read_bench_json(path)
    except InputError as error:
        assert error.faults
    else:
        assert all(test.values or test.batch_s is not None for test in tests)
