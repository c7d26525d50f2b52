"""`planner init` writes a starter that validates, whole or not at all, and never over somebody's work."""

import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from planner.cli.init import init
from planner.errors import InputError
from planner.readers.profiles import shipped_profiles
from planner.readers.workload_file import load_workload


def run(*arguments: str) -> str:
    return CliRunner().invoke(init, list(arguments), catch_exceptions=False).output


def test_the_starter_validates(tmp_path: Path) -> None:
    target = tmp_path / "team.yaml"
    assert f"planner solve {target}" in run(str(target))
    workload_file = load_workload(target)
    assert {w.kind for w in workload_file.workloads.values()} == {"serving", "batch"}
    assert workload_file.workloads["support_chat"].privacy.allow == ("own", "rent")
    assert workload_file.plan.as_of is not None, "a shipped example pins the day, so that it never rots"
    assert [p.name for p in tmp_path.iterdir()] == ["team.yaml"], "no part file is left behind"


def test_commented_suggestions_validate_too(tmp_path: Path) -> None:
    """Each commented key can be taken into use by removing the `# ` before it."""
    target = tmp_path / "team.yaml"
    run(str(target))
    text = target.read_text()
    taken = re.sub(r"(?m)^(\s*)# (?=(?:budgets|owned|regions|require|api_unproven):|  - \{node)", r"\1", text)
    assert taken != text
    target.write_text(taken)
    workload_file = load_workload(target)
    assert workload_file.owned[0].count == 1
    assert workload_file.plan.budgets.capex_usd == 400_000
    assert workload_file.workloads["nightly_summaries"].privacy.regions == ("eu",)


def test_the_starter_names_every_profile(tmp_path: Path) -> None:
    target = tmp_path / "team.yaml"
    run(str(target))
    line = next(line for line in target.read_text().splitlines() if "profile:" in line)
    assert all(name in line for name in shipped_profiles())


def test_an_existing_file_is_kept(tmp_path: Path) -> None:
    target = tmp_path / "team.yaml"
    target.write_text("mine")
    with pytest.raises(InputError, match="exists already; give another name, or --force"):
        run(str(target))
    assert target.read_text() == "mine"
    run(str(target), "--force")
    assert target.read_text().startswith("# yaml-language-server")


@pytest.mark.parametrize(("place", "fault"), [("", "this is a folder"), ("none/team.yaml", "cannot be written")])
def test_a_place_that_cannot_be_written(tmp_path: Path, place: str, fault: str) -> None:
    with pytest.raises(InputError, match=fault):
        run(str(tmp_path / place))
    assert list(tmp_path.iterdir()) == []
