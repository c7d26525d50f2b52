"""The replay of a load test: against one taken step by step, and properties that hold whatever the numbers."""

from __future__ import annotations

import math
from collections import deque
from itertools import pairwise
from statistics import fmean

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import load_catalog
from planner.physics.efficiency import choose_efficiency, format_class, peak_flop_per_s
from planner.physics.replay import Lengths, replay, spread_lengths
from planner.physics.steps import StepModel, step_model
from planner.physics.work import work_of

lengths_st = st.lists(st.tuples(st.integers(1, 3000), st.integers(1, 60)), min_size=1, max_size=30)


def step_of(llm: str = "llama_3.1_8b", gpu: str = "h100_sxm_80gb") -> StepModel:
    c = load_catalog()
    form, card = c.weight_format("bf16"), c.gpu(gpu)
    _, peak = peak_flop_per_s(card, form.compute_dtype)
    band = choose_efficiency(c.efficiency, "vllm", card.family, format_class(form)).band
    return step_model(work_of(c.llm(llm), form.bits_per_weight, 2.0), card.memory_bandwidth_gb_per_s * 1e9, peak, band)


STEP = step_of()


def one_step_at_a_time(step: StepModel, lengths: Lengths, clients: int, slots: int, chunk: int) -> tuple[float, float, float]:
    """Return (mean TTFT, mean TPOT, duration) of the mixed scheduler, every single step taken and every context summed."""
    now, sent = 0.0, min(clients, len(lengths))
    arrived = dict.fromkeys(range(sent), 0.0)
    queue: deque[list[int]] = deque([i, lengths[i][0]] for i in range(sent))
    running: dict[int, int] = {}
    first, last = {}, {}
    while len(last) < len(lengths):
        took, seconds, begun = 0, 0.0, []
        room = max(chunk - len(running), 1)
        free = slots - len(running)
        contexts = [lengths[i][0] + made - 1 for i, made in running.items()]
        while queue and took < room and len(begun) < free:
            request, left = queue[0]
            take = min(left, room - took)
            seconds += step.prefill_busy_s(take, lengths[request][0] - left)
            took += take
            queue[0][1] -= take
            if queue[0][1] == 0:
                begun.append(queue.popleft()[0])
        if running:
            shift = 0.0 if took else 0.5  # between two changes the context is that of the middle of the run of steps
            mean = fmean(contexts) + shift
            seconds += step.decode_step_s(len(running), mean)
        else:
            seconds = max(seconds, step.prefill_s(took))
        now += seconds
        ended = []
        for i in list(running):
            running[i] += 1
            if running[i] == lengths[i][1]:
                ended.append(i)
                del running[i]
        for i in begun:
            first[i] = now
            if lengths[i][1] <= 1:
                ended.append(i)
            else:
                running[i] = 1
        for i in ended:
            last[i] = now
            if sent < len(lengths):
                arrived[sent] = now
                queue.append([sent, lengths[sent][0]])
                sent += 1
    overhead = step.efficiency.request_overhead_s
    tpots = [(last[i] - first[i]) / (lengths[i][1] - 1) for i in first if lengths[i][1] > 1]
    return fmean(first[i] - arrived[i] for i in first) + overhead, fmean(tpots) if tpots else math.nan, now


@pytest.mark.parametrize(
    ("lengths", "clients", "slots", "chunk"),
    [
        ([(1024, 128)] * 40, 8, 64, 2048), ([(300 + 37 * i % 900, 20 + 13 * i % 50) for i in range(60)], 16, 10, 512),
        ([(5000, 3)] * 12, 12, 12, 1000), ([(10, 1)] * 9, 4, 2, 64),
    ],
)
def test_agrees_with_every_step_taken(lengths: Lengths, clients: int, slots: int, chunk: int) -> None:
    """Steps between two changes are taken at once; one by one they give the same means (contexts enter linearly)."""
    seen = replay(STEP, lengths, clients, slots, math.inf, chunk)
    ttft, tpot, duration = one_step_at_a_time(STEP, lengths, clients, slots, chunk)
    assert seen.ttft("mean") == pytest.approx(ttft, rel=2e-3)
    assert seen.duration_s == pytest.approx(duration, rel=2e-3)
    if seen.tpot_s:
        assert seen.tpot("mean") == pytest.approx(tpot, rel=5e-3)


@given(lengths_st, st.integers(1, 20), st.integers(1, 20), st.integers(1, 4096), st.booleans())
@settings(max_examples=60, deadline=None)
def test_every_request_is_answered_once(lengths: Lengths, clients: int, slots: int, chunk: int, prefill_first: bool) -> None:
    seen = replay(STEP, lengths, clients, slots, 8000.0, chunk, prefill_first)
    assert len(seen.ttft_s) == len(lengths) and all(t > 0 for t in seen.ttft_s)
    assert len(seen.tpot_s) == sum(output > 1 for _, output in lengths)
    assert seen.peak_batch <= min(slots, clients, len(lengths))
    assert seen.duration_s >= (max(seen.ttft_s) - STEP.efficiency.request_overhead_s) * (1 - 1e-9)
    assert seen.ttft("p50") <= seen.ttft("p99") <= max(seen.ttft_s)


def test_more_clients_never_lower_the_throughput_of_equal_requests() -> None:
    rates = [replay(STEP, [(512, 128)] * 240, n, 512, math.inf, 8192).req_per_s for n in (1, 4, 16, 60, 240)]
    assert rates == sorted(rates)


def test_prefill_first_trades_first_tokens_for_the_later_ones() -> None:
    """In a burst, running answers wait for all prompts: each first token is as early as can be, the gap behind it longer."""
    burst = [(2000, 100)] * 64
    mixed, first = (replay(STEP, burst, 64, 64, math.inf, 2048, prefill_first=p) for p in (False, True))
    assert first.ttft("mean") < mixed.ttft("mean") and first.tpot("mean") > 0.9 * mixed.tpot("mean")


def test_full_memory_makes_the_rest_wait() -> None:
    """Room for four of sixteen: the first wave begins at once, the others wait for whole answers."""
    seen = replay(STEP, [(1000, 200)] * 16, 16, 64, 4 * 1100, 8192)
    free = replay(STEP, [(1000, 200)] * 16, 16, 64, math.inf, 8192)
    assert seen.peak_batch == 4 and seen.ttft("p99") > 5 * free.ttft("p99")


@pytest.mark.parametrize("bad", [{"lengths": []}, {"client_count": 0}, {"max_sequences": 0}, {"chunk_tok": 0}])
def test_nothing_to_replay_is_refused(bad: dict[str, object]) -> None:
    asked = {"lengths": [(1, 1)], "client_count": 1, "max_sequences": 1, "kv_room_tok": 1.0, "chunk_tok": 1} | bad
    with pytest.raises(ValueError, match="a replay needs"):
        replay(STEP, **asked)  # type: ignore[arg-type]


def test_spread_lengths_keep_the_mean_and_the_ends() -> None:
    drawn = spread_lengths(1000, lambda u: (800 + 200 * u, 80 + 20 * u))
    assert fmean(p for p, _ in drawn) == pytest.approx(900, rel=2e-3) and fmean(o for _, o in drawn) == pytest.approx(90, rel=5e-3)
    assert min(p for p, _ in drawn) >= 800 and max(p for p, _ in drawn) <= 1000
    neighbours = [abs(a[0] - b[0]) for a, b in pairwise(drawn)]
    assert fmean(neighbours) > 50
