"""A small discrete-event referee for the closed form: continuous batching with chunked prefill, one step at a time.

It shares nothing with `serving` but the timing of a step: gamma arrivals, lognormal lengths, first come first served
slots, a token budget a step, decode before prefill.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import pytest

from planner.physics.serving import RequestMix
from planner.physics.steps import StepModel


@dataclass
class Seen:
    ttft_p50_s: float
    ttft_p99_s: float
    tpot_p50_s: float
    tpot_p99_s: float
    batch: float
    request_count: int


def lognormal(rng: np.random.Generator, mean: float, sigma: float, size: int) -> np.ndarray:
    return np.maximum(1, np.rint(rng.lognormal(np.log(mean) - sigma**2 / 2, sigma, size)))


def simulate(step: StepModel, mix: RequestMix, rate: float, slots: int, chunk_tok: int, count: int, seed: int) -> Seen:
    rng = np.random.default_rng(seed)
    shape = 1.0 / mix.arrival_cv**2
    arrivals = np.cumsum(rng.gamma(shape, 1.0 / (rate * shape), count))
    prompts = np.maximum(1, np.rint(lognormal(rng, mix.prompt_mean_tok, mix.prompt_sigma, count) * (1 - mix.cached_prefix_frac)))
    outputs = lognormal(rng, mix.output_mean_tok, mix.output_sigma, count)
    fresh_of = 1 - mix.cached_prefix_frac
    busy_of = [step.prefill_busy_s(p, p / fresh_of - p) for p in prompts]
    first = np.full(count, np.nan)
    last = np.full(count, np.nan)
    waiting: deque[int] = deque()
    prefilling: deque[list[float]] = deque()  # [request, tokens left]
    decoding: dict[int, float] = {}
    context_sum = 0.0
    now, arrived, done, area = 0.0, 0, 0, 0.0
    ends: list[tuple[int, int]] = []
    produced = 0
    while done < count:
        while arrived < count and arrivals[arrived] <= now:
            waiting.append(arrived)
            arrived += 1
        while waiting and len(decoding) + len(prefilling) < slots:
            r = waiting.popleft()
            prefilling.append([r, prompts[r]])
        if not decoding and not prefilling:
            now = arrivals[arrived]
            continue
        budget = chunk_tok
        extra, finished = 0.0, []
        while prefilling and budget > 0:
            r, left = int(prefilling[0][0]), prefilling[0][1]
            take = min(left, budget)
            budget -= take
            extra += busy_of[r] * take / prompts[r]
            prefilling[0][1] -= take
            if prefilling[0][1] <= 0:
                prefilling.popleft()
                finished.append(r)
            else:
                break
        n = len(decoding)
        took = step.decode_step_s(max(n, 1), context_sum / n if n else 1.0) + extra
        now += took
        area += n * took
        produced += 1
        context_sum += n
        while ends and ends[0][0] <= produced:
            _, r = heapq.heappop(ends)
            context_sum -= decoding.pop(r) + outputs[r] - 1
            last[r] = now
            done += 1
        for r in finished:
            first[r] = now
            if outputs[r] <= 1:
                last[r] = now
                done += 1
            else:
                decoding[r] = prompts[r] / fresh_of
                context_sum += decoding[r]
                heapq.heappush(ends, (produced + int(outputs[r]) - 1, r))
    keep = slice(count // 10, count)
    ttft = (first - arrivals)[keep]
    many = outputs[keep] > 1
    tpot = ((last - first)[keep] / np.maximum(outputs[keep] - 1, 1))[many]
    q = np.percentile
    return Seen(q(ttft, 50), q(ttft, 99), q(tpot, 50), q(tpot, 99), area / now, count)


@pytest.fixture
def discrete() -> Callable[..., Seen]:
    """Return `simulate(step, mix, rate, slots, chunk_tok, count, seed)`."""
    return simulate
