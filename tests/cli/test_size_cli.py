"""`planner size` as its users see it: JSON keys, tables, exit codes, faults."""

from __future__ import annotations

import io
import json
import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import main
from planner.cli.page import Page

LESSON = ["size", "--llm", "llama_3.3_70b_instruct", "--weights", "q4_k_m", "--context", "8192", "--concurrency", "32"]
RULE = ["--engine", "vllm", "--weights-gb", "40", "--overhead-gb", "6"]
KEYS = {
    "llm", "weights", "kv_cache", "context_tok", "concurrency", "engine", "weights_bytes", "kv_bytes", "kv_bytes_per_tok",
    "kv_bytes_per_tok_past_window", "kv_fixed_bytes_per_sequence", "other_cache_bytes_per_tok", "activation_bytes", "overhead_bytes",
    "margin_frac", "total_bytes", "dominant_term", "placements", "warnings", "rung",
}
PLACEMENT_KEYS = {
    "gpu", "gpu_count", "tp", "pp", "fits", "bytes_per_gpu", "usable_bytes_per_gpu", "used_frac", "max_sequences", "reason", "levers",
    "max_context_tok", "lever_changes", "verdict",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(list(args))
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


Run = Callable[..., tuple[int, str, str]]


def as_json(run: Run, *args: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(*args, "--json")
    data: dict[str, Any] = json.loads(out)
    return code, data


def test_json_has_the_promised_keys(run: Run) -> None:
    code, data = as_json(run, *LESSON, "--kv-cache", "fp16")
    assert code == 0 and set(data) >= KEYS
    assert data["engine"] == "llama_cpp" and data["kv_bytes_per_tok"] == 327_680 and data["dominant_term"] == "kv_cache"
    assert all(set(p) >= PLACEMENT_KEYS for p in data["placements"])
    verdict = {(p["gpu"], p["gpu_count"]): p["fits"] for p in data["placements"]}
    assert verdict["h100_sxm_80gb", 1] is False and verdict["h100_sxm_80gb", 2] is True and verdict["b200_sxm_180gb", 1] is True


@pytest.mark.parametrize(
    ("more", "total_gb", "one_fits", "code"),
    [
        (["--kv-cache", "fp16"], 131.9, False, 1), (["--kv-cache", "fp8"], 88.9, False, 1),
        (["--kv-cache", "fp8", "--concurrency", "16"], 67.5, True, 0), (["--kv-cache", "fp8", "--context", "4096"], 67.5, True, 0),
    ],
)
def test_the_lesson_by_the_rule(run: Run, more: list[str], total_gb: float, one_fits: bool, code: int) -> None:
    """B2 to B4 of the worked figures: 132, 89 and 67.4 GB against 85.5 × 0.85 = 72.7 GB; exit 1 where one H100 is asked for in vain."""
    found, data = as_json(run, *LESSON, *RULE, *more, "--gpu", "h100_sxm_80gb", "--count", "1")
    assert found == code and (data.get("reason_code") == "does_not_fit") is (code == 1)
    assert data["weights_bytes"] == 40_000_000_000 and data["overhead_bytes"] == 6_000_000_000
    assert round(data["total_bytes"] / 1e9, 1) == total_gb
    assert data["placements"][0]["fits"] is one_fits
    assert data["placements"][0]["usable_bytes_per_gpu"] == pytest.approx(72.69e9, rel=1e-3)


def test_the_table_reads_like_paper(run: Run, golden: Callable[[str, str], None]) -> None:
    code, out, err = run(*LESSON, *RULE, "--kv-cache", "fp16", "--gpu", "h100_sxm_80gb")
    assert code == 0 and err == ""
    answer = out.split("smallest rung:")[0]     # the rung moves with every machine added to the catalog
    golden("size_lesson.txt", "\n".join(line.rstrip() for line in answer.splitlines()) + "\n")


def test_levers_in_json_carry_their_parts(run: Run) -> None:
    """B3 as a lever: KV in FP8 is 88.9 GB and 16.3 GB too much; what fits needs no `short_bytes`."""
    _, data = as_json(run, *LESSON, *RULE, "--kv-cache", "fp16", "--gpu", "h100_sxm_80gb", "--count", "1")
    place = data["placements"][0]
    assert place["max_context_tok"] == 2544 and place["max_sequences"] == 9 and place["verdict"] == "does not fit"
    assert len(place["levers"]) == len(place["lever_changes"])
    by_kind = {change["kind"]: change for change in place["lever_changes"]}
    assert by_kind["kv_cache"]["fits"] is False and round(by_kind["kv_cache"]["short_bytes"] / 1e9, 1) == 16.3
    assert set(by_kind["sessions"]) == {"kind", "change", "bytes_per_gpu", "fits"} and by_kind["sessions"]["change"] == "9 sessions"
    assert by_kind["weights"]["needs_evaluation"] is True and by_kind["weights"]["source"]


def small_catalog(folder: Path) -> Path:
    """Write a catalog overlay with one accelerator whose name turns the terminal's direction and colours."""
    (folder / "hardware" / "gpus").mkdir(parents=True)
    name = r"Card \u202Edlog\u001b[31m[bold]x"
    (folder / "hardware" / "gpus" / "own.yaml").write_text(
        f'- id: own_card\n  name: "{name}"\n  vendor: nvidia\n  family: hopper\n  kind: gpu\n  memory_kind: hbm\n  memory_label_gb: 40\n'
        "  memory_bandwidth_gb_per_s: 2000\n  dense_tflop_per_s: {bf16: 300, fp16: 300}\n  sources:\n    default:\n"
        '      {kind: assumed, retrieved_on: 2026-11-30, note: "made for this test"}\n',
        encoding="utf-8",
    )
    return folder


def test_names_of_others_cannot_steer_the_terminal(run: Run, tmp_path: Path) -> None:
    overlay = str(small_catalog(tmp_path))
    code, out, _ = run(*LESSON, "--kv-cache", "fp16", "--concurrency", "1", "--catalog", overlay, "--gpu", "own_card", "--count", "2")
    assert code in (0, 1) and "\\u202edlog" in out and "[bold]x" in out
    assert all(char.isprintable() or char == "\n" for char in out)


def test_every_accelerator_stands_in_one_group_with_its_lever(run: Run) -> None:
    """One row for alike figures: every accelerator that the engine runs on is named once, those that hold the load first."""
    args = [*LESSON[:3], "--weights", "awq_int4", *LESSON[5:], "--kv-cache", "fp16"]
    _, data = as_json(run, *args)
    code, out, _ = run(*args)
    table = out[out.index("holds it") : out.index("smallest rung:")]
    words = re.findall(r"[a-z0-9_.]+", table)
    tried = {p["gpu"] for p in data["placements"]}
    assert code == 0 and all(words.count(gpu) == 1 for gpu in tried)
    good, bad = table.split("does not fit on up to 8")
    assert "nearest lever" in bad
    for gpu in tried:
        assert (gpu in re.findall(r"[a-z0-9_.]+", good)) is any(p["fits"] for p in data["placements"] if p["gpu"] == gpu)
    assert "KV in fp8" in bad and max(map(len, out.split("smallest rung:")[0].splitlines()[2:])) <= 120


@pytest.mark.parametrize("columns", ["80", "92", "100", "140", "200"])
@pytest.mark.parametrize(
    "more", [["--gpu", "h100_sxm_80gb"], ["--gpu", "rtx_pro_6000_server_96gb", "--count", "4"], [], ["--train", "lora"]],
)
def test_no_line_is_wider_than_the_reader(
    run: Run, monkeypatch: pytest.MonkeyPatch, columns: str, more: list[str]
) -> None:
    """COLUMNS says how wide; what stands in the lines is the same at every width, spaces and bars apart."""
    args = [*LESSON[:3], "--weights", "bf16", *LESSON[5:], *more]
    monkeypatch.setenv("COLUMNS", columns)
    _, narrow, _ = run(*args)
    assert max(map(len, narrow.splitlines())) <= int(columns)
    monkeypatch.delenv("COLUMNS")
    _, wide, _ = run(*args)
    left_out = "[█▏▎▍▌▋▊▉]|usable, one [a-z0-9_]+|usable of one"
    words = [sorted(re.findall(r"[\w.%]+", re.sub(left_out, "", text))) for text in (narrow, wide)]
    assert words[0] == words[1]


def test_a_narrow_or_odd_width_falls_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """Below 80 columns no table of figures stays one: 80 are taken. What is no number says nothing."""
    for columns, width in (("20", 80), ("79", 80), ("wide", 120), ("", 120)):
        monkeypatch.setenv("COLUMNS", columns)
        assert Page().width == width, columns


def test_a_stream_without_block_characters_gets_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.TextIOWrapper(io.BytesIO(), encoding="ascii")
    monkeypatch.setattr(sys, "stdout", stream)
    with pytest.raises(SystemExit):
        main([*LESSON, *RULE, "--kv-cache", "fp16", "--gpu", "h100_sxm_80gb"])
    stream.flush()
    out = stream.buffer.getvalue().decode("ascii")  # type: ignore[attr-defined]
    assert "#####" in out and "9 sessions -> 70.2 GB: fits" in out


def test_bars_follow_one_another_and_stop_at_the_scale() -> None:
    """Three terms of 10, 20 and 10 of 40 on 40 columns, the card's edge at 30."""
    page = Page()
    bars = [page.bar(start, end, 40.0, 40, 30.0) for start, end in ((0.0, 10.0), (10.0, 30.0), (30.0, 40.0))]
    edge = "│" if page.draws else "|"
    full = "█" if page.draws else "#"
    assert [bar.count(full) for bar in bars] == [10, 20, 9] and all(len(bar) == 40 and bar[30] == edge for bar in bars)


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (["--kv-cache", "fp16", "--optimizer", "adamw"], "--optimizer: belongs to fine-tuning"),
        (["--kv-cache", "fp16", "--count", "2"], "name one with --gpu"),
        (["--kv-cache", "fp16", "--gpu", "h100_sxm_80"], "did you mean 'h100_"),
        (["--kv-cache", "fp16", "--engine", "vllm", "--gpu", "h100_sxm_80gb", "--tp", "3"], "cannot be split over 3 GPUs"),
        (["--kv-cache", "q8_0", "--engine", "vllm"], "vllm does not run 'q8_0'"),
        (["--kv-cache", "fp16", "--concurrency", "0"], "--concurrency"),
        (["--kv-cache", "fp16", "--margin-frac", "1.5"], "--margin-frac"),
    ],
)
def test_faults_are_one_line_with_a_cure(run: Run, args: list[str], word: str) -> None:
    code, out, err = run(*LESSON, *args)
    assert code == 2 and out == "" and word in err and len(err.strip().splitlines()) == 1 and "Traceback" not in err


def test_the_engine_decides_the_latent(run: Run) -> None:
    """B7: 31,104 B a token as a latent, 276,480 where the engine expands it."""
    base = ["size", "--llm", "deepseek_v2_lite", "--kv-cache", "fp16", "--context", "32768", "--concurrency", "1"]
    assert as_json(run, *base, "--weights", "bf16")[1]["kv_bytes_per_tok"] == 31_104
    expanded = as_json(run, *base, "--weights", "q4_k_m")[1]
    assert expanded["kv_bytes_per_tok"] == 276_480 and expanded["kv_bytes"] == 8_640 * 2**20


def verdicts(data: dict[str, Any]) -> dict[tuple[str, int], bool]:
    return {(p["gpu"], p["gpu_count"]): p["fits"] for p in data["placements"]}


def test_the_lesson_as_the_command_is_typed(run: Run) -> None:
    """B2 without rule values: 2 x 80 x 8 x 128 x 2 B = 327,680 B a token, x 8,192 x 32 = 85.9 GB, more than twice the weights."""
    code, data = as_json(run, *LESSON, "--kv-cache", "fp16")
    assert code == 0 and data["engine"] == "llama_cpp" and data["concurrency"] == 32 and data["context_tok"] == 8192
    assert data["kv_bytes_per_tok"] == 327_680 and data["kv_bytes"] == 85_899_345_920
    assert data["dominant_term"] == "kv_cache" and data["kv_bytes"] > 2 * data["weights_bytes"]
    fits = verdicts(data)
    assert (fits["h100_sxm_80gb", 1], fits["h100_sxm_80gb", 2], fits["b200_sxm_180gb", 1]) == (False, True, True)


@pytest.mark.parametrize(
    ("more", "kv_bytes_per_tok"), [(["--engine", "vllm", "--kv-cache", "fp8"], 163_840), (["--kv-cache", "q8_0"], 174_080)]
)
def test_eight_bits_help_at_16_sessions_and_not_at_32(run: Run, more: list[str], kv_bytes_per_tok: int) -> None:
    """B3 and B4 without rule values: Q8_0 is 34 bytes for 32 values, so 174,080 B a token where FP8 takes 163,840."""
    _, many = as_json(run, *LESSON, *more)
    assert many["kv_bytes_per_tok"] == kv_bytes_per_tok and many["kv_bytes"] == kv_bytes_per_tok * 8192 * 32
    assert verdicts(many)["h100_sxm_80gb", 1] is False and verdicts(many)["h100_sxm_80gb", 2] is True
    for fewer in (["--concurrency", "16"], ["--context", "4096"]):
        assert verdicts(as_json(run, *LESSON, *more, *fewer)[1])["h100_sxm_80gb", 1] is True


def test_llama_cpp_says_that_it_has_no_fp8_cache_and_what_it_has(run: Run) -> None:
    code, out, err = run(*LESSON, "--kv-cache", "fp8")
    assert code == 2 and out == "" and len(err.strip().splitlines()) == 1
    assert "llama_cpp does not run 'fp8'" in err and "q8_0" in err and "--engine vllm" in err


@pytest.mark.parametrize("option", ["--memory-frac", "--margin-frac", "--overhead-gb", "--weights-gb"])
def test_nan_is_within_no_bounds(run: Run, option: str) -> None:
    code, _, err = run("size", "--llm", "llama_3.1_8b", "--weights", "bf16", "--context", "4096", "--concurrency", "2", option, "nan")
    assert code == 2 and "nan is not a number" in err


def test_an_encoder_holds_no_sessions(run: Run) -> None:
    """Nothing is kept between texts: the rung names a batch, not sessions."""
    args = ["size", "--llm", "bge_m3", "--weights", "fp16", "--context", "1000000", "--concurrency", "100000", "--gpu", "l4_24gb"]
    _, data = as_json(run, *args)
    told = " ".join(data["rung"]["runs_well"] + data["rung"]["cannot"])
    assert "texts of up to 8,192 tokens" in told and "session" not in told


def test_what_is_beside_the_weights_is_named(run: Run) -> None:
    args = ["size", "--llm", "llama_3.1_8b", "--weights", "bf16", "--context", "4096", "--concurrency", "2", "--draft-llm", "llama_3.2_1b"]
    _, data = as_json(run, *args, "--gpu", "h100_sxm_80gb")
    text = next(w["text"] for w in data["warnings"] if w["name"] == "weights_only")
    assert "KV cache, activations, overhead and draft add" in text
