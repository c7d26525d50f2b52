"""Inputs that once broke the planner: each ended in an internal fault, a silent wrong answer, or lost output."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
import yaml

from planner.cli.main import main

ROOT = Path(__file__).resolve().parents[2]
BASE = """
plan:
  start: 2026-12
  horizon_months: 2
  prices: 2026-11-30
  as_of: 2026-11-30
  supply: {buy: [l40s_x4], providers: [azure], deals: [on_demand]}
sites:
  rack: {region: eu_spain, usd_per_kwh: 0.21, pue: 1.5}
workloads:
  chat:
    llm: qwen3_32b
    weights: [fp8]
    kv_cache: [fp8]
    tokens:
      prompt: {mean: 1800, p99: 7000}
      output: {mean: 260, p99: 900}
    max_context_tok: 8192
    load: {requests_per_day: 6000}
    latency: {ttft_p99_ms: 2500, tpot_p99_ms: 80}
    privacy: {allow: [rent]}
"""
BATCH = {
    "kind": "batch", "llm": "qwen3_32b", "weights": ["fp8"], "kv_cache": ["fp8"], "tokens_per_day": {"input": 4e6, "output": 3e5},
    "deadline_hours": 24, "privacy": {"allow": ["rent"]},
}  # fmt: skip


def content(**changes: Any) -> dict[str, Any]:
    """Return the base file with `a__b=value` written at a.b; `chat__x` is the workload's."""
    data: dict[str, Any] = yaml.safe_load(BASE)
    for place, value in changes.items():
        at: dict[str, Any] = data
        *steps, last = (["workloads"] if place.startswith("chat__") else []) + place.split("__")
        for step in steps:
            at = at.setdefault(step, {})
        at[last] = value
    return data


def solve(tmp_path: Path, capsys: pytest.CaptureFixture[str], data: dict[str, Any], *options: str) -> tuple[int, dict[str, Any], str]:
    """Return exit code, JSON of stdout and stderr of a solve."""
    file = tmp_path / "w.yaml"
    file.write_text(yaml.safe_dump(data))
    with pytest.raises(SystemExit) as stop:
        main(["solve", str(file), "--out", str(tmp_path / "out"), "--format", "md", "--json", *options])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), json.loads(out), err


@pytest.mark.parametrize("rate", [1e-6, 1e-100])
def test_load_near_nothing_still_runs_on_a_replica(tmp_path: Path, capsys: pytest.CaptureFixture[str], rate: float) -> None:
    """A load below the solver's tolerance had no replica variable (KeyError), and would have been served by none."""
    code, plan, _ = solve(tmp_path, capsys, content(chat__load={"requests_per_day": rate}))
    assert code == 0
    assert plan["headline"].startswith("Rent up to 1 node")


def test_load_that_decays_to_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """6,000 requests a day halved each month for 40 months are 1e-8 a day."""
    code, _, err = solve(
        tmp_path, capsys, content(plan__horizon_months=40, chat__load={"requests_per_day": 6000, "growth_frac_per_month": -0.5})
    )
    assert (code, err) == (0, "")


def test_lengths_of_a_very_long_tail(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A p99 of 100 means crowds the slots until both sides of a ratio underflow (ZeroDivisionError)."""
    tokens = {"prompt": {"mean": 70, "p99": 7000}, "output": {"mean": 9, "p99": 900}}
    assert solve(tmp_path, capsys, content(chat__tokens=tokens))[0] == 0


def test_a_discount_rate_of_one(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The file accepts 0 to 1, the formula refused 1."""
    data = content(plan__discount_frac_per_year=1, chat__privacy={"allow": ["own"]}, chat__start_month=1)
    data["nodes"] = {"l40s_x4": {"lead_months": 0}}
    assert solve(tmp_path, capsys, data)[0] == 0


@pytest.mark.parametrize(
    ("changes", "place"),
    [
        ({"nodes": {"l40s_x4": {"residual": [{"age_months": 0, "typical_frac": 1}] * 2}}}, "nodes.l40s_x4.residual"),
        ({"owned": [{"node": "l40s_x4", "count": 1, "site": "rack", "in_service": "2040-02"}]}, "owned.0.in_service"),
        ({"plan__tax": {"vat_frac": 0.21, "recoverable": True}}, "plan.tax"),
        ({"plan__report_currency": {"code": "EUR", "usd_per_unit": 1.1, "as_of": "2026-11-30"}}, "plan.report_currency"),
        ({"workloads": {"b": {**BATCH, "deadline_hours": 0.5}}}, "workloads.b.deadline_hours"),
        ({"workloads": {"b": {**BATCH, "tokens_per_day": {"input": 1e-5, "output": 1e12}}}}, "workloads.b.tokens_per_day"),
    ],
)
def test_refused_with_its_line(tmp_path: Path, capsys: pytest.CaptureFixture[str], changes: dict[str, Any], place: str) -> None:
    """Each of these crashed or was ignored: now one line with file, line, key, fault and cure, and no file is written."""
    code, answer, err = solve(tmp_path, capsys, content(**changes))
    assert code == 2
    assert answer["reason_code"] == "bad_input"
    assert err.count("\n") == 1
    assert f" {place}: " in err and "w.yaml:" in err and "; " in err
    assert not (tmp_path / "out").exists()


def test_context_beyond_the_model_is_told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Qwen3-32B's card says 40,960 tokens; an engine started with 131,072 refuses."""
    code, plan, _ = solve(tmp_path, capsys, content(chat__max_context_tok=131072))
    assert code == 0
    assert any("made for 40,960" in text for text in plan["workloads"][0]["warnings"])


def test_price_of_a_node_that_nobody_knows(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A price row of the user's own folder that names no known node was a KeyError."""
    folder = tmp_path / "mine" / "pricing" / "2026-11-30"
    folder.mkdir(parents=True)
    (folder / "own.csv").write_text(
        "id,node,usd_per_node,source,retrieved_on,kind,confidence\nmine.a,l40s_x44,1000,https://example.com,2026-11-20,quote,high\n"
    )
    code, _, err = solve(tmp_path, capsys, content(), "--catalog", str(tmp_path / "mine"))
    assert code == 2
    assert "mine.a.node: no 'l40s_x44' in hardware/nodes; did you mean 'l40s_x4'" in err


def test_two_solvers_at_once_leave_standard_output_alone() -> None:
    """Two threads that silenced the solver's banner at once could leave standard output pointing at nothing: the plan was lost."""
    from planner.milp.engine import new_highs

    before = os.fstat(1)
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda _: new_highs(), range(200)))
    after = os.fstat(1)
    assert (before.st_dev, before.st_ino) == (after.st_dev, after.st_ino)


def run(*args: str, **options: Any) -> tuple[int, str, str]:
    """Run the command as a process of its own."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        [sys.executable, str(ROOT / "capacity_planner.py"), *args], env=environment, capture_output=True, text=True, timeout=120,
        check=False, **options,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_unknown_command_is_one_line_with_the_nearest() -> None:
    """The line named the word but not what was meant."""
    assert run("slove", "x") == (2, "", "planner: no command 'slove'; did you mean 'solve'?\n")


def test_usage_faults_answer_in_json_where_asked() -> None:
    """`--json` promises JSON on standard output, also where an argument is missing."""
    code, out, err = run("solve", "--json")
    assert code == 2
    assert json.loads(out)["reasons"] == [err.strip()]


def test_no_arguments_show_the_help_as_it_is() -> None:
    """The help was squeezed into one line."""
    code, _, err = run()
    assert code == 2
    assert "\n  solve " in err


def test_path_that_no_file_system_takes(tmp_path: Path) -> None:
    """A name of 300 letters raised OSError in `exists`."""
    code, _, err = run("init", "a" * 300, cwd=tmp_path)
    assert code == 2
    assert "file name too long" in err


def test_plan_file_without_end() -> None:
    """A device has no size: it was read for ever."""
    code, _, err = run("report", "/dev/zero")
    assert code == 2
    assert "larger than" in err


def shell(line: str) -> tuple[int, str, str]:
    """Run a shell line in which `$P` is the command."""
    command = f"{sys.executable} {ROOT / 'capacity_planner.py'}"
    done = subprocess.run(
        ["bash", "-c", line.replace("$P", command)], env={**os.environ, "PYTHONPATH": str(ROOT)}, capture_output=True, text=True,
        timeout=120, check=False,
    )  # fmt: skip
    return done.returncode, done.stdout, done.stderr


def test_reader_that_leaves_is_no_fault() -> None:
    """Exit code 1 means that the answer is no, not that `head` had enough."""
    assert shell("$P prices show | head -1 >&2; exit ${PIPESTATUS[0]}")[0] == 0


@pytest.mark.parametrize(("redirect", "code"), [(">&-", 0), (">/dev/full", 2)])
def test_standard_output_closed_or_full(redirect: str, code: int) -> None:
    """Closed output was an internal fault; a full disk ended in a traceback at exit."""
    found, _, err = shell(f"$P prices show --json {redirect}")
    assert found == code
    assert "Traceback" not in err and "internal" not in err
