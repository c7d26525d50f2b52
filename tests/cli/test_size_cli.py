"""`planner size` as its users see it: JSON keys, tables, exit codes, faults."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from planner.cli.main import main

LESSON = ["size", "--llm", "llama_3.3_70b_instruct", "--weights", "q4_k_m", "--context", "8192", "--concurrency", "32"]
RULE = ["--engine", "vllm", "--weights-gb", "40", "--overhead-gb", "6"]
KEYS = {
    "llm", "weights", "kv_cache", "context_tok", "concurrency", "engine", "weights_bytes", "kv_bytes", "kv_bytes_per_tok",
    "kv_bytes_per_tok_past_window", "kv_fixed_bytes_per_sequence", "other_cache_bytes_per_tok", "activation_bytes", "overhead_bytes",
    "margin_frac", "total_bytes", "dominant_term", "placements", "warnings", "rung",
}
PLACEMENT_KEYS = {
    "gpu", "gpu_count", "tp", "pp", "fits", "bytes_per_gpu", "usable_bytes_per_gpu", "used_frac", "max_sequences", "reason", "levers",
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
