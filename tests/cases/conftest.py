"""Asks the command as a user does."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from planner.cli.main import main


@pytest.fixture
def size(capsys: pytest.CaptureFixture[str]) -> Callable[..., dict[str, Any]]:
    """Return `call(*options)`: the JSON of `planner size`, its exit code and what it wrote to standard error."""

    def call(*args: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as stop:
            main(["size", *args, "--json"])
        out, err = capsys.readouterr()
        data: dict[str, Any] = json.loads(out) if out else {}
        return {**data, "exit": int(stop.value.code or 0), "err": err}

    return call


@pytest.fixture
def page(capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return `call(*options)`: what `planner size` prints."""

    def call(*args: str) -> str:
        with pytest.raises(SystemExit):
            main(["size", *args])
        return capsys.readouterr().out

    return call
