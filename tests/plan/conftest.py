"""Each small plan is solved once a session and shared by the tests that look at it."""

from __future__ import annotations

import sys
from collections.abc import Callable
from datetime import date
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from plan_inputs import FILES, file_of

from planner.candidates.build import Prepared, prepare
from planner.catalog import Catalog, load_catalog
from planner.plan import Options, make_plan
from planner.schema.plan import Plan


@pytest.fixture(scope="session")
def catalog() -> Catalog:
    return load_catalog()


@pytest.fixture(scope="session")
def plan_of(catalog: Catalog) -> Callable[[str], Plan]:
    """Return the plan of a file of `FILES`, solved at the first call."""
    made: dict[str, Plan] = {}

    def plan(name: str) -> Plan:
        if name not in made:
            made[name] = make_plan(file_of(FILES[name], f"{name}.yaml"), catalog, Options())
        return made[name]

    return plan


@pytest.fixture(scope="session")
def prepared_of(catalog: Catalog) -> Callable[[dict[str, Any]], Prepared]:
    """Return what is known of a document before anything is solved."""

    def prepared(content: dict[str, Any]) -> Prepared:
        file = file_of(content)
        day = file.plan.as_of or date(2026, 11, 30)
        return prepare(file, catalog, catalog.snapshot(file.plan.prices), day)

    return prepared
