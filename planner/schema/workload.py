"""The workload file: what to serve, where it may run, and by when; one model a section, names as people write them.

Workloads are told apart by `kind` (serving where it is left out). `plan.defaults` is laid under every workload before
anything is checked, so above this module a workload is complete. Rules that span several keys raise one fault a rule at
the key to correct; those that span sections are in `schema/workload_rules.py`.
"""

from __future__ import annotations

from contextlib import suppress
from datetime import date
from typing import Annotated, Any, Literal

from pydantic import (
    BeforeValidator,
    Discriminator,
    Field,
    PlainSerializer,
    StringConstraints,
    Tag,
    ValidationError,
    WithJsonSchema,
    field_validator,
    model_validator,
)
from pydantic_core import InitErrorDetails, PydanticCustomError

from planner.schema.base import ID_PATTERN, Frozen, Id, Text
from planner.units import HOURS_PER_WEEK

NAMES_FOR_PEOPLE: frozenset[str] = frozenset(
    {
        "requests_per_day", "concurrency", "users", "mean", "p50", "p99", "input", "output", "rent", "api", "buy", "operating", "own",
        "min_replicas", "start_month", "profile", "runs_per_month", "usd_per_month_self_host", "usd_per_month_fixed", "score",
        "baseline", "max_concurrency", "tokens_per_run",
    }
)
"""Numbers of the workload file that are written without a unit's suffix, because their key or their section says it."""

MAX_HORIZON_MONTHS = 120
MAX_GROWTH_FACTOR = 1e4


def _is_number(value: Any) -> Any:
    """Refuse text and yes/no where a number is due: neither is ever meant as one."""
    if isinstance(value, (str, bool)):
        raise PydanticCustomError("number_type", "a number is due")
    return value


def _month(value: Any) -> Any:
    """Accept 2026-12 (or the first day of a month) and give the month's first day."""
    if isinstance(value, str):
        with suppress(ValueError):
            value = date.fromisoformat(f"{value}-01" if len(value) == 7 else value)
    if isinstance(value, date) and value.day == 1:
        return date(value.year, value.month, 1)
    shown = f"the text '{value[:40]}'" if isinstance(value, str) else str(value)[:40]
    raise ValueError(f"{shown} is not a month; write year-month, for example 2026-12")


def _aslist(value: Any) -> Any:
    """Take one word for a list of one: `weights: fp8` means `weights: [fp8]`."""
    return [value] if isinstance(value, str) else value


def bounded(*, ge: float | None = None, gt: float | None = None, le: float) -> Any:
    """Return the field constraints of a finite number that is written as a number."""
    return Field(ge=ge, gt=gt, le=le, allow_inf_nan=False)


_N = BeforeValidator(_is_number)
Month = Annotated[
    date,
    BeforeValidator(_month),
    PlainSerializer(lambda d: d.strftime("%Y-%m"), return_type=str, when_used="json"),
    WithJsonSchema({"type": "string", "pattern": r"^[0-9]{4}-(0[1-9]|1[0-2])$"}),
]
Share = Annotated[float, bounded(ge=0, le=1), _N]
Usd = Annotated[float, bounded(ge=0, le=1e12), _N]
UsdRate = Annotated[float, bounded(ge=0, le=1e6), _N]
Count = Annotated[int, Field(ge=1, le=100_000), _N]
Tokens1 = Annotated[int, Field(ge=1, le=100_000_000), _N]
MeanTokens = Annotated[float, bounded(gt=0, le=1e8), _N]
DayTokens = Annotated[float, bounded(ge=0, le=1e15), _N]
Milliseconds = Annotated[float, bounded(gt=0, le=3.6e6), _N]
Growth = Annotated[float, bounded(ge=-0.5, le=1), _N]
Trend = Annotated[float, bounded(ge=-0.9, le=1), _N]
Days = Annotated[int, Field(ge=1, le=36_500), _N]
Hours = Annotated[float, bounded(gt=0, le=HOURS_PER_WEEK), _N]
StartMonth = Annotated[int, Field(ge=0, le=MAX_HORIZON_MONTHS - 1), _N]
Ids = Annotated[tuple[Id, ...], Field(min_length=1, max_length=50), BeforeValidator(_aslist)]
PathText = Annotated[str, StringConstraints(min_length=1, max_length=1000)]
WayToServe = Literal["own", "rent", "api"]
Deal = Literal["on_demand", "spot", "reserved_1y", "reserved_3y"]
HourNumbers = Annotated[
    tuple[Annotated[float, bounded(ge=0, le=1e12), _N], ...], Field(min_length=HOURS_PER_WEEK, max_length=HOURS_PER_WEEK)
]
Profile = Id | HourNumbers


class Rules:
    """Collects the faults of rules that span several keys, each with the place of the key to correct."""

    def __init__(self, title: str) -> None:
        self.title = title
        self.details: list[InitErrorDetails] = []

    def add(self, place: tuple[str | int, ...], what: str, cure: str) -> None:
        """Note one fault; `place` is relative to the model that is being checked."""
        error = PydanticCustomError("planner_rule", "{text}", {"text": f"{what}; {cure}"})
        self.details.append(InitErrorDetails(type=error, loc=place, input=None))

    def raise_all(self) -> None:
        """Raise every noted fault at once, if there is one."""
        if self.details:
            raise ValidationError.from_exception_data(self.title, self.details)


# --- plan -----------------------------------------------------------------------------------------------------------


class MaxPriceAge(Frozen):
    """How old a price row may be on the day of the decision, in days, by kind of price."""

    rent: Days = 90
    api: Days = 90
    buy: Days = 365
    operating: Days = 730


class Budgets(Frozen):
    """Limits in undiscounted US dollars."""

    capex_usd: Usd | None = None
    """Sum of all purchases over the horizon."""
    opex_usd_per_month: Usd | None = None
    """Every month's cash without purchases; upfront payments of commitments count in their month."""


class PriceTrend(Frozen):
    """How prices move a year from the snapshot on, as a fraction: -0.2 means 20 % cheaper each year."""

    rent: Trend = 0.0
    api: Trend = 0.0
    buy: Trend = 0.0


class Staff(Frozen):
    """What it costs to operate serving at all, once, as soon as anything is owned or rented."""

    usd_per_month_self_host: Usd


class ReportCurrency(Frozen):
    """A currency shown beside US dollars; nothing is computed in it."""

    code: Annotated[str, StringConstraints(pattern=r"^[A-Z]{3}$")]
    """Three letters, as in ISO 4217: EUR, GBP, JPY."""
    usd_per_unit: Annotated[float, bounded(gt=0, le=1e4), _N]
    """US dollars that one unit of the currency buys."""
    as_of: date
    """Day of the exchange rate."""


class Tax(Frozen):
    """Value added tax, shown on purchases; recoverable tax changes no plan."""

    vat_frac: Share
    recoverable: bool


class Carbon(Frozen):
    """A price and a cap on emissions from electricity."""

    usd_per_t: Annotated[float, bounded(ge=0, le=1e5), _N] = 0.0
    cap_t_per_year: Annotated[float, bounded(ge=0, le=1e9), _N] | None = None


class Privacy(Frozen):
    """Where the data of a workload may go."""

    allow: Annotated[tuple[WayToServe, ...], Field(min_length=1, max_length=3), BeforeValidator(_aslist)]
    """Ways to serve that are allowed: own, rent, api (in `plan.defaults` or in the workload)."""
    regions: Ids | None = None
    """Regions where data may be processed (eu, us, eu_west…); left out: anywhere."""
    require: Annotated[tuple[Id, ...], Field(max_length=50), BeforeValidator(_aslist)] = ()
    """Attributes that an offer must state (zero_retention, no_training…); one it does not state counts as not met."""

    @field_validator("allow")
    @classmethod
    def _once_each(cls, allow: tuple[WayToServe, ...]) -> tuple[WayToServe, ...]:
        if len(set(allow)) != len(allow):
            raise ValueError("a way to serve stands twice; name each of own, rent, api once")
        return allow


class DefaultPrivacy(Frozen):
    """The part of `privacy` that every workload has unless it says otherwise."""

    allow: Annotated[tuple[WayToServe, ...], Field(min_length=1, max_length=3), BeforeValidator(_aslist)] | None = None
    regions: Ids | None = None
    require: Annotated[tuple[Id, ...], Field(max_length=50), BeforeValidator(_aslist)] | None = None


class Availability(Frozen):
    """What the workload must survive, and whether it may be interrupted."""

    survive: Literal["none", "replica", "node"] = "none"
    """`replica`: peak load is met without the largest running replica; `node`: without any one node."""
    interruptible: bool = False
    """The work may be stopped and started again, so that spot nodes are allowed."""


class Defaults(Frozen):
    """Keys laid under every workload that does not write them itself."""

    llm: PathText | None = None
    weights: Ids | None = None
    kv_cache: Ids | None = None
    privacy: DefaultPrivacy | None = None
    availability: Availability | None = None


class SupplyChoice(Frozen):
    """What the team is willing to contract: each list left out means everything that has a price."""

    buy: Ids | None = None
    """Nodes that may be bought, ids of hardware/nodes."""
    providers: Ids | None = None
    """Providers that nodes may be rented from."""
    deals: Annotated[tuple[Deal, ...], Field(min_length=1, max_length=4), BeforeValidator(_aslist)] | None = None
    """Ways to rent: on_demand, spot, reserved_1y, reserved_3y."""


class PlanSettings(Frozen):
    """What the plan covers and by which rules money is counted."""

    start: Month
    """First month of the plan, for example 2026-12."""
    horizon_months: Annotated[int, Field(ge=1, le=MAX_HORIZON_MONTHS), _N] = 36
    """Months planned."""
    discount_frac_per_year: Annotated[float, bounded(ge=0, le=1), _N] = 0.08
    """Real discount rate before tax: what a dollar costs to tie up for a year."""
    prices: date | None = None
    """Day of the price snapshot; the newest one if left out."""
    as_of: date | None = None
    """Day of the decision, against which the age of prices is judged; today if left out."""
    max_price_age_days: MaxPriceAge = MaxPriceAge()
    budgets: Budgets = Budgets()
    supply: SupplyChoice = SupplyChoice()
    price_trend_frac_per_year: PriceTrend = PriceTrend()
    timezone: Annotated[str, StringConstraints(min_length=1, max_length=64)] = "UTC"
    """Zone of the weekly profiles and of time-of-day prices, for example Europe/Madrid."""
    staff: Staff | None = None
    report_currency: ReportCurrency | None = None
    tax: Tax | None = None
    carbon: Carbon = Carbon()
    defaults: Defaults = Defaults()

    @field_validator("start")
    @classmethod
    def _plausible_start(cls, start: date) -> date:
        if not 2020 <= start.year <= 2060:
            raise ValueError(f"{start:%Y-%m} is out of range; accepted: 2020-01 to 2060-12")
        return start

    @field_validator("timezone")
    @classmethod
    def _known_timezone(cls, name: str) -> str:
        from zoneinfo import ZoneInfo, available_timezones

        from planner.errors import did_you_mean

        try:
            ZoneInfo(name)
        except (ValueError, OSError, KeyError):
            near = did_you_mean(name, available_timezones())
            cure = near if near.startswith("did") else "write an IANA name such as Europe/Madrid, America/New_York or UTC"
            raise ValueError(f"no time zone '{name[:60]}'; {cure}") from None
        return name


# --- sites, what is owned, overrides --------------------------------------------------------------------------------


class SiteOperations(Frozen):
    """Hands and visits: what running the place costs beside power."""

    usd_per_month_fixed: Usd = 0.0
    usd_per_node_month: UsdRate = 0.0


class Site(Frozen):
    """A place where owned nodes may stand."""

    region: Id
    """A region code, for example eu_west."""
    usd_per_kwh: Annotated[float, bounded(ge=0, le=10), _N]
    """Price of electricity, all charges in."""
    pue: Annotated[float, bounded(ge=1, le=5), _N]
    """Facility power over IT power."""
    power_limit_kw: Annotated[float, bounded(gt=0, le=1e6), _N] | None = None
    """IT power the place can feed, counted by nameplates; no limit if left out."""
    rack_units_count: Annotated[int, Field(ge=1, le=1_000_000), _N] | None = None
    """Rack units that are free; no limit if left out."""
    hosting_usd_per_kw_month: UsdRate = 0.0
    """Colocation fee for each kW of nameplate."""
    ops: SiteOperations = SiteOperations()
    carbon_g_per_kwh: Annotated[float, bounded(ge=0, le=3000), _N] | None = None


class OwnedNodes(Frozen):
    """Nodes that are already there: sunk, but they still cost to run."""

    node: Id
    """An id of hardware/nodes."""
    count: Annotated[int, Field(ge=1, le=10_000), _N]
    site: Id
    """One of `sites`."""
    in_service: Month
    """Month since which they serve."""


class ResidualPoint(Frozen):
    """What a node still sells for at an age, as a share of its purchase price."""

    age_months: Annotated[int, Field(ge=0, le=240), _N]
    low_frac: Share | None = None
    typical_frac: Share
    high_frac: Share | None = None

    @model_validator(mode="after")
    def _ordered(self) -> ResidualPoint:
        low = self.typical_frac if self.low_frac is None else self.low_frac
        high = self.typical_frac if self.high_frac is None else self.high_frac
        if not low <= self.typical_frac <= high:
            raise ValueError("low, typical and high are out of order; write low_frac <= typical_frac <= high_frac")
        return self


class NodeOverride(Frozen):
    """What the user knows better about a node type than the catalog."""

    life_months: Annotated[int, Field(ge=1, le=240), _N] | None = None
    lead_months: Annotated[float, bounded(ge=0, le=36), _N] | None = None
    residual: Annotated[tuple[ResidualPoint, ...], Field(min_length=1, max_length=60)] | None = None
    warranty_frac_per_year: Share | None = None


class Quotas(Frozen):
    """Limits that a provider has set for this customer."""

    max_node_count: Annotated[int, Field(ge=0, le=100_000), _N] | None = None
    max_gpu_count: Annotated[int, Field(ge=0, le=1_000_000), _N] | None = None
    max_req_per_min: Annotated[float, bounded(ge=0, le=1e9), _N] | None = None
    max_input_tok_per_min: Annotated[float, bounded(ge=0, le=1e13), _N] | None = None
    max_output_tok_per_min: Annotated[float, bounded(ge=0, le=1e13), _N] | None = None


class Provider(Frozen):
    """What the user knows about a provider."""

    quotas: Quotas


# --- workloads ------------------------------------------------------------------------------------------------------


class Length(Frozen):
    """Tokens of one part of a request: the mean and the 99th percentile, the median where it is known."""

    mean: MeanTokens
    """Mean tokens a request."""
    p50: MeanTokens | None = None
    p99: MeanTokens
    """Tokens that 99 % of requests stay within."""

    @model_validator(mode="after")
    def _ordered(self) -> Length:
        if self.p99 < self.mean:
            raise ValueError(f"p99 ({self.p99:g}) is below the mean ({self.mean:g}); give the 99th percentile of the same requests")
        if self.p50 is not None and self.p50 > self.p99:
            raise ValueError(f"p50 ({self.p50:g}) is above p99 ({self.p99:g}); give percentiles of the same requests")
        return self


class RequestTokens(Frozen):
    """Tokens of one request."""

    prompt: Length
    output: Length
    cached_prefix_frac: Annotated[float, bounded(ge=0, le=0.99), _N] = 0.0
    """Part of the prompt that repeats an earlier one and can be read from a prefix cache."""


class Load(Frozen):
    """How much arrives: exactly one of requests_per_day, concurrency, users or trace."""

    requests_per_day: Annotated[float, bounded(gt=0, le=1e10), _N] | None = None
    """Requests a day, the mean over the seven days of the week."""
    concurrency: Annotated[int, Field(ge=1, le=1_000_000), _N] | None = None
    """Sessions held open at once in the busiest hour."""
    users: Annotated[float, bounded(gt=0, le=1e9), _N] | None = None
    """People who may use it; `active_frac` of them hold a session at once in the busiest hour."""
    trace: PathText | None = None
    """A log of requests (not read yet)."""
    active_frac: Annotated[float, bounded(gt=0, le=1), _N] | None = None
    """Part of `users` with an open session in the busiest hour."""
    think_time_s: Annotated[float, bounded(ge=0, le=86_400), _N] = 0.0
    """Pause between an answer and the next request of a session."""
    kv_during_think: bool = True
    """KV stays reserved during the pause."""
    profile: Profile = "flat"
    """A profile's name, or 168 numbers from Monday 00:00 in plan.timezone."""
    arrival_cv: Annotated[float, bounded(gt=0, le=50), _N] = 1.0
    """Coefficient of variation of the time between requests: 1 is Poisson, more is burstier."""
    growth_frac_per_month: Growth = 0.0

    @field_validator("profile")
    @classmethod
    def _some_load(cls, profile: Any) -> Any:
        return not_all_zero(profile)

    @field_validator("trace")
    @classmethod
    def _trace(cls, trace: str | None) -> str | None:
        return refuse_trace(trace, "`requests_per_day` with a profile or 168 numbers")

    @model_validator(mode="after")
    def _one_load(self) -> Load:
        rules = Rules("load")
        given = [n for n in ("requests_per_day", "concurrency", "users", "trace") if getattr(self, n) is not None]
        if len(given) != 1:
            rules.add(
                (given[1],) if given else (),
                f"{' and '.join(given)} are both given" if given else "no load is given",
                "write exactly one of requests_per_day, concurrency, users, trace",
            )
        if self.users is not None and self.active_frac is None:
            rules.add(("users",), "`users` needs active_frac", "add `active_frac:`, the part of them with a session open at once")
        if self.active_frac is not None and self.users is None:
            rules.add(("active_frac",), "active_frac belongs to `users`", "remove it, or give `users`")
        if self.think_time_s and self.concurrency is None and self.users is None:
            rules.add(("think_time_s",), "think_time_s belongs to `concurrency` and `users`", "remove it")
        rules.raise_all()
        return self


def not_all_zero(profile: Any) -> Any:
    """Refuse a listed profile without any load."""
    if isinstance(profile, tuple) and not any(profile):
        raise ValueError("all 168 hours are zero; give at least one hour some load")
    return profile


def refuse_trace(trace: str | None, instead: str) -> str | None:
    """Refuse a log for as long as logs are not read."""
    if trace is not None:
        raise ValueError(f"request logs are not read yet; write {instead}")
    return trace


class LatencyPromise(Frozen):
    """Promises on the 99th percentile, in milliseconds; at least one."""

    ttft_p99_ms: Milliseconds | None = None
    """From sending to the first token, queueing included."""
    tpot_p99_ms: Annotated[float, bounded(gt=0, le=60_000), _N] | None = None
    """Mean time between the tokens of one answer."""
    e2e_p99_ms: Milliseconds | None = None
    """From sending to the last token."""

    @model_validator(mode="after")
    def _some_promise(self) -> LatencyPromise:
        if self.ttft_p99_ms is None and self.tpot_p99_ms is None and self.e2e_p99_ms is None:
            raise ValueError("no promise is given; write at least one of ttft_p99_ms, tpot_p99_ms, e2e_p99_ms")
        if self.ttft_p99_ms is not None and self.e2e_p99_ms is not None and self.e2e_p99_ms < self.ttft_p99_ms:
            raise ValueError("e2e_p99_ms is below ttft_p99_ms; the last token cannot come before the first")
        return self


class Tenant(Frozen):
    """One of several parties that share a workload's replicas."""

    name: Text
    max_context_tok: Tokens1
    max_concurrency: Count


class Evaluation(Frozen):
    """A quality measurement of the user's own: it clears the warning on a low-bit format."""

    weights: Id
    metric: Text
    score: Annotated[float, bounded(ge=-1e9, le=1e9), _N]
    baseline: Annotated[float, bounded(ge=-1e9, le=1e9), _N]
    date: date


class WorkloadBase(Frozen):
    """What every kind of workload has."""

    llm: PathText
    """A model's id, or a path to a config.json, a safetensors index or a GGUF file (in `plan.defaults` or here)."""
    privacy: Privacy
    """Where its data may go (in `plan.defaults` or here)."""
    start_month: StartMonth = 0
    """First month with load: 0 is plan.start; a month such as 2027-03 may be written."""
    availability: Availability = Availability()


class Served(WorkloadBase):
    """What the kinds that run inference have in common."""

    weights: Ids
    """Weight formats that are acceptable; the plan chooses among them."""
    kv_cache: Ids
    """KV-cache formats that are acceptable."""
    api_equivalents: Annotated[tuple[Id, ...], Field(max_length=50), BeforeValidator(_aslist)] = ()
    """API offers that the user judges of equal quality."""
    min_replicas: Annotated[int, Field(ge=0, le=10_000), _N] = 0
    mix: bool = True
    """False: never split between own nodes and an API."""
    max_provider_share_frac: Annotated[float, bounded(gt=0, le=1), _N] = 1.0
    """Largest part of the load that one provider may serve."""
    tenants: Annotated[tuple[Tenant, ...], Field(max_length=200)] = ()
    evaluations: Annotated[tuple[Evaluation, ...], Field(max_length=200)] = ()
    api_unproven: Literal["accept", "exclude"] = "exclude"
    """`accept`: an API offer without sourced latency or rate limit may be chosen."""
    api_cached_frac: Share = 0.0
    """Part of the input that the API bills as cached."""


class Serving(Served):
    """People or programs wait for the answer: a rate with a latency promise."""

    kind: Literal["serving"] = "serving"
    tokens: RequestTokens | None = None
    """Tokens of a request; needed as long as logs are not read."""
    trace: PathText | None = None
    """A log to read token counts from (not read yet)."""
    max_context_tok: Tokens1
    """Longest prompt and output together."""
    load: Load
    latency: LatencyPromise

    @field_validator("trace")
    @classmethod
    def _trace(cls, trace: str | None) -> str | None:
        return refuse_trace(trace, "`tokens:` with the mean and p99 of prompt and output")

    @model_validator(mode="after")
    def _coherent(self) -> Serving:
        rules = Rules("serving")
        if self.tokens is None:
            rules.add((), "neither tokens nor trace is given", "write `tokens:` with the mean and p99 of prompt and output")
        else:
            within_context(rules, self.tokens, self.max_context_tok)
        if self.load.concurrency is not None or self.load.users is not None:
            for name in ("ttft_p99_ms", "tpot_p99_ms"):
                if getattr(self.latency, name) is None:
                    rules.add(("latency",), f"sessions become a rate through {name}, which is missing", f"add `{name}:`")
        for index, tenant in enumerate(self.tenants):
            if tenant.max_context_tok > self.max_context_tok:
                what = f"{tenant.max_context_tok} tokens exceed the workload's max_context_tok {self.max_context_tok}"
                rules.add(("tenants", index, "max_context_tok"), what, "lower it, or raise max_context_tok")
        common_rules(rules, self)
        rules.raise_all()
        return self


class DayVolume(Frozen):
    """Tokens that arrive in a day, the mean over the seven days of the week."""

    input: DayTokens
    output: DayTokens

    @model_validator(mode="after")
    def _some(self) -> DayVolume:
        if self.input + self.output <= 0:
            raise ValueError("there is no volume; give input or output tokens a day")
        return self


class Batch(Served):
    """A volume with a deadline instead of a latency."""

    kind: Literal["batch"]
    tokens_per_day: DayVolume
    deadline_hours: Hours
    """Hours from arrival until the work must be done."""
    tokens: RequestTokens | None = None
    """Tokens of one request, where known: it sets how many run at once."""
    max_context_tok: Tokens1 | None = None
    profile: Profile = "flat"
    """When the volume arrives: a profile's name, or 168 numbers from Monday 00:00 in plan.timezone."""
    growth_frac_per_month: Growth = 0.0

    @field_validator("profile")
    @classmethod
    def _some_load(cls, profile: Any) -> Any:
        return not_all_zero(profile)

    @model_validator(mode="after")
    def _coherent(self) -> Batch:
        rules = Rules("batch")
        if self.tokens is not None and self.max_context_tok is not None:
            within_context(rules, self.tokens, self.max_context_tok)
        common_rules(rules, self)
        rules.raise_all()
        return self


class Finetune(WorkloadBase):
    """Training runs of a fixed size, some each month."""

    kind: Literal["finetune"]
    method: Literal["full", "lora", "qlora"]
    tokens_per_run: Annotated[float, bounded(gt=0, le=1e15), _N]
    runs_per_month: Annotated[float, bounded(gt=0, le=10_000), _N]
    deadline_hours: Annotated[float, bounded(gt=0, le=730), _N] | None = None
    """Hours a run may take; a month's share if left out."""
    max_context_tok: Tokens1 | None = None
    """Longest training sequence."""
    growth_frac_per_month: Growth = 0.0

    @model_validator(mode="after")
    def _coherent(self) -> Finetune:
        if "api" in self.privacy.allow and len(self.privacy.allow) == 1:
            rules = Rules("finetune")
            rules.add(("privacy", "allow"), "a finetune runs on own or rented nodes, and only api is allowed", "allow own or rent")
            rules.raise_all()
        return self


def within_context(rules: Rules, tokens: RequestTokens, max_context_tok: int) -> None:
    """Hold a request's tokens against the longest context."""
    need = tokens.prompt.mean + tokens.output.mean
    if need > max_context_tok:
        what = f"mean prompt and output ({need:g} tokens) exceed max_context_tok ({max_context_tok})"
        rules.add(("tokens",), what, "raise max_context_tok, or correct the means")
    for name in ("prompt", "output"):
        p99 = getattr(tokens, name).p99
        if p99 > max_context_tok:
            what = f"{p99:g} tokens exceed max_context_tok ({max_context_tok})"
            rules.add(("tokens", name, "p99"), what, "raise max_context_tok, or lower p99")


def common_rules(rules: Rules, workload: Served) -> None:
    """Hold what an API may do against what privacy allows."""
    allow = workload.privacy.allow
    if allow == ("api",) and not workload.api_equivalents:
        what = "only api is allowed and api_equivalents is empty, which leaves nothing"
        rules.add(("privacy", "allow"), what, "name API offers, or allow own or rent")


def kind_of(value: Any) -> str:
    """Return which kind of workload a value is; serving where it does not say."""
    kind = value.get("kind", "serving") if isinstance(value, dict) else getattr(value, "kind", "serving")
    return kind if isinstance(kind, str) else str(kind)


Workload = Annotated[
    Annotated[Serving, Tag("serving")] | Annotated[Batch, Tag("batch")] | Annotated[Finetune, Tag("finetune")],
    Discriminator(kind_of),
]
WorkloadName = Annotated[str, StringConstraints(pattern=ID_PATTERN, min_length=1, max_length=60)]


class WorkloadSpec(Frozen):
    """The whole file, as a user writes it."""

    plan: PlanSettings
    """What the plan covers: start, horizon, discounting, budgets."""
    sites: Annotated[dict[Id, Site], Field(max_length=100)] = Field(default_factory=dict)
    """Where owned nodes may stand."""
    owned: Annotated[tuple[OwnedNodes, ...], Field(max_length=500)] = ()
    """Nodes that are already there."""
    nodes: Annotated[dict[Id, NodeOverride], Field(max_length=500)] = Field(default_factory=dict)
    """What the user knows better about node types."""
    providers: Annotated[dict[Id, Provider], Field(max_length=500)] = Field(default_factory=dict)
    """Quotas by provider."""
    workloads: Annotated[dict[WorkloadName, Workload], Field(min_length=1, max_length=200)]
    """What to serve, by name."""

    @model_validator(mode="wrap")
    @classmethod
    def _whole(cls, data: Any, handler: Any) -> Any:
        from planner.schema.workload_rules import check_whole, with_defaults

        if not isinstance(data, dict):
            return handler(data)
        rules = Rules("workload file")
        check_whole(rules, data)
        try:
            checked = handler(with_defaults(data))
        except ValidationError as error:
            raise ValidationError.from_exception_data(rules.title, [*map(_kept, error.errors(include_url=False)), *rules.details]) from None
        rules.raise_all()
        return checked


def _kept(error: Any) -> InitErrorDetails:
    """Carry one finding over into a new error: kind, place, words and bounds stay."""
    ctx = {**error.get("ctx", {}), "text": error["msg"].removeprefix("Value error, ")}
    return InitErrorDetails(type=PydanticCustomError(error["type"], "{text}", ctx), loc=error["loc"], input=error["input"])


class WorkloadFile(WorkloadSpec):
    """A file that was read: what it says, which file it was and the digest of its bytes."""

    path: str
    """The path as given, `package:` for a shipped example."""
    sha256: Annotated[str, StringConstraints(pattern=r"^[0-9a-f]{64}$")]
