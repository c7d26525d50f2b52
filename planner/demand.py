"""Load to rates, rates to timeslices: what arrives in each hour of the week, month by month, grouped for all workloads at once.

A rate is requests a second (serving) or tokens a second (batch and finetune). Every month has the same week, scaled by growth.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import fsum
from typing import Literal

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.profiles import shipped_profiles
from planner.schema.profile import WeekProfile
from planner.schema.workload import Batch, Finetune, Serving, Workload, WorkloadFile
from planner.timeslices import Timeslices, make_timeslices
from planner.units import HOURS_PER_MONTH, HOURS_PER_WEEK, SECONDS_PER_HOUR

DEFAULT_TIMESLICE_COUNT = 8
HOURS_PER_DAY = 24
MS_PER_S = 1e3

__all__ = ["DEFAULT_TIMESLICE_COUNT", "Demand", "Timeslices", "WorkloadDemand", "demand", "make_timeslices", "profile_hours"]


@dataclass(frozen=True)
class WorkloadDemand:
    """What one workload asks for: a week of hourly mean rates in a month of growth factor 1, and the factor of each month."""

    unit: Literal["req_per_s", "tok_per_s"]
    """Requests a second for serving; input and output tokens a second together for batch and finetune."""
    hourly_rate: tuple[float, ...]
    """168 mean rates, Monday 00:00 in plan.timezone first."""
    month_factor: tuple[float, ...]
    """One factor a month of the plan: (1 + growth)^m, and 0 before the workload starts."""
    input_tok_per_unit: float
    """Mean input tokens of one request, or the input's part of one token."""
    output_tok_per_unit: float
    held_sessions_count: float | None = None
    """Sessions held open at once in the busiest hour of a factor-1 month, where the load is given as sessions."""
    deadline_hours: float | None = None
    """Batch and finetune: hours from arrival until the work is due."""


@dataclass(frozen=True)
class Demand:
    """All workloads' demand on one set of timeslices."""

    timeslices: Timeslices
    workloads: Mapping[str, WorkloadDemand]
    profiles_used: Mapping[str, WeekProfile]
    """The named profiles that the rates rest on, for the evidence."""

    def mean_rate(self, workload: str, month: int, timeslice: int) -> float:
        """Return the mean rate in a month and timeslice, in the workload's unit: energy, tokens and API bills follow it."""
        return self.timeslices.mean[workload][timeslice] * self.workloads[workload].month_factor[month]

    def peak_rate(self, workload: str, month: int, timeslice: int) -> float:
        """Return the highest hourly mean rate in a month and timeslice: capacity is held against it."""
        return self.timeslices.peak[workload][timeslice] * self.workloads[workload].month_factor[month]


def demand(
    workload_file: WorkloadFile,
    *,
    timeslice_count: int = DEFAULT_TIMESLICE_COUNT,
    profiles: Mapping[str, WeekProfile] | None = None,
) -> Demand:
    """Return the demand of every workload over the plan's months, its week cut into at most `timeslice_count` timeslices.

    Raises `InputError` for a profile that is not known.
    """
    known = shipped_profiles() if profiles is None else profiles
    month_count = workload_file.plan.horizon_months
    faults: list[Fault] = []
    found: dict[str, WorkloadDemand] = {}
    used: dict[str, WeekProfile] = {}
    for name, workload in workload_file.workloads.items():
        profile = _profile_of(workload)
        if isinstance(profile, str):
            if profile not in known:
                faults.append(Fault(workload_file.path, None, f"workloads.{name}", f"no profile '{profile}'", did_you_mean(profile, known)))
                continue
            used[profile] = known[profile]
        found[name] = _of_one(workload, profile_hours(profile, known), month_count)
    if faults:
        raise InputError(faults)
    slices = make_timeslices({name: d.hourly_rate for name, d in found.items()}, timeslice_count)
    return Demand(slices, found, used)


def profile_hours(profile: str | Sequence[float], known: Mapping[str, WeekProfile]) -> tuple[float, ...]:
    """Return a profile as 168 numbers with mean 1."""
    hours = known[profile].hours() if isinstance(profile, str) else tuple(profile)
    total = fsum(hours)
    return tuple(hour * HOURS_PER_WEEK / total for hour in hours)


def requests_per_s(requests_per_day: float) -> float:
    """Return the mean rate of a daily volume.

    >>> requests_per_s(60000)
    0.6944444444444444
    """
    return requests_per_day / (HOURS_PER_DAY * SECONDS_PER_HOUR)


def session_requests_per_s(sessions: float, ttft_s: float, output_tok: float, tpot_s: float, think_time_s: float) -> float:
    """Return the rate that open sessions make, each sending its next request once the last is answered and thought about.

    One turn lasts the TTFT target, the mean output at the TPOT target, and the pause; the same for every supply.

    >>> round(session_requests_per_s(sessions=32, ttft_s=1.5, output_tok=260, tpot_s=0.06, think_time_s=0), 4)   # 32 / 17.1 s
    1.8713
    """
    return sessions / (ttft_s + output_tok * tpot_s + think_time_s)


def month_factors(growth_frac_per_month: float, start_month: int, month_count: int) -> tuple[float, ...]:
    """Return the load of each month relative to month 0: growth compounds from month 0, and nothing comes before the start.

    >>> month_factors(growth_frac_per_month=0.5, start_month=1, month_count=3)
    (0.0, 1.5, 2.25)
    """
    return tuple((1.0 + growth_frac_per_month) ** m if m >= start_month else 0.0 for m in range(month_count))


def _profile_of(workload: Workload) -> str | tuple[float, ...]:
    if isinstance(workload, Serving):
        return workload.load.profile
    return workload.profile if isinstance(workload, Batch) else "flat"


def _of_one(workload: Workload, shape: tuple[float, ...], month_count: int) -> WorkloadDemand:
    if isinstance(workload, Serving):
        return _serving(workload, shape, month_count)
    factors = month_factors(workload.growth_frac_per_month, workload.start_month, month_count)
    if isinstance(workload, Batch):
        day = workload.tokens_per_day
        total = day.input + day.output
        rate = requests_per_s(total)
        hourly = tuple(rate * hour for hour in shape)
        return WorkloadDemand("tok_per_s", hourly, factors, day.input / total, day.output / total, deadline_hours=workload.deadline_hours)
    return _finetune(workload, factors)


def _finetune(workload: Finetune, factors: tuple[float, ...]) -> WorkloadDemand:
    rate = workload.tokens_per_run * workload.runs_per_month / (HOURS_PER_MONTH * SECONDS_PER_HOUR)
    due = workload.deadline_hours if workload.deadline_hours is not None else HOURS_PER_MONTH / workload.runs_per_month
    return WorkloadDemand("tok_per_s", (rate,) * HOURS_PER_WEEK, factors, 1.0, 0.0, deadline_hours=due)


def _serving(workload: Serving, shape: tuple[float, ...], month_count: int) -> WorkloadDemand:
    load, tokens, latency = workload.load, workload.tokens, workload.latency
    if tokens is None:
        raise InputError([Fault("", None, "tokens", "request logs are not read yet", "write `tokens:`")])
    factors = month_factors(load.growth_frac_per_month, workload.start_month, month_count)
    per_unit = (tokens.prompt.mean, tokens.output.mean)
    if load.requests_per_day is not None:
        mean = requests_per_s(load.requests_per_day)
        return WorkloadDemand("req_per_s", tuple(mean * hour for hour in shape), factors, *per_unit)
    sessions = float(load.concurrency) if load.concurrency is not None else (load.users or 0.0) * (load.active_frac or 0.0)
    ttft_ms, tpot_ms = latency.ttft_p99_ms, latency.tpot_p99_ms
    if ttft_ms is None or tpot_ms is None or sessions <= 0:
        what = "sessions become a rate through the TTFT and TPOT targets"
        raise InputError([Fault("", None, "latency", what, "give ttft_p99_ms and tpot_p99_ms")])
    busiest = session_requests_per_s(sessions, ttft_ms / MS_PER_S, tokens.output.mean, tpot_ms / MS_PER_S, load.think_time_s)
    top = max(shape)
    hourly = tuple(busiest * hour / top for hour in shape)
    return WorkloadDemand("req_per_s", hourly, factors, *per_unit, held_sessions_count=sessions)
