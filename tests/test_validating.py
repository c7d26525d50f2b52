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
from planner.validating import Predictor, error_groups, lengths_of, validate

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
        ({"input_tok": None}, "length not stated"), ({"output_tok": 1.0}, "length not stated"),
        ({"tp": 3, "gpu_count": 4}, "does not divide"),
        ({"note": "SPECULATIVE DECODING"}, "acceptance not stated"), ({"note": "PREFIX CACHE flag"}, "hits not stated"),
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
