"""Load and capacity of a plan as series for charts: who serves which hour of the week, GPUs held against GPUs needed.

Reads `plan.dispatch` and, where the plan carries it, `plan.problem` (pools, candidates, workloads, as in `schema.problem`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.report.names import Names
from planner.schema.plan import DispatchRow, Plan
from planner.units import HOURS_PER_WEEK


def _by_id(rows: Any) -> dict[str, dict[str, Any]]:
    """Return rows by id, from a list of rows or a mapping of them."""
    if isinstance(rows, dict):
        return {str(key): row for key, row in rows.items() if isinstance(row, dict)}
    return {str(row["id"]): row for row in rows or () if isinstance(row, dict) and "id" in row}


@dataclass(frozen=True)
class Load:
    """The dispatch of a plan, seen by hour of the week and by month."""

    plan: Plan
    names: Names

    @cached_property
    def rows(self) -> dict[tuple[int, int], DispatchRow]:
        """(month, timeslice) → what runs."""
        return {(row.month, row.timeslice): row for row in self.plan.dispatch}

    @cached_property
    def candidates(self) -> dict[str, dict[str, Any]]:
        """Candidate id → its numbers."""
        return _by_id(self.plan.problem.get("candidates"))

    @cached_property
    def workloads(self) -> dict[str, dict[str, Any]]:
        """Workload id → its numbers."""
        return _by_id(self.plan.problem.get("workloads"))

    @cached_property
    def gpus_per_node(self) -> dict[str, int]:
        """Pool id → GPUs of one of its nodes."""
        pools = _by_id(self.plan.problem.get("pools"))
        return {key: int(row["gpus_per_node_count"]) for key, row in pools.items() if row.get("gpus_per_node_count")}

    def supply_name(self, key: str) -> str:
        """Return the name of the pool of a candidate, or of an offer."""
        return self.names.pool(str(self.candidates.get(key, {}).get("pool", key)))

    def rate(self, workload: str, month: int, timeslice: int, which: str = "peak_req_per_s") -> float:
        """Return requests a second of a workload; from month 0's rate and the plan's growth where the problem is not carried."""
        table = self.workloads.get(workload, {}).get(which)
        if table and month < len(table) and timeslice < len(table[month]):
            return float(table[month][timeslice])
        slices = {s.index: s for s in self.plan.timeslices}
        base = getattr(slices[timeslice], which).get(workload, 0.0) if timeslice in slices else 0.0
        found = next((w for w in self.plan.workloads if w.id == workload), None)
        last = self.plan.horizon_months - 1
        if found is None or last < 1 or found.peak_req_per_s_first <= 0:
            return float(base)
        return float(base * (found.peak_req_per_s_last / found.peak_req_per_s_first) ** (month / last))

    @cached_property
    def supply_order(self) -> dict[str, int]:
        """Name → place, in the order in which the plan's workloads list their supplies."""
        names = [self.names.pool(supply.pool) for workload in self.plan.workloads for supply in workload.supplies]
        return {name: i for i, name in enumerate(dict.fromkeys(names))}

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return names of supplies, each once, in the plan's order."""
        return sorted(set(names), key=lambda name: (self.supply_order.get(name, len(self.supply_order)), name))

    def requests_by_supply(self, month: int, timeslice: int) -> dict[str, float]:
        """Return peak requests a second by the name of who serves them."""
        found: dict[str, float] = defaultdict(float)
        row = self.rows.get((month, timeslice))
        for workload, shares in sorted((row.shares if row else {}).items()):
            for key, share in sorted(shares.items()):
                if share > 0:
                    found[self.supply_name(key)] += share * self.rate(workload, month, timeslice)
        return {name: found[name] for name in self.in_order(found)}

    def gpus_held(self, month: int, timeslice: int) -> float:
        """Return GPUs at hand in all pools."""
        row = self.rows.get((month, timeslice))
        return float(sum(count * self.gpus_per_node.get(pool, 0) for pool, count in (row.nodes if row else {}).items()))

    def gpus_running(self, month: int, timeslice: int) -> float:
        """Return GPUs on which a replica runs."""
        row = self.rows.get((month, timeslice))
        replicas = row.replicas if row else {}
        return float(sum(count * float(self.candidates.get(key, {}).get("gpus_count", 0)) for key, count in replicas.items()))

    def gpus_needed(self, month: int, timeslice: int) -> float:
        """Return the GPUs that the peak load would fill: share × peak rate / what a replica serves × its GPUs."""
        row = self.rows.get((month, timeslice))
        total = 0.0
        for workload, shares in sorted((row.shares if row else {}).items()):
            for key, share in sorted(shares.items()):
                shape = self.candidates.get(key)
                served = (shape or {}).get("req_per_s_by_workload", {}).get(workload)
                if shape and served:
                    total += share * self.rate(workload, month, timeslice) / float(served) * float(shape["gpus_count"])
        return total

    @cached_property
    def has_gpus(self) -> bool:
        """Whether GPUs can be counted: the plan holds nodes and carries its problem."""
        return bool(self.gpus_per_node) and any(self.gpus_held(m, t) for m, t in self.rows)

    @cached_property
    def slice_of_hour(self) -> tuple[int | None, ...]:
        """168 entries: the timeslice of each hour of the week, Monday 00:00 first."""
        found: list[int | None] = [None] * HOURS_PER_WEEK
        for timeslice in self.plan.timeslices:
            for hour in timeslice.hours_of_week:
                found[hour % HOURS_PER_WEEK] = timeslice.index
        return tuple(found)

    @cached_property
    def shown_month(self) -> int:
        """The month shown by the hour: the one with the highest load on any timeslice, the last of those alike."""
        months = sorted({m for m, _ in self.rows})
        return max(
            months, key=lambda m: (max(sum(self.requests_by_supply(m, t.index).values()) for t in self.plan.timeslices), m), default=0
        )

    def bridge(self, until_month: int, pool: str) -> tuple[str, ...]:
        """Return the names of what serves before `until_month`, `pool` left out."""
        found: set[str] = set()
        for (month, _), row in sorted(self.rows.items()):
            if month >= until_month:
                break
            for key in sorted(k for shares in row.shares.values() for k, share in shares.items() if share > 0):
                if self.candidates.get(key, {}).get("pool", key) != pool:
                    found.add(self.supply_name(key))
        return tuple(self.in_order(found))
