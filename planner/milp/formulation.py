"""The formulation as a page: every constraint and cost line, in the words of its docstring."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from typing import Any

from planner.milp.constraints import CONSTRAINTS
from planner.milp.costs import COSTS

HEAD = """# The integer program

Printed from the docstrings of `planner/milp` by `benchmarks/print_formulation.py`; a test holds that it is current.

Indices: workload w, variant v, candidate k (a replica shape of a variant on a pool), pool p, API offer a, site s, month m = 0..H−1,
timeslice t with h_t hours (730 a month). d is the monthly discount rate. Whole: buy, held, nodes, replicas;
0/1: use, hosted, open, self_host,
must_survive; parts: share, call, absorb, work, backlog, rise. Every variable has a finite upper bound that no optimal plan needs to pass.

The objective is the sum of the cost lines. Capex, upfront parts and starts of commitments are discounted at (1+d)^−m, running costs of
month m at (1+d)^−(m+1), residual value at (1+d)^−H.
"""


def text() -> str:
    """Return the page as Markdown."""
    return HEAD + "\n## Constraints\n" + "".join(map(_entry, CONSTRAINTS)) + "\n## Cost lines\n" + "".join(map(_entry, COSTS))


def _entry(f: Callable[..., Any]) -> str:
    doc = inspect.cleandoc(f.__doc__ or "")
    words, _, maths = doc.partition(".. math::")
    formula = re.sub(r"\s+", " ", maths).strip()
    formula, _, unit = formula.rpartition("[")
    return f"\n### {f.__name__}\n\n{re.sub(chr(10), ' ', words).strip()}\n\n$$ {formula.strip()} $$\n\nUnit: {unit.rstrip(']').strip()}\n"
