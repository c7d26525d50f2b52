"""`docs/formulation.md` is what the docstrings say, and every row says its sentence, its maths and its unit."""

from __future__ import annotations

from pathlib import Path

import pytest

from planner.milp.constraints import CONSTRAINTS
from planner.milp.costs import COSTS
from planner.milp.formulation import text


def test_the_page_is_current() -> None:
    assert (Path(__file__).parents[2] / "docs" / "formulation.md").read_text(encoding="utf-8") == text()


@pytest.mark.parametrize("f", [*CONSTRAINTS, *COSTS], ids=lambda f: f.__name__)
def test_every_row_says_what_it_means(f: object) -> None:
    doc = f.__doc__ or ""
    assert ".. math::" in doc and doc.rstrip().endswith("]")
