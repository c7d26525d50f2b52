"""From a tool's own JSON to predicted rows: what the user states, and what is asked for once."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path

import pytest

from planner.bench_rows import deployment_of, rows_of
from planner.catalog import Catalog, load_catalog
from planner.cli.main import main
from planner.errors import InputError
from planner.schema.measured import BenchTest, Deployment

TEST = BenchTest(
    file="runs/a.json", place="", tool="vllm bench serve", model="meta-llama/Llama-3.1-8B-Instruct", input_tok=1024.0, output_tok=128.0,
    load="8", values=(("ttft_mean_ms", 60.0, "ms"), ("server_output_tok_s", 512.0, "tok/s")), request_count=80,
)
SERVE = {
    "model_id": "meta-llama/Llama-3.1-8B-Instruct", "num_prompts": 80, "request_rate": "inf", "max_concurrency": 8, "completed": 80,
    "total_input_tokens": 81920, "total_output_tokens": 10240, "request_throughput": 4.0, "output_throughput": 600.0,
    "mean_ttft_ms": 200.0, "mean_tpot_ms": 10.5,
}


@cache
def catalog() -> Catalog:
    return load_catalog()


def at(**options: object) -> Deployment:
    return deployment_of(catalog(), {"gpu": "2xh100_sxm", "engine": "vllm", "weights": "fp8", **options})


def test_a_deployment_is_stated_by_options() -> None:
    found = at(tp=2, kv_cache="fp8", engine_version="0.12.0")
    assert (found.gpu, found.gpu_count, found.engine, found.weights, found.tp) == ("h100_sxm_80gb", 2, "vllm", "fp8", 2)
    (ttft, rate) = rows_of(catalog(), [TEST], found)
    assert (ttft.model, ttft.accelerator, ttft.gpu_count, ttft.kv_format, ttft.engine_version) == (
        "llama_3.1_8b", "h100_sxm_80gb", 2, "fp8", "0.12.0")
    assert (rate.metric, rate.value, rate.load, rate.input_tok, rate.request_count) == ("server_output_tok_s", 512.0, "8", 1024.0, 80)
    assert ttft.id != rate.id


def test_every_wrong_option_is_told_at_once() -> None:
    with pytest.raises(InputError) as caught:
        at(gpu="2xh1000", engine="vlm", weights="fp9", llm="llama_9", kv_cache="fp1")
    assert {fault.place for fault in caught.value.faults} == {"--gpu", "engine", "weights", "llm", "kv_cache"}
    with pytest.raises(InputError, match="does not divide 2"):
        at(tp=3)
    with pytest.raises(InputError, match="several"):
        at(gpu="a100")


def test_what_nobody_said_is_asked_for_once() -> None:
    tests = [TEST, BenchTest("b.json", "", "t", "no/such", None, None, "", (("ttft_mean_ms", 1.0, "ms"),))]
    with pytest.raises(InputError) as caught:
        rows_of(catalog(), tests, Deployment())
    told = {fault.place: str(fault) for fault in caught.value.faults}
    assert set(told) == {"--llm", "--gpu", "--engine", "--weights", "--input", "--output", "--concurrency"}
    assert "a.json, b.json" in told["--gpu"] and "no/such" in told["--llm"] and "a.json" not in told["--input"]


def test_lengths_and_loads_that_a_tool_leaves_out() -> None:
    """A batch of 8 in 2 s gives 8 x 100 / 2 = 400 tokens a second; 300 tokens a request less 100 of answer are 200 of prompt."""
    batch = BenchTest("l.json", "", "vllm bench latency", "", None, None, "", (), batch_s=2.0)
    (row,) = rows_of(catalog(), [batch], at(llm="llama_3.1_8b", input_tok=32.0, output_tok=100.0, concurrency=8))
    assert (row.metric, row.value, row.load) == ("gen_tok_s_incl_prefill", 400.0, "8")
    values = (("server_total_tok_s", 1.0, "tok/s"),)
    total = BenchTest("t.json", "", "t", "", None, None, "all 9 requests at once", values, total_tok_per_request=300.0)
    (row,) = rows_of(catalog(), [total], at(llm="llama_3.1_8b", output_tok=100.0))
    assert (row.input_tok, row.output_tok) == (200.0, 100.0)


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stop:
        main(["validate", *args])
    shown = capsys.readouterr()
    return int(stop.value.code or 0), shown.out, shown.err


def test_command_takes_patterns_and_mixes_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("one.json", "two.json"):
        (tmp_path / name).write_text(json.dumps(SERVE))
    (tmp_path / "own.csv").write_text(
        "id,engine,model,weight_format,accelerator,input_tokens,output_tokens,concurrency_or_batch,metric,value\n"
        "c,vllm,llama_3.1_8b,bf16,h100_sxm_80gb,1024,128,8,tpot_mean_ms,9\n")
    stated = ("--gpu", "h100_sxm_80gb", "--engine", "vllm", "--weights", "bf16")
    code, out, _ = run(capsys, str(tmp_path / "*.json"), str(tmp_path / "own.csv"), *stated, "--json")
    data = json.loads(out)
    assert code == 0 and data["row_count"] == data["predicted_count"] == 7


def test_command_tells_all_faults_at_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.json").write_text('{"mean_ttft_ms": ')
    (tmp_path / "good.json").write_text(json.dumps(SERVE))
    (tmp_path / "bad.csv").write_text("id\n")
    code, _, err = run(capsys, *(str(tmp_path / n) for n in ("bad.json", "good.json", "bad.csv", "none*.json")), "--weights", "fp9")
    assert code == 2
    for word in ("bad.json", "bad.csv", "matches no file", "fp9"):
        assert word in err
    code, _, err = run(capsys, str(tmp_path / "good.json"))
    assert code == 2 and err.count("\n") == 3 and "--gpu" in err and "--engine" in err and "--weights" in err
    (tmp_path / "good.csv").write_text("id,engine,model,weight_format,accelerator,metric,value\n")
    code, _, err = run(capsys, str(tmp_path / "good.csv"), "--input", "5")
    assert code == 2 and "--input" in err and "JSON files" in err
