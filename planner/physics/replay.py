"""A load test replayed step by step on one replica: clients that each send their next request when the last has ended.

Published load tests are short closed loops: all clients start together, and while lengths are alike they stay in waves, so
that a first token waits for the prompts of the whole wave. No steady-state formula knows that; a replay of the engine's steps does.

Prompts are computed in chunks of a token budget, in order of arrival; `prefill_first` engines (SGLang) let running answers
wait meanwhile, the others (vLLM, TensorRT-LLM) give each of them a token in the same step. Between two changes of the batch
all steps are alike and are taken at once, so the cost follows requests and chunks, not tokens.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from statistics import fmean

from planner.physics.steps import StepModel

Lengths = Sequence[tuple[int, int]]
"""(prompt tokens, output tokens) of each request, in the order they are sent."""


@dataclass(frozen=True)
class Replay:
    """What the clients of one replica saw."""

    ttft_s: tuple[float, ...]
    tpot_s: tuple[float, ...]
    """Of requests with more than one output token."""
    duration_s: float
    peak_batch: int

    @property
    def req_per_s(self) -> float:
        """Requests over the whole time, ramp up and drain counted."""
        return len(self.ttft_s) / self.duration_s

    @cached_property
    def _sorted(self) -> tuple[list[float], list[float]]:
        return sorted(self.ttft_s), sorted(self.tpot_s)

    def ttft(self, statistic: str) -> float:
        """Return the time to first token: `mean`, `p50` or `p99` (s)."""
        return fmean(self.ttft_s) if statistic == "mean" else _quantile(self._sorted[0], statistic)

    def tpot(self, statistic: str) -> float:
        """Return the time per output token after the first: `mean`, `p50` or `p99` over requests (s); NaN where none has two."""
        if not self.tpot_s:
            return math.nan
        return fmean(self.tpot_s) if statistic == "mean" else _quantile(self._sorted[1], statistic)


def _quantile(values: Sequence[float], name: str) -> float:
    """Return the smallest value that at least so many percent do not exceed (nearest rank)."""
    percent = {"p50": 50, "p99": 99}[name]
    return values[max(math.ceil(percent / 100 * len(values)) - 1, 0)]


def replay(
    step: StepModel, lengths: Lengths, client_count: int, max_sequences: int, kv_room_tok: float, chunk_tok: int,
    prefill_first: bool = False,
) -> Replay:
    """Return what `client_count` clients see that send `lengths` between them; as many clients as requests is one burst.

    A request is admitted while there is a sequence slot and room for its prompt and half its answer (a steady batch of
    answers of all ages holds half of each); one alone is always admitted.
    Raises ValueError where there is no request, no client, no slot or an empty chunk.
    """
    if not lengths or client_count < 1 or max_sequences < 1 or chunk_tok < 1:
        raise ValueError("a replay needs requests, clients, slots and a chunk")
    return _Run(step, lengths, client_count, max_sequences, kv_room_tok, chunk_tok, prefill_first).run()


class _Run:
    def __init__(
        self, step: StepModel, lengths: Lengths, client_count: int, max_sequences: int, kv_room_tok: float, chunk_tok: int,
        prefill_first: bool,
    ) -> None:
        self.step, self.lengths = step, lengths
        self.max_sequences, self.kv_room_tok, self.chunk_tok, self.prefill_first = max_sequences, kv_room_tok, chunk_tok, prefill_first
        self.now_s = 0.0
        self.tick = 0
        """Decode steps so far: every running answer gets one token a tick."""
        self.sent_at_s = [0.0] * min(client_count, len(lengths))
        self.head = 0
        self.head_left_tok = lengths[0][0]
        self.running: list[tuple[int, int, float]] = []
        """(tick of the last token, request, time of the first token), earliest end first."""
        self.context_offset_tok = 0.0
        """Sum over running answers of prompt − tick of the first token: with B × tick their contexts."""
        self.reserved_tok = 0.0
        self.ttft_s: list[float] = [0.0] * len(lengths)
        self.tpot_s: list[float] = []
        self.peak_batch = 0

    def run(self) -> Replay:
        ended = 0
        while ended < len(self.lengths):
            ended += self._prefill() if self._may_admit() else self._decode()
            ended += self._finish()
        return Replay(tuple(self.ttft_s), tuple(self.tpot_s), self.now_s, self.peak_batch)

    def _need_tok(self, request: int) -> float:
        prompt, output = self.lengths[request]
        return prompt + output / 2.0

    def _may_admit(self) -> bool:
        if self.head >= len(self.sent_at_s) or len(self.running) >= self.max_sequences:
            return False
        started = self.head_left_tok < self.lengths[self.head][0]
        return started or not self.running or self.reserved_tok + self._need_tok(self.head) <= self.kv_room_tok

    def _prefill(self) -> int:
        """Run one step that computes prompt tokens; return how many requests ended with it."""
        batch = len(self.running)
        budget = max(self.chunk_tok - (0 if self.prefill_first else batch), 1)
        seconds = 0.0
        first: list[int] = []
        context = (batch * self.tick + self.context_offset_tok) / batch if batch else 0.0
        chunk = 0
        while budget > 0 and self.head < len(self.sent_at_s) and batch + len(first) < self.max_sequences:
            prompt = self.lengths[self.head][0]
            if self.head_left_tok == prompt:
                crowded = self.reserved_tok + self._need_tok(self.head) > self.kv_room_tok
                if crowded and (batch or first):
                    break
                self.reserved_tok += self._need_tok(self.head)
            take = min(self.head_left_tok, budget)
            seconds += self.step.prefill_busy_s(take, prompt - self.head_left_tok)
            chunk += take
            budget -= take
            self.head_left_tok -= take
            if self.head_left_tok:
                break
            first.append(self.head)
            self.head += 1
            if self.head < len(self.lengths):
                self.head_left_tok = self.lengths[self.head][0]
        if batch and not self.prefill_first:
            seconds += self.step.decode_step_s(batch, context)
            self.tick += 1
        else:
            seconds = max(seconds, self.step.prefill_s(chunk))
        self.now_s += seconds
        return sum(self._start(request) for request in first)

    def _start(self, request: int) -> bool:
        """Note a first token; return whether it was the last one too."""
        prompt, output = self.lengths[request]
        self.ttft_s[request] = self.now_s - self.sent_at_s[request] + self.step.efficiency.request_overhead_s
        if output <= 1:
            self._leave(request)
            return True
        heapq.heappush(self.running, (self.tick + output - 1, request, self.now_s))
        self.context_offset_tok += prompt - self.tick
        self.peak_batch = max(self.peak_batch, len(self.running))
        return False

    def _decode(self) -> int:
        """Take all steps up to the next end of an answer at once."""
        batch, ticks = len(self.running), self.running[0][0] - self.tick
        context = (batch * (self.tick + ticks / 2.0) + self.context_offset_tok) / batch
        self.now_s += ticks * self.step.decode_step_s(batch, context)
        self.tick += ticks
        return 0

    def _finish(self) -> int:
        ended = 0
        while self.running and self.running[0][0] <= self.tick:
            last, request, first_s = heapq.heappop(self.running)
            prompt, output = self.lengths[request]
            self.context_offset_tok -= prompt - (last - output + 1)
            self.tpot_s.append((self.now_s - first_s) / (output - 1))
            self._leave(request)
            ended += 1
        return ended

    def _leave(self, request: int) -> None:
        self.reserved_tok -= self._need_tok(request)
        if len(self.sent_at_s) < len(self.lengths):
            self.sent_at_s.append(self.now_s)


def spread_lengths(count: int, quantile_of: Callable[[float], tuple[float, float]]) -> list[tuple[int, int]]:
    """Return `count` lengths that follow a distribution exactly, in a fixed, well mixed order (no random numbers).

    `quantile_of(u)` gives (prompt, output) at a quantile u in (0, 1); the two are taken at different places of the order.
    """
    def shuffled(stride_frac: float) -> list[float]:
        return [((i + 0.5) * stride_frac) % 1.0 for i in range(count)]

    golden, silver = 0.6180339887498949, 0.41421356237309515
    pairs = zip(shuffled(golden), shuffled(silver), strict=True)
    return [(max(round(quantile_of(u)[0]), 1), max(round(quantile_of(v)[1]), 1)) for u, v in pairs]
