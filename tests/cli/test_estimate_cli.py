"""`planner estimate` as a user meets it: text, JSON, exit codes."""

from __future__ import annotations

import json

import pytest

from planner.cli.main import main

ASK = ("--llm", "llama_3.1_8b", "--gpu", "h100_sxm_80gb", "--weights", "fp8", "--input", "1000", "--output", "200")


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["estimate", *args])
    out, err = capsys.readouterr()
    return int(str(stopped.value.code)), out, err


def test_json_has_the_keys_that_checks_rely_on(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ASK, "--concurrency", "8", "--json")
    answer = json.loads(out)
    assert code == 0
    assert {
        "llm", "gpu", "gpu_count", "tp", "pp", "ttft_s", "tpot_s", "output_tok_per_s", "request_per_s", "bound_by",
        "intensity_flop_per_byte",
        "ridge_flop_per_byte", "mfu_frac", "mbu_frac", "ceiling_tok_per_s", "basis", "warnings",
    } <= set(answer)
    assert answer["basis"] in ("measured", "assumed")
    assert set(answer["ttft_s"]) == {"low", "typical", "high"}


def test_text_says_bound_ceiling_and_basis(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *ASK)
    assert code == 0
    for word in ("TTFT", "TPOT", "bound by memory", "ridge", "MBU", "MFU", "ceiling", "dense fp8", "basis: measured"):
        assert word in out


def test_no_fit_no_speed(capsys: pytest.CaptureFixture[str]) -> None:
    args = ("--llm", "llama_3.1_405b", "--gpu", "h100_sxm_80gb", "--weights", "fp8", "--input", "100", "--output", "100", "--json")
    code, out, err = run(capsys, *args)
    assert code == 1
    assert json.loads(out)["reason_code"] == "does_not_fit"
    assert "has no speed" in err


def test_ceilings(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "--ceilings")
    assert code == 0
    assert "does not fit" in out
    code, out, _ = run(capsys, "--ceilings", "--json")
    assert any(row["ceiling_tok_per_s"] is None for row in json.loads(out)["ceilings"])


@pytest.mark.parametrize(("args", "word"), [(("--topology", "x"), "topology"), ((), "--llm"), ((*ASK, "--tp", "3"), "--tp")])
def test_bad_input_is_told_in_one_line_each(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], word: str) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert word in err
    assert "Traceback" not in err
