"""One golden .lp per constraint and one for the objective, on a two-timeslice, two-pool problem."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

from planner.milp.constraints import CONSTRAINTS
from planner.milp.costs import COSTS
from planner.milp.engine import build, fill_pulp

HERE = Path(__file__).parent
GOLDEN = HERE.parent / "golden"


def load(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


SMALL = load(HERE / "small.py")


def lp_text(tmp_path: Path, constraints: tuple[Any, ...], costs: tuple[Any, ...]) -> str:
    problem = fill_pulp(build(SMALL.golden_problem(), constraints, costs))
    problem.writeLP(str(tmp_path / "x.lp"))
    text = (tmp_path / "x.lp").read_text()
    return text[: text.index("\nBounds")] + "\n" if constraints else text


@pytest.mark.parametrize("rows", CONSTRAINTS, ids=lambda f: f.__name__)
def test_rows_are_golden(rows: Any, tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check(GOLDEN / f"{rows.__name__}.lp", lp_text(tmp_path, (rows,), ()), request)


def test_objective_and_bounds_are_golden(tmp_path: Path, request: pytest.FixtureRequest) -> None:
    check(GOLDEN / "objective.lp", lp_text(tmp_path, (), COSTS), request)


def test_every_constraint_has_a_row_in_the_golden_problem(tmp_path: Path) -> None:
    for rows in CONSTRAINTS:
        assert build(SMALL.golden_problem(), (rows,), ()).row_names, rows.__name__


def check(path: Path, text: str, request: pytest.FixtureRequest) -> None:
    if request.config.getoption("--update-golden", default=False):
        path.write_text(text)
    assert path.exists(), f"{path.name} is missing: run pytest --update-golden and read the difference"
    assert text == path.read_text()
