"""From a public row to a prediction: names, loads, what is left out and why, and the errors by group."""

from __future__ import annotations

import json
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest

from planner.catalog import Catalog, load_catalog
from planner.cli.main import main
from planner.measuring import measured_names, resolve
from planner.schema.measured import MeasuredRow, MeasuredRun, ModelName
from planner.validating import Predictor, error_groups, lengths_of, validate, version_of

ROW = MeasuredRow(
    id="r1", source="lab/repo:file", engine="vLLM", engine_version="0.12.0", model="llama_3.1_8b", params_note="", weight_format="bf16",
    kv_format="", accelerator="H100 SXM 80GB", gpu_count=1, tp=1, pp=None, ep=None, input_tok=1024.0, output_tok=128.0, load="8",
    metric="tpot_mean_ms", value=10.0, unit="ms", note="", line=2,
)
HEAD = "id,engine,model,weight_format,accelerator,n_accel,tp,input_tokens,output_tokens,concurrency_or_batch,metric,value,note"


@cache
def catalog() -> Catalog:
    return load_catalog()


def one(row: MeasuredRow) -> MeasuredRun:
    runs, skipped = resolve(catalog(), [row])
    assert not skipped, skipped
    return runs[0]


def reason(row: MeasuredRow) -> str:
    runs, skipped = resolve(catalog(), [row])
    assert not runs and skipped[0].id == row.id
    return skipped[0].reason


def test_every_name_of_the_table_is_in_the_catalog() -> None:
    names, c = measured_names(), catalog()
    assert {m.llm if isinstance(m, ModelName) else m for m in names.models.values()} <= set(c.llm_ids())
    assert set(names.accelerators.values()) <= set(c.gpus) and set(names.weight_formats.values()) <= set(c.weight_formats)


def test_names_loads_and_units() -> None:
    run = one(ROW)
    assert (run.gpu.id, run.engine, run.tp, run.load_kind, run.load_count) == ("h100_sxm_80gb", "vllm", 1, "steady", 8.0)
    assert run.value == pytest.approx(0.010)
    burst = one(replace(ROW, load="all 1000 requests at once (peak ?)"))
    assert (burst.load_kind, burst.load_count) == ("burst", 1000.0)
    full = one(replace(ROW, load="max load (trtllm-bench)", metric="server_output_tok_s_per_gpu", gpu_count=4, tp=2, value=100.0))
    assert full.load_kind == "full" and full.value == 400.0
    assert one(replace(ROW, engine="llama.cpp (CUDA)", weight_format="GGUF Q4_K_M", gpu_count=2, metric="decode_tok_s")).pp == 2
    assert one(replace(ROW, model="openai/gpt-oss-120b", weight_format="FP4")).weights.id == "mxfp4"
    drawn = one(replace(ROW, note="InferenceX run"))
    assert drawn.input_tok == pytest.approx(0.9 * 1024) and min(p for p, _ in lengths_of(drawn, 500)) >= 819


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"metric": "watts"}, "metric 'watts'"), ({"accelerator": "Abacus"}, "accelerator 'Abacus'"), ({"model": "x"}, "model 'x'"),
        ({"engine": "x"}, "engine 'x'"), ({"weight_format": "x"}, "weight format 'x'"), ({"load": "plenty"}, "load 'plenty'"),
        ({"load": "all 99999999999 requests at once"}, "no number of requests"), ({"load": "0 requests/s"}, "a rate of no requests"),
        ({"input_tok": None}, "length not stated"), ({"output_tok": 1.0}, "length not stated"),
        ({"tp": 3, "gpu_count": 4}, "does not divide"),
        ({"note": "SPECULATIVE DECODING"}, "acceptance not stated"), ({"note": "PREFIX CACHE flag"}, "hits not stated"),
        ({"note": "FAILED 6 of 100"}, "5% of its requests failed"), ({"load": "Server"}, "rate that the test reached"),
        ({"load": "Server", "metric": "server_throughput"}, "limits on latency not stated"),
        ({"load": "2 requests/s", "metric": "server_output_tok_s"}, "rate of arrivals was set"),
        ({"note": "DISAGGREGATED prefill"}, "separate pools"), ({"note": "attention_dp=8"}, "data-parallel attention"),
    ],
)
def test_what_is_left_out_has_its_reason(changed: dict[str, object], word: str) -> None:
    assert word in reason(replace(ROW, **changed))  # type: ignore[arg-type]


def test_predictions_have_a_band_and_the_right_magnitude() -> None:
    """Weights of 16.06 GB at 3.35 TB/s are 4.8 ms a step at the least: eight clients see more, and not ten times more."""
    found = Predictor(catalog()).predict(one(ROW))
    assert not isinstance(found, str)
    assert found.low <= found.typical <= found.high and 0.0048 < found.typical < 0.048


def test_p99_is_not_below_the_median() -> None:
    rows = [replace(ROW, id=str(i), metric=m, note="InferenceX run") for i, m in enumerate(("ttft_p50_ms", "ttft_p99_ms"))]
    median, p99 = (p.typical for p in validate(catalog(), rows).predictions)
    assert p99 >= median


def test_users_times_their_rate_is_the_whole_rate() -> None:
    """A full server's tokens a second are its clients over the time each waits for one answer (Little's law), ramps aside."""
    rows = [replace(ROW, id=m, metric=m) for m in ("server_output_tok_s", "tpot_mean_ms", "ttft_mean_ms")]
    rate, tpot, ttft = (p.typical for p in validate(catalog(), rows).predictions)
    assert rate == pytest.approx(8 * 128 / (ttft + 127 * tpot), rel=0.08)


def test_groups_count_rows_errors_and_what_was_skipped() -> None:
    rows = [replace(ROW, id="a"), replace(ROW, id="b", value=1000.0), replace(ROW, id="c", model="x")]
    found = validate(catalog(), rows)
    whole = next(g for g in error_groups(found.predictions, found.skipped) if g.by == "all")
    assert (whole.metric, whole.row_count, whole.skipped_count) == ("tpot", 2, 1)
    assert found.row_count == 3 and found.skipped_by_reason == {"model 'x' is not in the catalog": 1}


def test_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = tmp_path / "mine.csv"
    path.write_text(HEAD + "\na,vLLM,llama_3.1_8b,bf16,h100_sxm_80gb,1,1,1024,128,8,tpot_mean_ms,9,\nb,x,y,z,w,1,1,1,1,1,m,1,\n")
    with pytest.raises(SystemExit) as stop:
        main(["validate", str(path), "--json"])
    data = json.loads(capsys.readouterr().out)
    assert stop.value.code == 0 and set(data) >= {"groups", "skipped", "rows"}
    keys = {"metric", "by", "key", "row_count", "skipped_count", "median_abs_err_frac", "p90_abs_err_frac", "bias_frac"}
    assert set(data["groups"][0]) >= keys
    assert set(data["rows"][0]) >= {"id", "metric", "measured", "predicted", "err_frac"} and data["skipped"][0]["id"] == "b"
    with pytest.raises(SystemExit):
        main(["validate", str(path)])
    shown = capsys.readouterr().out
    assert "2 rows: 1 predicted, 1 left out" in shown and "left out 1: metric 'm' is not predicted" in shown


def test_command_tells_every_file_at_fault(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    bad = tmp_path / "bad.csv"
    bad.write_text("id\n")
    with pytest.raises(SystemExit) as stop:
        main(["validate", str(bad), str(tmp_path / "none.csv")])
    told = capsys.readouterr().err
    assert stop.value.code == 2 and "bad.csv" in told and "none.csv" in told


MLPERF = replace(
    ROW, source="mlcommons/inference_results_v5.1:closed/X/results/S/llama3.1-8b/Server/performance/run_1",
    engine="TensorRT 10.11, CUDA 12.9", engine_version="MLPerf v5.1", model="llama3.1-8b", weight_format="fp8",
    accelerator="H200 SXM 141GB", gpu_count=8, tp=None, input_tok=None, output_tok=128.0, load="Server",
    metric="server_throughput", value=50_000.0,
    note="division=closed; limits ttft<=2s tpot<=100ms (p99)",
)


def test_mlperf_fills_in_the_lengths_of_its_task_and_the_rate_it_reached() -> None:
    """50,000 tok/s of 128 tokens are 390.6 requests/s; 8 GB of weights fit one GPU, so eight copies share them."""
    rows = [
        MLPERF, replace(MLPERF, id="r2", metric="ttft_p99_ms", value=900.0),
        replace(MLPERF, id="r3", load="Offline", metric="offline_throughput"),
    ]
    runs, skipped = resolve(catalog(), rows)
    assert not skipped
    limited, latency, offline = runs
    assert (limited.load_kind, limited.ttft_limit_s, limited.tpot_limit_s, limited.tp) == ("limits", 2.0, pytest.approx(0.1), 1)
    assert (latency.load_kind, latency.load_count) == ("rate", pytest.approx(390.625))
    assert offline.load_kind == "full" and limited.input_tok == measured_names().datasets["llama3.1-8b"].input_tok
    assert limited.input_p99_tok is not None and limited.input_p99_tok > limited.input_tok
    assert "length not stated" in reason(replace(MLPERF, source="another lab"))
    found = Predictor(catalog()).predict(limited)
    assert not isinstance(found, str) and 10_000 < found.typical < 200_000


def test_a_rate_beyond_capacity_has_no_latency() -> None:
    """A tenth of what is predicted to hold the limits is calm; a hundred times as much is told to be too much."""
    calm, wild = (one(replace(ROW, metric="tpot_p99_ms", load=f"{rate} requests/s (cv 1)")) for rate in (0.5, 5000))
    predictor = Predictor(catalog())
    assert not isinstance(predictor.predict(calm), str)
    assert predictor.predict(wild) == "more than it can answer by our count"
    mean = predictor.predict(one(replace(ROW, metric="ttft_mean_ms", load="0.5 requests/s")))
    assert mean == "mean TTFT at a rate of arrivals is not predicted"


def test_a_whole_request_is_its_first_token_and_the_others() -> None:
    rows = [replace(ROW, id=m, metric=m) for m in ("e2e_mean_ms", "ttft_mean_ms", "tpot_mean_ms")]
    whole, ttft, tpot = (p.typical for p in validate(catalog(), rows).predictions)
    assert whole == pytest.approx(ttft + 127 * tpot)
    assert validate(catalog(), [replace(ROW, metric="e2e_p99_ms")]).skipped[0].reason.startswith("the tail")


def test_an_engine_version_is_read_where_it_is_stated() -> None:
    versions = [
        version_of(one(replace(ROW, engine=engine, engine_version=version)))
        for engine, version in (("vLLM", "0.12.0"), ("vLLM 0.6.3.post1", ""), ("vLLM v0.9", "MLPerf v5.1"), ("vLLM", ""))
    ]
    assert versions == ["0.12.0", "0.6.3", "0.9", None]


def test_a_test_without_end_is_not_replayed() -> None:
    huge = one(replace(ROW, input_tok=1e8, load="1000"))
    assert Predictor(catalog()).predict(huge) in ("a test too large to replay", "does not fit by our count")


def test_a_test_is_as_long_as_it_was() -> None:
    """Two requests of two clients are one wave: both wait for their prompts; of a hundred, most find a running batch."""
    short, long = (one(replace(ROW, load="2", metric="ttft_p50_ms", request_count=n)) for n in (2, 100))
    predictor = Predictor(catalog())
    one_wave, many = predictor.typical(short), predictor.typical(long)
    assert not isinstance(one_wave, str) and not isinstance(many, str) and one_wave > 0 and many > 0
