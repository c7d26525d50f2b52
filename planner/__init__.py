"""Decide what LLM capacity to buy, what to rent and what to call as an API.

The small public surface, imported when first used so that `import planner` stays cheap:
`load_workload`, `load_catalog`, `make_plan`, `Plan`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from planner.catalog import load_catalog
    from planner.plan import make_plan
    from planner.readers.workload_file import load_workload
    from planner.schema.plan import Plan

__version__ = "0.1.0"
__all__ = ["Plan", "__version__", "load_catalog", "load_workload", "make_plan"]

_HOME = {
    "load_catalog": "planner.catalog",
    "load_workload": "planner.readers.workload_file",
    "make_plan": "planner.plan",
    "Plan": "planner.schema.plan",
}


def __getattr__(name: str) -> Any:
    if name in _HOME:
        return getattr(import_module(_HOME[name]), name)
    raise AttributeError(f"module 'planner' has no attribute {name!r}")
