"""Writing: all files or none, each whole; plan.json is the same bytes for the same plan; broken plan files are told in one line."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli.report import report
from planner.errors import InputError
from planner.report import write
from planner.report.markdown import escape, render_markdown
from planner.report.plan_file import plan_digest, plan_json, read_plan
from planner.report.terminal import plan_text
from planner.report.view import build_view
from planner.report.write import render_reports, write_reports
from planner.schema.plan import DispatchRow, Plan, Run


def test_all_formats_are_written_and_nothing_else(report_dir: Path) -> None:
    assert sorted(path.name for path in report_dir.iterdir()) == ["plan.json", "report.html", "report.pdf", "summary.md"]


def test_files_have_the_usual_rights(report_dir: Path) -> None:
    mask = os.umask(0)
    os.umask(mask)
    for path in report_dir.iterdir():
        assert path.stat().st_mode & 0o777 == 0o666 & ~mask


def test_nothing_is_written_if_one_format_fails(plan: Plan, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import planner.report.pdf

    def fails(*_: object) -> bytes:
        raise RuntimeError("no paper")

    monkeypatch.setattr(planner.report.pdf, "render_pdf", fails)
    (tmp_path / "report.html").write_text("old")
    with pytest.raises(RuntimeError, match="no paper"):
        write_reports(plan, tmp_path, ["html", "pdf"])
    assert [path.name for path in tmp_path.iterdir()] == ["report.html"] and (tmp_path / "report.html").read_text() == "old"


def test_nothing_changes_if_one_file_cannot_be_written(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "summary.md").mkdir()
    (tmp_path / "plan.json").write_text("old")
    with pytest.raises(InputError, match="--out: cannot be written"):
        write_reports(plan, tmp_path, ["json", "md"])
    assert (tmp_path / "plan.json").read_text() == "old" and len(list(tmp_path.iterdir())) == 2


def test_an_out_that_is_a_file_is_told(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "out").write_text("")
    with pytest.raises(InputError, match="--out"):
        write_reports(plan, tmp_path / "out", ["md"])


def test_an_unknown_format_is_told_with_the_nearest(plan: Plan) -> None:
    with pytest.raises(InputError, match=r"no format 'htm'; did you mean 'html'"):
        render_reports(plan, ["htm"])


def test_json_reads_back_to_the_same_reports(plan: Plan, report_dir: Path) -> None:
    again = read_plan(report_dir / "plan.json")
    made = render_reports(again, list(write.FILES))
    assert {name: made[name] for name in made} == {path.name: path.read_bytes() for path in report_dir.iterdir()}


def test_json_is_the_same_bytes_whatever_the_order_of_mappings(plan: Plan) -> None:
    def turned(row: DispatchRow) -> DispatchRow:
        return row.model_copy(update={"nodes": dict(reversed(row.nodes.items())), "shares": dict(reversed(row.shares.items()))})

    other = plan.model_copy(update={"dispatch": tuple(map(turned, plan.dispatch)), "data": dict(reversed(plan.data.items()))})
    assert plan_json(other) == plan_json(plan)
    assert render_reports(other, ["html"]) == render_reports(plan, ["html"])


def test_json_keeps_the_schemas_order_and_exact_floats(plan: Plan) -> None:
    document = json.loads(plan_json(plan))
    assert list(document) == list(Plan.model_fields)
    assert document["npv_cost_usd"] == plan.npv_cost_usd


def test_the_digest_ignores_the_run_and_nothing_else(plan: Plan) -> None:
    run = Run(started_at=datetime(2030, 1, 1, tzinfo=UTC), solve_seconds=1.0, total_seconds=2.0, planner_version="9")
    assert plan_digest(plan.model_copy(update={"run": run})) == plan_digest(plan)
    assert plan_digest(plan.model_copy(update={"seed": 1})) != plan_digest(plan)


def test_a_figure_that_is_not_finite_is_never_written(plan: Plan) -> None:
    with pytest.raises(ValueError, match="Out of range float"):
        plan_json(plan.model_copy(update={"tco_usd": float("nan")}))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"{", "plan.json:1: is not JSON"),
        (b'{"kind": "other"}', "plan.json kind: is not 'planner.plan'"),
        (b"[" * 100_000, "plan.json"),
        (b"\xff\xfe", "plan.json: is not UTF-8"),
        (b'{"kind": "planner.plan", "tco_usd": NaN}', "plan.json: is not a plan: NaN is no figure"),
        (b'{"kind": "planner.plan", "title": 1}', "plan.json title: "),
    ],
)
def test_a_broken_plan_is_told_in_lines(content: bytes, message: str, tmp_path: Path) -> None:
    path = tmp_path / "plan.json"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_plan(path)
    assert message in str(caught.value)
    assert all(len(line) < 400 for line in str(caught.value).splitlines())


def test_a_missing_plan_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"no such file; give the plan\.json"):
        read_plan(tmp_path / "nothing.json")
    with pytest.raises(InputError, match="is a folder"):
        read_plan(tmp_path)


def test_the_command_writes_beside_the_plan(plan: Plan, tmp_path: Path) -> None:
    (tmp_path / "plan.json").write_text(plan_json(plan), encoding="utf-8")
    done = CliRunner().invoke(report, [(tmp_path / "plan.json").as_posix(), "--format", "md,html"], catch_exceptions=False)
    assert done.exit_code == 0 and done.output.splitlines() == [(tmp_path / n).as_posix() for n in ("report.html", "summary.md")]


def test_the_command_refuses_an_unknown_format_before_reading(tmp_path: Path) -> None:
    done = CliRunner().invoke(report, [(tmp_path / "none.json").as_posix(), "--format", "docx"])
    assert isinstance(done.exception, InputError) and "docx" in str(done.exception)


@pytest.mark.parametrize(("name", "width"), [("report_terminal_100", 100), ("report_terminal_72", 72)])
def test_the_terminal_table(plan: Plan, name: str, width: int, golden: Callable[[str, str], None]) -> None:
    text = plan_text(build_view(plan), width, [Path("out/plan.json"), Path("out/report.html")])
    assert all(len(line) <= width for line in text.splitlines())
    golden(f"{name}.txt", text)


def test_the_terminal_shows_markup_as_text(hostile: Plan) -> None:
    named = hostile.model_copy(update={"headline": "[bold red]Buy[/] :rocket: [link=https://evil.example]x[/link]"})
    assert "[bold red]Buy[/] :rocket: [link=https://evil.example]x[/link]." in plan_text(build_view(named), 120)


def test_the_summary(plan: Plan, golden: Callable[[str, str], None]) -> None:
    golden("report_summary.md", render_markdown(build_view(plan)))


def test_the_summary_shows_hostile_names_as_text(hostile: Plan) -> None:
    text = render_markdown(build_view(hostile))
    assert "<script" not in text and "](" not in text.replace("\\](", "") and "{{7*7}}" not in text
    assert "\\{\\{7\\*7\\}\\}" in text
    assert escape("a|b\n# c") == "a\\|b \\# c"
