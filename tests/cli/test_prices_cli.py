"""`planner prices` as a user meets it: tables, JSON, exit codes, and faults on stderr."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pytest

from planner.catalog import data_root
from planner.cli.main import main


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as stopped:
        main(["prices", *args])
    out, err = capsys.readouterr()
    return int(str(stopped.value.code)), out, err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "list")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[2:]] == ["2025-07-31", "2026-01-31", "2026-11-30"]
    code, out, _ = run(capsys, "list", "--json")
    newest = json.loads(out)["snapshots"][-1]
    assert newest["day"] == "2026-11-30"
    assert newest["rows"]["rent"] > 600
    assert len(newest["digest"]) == 64
    assert newest["gaps"]


def test_show_sorts_by_gpu_hour_and_cuts_nothing_in_a_pipe(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "--gpu", "h100_sxm_80gb", "--kind", "rent")
    assert code == 0
    lines = out.splitlines()[2:]
    prices = [float(line.split()[4]) for line in lines]
    assert prices == sorted(prices)
    assert "…" not in out
    assert all(re.search(r" 20\d\d-\d\d-\d\d ", line) for line in lines), "every line carries its date"


def test_show_json_has_the_rows_whole(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "--node", "h100_sxm_x8", "--provider", "aws", "--prices", "2026-11-30", "--json")
    assert code == 0
    answer = json.loads(out)
    assert answer["day"] == "2026-11-30"
    assert {row["provider"] for row in answer["rent"]} == {"aws"}
    assert all(row["source"] and row["retrieved_on"] for row in answer["rent"])
    assert answer["own"] == []
    assert set(answer) == {"day", "rent", "own"}


def test_show_by_model(capsys: pytest.CaptureFixture[str]) -> None:
    _, out, _ = run(capsys, "show", "--llm", "qwen3_32b", "--json")
    answer = json.loads(out)
    assert set(answer) == {"day", "api"}
    assert "deepinfra.qwen3_32b" in {row["id"] for row in answer["api"]}


def test_show_everything_of_an_old_snapshot(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "--prices", "2025-07-31")
    assert code == 0
    assert all(f"{kind}, prices of 2025-07-31" in out for kind in ("rent", "api", "own", "operating"))


def test_no_such_offer_is_said(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "show", "--gpu", "h100_sxm_80gb", "--provider", "openai")
    assert (code, out) == (0, "No such offer in the snapshot of 2026-11-30.\n")


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (("show", "--gpu", "h100_sxm"), "--gpu: no 'h100_sxm' in hardware/gpus; did you mean 'h100_sxm_80gb'"),
        (("show", "--provider", "nebios"), "did you mean 'nebius'"),
        (("show", "--llm", "qwen3_32"), "did you mean 'qwen3_32b'"),
        (("show", "--gpu", "l4_24gb", "--llm", "qwen3_32b"), "an API row names no hardware"),
        (("show", "--llm", "qwen3_32b", "--kind", "rent"), "rent rows cannot be filtered by --llm"),
        (("show", "--prices", "2026-11-31"), "is not a date"),
        (("show", "--prices", "2026-11-29"), "known: 2025-07-31, 2026-01-31, 2026-11-30"),
        (("check", "yesterday"), "is not a date"),
        (("show", "--catalog", "nowhere"), "no such folder"),
    ],
)
def test_bad_input_is_told_in_one_line(capsys: pytest.CaptureFixture[str], args: tuple[str, ...], said: str) -> None:
    code, out, err = run(capsys, *args)
    assert (code, out) == (2, "")
    assert said in err
    assert len(err.splitlines()) == 1


def test_check_is_quiet_on_the_shipped_snapshots(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "check")
    assert code == 0
    assert out == "2025-07-31: no faults\n2026-01-31: no faults\n2026-11-30: no faults\n"
    code, out, _ = run(capsys, "check", "2026-11-30", "--as-of", "2026-11-30", "--json")
    answer = json.loads(out)
    assert (code, answer["ok"], answer["reason_code"]) == (0, True, None)
    assert "crusoe.h100_sxm_x1.reserved_1y" in answer["snapshots"][0]["aged"]["rent"]


def test_check_says_no_to_a_users_faulty_rows(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """An overlay of the same day whose spot row costs more than on demand: exit code 1, the line, and a reason code."""
    mine = tmp_path / "pricing" / "2026-11-30"
    mine.mkdir(parents=True)
    shutil.copy(data_root() / "pricing/2026-11-30/snapshot.yaml", mine)
    head = "id,provider,instance,node,gpu,gpu_count,term,usd_per_node_hour,source,retrieved_on,kind\n"
    row = "acme.h100_sxm_x8.{0},acme,n8,h100_sxm_x8,h100_sxm_80gb,8,{0},{1},https://acme.example,2026-11-01,quote\n"
    (mine / "rent.csv").write_text(head + row.format("on_demand", "30") + row.format("spot", "31"), encoding="utf-8")
    code, out, _ = run(capsys, "check", "2026-11-30", "--catalog", str(tmp_path))
    assert code == 1
    assert "rent.csv:3 acme.h100_sxm_x8.spot.usd_per_node_hour: spot at 31 is not below the on-demand price 30" in out
    code, out, _ = run(capsys, "check", "2026-11-30", "--catalog", str(tmp_path), "--json")
    assert (code, json.loads(out)["reason_code"]) == (1, "price_faults")


def test_an_unreadable_overlay_is_bad_input(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    mine = tmp_path / "pricing" / "2026-11-30"
    mine.mkdir(parents=True)
    (mine / "rent.csv").write_text("id,provider\nacme,acme\n", encoding="utf-8")
    code, _, err = run(capsys, "show", "--catalog", str(tmp_path))
    assert code == 2
    assert "this column is missing" in err
