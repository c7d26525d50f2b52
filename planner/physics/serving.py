"""From the time of a step to a promise: rates, p50 and p99 latencies of continuous batching with chunked prefill.

Steady state in closed form, parametrised by the mean number of decoding sequences B:

* a token takes t = d(n)/(1 − λp): a decode step of the n sequences a request sees, stretched by the prompts that ride along
  (λ requests a second, p seconds of prompt arithmetic each);
* Little's law B = λ·O·t gives the rate without iteration: λ = B/(O·d(n) + B·p);
* times between arrivals are gamma with the given CV; prompts queue in arrival order for the prefill budget, GI/G/1 with the
  exponential tail exp(−θt) that solves A(θ)·S(−θ) = 1 (Kingman; exact for exponential service, where it is GI/M/1);
* the sequences at hand fluctuate by linear noise, variance z·B/elasticity of the service rate (z: the peakedness of the
  arrivals, 1 for Poisson), with an exponential tail above the slots; what gets no slot (KV room, `max_sequences`) waits;
* prompts and outputs are lognormal through mean and p99, and enter p99 by their own spread.

Everything is a pure function of a few numbers; one call costs tens of microseconds to half a millisecond.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from planner.physics.roofline import BoundBy
from planner.physics.steps import Efficiency, EfficiencyBand, StepModel, step_model

__all__ = [
    "Efficiency", "EfficiencyBand", "Feasible", "Infeasible", "Latency", "RequestMix", "StepModel", "Targets", "batch_limit",
    "latency_at", "latency_at_concurrency", "max_request_rate", "max_throughput", "step_model",
]

Z99 = 2.3263478740408408
"""99th percentile of the standard normal distribution."""
SATURATION_FRAC = 0.98
"""Above this share of capacity a queue's wait is no number any more: the state is called unstable."""

LOGNORMAL_TAIL = 1.6
"""Times the squared CV of prompts: a lognormal's tail is heavier than the gamma one that the formula takes (assumed, held as above)."""
MEDIAN_OF_WAIT_FRAC = 0.8
"""What a mean wait adds to the median TTFT where most requests do not wait (assumed; held against the test's simulation)."""
WAVE_FRAC = 0.25
"""Share of a closed loop's clients that stay in step, and so send their prompts together, where all lengths are alike (assumed)."""
SHORT_OUTPUT_SIGMAS = 1.5
"""p99 TPOT belongs to short answers: lengths so many sigmas below the median (assumed; held against the test's simulation)."""


@dataclass(frozen=True)
class RequestMix:
    """Lengths of requests and how they arrive. Lengths are lognormal through mean and p99."""

    prompt_mean_tok: float
    prompt_p99_tok: float
    output_mean_tok: float
    output_p99_tok: float
    cached_prefix_frac: float = 0.0
    """Share of each prompt whose KV is already there: read by attention, not computed."""
    arrival_cv: float = 1.0
    """Coefficient of variation of the times between arrivals: 1 is Poisson, more is bursty, 0 a clock."""

    def __post_init__(self) -> None:
        if not (self.prompt_mean_tok > 0 and self.output_mean_tok >= 1):
            raise ValueError("a request needs a prompt and at least one output token")
        if self.prompt_p99_tok < self.prompt_mean_tok or self.output_p99_tok < self.output_mean_tok:
            raise ValueError("p99 lengths must not be below the means")
        if not (0.0 <= self.cached_prefix_frac < 1.0 and self.arrival_cv >= 0.0):
            raise ValueError("cached_prefix_frac must be in [0, 1) and arrival_cv at least 0")

    @property
    def prompt_sigma(self) -> float:
        """Return sigma of the lognormal prompt length."""
        return lognormal_sigma(self.prompt_mean_tok, self.prompt_p99_tok)

    @property
    def output_sigma(self) -> float:
        """Return sigma of the lognormal output length."""
        return lognormal_sigma(self.output_mean_tok, self.output_p99_tok)


@dataclass(frozen=True)
class Targets:
    """What is promised at p99; None where nothing is."""

    ttft_p99_s: float | None = None
    tpot_p99_s: float | None = None
    e2e_p99_s: float | None = None


@dataclass(frozen=True)
class Latency:
    """What requests see at one rate. Where `is_stable` is false the queue grows without end and times are infinite."""

    req_per_s: float
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    e2e_p50_s: float
    e2e_p99_s: float
    batch: float
    """Mean sequences in decode."""
    context_tok: float
    """Mean tokens that a decoding sequence looks back on."""
    utilization_frac: float
    """Rate over the rate at which every slot is full."""
    is_stable: bool


@dataclass(frozen=True)
class Feasible:
    """The largest rate at which one replica keeps its promise, and what it looks like there."""

    req_per_s: float
    tok_per_s: float
    """Output tokens a second."""
    batch: float
    ttft_p99_s: float
    tpot_p99_s: float
    e2e_p99_s: float
    mbu_frac: float
    mfu_frac: float
    utilization_frac: float
    """Rate over the rate at which every slot is full."""
    bound_by: BoundBy
    limited_by: str
    """Which promise or limit stops the rate: `ttft_p99`, `tpot_p99`, `e2e_p99`, `kv_room`, `max_sequences`."""
    band: tuple[float, float, float]
    """Requests a second with the engine at the slow end, typical and fast end of what was measured."""


@dataclass(frozen=True)
class Infeasible:
    """No rate keeps the promise: the reason with its numbers, and what would help, computed."""

    reason: str
    levers: tuple[str, ...] = field(default=())


def lognormal_sigma(mean: float, p99: float) -> float:
    """Return sigma of the lognormal distribution with this mean and 99th percentile.

    ln(p99/mean) = z·σ − σ²/2. A p99 beyond exp(z²/2) = 14.97 times the mean exists in no lognormal: sigma stops at z.

    >>> round(lognormal_sigma(1800, 7000), 3)
    0.685
    """
    log_ratio = math.log(max(p99 / mean, 1.0))
    return Z99 - math.sqrt(max(Z99 * Z99 - 2.0 * log_ratio, 0.0))


def mean_context_tok(mix: RequestMix) -> float:
    """Return the mean context of a sequence in decode (tok): its prompt and half its output, long outputs staying longer."""
    spread = math.exp(mix.output_sigma**2)
    return mix.prompt_mean_tok + mix.output_mean_tok * spread / 2.0


def batch_limit(mix: RequestMix, kv_room_tok: float, max_sequences: int) -> float:
    """Return the most sequences held at once: `max_sequences`, or what KV room carries at p99 of the sum of their lengths.

    n·c + z·√n·s ≤ room, with c and s the mean and deviation of a resident sequence's length. 0 where one p99 request
    does not fit by itself.
    """
    if mix.prompt_p99_tok + mix.output_p99_tok > kv_room_tok:
        return 0.0
    c = mean_context_tok(mix)
    vp = mix.prompt_mean_tok**2 * (math.exp(mix.prompt_sigma**2) - 1.0)
    vo = mix.output_mean_tok**2 * (math.exp(mix.output_sigma**2) - 1.0 / 3.0)
    zs = Z99 * math.sqrt(vp + vo)
    root = (-zs + math.sqrt(zs * zs + 4.0 * c * kv_room_tok)) / (2.0 * c)
    return max(1.0, min(root * root, float(max_sequences)))


@dataclass(frozen=True)
class _Load:
    """The numbers of a mix on a replica that do not depend on the rate."""

    step: StepModel
    mix: RequestMix
    slots: float
    context_tok: float
    fresh_tok: float
    busy_s: float
    """Prompt arithmetic of a mean request, over the length distribution."""
    busy_p50_s: float
    busy_p99_s: float
    busy_cv2: float
    chunks: float
    chunks_p50: float
    chunks_p99: float


def _load(step: StepModel, mix: RequestMix, slots: float) -> _Load:
    fresh = 1.0 - mix.cached_prefix_frac
    sigma = mix.prompt_sigma
    median = mix.prompt_mean_tok * math.exp(-sigma * sigma / 2.0)

    def busy(prompt: float) -> float:
        return step.prefill_busy_s(prompt * fresh, prompt * mix.cached_prefix_frac)

    # mean and variance over the lognormal by its three-point Gauss-Hermite rule
    spread = math.exp(sigma * math.sqrt(3.0))
    mid, down, up = busy(median), busy(median / spread), busy(median * spread)
    mean = (4.0 * mid + down + up) / 6.0
    chunk = step.bubble_chunk_tok
    # the rule is exact for lengths up to the third power of a normal, short of a wide lognormal's tail: rescale by its exact mean
    exact = busy(mix.prompt_mean_tok)
    mean = max(mean, exact)
    cv2 = math.exp(sigma * sigma) - 1.0
    return _Load(
        step=step, mix=mix, slots=slots, context_tok=mean_context_tok(mix), fresh_tok=mix.prompt_mean_tok * fresh,
        busy_s=mean, busy_p50_s=mid, busy_p99_s=busy(max(mix.prompt_p99_tok, median)), busy_cv2=cv2,
        chunks=mix.prompt_mean_tok * fresh / chunk,
        chunks_p50=max(1.0, median * fresh / chunk + 0.5),
        chunks_p99=max(1.0, mix.prompt_p99_tok * fresh / chunk + 0.5),
    )


def peakedness(arrival_cv: float, offered_count: float) -> float:
    """Return variance over mean of how many requests are at hand when none ever waits: 1 for Poisson, (CV² + 1)/2 for many.

    GI/M/∞ with gamma arrivals: 1/(1 − A(1/T)) − λT (Eckberg; Wolff, "Stochastic Modeling and the Theory of Queues").

    >>> round(peakedness(1.0, 20.0), 6), round(peakedness(3.0, 1e4), 2)
    (1.0, 5.0)
    """
    cv2 = arrival_cv * arrival_cv
    if offered_count <= 0.0:
        return 1.0
    if offered_count > 1e5:
        return (cv2 + 1.0) / 2.0
    missed = -math.expm1(-math.log1p(cv2 / offered_count) / cv2) if cv2 > 1e-9 else -math.expm1(-1.0 / offered_count)
    return 1.0 / missed - offered_count


def queue_decay_per_s(rate_req_per_s: float, arrival_cv: float, service_s: float, service_cv2: float) -> float:
    """Return θ of a GI/G/1 wait's tail exp(−θt), gamma arrivals and gamma service: A(θ)·S(−θ) = 1 (per second).

    >>> round(queue_decay_per_s(0.8, 1.0, 1.0, 1.0), 4)   # M/M/1: mu - lambda
    0.2
    """
    cv2 = arrival_cv * arrival_cv
    inverse_rate = 1.0 / rate_req_per_s
    high = (1.0 if service_cv2 < 1e-9 else 1.0 / service_cv2) / service_s
    if service_cv2 < 1e-9:
        high *= 50.0

    def gap(theta: float) -> float:
        early = math.log1p(cv2 * theta * inverse_rate) / cv2 if cv2 > 1e-9 else theta * inverse_rate
        late = -math.log1p(-service_cv2 * theta * service_s) / service_cv2 if service_cv2 >= 1e-9 else theta * service_s
        return early - late

    high *= 1.0 - 1e-9
    if gap(high) >= 0.0:
        return high
    low = 0.0
    theta = min(2.0 * (1.0 - rate_req_per_s * service_s) / (service_s * max(cv2 + service_cv2, 1e-9)), 0.5 * high)
    for _ in range(40):
        value = gap(theta)
        if value > 0.0:
            low = theta
        else:
            high = theta
        slope = inverse_rate / (1.0 + cv2 * theta * inverse_rate) - service_s / (1.0 - service_cv2 * theta * service_s)
        nearer = theta - value / slope if slope < 0.0 else 0.0
        if not low < nearer < high:
            nearer = (low + high) / 2.0
        if abs(nearer - theta) < 1e-5 * theta:
            return nearer
        theta = nearer
    return theta


def _seen(load: _Load, batch: float) -> float:
    """Return the sequences that a request sees around it, itself counted: E[n²]/E[n] of the number at hand."""
    return max(1.0, min(batch + peakedness(load.mix.arrival_cv, batch), load.slots))


def _stalls(load: _Load, offered_count: float, batch: float) -> float:
    """Return the prompts beyond the mean that arrive within a request's life because it came in a burst; none at full slots."""
    return max(peakedness(load.mix.arrival_cv, offered_count) - 1.0, 0.0) * max(1.0 - batch / load.slots, 0.0)


def _rate(load: _Load, batch: float) -> float:
    alone = load.mix.output_mean_tok * load.step.decode_step_s(_seen(load, batch), load.context_tok)
    return batch / (alone + (batch + _stalls(load, batch, batch)) * load.busy_s)


def _batch_at(load: _Load, rate_req_per_s: float) -> float:
    low, high = 0.0, load.slots
    for _ in range(40):
        mid = (low + high) / 2.0
        if _rate(load, mid) < rate_req_per_s:
            low = mid
        else:
            high = mid
        if high - low < 1e-6 * high:
            break
    return (low + high) / 2.0


def _tail(p_wait: float, mean_wait_s: float, quantile: float) -> float:
    """Return a quantile of a wait that is 0 with chance 1 − p and exponential otherwise."""
    if p_wait <= quantile or mean_wait_s <= 0.0:
        return 0.0
    return mean_wait_s / p_wait * math.log(p_wait / quantile)


def _crowd_score(slots_count: float, offered_count: float) -> float:
    """Return the normal score of "fewer than `slots` at hand" for a Poisson number (Wilson and Hilferty's cube root)."""
    return (1.0 - 1.0 / (9.0 * slots_count) - math.pow(offered_count / slots_count, 1.0 / 3.0)) * 3.0 * math.sqrt(slots_count)


def _phi(x: float) -> float:
    return 0.5 * math.erfc(-x / math.sqrt(2.0))


def _unstable(load: _Load, rate: float, utilization: float) -> Latency:
    inf = math.inf
    return Latency(rate, inf, inf, inf, inf, inf, inf, load.slots, load.context_tok, utilization, False)


def _latency(load: _Load, batch: float) -> Latency:
    """Return what requests see when `batch` sequences decode on average."""
    step, mix = load.step, load.mix
    rate = _rate(load, batch)
    capacity = _rate(load, load.slots)
    utilization = rate / capacity
    seen = _seen(load, batch)
    d = step.decode_step_s(seen, load.context_tok)
    prefill_share = rate * load.busy_s
    out = mix.output_mean_tok
    t = (d + load.busy_s * _stalls(load, batch, batch) / out) / (1.0 - prefill_share)

    # prompts queue for the prefill budget
    service = load.busy_s + load.chunks * d
    rho = rate * service
    if utilization > SATURATION_FRAC or rho >= SATURATION_FRAC:
        return _unstable(load, rate, max(utilization, min(rho, 1.0)))
    p_wait = 1.0 - service * queue_decay_per_s(rate, mix.arrival_cv, service, 1.0)
    tail_s = 1.0 / queue_decay_per_s(rate, mix.arrival_cv, service, LOGNORMAL_TAIL * load.busy_cv2)
    wait = p_wait * tail_s
    wait99, wait50 = _tail(p_wait, wait, 0.01), _tail(p_wait, wait, 0.5)

    # sequences queue for a slot: linear noise around B, exponential above the slots
    up = step.decode_step_s(min(seen * 1.05 + 0.05, load.slots + 1.0), load.context_tok)
    grown = min(seen * 1.05 + 0.05, load.slots + 1.0) / seen
    elasticity = max(1.0 - (up / d - 1.0) / (grown - 1.0), 0.05) if grown > 1.0 else 1.0
    z = peakedness(mix.arrival_cv, batch)
    sigma_n = math.sqrt(z * batch / elasticity)
    drain_s = 1.0 / queue_decay_per_s(rate, mix.arrival_cv, 1.0 / capacity, math.expm1(mix.output_sigma**2))
    scale = z / elasticity
    offered = batch + max(z - 1.0, 0.0) + rate * (wait + service)
    x, beyond = _crowd_score(load.slots / scale, offered / scale), _crowd_score((load.slots + 0.01) / scale, offered / scale)
    above = math.exp(-0.5 * x * x) / math.sqrt(2.0 * math.pi) * max(beyond - x, 0.0) / 0.01 * drain_s * capacity
    within = _phi(x)
    p_slot = above / (above + within) if above + within > 0.0 else 1.0  # so crowded that both underflow: every arrival waits
    slot_wait = p_slot * drain_s
    slot99, slot50 = _tail(p_slot, slot_wait, 0.01), _tail(p_slot, slot_wait, 0.5)

    ahead = step.efficiency.request_overhead_s + 0.5 * d
    lone = load.busy_s + max(1.0, load.chunks + 0.5) * d + ahead
    lone50 = load.busy_p50_s + load.chunks_p50 * d + ahead
    full_chunk_s = load.busy_s / load.chunks
    joint = 0.5 * min(max(full_chunk_s - load.busy_s, 0.0), load.busy_s)
    lone99 = load.busy_p99_s + load.chunks_p99 * d + ahead + 0.5 * d + joint
    mean_ttft = wait + slot_wait + lone
    ttft99 = mean_ttft + math.sqrt((wait99 - wait) ** 2 + (slot99 - slot_wait) ** 2 + (lone99 - lone) ** 2)
    ttft50 = min(lone50 + max(wait50, MEDIAN_OF_WAIT_FRAC * wait) + slot50, ttft99)

    # a token's time: the noise of the sequences around, and of the prompts that ride along, worst for short answers
    slope = (up - d) / max((grown - 1.0) * seen, 1e-9) / (1.0 - prefill_share)
    crowd = min(Z99 * sigma_n * 0.86, max(load.slots - seen, 0.0)) * slope
    short = out * math.exp(-mix.output_sigma**2 / 2.0 - SHORT_OUTPUT_SIGMAS * mix.output_sigma)
    arriving = rate * short * t
    zs = 1.0 + _stalls(load, arriving, batch)
    stall = load.busy_s / short
    noise = stall * math.sqrt(arriving * (2.0 * zs - 1.0 + load.busy_cv2))
    skew = (1.0 + load.busy_cv2) ** 1.5 * math.sqrt((2.0 * zs - 1.0) / max(arriving, 1e-9))
    prompts = noise * (Z99 + (Z99 * Z99 - 1.0) / 6.0 * min(skew, 4.0)) + stall * (zs - 1.0)
    prompts = min(prompts, max(full_chunk_s + d - t, 0.0))
    tpot99 = t + crowd + prompts
    e2e = mean_ttft + out * t
    e2e99 = e2e + math.sqrt((ttft99 - mean_ttft) ** 2 + ((mix.output_p99_tok - out) * t) ** 2 + (out * (tpot99 - t)) ** 2)
    e2e50 = min(ttft50 + out * math.exp(-mix.output_sigma**2 / 2.0) * t, e2e99)
    return Latency(rate, ttft50, ttft99, t, tpot99, e2e50, e2e99, batch, load.context_tok, utilization, True)


def latency_at(step: StepModel, mix: RequestMix, rate_req_per_s: float, kv_room_tok: float, max_sequences: int) -> Latency:
    """Return what requests see at an open-loop rate; `is_stable` is false where the replica cannot keep up."""
    slots = batch_limit(mix, kv_room_tok, max_sequences)
    load = _load(step, mix, max(slots, 1.0))
    capacity = _rate(load, load.slots)
    if slots <= 0.0 or rate_req_per_s >= SATURATION_FRAC * capacity:
        return _unstable(load, rate_req_per_s, rate_req_per_s / capacity if slots > 0 else 1.0)
    return _latency(load, _batch_at(load, max(rate_req_per_s, 1e-9 * capacity)))


def latency_at_concurrency(step: StepModel, mix: RequestMix, concurrency: float, kv_room_tok: float, max_sequences: int) -> Latency:
    """Return what `concurrency` clients see that each send their next request when the last one has ended (closed loop).

    All are either in prefill or in decode: N = λ·(prompt + O·t). A prompt rides on decode steps only as far as others decode,
    prompts take no more than all of the prefill budget, and N clients never get less than one alone. Clients
    beyond the slots wait in a queue, which is added to TTFT. Users × per-user rate is the total by construction.
    """
    slots = batch_limit(mix, kv_room_tok, max_sequences)
    load = _load(step, mix, max(slots, 1.0))
    if slots <= 0.0:
        return _unstable(load, 0.0, 1.0)
    inside = min(concurrency, slots)
    out = mix.output_mean_tok
    overhead = step.efficiency.request_overhead_s
    wave = WAVE_FRAC / (1.0 + (mix.output_sigma / 0.2) ** 2)
    others_count = max(inside - 1.0, 0.0)
    others_frac = others_count / inside
    company_frac = min(others_count, 1.0)
    cached_tok = mix.prompt_mean_tok - load.fresh_tok
    spread_s = load.busy_s - step.prefill_busy_s(load.fresh_tok, cached_tok)    # attention is convex: the mean prompt is no mean time
    alone_s = step.prefill_s(load.fresh_tok, cached_tok) + spread_s

    def at(batch: float) -> tuple[float, float, float, float]:
        """Return (rate, prompt with its overhead, wait before it, share of the prefill budget in use)."""
        d = step.decode_step_s(max(batch, 1.0), load.context_tok)
        rate = batch / (out * d + batch * load.busy_s * company_frac)
        riding_s = load.busy_s + max(load.chunks, 1.0) * d
        prompt = alone_s + max(riding_s - alone_s, 0.0) * min(batch, 1.0) * company_frac
        service = prompt * (load.busy_s + load.chunks * d) / riding_s
        rho = min(rate * service * others_frac, 0.95)
        queue = min(prompt * rho / (1.0 - rho) * (1.0 + load.busy_cv2) / 2.0, service * others_count / 2.0)
        queue = max(queue, wave * others_count * load.busy_s)
        return rate, overhead + prompt, queue, rate * service

    low, high = 1e-6, inside
    for _ in range(40):
        mid = (low + high) / 2.0
        rate, prompt, queue, used = at(mid)
        if mid + rate * (prompt + queue) < inside and used < 1.0:
            low = mid
        else:
            high = mid
    batch = (low + high) / 2.0
    rate, prompt, _, _ = at(batch)
    one_by_one = min(inside, 1.0) / (overhead + alone_s + out * step.decode_step_s(1.0, load.context_tok))
    rate = max(rate, one_by_one)
    t = batch / (rate * out)
    ttft = max(inside / rate - out * t, prompt)
    queued = max(concurrency - inside, 0.0) / rate
    ttft99 = queued + ttft + Z99 * math.sqrt(load.busy_cv2 * load.busy_s**2 + max(ttft - prompt, 0.0) ** 2)
    prompts = math.sqrt(max(rate * out * t, 0.0) * (1.0 + load.busy_cv2)) * load.busy_s / out if inside > 1.0 else 0.0
    tpot99 = t + Z99 * prompts
    e2e = queued + ttft + out * t
    e2e99 = e2e + math.sqrt((ttft99 - ttft - queued) ** 2 + ((mix.output_p99_tok - out) * t) ** 2)
    capacity = _rate(load, load.slots)
    return Latency(rate, queued + ttft, ttft99, t, tpot99, e2e, e2e99, batch, load.context_tok, min(rate / capacity, 1.0), True)


def _missed(latency: Latency, targets: Targets) -> str | None:
    """Return the first promise that is missed, or None."""
    if targets.tpot_p99_s is not None and latency.tpot_p99_s > targets.tpot_p99_s:
        return "tpot_p99"
    if targets.ttft_p99_s is not None and latency.ttft_p99_s > targets.ttft_p99_s:
        return "ttft_p99"
    if targets.e2e_p99_s is not None and latency.e2e_p99_s > targets.e2e_p99_s:
        return "e2e_p99"
    return None if latency.is_stable else "stability"


def _largest_batch(load: _Load, targets: Targets, within_frac: float = 1e-3) -> tuple[float, str | None]:
    """Return the largest mean batch that keeps the promise (0 where none does), and which promise stops it."""
    low, high = 0.0, load.slots
    stops: str | None = None
    first = _latency(load, 1e-6)
    stops = _missed(first, targets)
    if stops is not None:
        return 0.0, stops
    for _ in range(24):
        mid = (low + high) / 2.0
        missed = _missed(_latency(load, mid), targets)
        if missed is None:
            low = mid
        else:
            high, stops = mid, missed
        if high - low < within_frac * high:
            break
    return low, stops


def max_request_rate(
    step: StepModel, mix: RequestMix, targets: Targets, kv_room_tok: float, max_sequences: int, with_band: bool = True
) -> Feasible | Infeasible:
    """Return the largest request rate at which the p99 promises hold on one replica, or why there is none.

    The promise is judged at the typical efficiency; `band` repeats it at the slow and the fast end (0 where it fails there).
    """
    slots = batch_limit(mix, kv_room_tok, max_sequences)
    if slots <= 0.0:
        longest = mix.prompt_p99_tok + mix.output_p99_tok
        return Infeasible(
            f"one p99 request keeps {longest:,.0f} tokens of KV cache, the replica has room for {kv_room_tok:,.0f}",
            (f"room for {longest:,.0f} tokens would hold one: KV cache in fewer bytes, lower p99 lengths, or more GPUs a replica",),
        )
    load = _load(step, mix, slots)
    batch, stops = _largest_batch(load, targets)
    if batch <= 0.0:
        return _why_not(load, targets, stops)
    latency = _latency(load, batch)
    mbu, mfu = step.decode_use(_seen(load, batch), load.context_tok)
    if stops in (None, "stability"):
        stops = "max_sequences" if slots >= max_sequences else "kv_room"
    rates = [latency.req_per_s] * 3
    if with_band:
        for index, end in ((0, step.low), (2, step.high)):
            if end is not None:
                ends = _load(end, mix, slots)
                reached, _ = _largest_batch(ends, targets, within_frac=1e-2)
                rates[index] = _rate(ends, reached) if reached > 0 else 0.0
    return Feasible(
        req_per_s=latency.req_per_s,
        tok_per_s=latency.req_per_s * mix.output_mean_tok,
        batch=batch,
        ttft_p99_s=latency.ttft_p99_s,
        tpot_p99_s=latency.tpot_p99_s,
        e2e_p99_s=latency.e2e_p99_s,
        mbu_frac=mbu,
        mfu_frac=mfu,
        utilization_frac=latency.utilization_frac,
        bound_by=step.bound_by(_seen(load, batch), load.context_tok),
        limited_by=stops,
        band=(min(rates[0], rates[1]), rates[1], max(rates[1], rates[2])),
    )


def max_throughput(step: StepModel, mix: RequestMix, kv_room_tok: float, max_sequences: int) -> Feasible | Infeasible:
    """Return the rate of batch work: every slot full, nobody waiting for an answer. Latencies are those of full slots."""
    slots = batch_limit(mix, kv_room_tok, max_sequences)
    if slots <= 0.0:
        return max_request_rate(step, mix, Targets(), kv_room_tok, max_sequences)
    load = _load(step, mix, slots)
    rate = _rate(load, slots)
    rates = [_rate(_load(end, mix, slots), slots) if end else rate for end in (step.low, step.high)]
    d = step.decode_step_s(slots, load.context_tok)
    mbu, mfu = step.decode_use(slots, load.context_tok)
    return Feasible(
        req_per_s=rate,
        tok_per_s=rate * mix.output_mean_tok,
        batch=slots,
        ttft_p99_s=math.inf,
        tpot_p99_s=d / (1.0 - rate * load.busy_s),
        e2e_p99_s=math.inf,
        mbu_frac=mbu,
        mfu_frac=mfu,
        utilization_frac=1.0,
        bound_by=step.bound_by(slots, load.context_tok),
        limited_by="max_sequences" if slots >= max_sequences else "kv_room",
        band=(min(rates[0], rate), rate, max(rates[1], rate)),
    )


def _why_not(load: _Load, targets: Targets, stops: str | None) -> Infeasible:
    """Return the reason with its numbers and computed levers: what bandwidth, compute or length would meet the promise."""
    step, mix = load.step, load.mix
    idle = _latency(load, 1e-6)
    memory, compute, link, overhead = step.decode_terms_s(1.0, load.context_tok)
    fixed = link + overhead
    if stops == "tpot_p99" and targets.tpot_p99_s is not None:
        want = targets.tpot_p99_s
        now = idle.tpot_p99_s
        parts = f"memory {memory * 1e3:.1f}, collectives {link * 1e3:.1f}, overhead {overhead * 1e3:.1f} ms"
        reason = f"TPOT at batch 1 is {now * 1e3:.1f} ms, the promise is {want * 1e3:.1f} ms: a step takes {parts}"
        levers = [f"promise at least {now * 1e3:.0f} ms"]
        if want > fixed:
            need = max(memory, compute) / (want - fixed)
            levers.append(f"{need:.2f} times the bandwidth a replica reaches, or weights of 1/{need:.2f} the bytes (fewer bits, more GPUs)")
        else:
            levers.append(f"collectives and overhead alone take {fixed * 1e3:.1f} ms: fewer GPUs a replica or a faster link")
        return Infeasible(reason, tuple(levers))
    if stops == "ttft_p99" and targets.ttft_p99_s is not None:
        want, now = targets.ttft_p99_s, idle.ttft_p99_s
        fresh_tok = mix.prompt_p99_tok * (1.0 - mix.cached_prefix_frac)
        reason = (
            f"TTFT of a p99 prompt ({fresh_tok:,.0f} fresh tokens) on an idle replica is {now * 1e3:,.0f} ms, the promise is "
            f"{want * 1e3:,.0f} ms: its prefill alone takes {load.busy_p99_s * 1e3:,.0f} ms"
        )
        levers = [f"promise at least {now * 1e3:,.0f} ms"]
        rest = now - load.busy_p99_s
        if want > rest:
            need = load.busy_p99_s / (want - rest)
            levers.append(f"{need:.2f} times the compute a replica reaches (more GPUs, a faster dtype)")
            levers.append(f"a p99 prompt of at most about {fresh_tok / need:,.0f} fresh tokens (shorter, or more of it cached)")
        return Infeasible(reason, tuple(levers))
    if stops == "e2e_p99" and targets.e2e_p99_s is not None:
        want, now = targets.e2e_p99_s, idle.e2e_p99_s
        reason = (
            f"a p99 answer of {mix.output_p99_tok:,.0f} tokens takes {now:,.2f} s on an idle replica "
            f"({idle.tpot_p50_s * 1e3:.1f} ms a token), the promise is {want:,.2f} s"
        )
        most = max((want - idle.ttft_p50_s) / idle.tpot_p50_s, 0.0)
        return Infeasible(reason, (f"promise at least {now:,.2f} s", f"limit answers to about {most:,.0f} tokens"))
    return Infeasible(
        f"one request at a time already keeps the replica busy beyond {SATURATION_FRAC:.0%}",
        ("more GPUs a replica, a smaller model, or shorter prompts",),
    )
