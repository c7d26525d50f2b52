"""Plans and rendered reports shared by the tests of the report."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from sample_plan import hostile_plan, sample_plan

from planner.report.write import write_reports
from planner.schema.plan import Plan


@pytest.fixture(scope="session")
def plan() -> Plan:
    return sample_plan()


@pytest.fixture(scope="session")
def hostile() -> Plan:
    return hostile_plan()


@pytest.fixture(scope="session")
def report_dir(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("report")
    write_reports(plan, out)
    return out


@pytest.fixture(scope="session")
def hostile_dir(hostile: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("hostile")
    write_reports(hostile, out)
    return out


def find_tool(*names: str) -> str:
    """Return the path of the first tool found; without one the test fails under CI and is skipped elsewhere."""
    for name in names:
        path = shutil.which(name)
        if path:
            return path
    message = f"needs one of {', '.join(names)}"
    if os.environ.get("CI", "").lower() in ("1", "true"):
        pytest.fail(f"CI {message}: install it")
    pytest.skip(message)


@pytest.fixture(scope="session")
def chromium() -> str:
    return find_tool("chromium", "chromium-browser", "google-chrome")
