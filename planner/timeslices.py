"""The 168 hours of a week grouped into a few timeslices, jointly for all workloads.

A timeslice is served with capacity for its peak hour, so its cost beyond the need is the sum over its hours of
(peak - rate). The grouping makes that sum small, each workload measured against its own highest hour: hours with equal
rates are one group, the pair of groups whose union costs least is joined until few enough are left, then single groups
of equal hours move where that lowers the sum. With one workload an exact cut of the sorted hours is tried as well.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum

import numpy as np
from numpy.typing import NDArray

from planner.units import HOURS_PER_WEEK, WEEKS_PER_MONTH

Array = NDArray[np.float64]
MAX_PASSES = 50


@dataclass(frozen=True)
class Timeslices:
    """Stretches of alike hours, the busiest first. `hours_per_month` sums to 730."""

    hours_per_month: tuple[float, ...]
    slice_of_hour: tuple[int, ...]
    """For each of the 168 hours, Monday 00:00 first, the timeslice it lies in."""
    mean: Mapping[str, tuple[float, ...]]
    """By workload: the mean rate over a timeslice's hours."""
    peak: Mapping[str, tuple[float, ...]]
    """By workload: the highest hourly mean in a timeslice."""

    def hours_in(self, timeslice: int) -> tuple[int, ...]:
        """Return the hours of the week that lie in a timeslice."""
        return tuple(hour for hour, at in enumerate(self.slice_of_hour) if at == timeslice)


def make_timeslices(rates: Mapping[str, Sequence[float]], count: int) -> Timeslices:
    """Return at most `count` timeslices for the given 168 hourly rates of each workload; fewer where fewer hours differ.

    The same rates always give the same timeslices. Raises `ValueError` for another number of hours, a rate that is
    negative or not finite, or a count below 1.
    """
    if count < 1:
        raise ValueError("at least one timeslice is needed")
    for name, week in rates.items():
        if len(week) != HOURS_PER_WEEK:
            raise ValueError(f"{name}: {len(week)} hourly rates, a week has {HOURS_PER_WEEK}")
        if not all(0 <= rate < float("inf") for rate in week):
            raise ValueError(f"{name}: rates must be finite and not negative")
    names = sorted(rates)
    table = np.array([[float(rate) for rate in rates[name]] for name in names], dtype=np.float64).reshape(len(names), HOURS_PER_WEEK).T
    top = table.max(axis=0, initial=0.0)
    scaled = table / np.where(top > 0, top, 1.0)
    points, point_of_hour, sizes = np.unique(scaled, axis=0, return_inverse=True, return_counts=True)
    group_of_point = _grouped(points, sizes.astype(np.float64), count)
    group_of_hour = [int(group_of_point[p]) for p in np.ravel(point_of_hour)]
    order = _busiest_first(scaled, group_of_hour)
    slice_of_hour = tuple(order[group] for group in group_of_hour)
    members = [[h for h in range(HOURS_PER_WEEK) if slice_of_hour[h] == s] for s in range(len(order))]
    return Timeslices(
        hours_per_month=tuple(len(hours) * WEEKS_PER_MONTH for hours in members),
        slice_of_hour=slice_of_hour,
        mean={name: tuple(_mean([float(rates[name][h]) for h in hours]) for hours in members) for name in names},
        peak={name: tuple(max(float(rates[name][h]) for h in hours) for hours in members) for name in names},
    )


def _mean(values: list[float]) -> float:
    """Return the mean, kept from exceeding the largest value by a rounding."""
    return min(fsum(values) / len(values), max(values))


def excess(rates: Mapping[str, Sequence[float]], timeslices: Timeslices) -> float:
    """Return the sum over hours and workloads of (peak of the hour's timeslice - rate), each workload's highest hour as 1."""
    parts: list[float] = []
    for name, week in rates.items():
        top = max(week) or 1.0
        parts.extend((timeslices.peak[name][s] - rate) / top for s, rate in zip(timeslices.slice_of_hour, week, strict=True))
    return fsum(parts)


def _busiest_first(scaled: Array, group_of_hour: list[int]) -> dict[int, int]:
    first: dict[int, int] = {}
    load: dict[int, float] = {}
    for hour, group in enumerate(group_of_hour):
        first.setdefault(group, hour)
        load[group] = max(load.get(group, 0.0), float(scaled[hour].sum()))
    ranked = sorted(first, key=lambda g: (-load[g], first[g]))
    return {group: place for place, group in enumerate(ranked)}


def _grouped(points: Array, sizes: Array, count: int) -> NDArray[np.intp]:
    """Return the group of each distinct point, the better of the joined and the cut grouping, improved by single moves."""
    if len(points) <= count:
        return np.arange(len(points))
    candidates = [_joined(points, sizes, count), _cut(points, sizes, count)]
    improved = [_moved(points, sizes, groups) for groups in candidates]
    costs = [_cost(points, sizes, groups) for groups in improved]
    return improved[int(np.argmin(costs))]


def _cost(points: Array, sizes: Array, groups: NDArray[np.intp]) -> float:
    total = 0.0
    for group in np.unique(groups):
        inside = groups == group
        total += float(points[inside].max(axis=0).sum() * sizes[inside].sum())
    return total


def _joined(points: Array, sizes: Array, count: int) -> NDArray[np.intp]:
    """Join, step by step, the two groups whose union needs the least capacity-hours more."""
    peaks, hours = points.copy(), sizes.copy()
    groups = np.arange(len(points))
    labels = np.arange(len(points))
    while len(peaks) > count:
        own = peaks.sum(axis=1) * hours
        union = np.maximum(peaks[:, None, :], peaks[None, :, :]).sum(axis=2) * (hours[:, None] + hours[None, :])
        more = union - own[:, None] - own[None, :]
        more[np.tril_indices(len(peaks))] = np.inf
        a, b = np.unravel_index(int(np.argmin(more)), more.shape)
        peaks[a] = np.maximum(peaks[a], peaks[b])
        hours[a] += hours[b]
        groups[groups == labels[b]] = labels[a]
        peaks, hours, labels = np.delete(peaks, b, axis=0), np.delete(hours, b), np.delete(labels, b)
    return groups


def _cut(points: Array, sizes: Array, count: int) -> NDArray[np.intp]:
    """Cut the hours, sorted by summed load, into stretches of least cost: exact when there is one workload."""
    order = np.lexsort((*points.T, points.sum(axis=1)))
    ordered, hours = points[order], sizes[order]
    n = len(ordered)
    cost = np.full((n + 1, n + 1), np.inf)
    for start in range(n):
        peak = np.maximum.accumulate(ordered[start:], axis=0).sum(axis=1)
        cost[start, start + 1 :] = peak * np.cumsum(hours[start:])
    best = cost[0].copy()
    steps = []
    for _ in range(1, count):
        through = best[:, None] + cost
        steps.append(np.argmin(through, axis=0))
        best = np.min(through, axis=0)
    groups = np.empty(n, dtype=np.intp)
    end = n
    for label, step in enumerate([*reversed(steps), np.zeros(n + 1, dtype=np.intp)]):
        start = int(step[end])
        groups[order[start:end]] = label
        end = start
    return groups


def _moved(points: Array, sizes: Array, groups: NDArray[np.intp]) -> NDArray[np.intp]:
    """Move single points to another group for as long as that lowers the cost."""
    labels = [int(g) for g in np.unique(groups)]
    inside = {g: [int(p) for p in np.flatnonzero(groups == g)] for g in labels}

    def cost(members: list[int]) -> float:
        return float(points[members].max(axis=0).sum() * sizes[members].sum()) if members else 0.0

    costs = {g: cost(inside[g]) for g in labels}
    home = {p: g for g in labels for p in inside[g]}
    for _ in range(MAX_PASSES):
        changed = False
        for p in range(len(points)):
            here = home[p]
            rest = [q for q in inside[here] if q != p]
            if not rest:
                continue
            freed = costs[here] - cost(rest)
            added = {g: cost([*inside[g], p]) - costs[g] for g in labels if g != here}
            best = min(added, key=lambda g: (added[g], g), default=here)
            if best != here and added[best] < freed - 1e-9:
                inside[here], inside[best] = rest, [*inside[best], p]
                costs[here], costs[best] = cost(rest), cost(inside[best])
                home[p] = best
                changed = True
        if not changed:
            break
    return np.array([home[p] for p in range(len(points))], dtype=np.intp)
