"""`planner solve` as a user meets it: exit codes, one line a fault with its line in the file, JSON reasons, files all or none."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "plan"))

from plan_inputs import document, own_now, rented, text_of, with_api, written

from planner.catalog import data_root
from planner.cli.main import main
from planner.report.plan_file import plan_digest, read_plan

Solve = Callable[..., tuple[int, str, str]]


@pytest.fixture
def solve(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Solve:
    """Write a document, solve it into `out` beside it, return (exit code, stdout, stderr)."""

    def call(content: dict[str, Any] | str, *args: str) -> tuple[int, str, str]:
        path = tmp_path / "small.yaml"
        path.write_text(content if isinstance(content, str) else text_of(content), encoding="utf-8")
        with pytest.raises(SystemExit) as stopped:
            main(["solve", path.as_posix(), "--out", (tmp_path / "out").as_posix(), "--format", "md", *args])
        out, err = capsys.readouterr()
        return int(str(stopped.value.code)), out, err

    return call


def limited(content: dict[str, Any], **budgets: float) -> dict[str, Any]:
    content["plan"]["budgets"] = budgets
    return content


def line_of(text: str, part: str) -> int:
    return next(i for i, line in enumerate(text.splitlines(), 1) if part in line)


def test_a_plan_is_written_and_told(solve: Solve, tmp_path: Path) -> None:
    code, out, err = solve(document())
    assert (code, err) == (0, "")
    assert "L40S" in out and "Crusoe" in out
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"plan.json", "summary.md"}
    code, out, err = solve(document(), "--json")
    assert (code, err) == (0, "")
    assert json.loads(out)["kind"] == "planner.plan"


# --- bad input: exit 2, each fault with its line, nothing written ----------------------------------------------------


def test_unknown_names_all_at_once_with_line_and_nearest_name(solve: Solve, tmp_path: Path) -> None:
    content = with_api(["own", "rent", "api"], llm="llama_3.1_8bb", weights=["fp88"], api_equivalents=["together.llama_3.1_88b"])
    content["plan"]["supply"] = {"buy": ["l40s_x44"], "providers": ["crusoee"]}
    content["sites"]["rack"]["region"] = "eu_spian"
    content["workloads"]["chat"]["privacy"]["regions"] = ["eeu"]
    content["owned"] = [{"node": "h100_smx_x8", "count": 1, "site": "rack", "in_service": "2025-03"}]
    content["nodes"] = {"l40s_x5": {"lead_months": 1}}
    text = text_of(content)
    code, out, err = solve(text)
    lines = err.splitlines()
    assert (code, out) == (2, "") and len(lines) == 9
    for wrong, nearest in (
        ("llama_3.1_8bb", "llama_3.1_8b"), ("fp88", "fp8"), ("together.llama_3.1_88b", "together.llama_3.1_8b"), ("l40s_x44", "l40s_x4"),
        ("crusoee", "crusoe"), ("eu_spian", "eu_spain"), ("eeu", "eu"), ("h100_smx_x8", "h100_sxm_x8"), ("l40s_x5", "l40s_x4"),
    ):  # fmt: skip
        (told,) = [line for line in lines if f"'{wrong}'" in line]
        at = re.search(r"small\.yaml:(\d+) ", told)
        assert at and int(at[1]) == line_of(text, wrong), told
        assert f"'{nearest}'" in told.split("did you mean")[1], told
    assert not (tmp_path / "out").exists()


def test_an_unknown_key_and_a_string_for_a_number(solve: Solve, tmp_path: Path) -> None:
    content = document()
    content["plan"]["horizon_month"] = 3
    content["workloads"]["chat"]["load"]["requests_per_day"] = "many"
    text = text_of(content)
    code, _, err = solve(text)
    assert code == 2 and len(err.splitlines()) == 2
    assert f"small.yaml:{line_of(text, 'horizon_month:')} " in err and "horizon_months" in err
    assert f"small.yaml:{line_of(text, 'requests_per_day')} " in err
    assert not (tmp_path / "out").exists()


def test_no_price_for_what_was_asked_for(solve: Solve) -> None:
    """A node that is known and has no purchase price; an offer that the older snapshot does not have."""
    content = document()
    content["plan"]["supply"]["buy"] = ["l40s_x2"]
    text = text_of(content)
    code, _, err = solve(text)
    assert code == 2 and f"small.yaml:{line_of(text, 'l40s_x2')} plan.supply.buy.0" in err and "purchase prices of 2026-11-30" in err
    text = text_of(with_api(["api"], api_equivalents=["cloudflare.llama_3.1_8b"]))
    code, _, err = solve(text, "--prices", "2026-01-31", "--as-of", "2026-01-31")
    assert code == 2 and f":{line_of(text, 'cloudflare')} " in err
    assert "no price for 'cloudflare.llama_3.1_8b' in the snapshot of 2026-01-31" in err


@pytest.mark.parametrize(
    ("args", "told"),
    [
        (("--gap", "2"), "--gap"), (("--gap", "-0.1"), "--gap"), (("--gap", "much"), "--gap"), (("--time-limit", "0"), "--time-limit"),
        (("--time-limit", "nan"), "--time-limit"), (("--gap", "nan"), "--gap"), (("--prices", "soon"), "--prices"),
        (("--prices", "2026-02-30"), "--prices"), (("--prices", "2031-01-01"), "2026-11-30"), (("--as-of", "yesterday"), "--as-of"),
        (("--timeslices", "0"), "--timeslices"), (("--format", "docx"), "--format"),
    ],
)  # fmt: skip
def test_bad_options_are_one_line(solve: Solve, tmp_path: Path, args: tuple[str, str], told: str) -> None:
    code, out, err = solve(document(), *args)
    assert (code, out, err.count("\n")) == (2, "", 1) and told in err
    assert not (tmp_path / "out").exists()


# --- the answer is no: exit 1, a reason code, nothing written --------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "args", "reason_code", "told"),
    [
        (lambda: rented(privacy={"allow": ["rent"], "regions": ["uae"]}), (), "no_supply", "allow more regions"),
        (lambda: document(latency={"ttft_p99_ms": 5}), (), "no_supply", "relax the latency promise"),
        (lambda: own_now() | {"nodes": {"l40s_x4": {"lead_months": 2}}}, (), "infeasible", "start in month 2"),
        (lambda: own_now() | {"nodes": {"l40s_x4": {"lead_months": 3}}}, (), "infeasible", "plan more months"),
        (rented, ("--as-of", "2027-12-01"), "stale_prices", "--allow-stale"),
        (lambda: limited(own_now(), capex_usd=1000), (), "infeasible", "raise budgets.capex_usd by $51,39"),
        (lambda: limited(rented(), opex_usd_per_month=10), (), "infeasible", "raise budgets.opex_usd_per_month by $"),
    ],
)  # fmt: skip
def test_no_has_a_reason_code(
    solve: Solve, tmp_path: Path, make: Callable[[], dict[str, Any]], args: tuple[str, ...], reason_code: str, told: str
) -> None:
    code, out, err = solve(make(), "--json", *args)
    assert code == 1
    answer = json.loads(out)
    assert answer["reason_code"] == reason_code and any(told in line for line in answer["reasons"])
    assert err.splitlines() == answer["reasons"]
    assert not (tmp_path / "out").exists()


def test_allowed_stale_prices_stand_on_page_one_and_in_the_command(solve: Solve, tmp_path: Path) -> None:
    code, out, _ = solve(rented(), "--as-of", "2027-12-01", "--allow-stale", "--json")
    plan = json.loads(out)
    assert code == 0 and plan["warnings"][0].startswith("Stale prices were allowed")
    assert "--allow-stale" in plan["command"] and "--as-of 2027-12-01" in plan["command"]
    assert "Stale prices were allowed" in (tmp_path / "out" / "summary.md").read_text(encoding="utf-8")


def test_a_failed_run_leaves_the_last_plan_alone(solve: Solve, tmp_path: Path) -> None:
    solve(document())
    before = {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()}
    assert solve(document(latency={"ttft_p99_ms": 5}))[0] == 1
    assert solve(document(llm="no_such"))[0] == 2
    assert {p.name: p.read_bytes() for p in (tmp_path / "out").iterdir()} == before


# --- the same bytes ---------------------------------------------------------------------------------------------------


def solved_apart(path: Path, out: Path, seed: str, *args: str) -> dict[str, Any]:
    """Solve in a process of its own under a hash seed."""
    code = "from planner.cli.main import main; main()"
    env = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = subprocess.run(
        [sys.executable, "-c", code, "solve", path.name, "--out", out.as_posix(), "--format", "json", *args],
        cwd=path.parent, env=env, capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    content: dict[str, Any] = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    return content


@pytest.mark.parametrize(
    "make", [lambda: with_api(["own", "rent", "api"]), lambda: rented(privacy={"allow": ["rent"], "regions": ["eu"]}), document]
)
def test_two_runs_and_two_hash_seeds_give_the_same_bytes(tmp_path: Path, make: Callable[[], dict[str, Any]]) -> None:
    path = written(tmp_path, make())
    texts = set()
    for seed, folder in (("0", "a"), ("0", "b"), ("4242", "c")):
        content = solved_apart(path, tmp_path / folder, seed)
        assert set(content.pop("run")) == {"started_at", "solve_seconds", "total_seconds", "planner_version"}
        texts.add(json.dumps(content))
    assert len(texts) == 1
    assert len({plan_digest(read_plan(tmp_path / f / "plan.json")) for f in "abc"}) == 1


def test_a_pinned_day_is_the_only_day_that_counts(solve: Solve, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ten years on by the clock, the plan is the same."""
    import planner.plan.make as make

    solve(rented())
    today = plan_digest(read_plan(tmp_path / "out" / "plan.json"))

    class Later(make.datetime):
        @classmethod
        def now(cls, tz: Any = None) -> Any:
            return make.datetime(2036, 11, 30, tzinfo=tz)

    monkeypatch.setattr(make, "datetime", Later)
    assert solve(rented())[0] == 0
    plan = read_plan(tmp_path / "out" / "plan.json")
    assert plan_digest(plan) == today and plan.run.started_at.year == 2036
    unpinned = rented()
    del unpinned["plan"]["as_of"]
    assert solve(unpinned)[0] == 1


# --- the main job -----------------------------------------------------------------------------------------------------


def test_the_shipped_team_is_planned_within_the_gap(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """The README's first command: whole nodes and replicas, gap at most 0.1 %, every file written."""
    out = tmp_path / "out"
    with pytest.raises(SystemExit) as stopped:
        main(["solve", (data_root() / "workloads" / "team.yaml").as_posix(), "--out", out.as_posix()])
    capsys.readouterr()
    assert stopped.value.code == 0
    assert {p.name for p in out.iterdir()} == {"plan.json", "report.html", "report.pdf", "summary.md"}
    assert (out / "report.html").read_text(encoding="utf-8").startswith("<!doctype html>")
    assert (out / "report.pdf").read_bytes().startswith(b"%PDF-")
    content = json.loads((out / "plan.json").read_text(encoding="utf-8"))
    for row in content["dispatch"]:
        assert all(type(n) is int for n in (*row["nodes"].values(), *row["replicas"].values()))
    plan = read_plan(out / "plan.json")
    assert plan.solver.gap_frac <= 1e-3 and plan.solver.status == "optimal"
    assert sum(line.npv_usd for line in plan.cost_lines) == pytest.approx(plan.npv_cost_usd, rel=1e-9)
    assert {a.name for a in plan.alternatives} >= {"all_own", "all_rent", "all_api"}
    for row_ in plan.dispatch:
        for name in ("support_chat", "code_assistant"):
            assert sum(row_.shares.get(name, {}).values()) == pytest.approx(1.0, abs=1e-6)
