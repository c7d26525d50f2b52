"""The roofline against worked figures: H100 SXM by its datasheet (989.5 TFLOP/s dense BF16, 3.35 TB/s)."""

from __future__ import annotations

import math

import pytest

from planner.physics.roofline import (
    attainable_flop_per_s,
    ceiling_tok_per_s,
    decode_intensity_flop_per_byte,
    distinct_experts_count,
    ridge_flop_per_byte,
    roof_s,
)
from planner.physics.work import KvGroup, Work

PEAK, BANDWIDTH = 989.5e12, 3.35e12


def test_ridge_of_an_h100() -> None:
    assert ridge_flop_per_byte(PEAK, BANDWIDTH) == pytest.approx(295, abs=0.5)


def test_a_sparse_peak_would_double_the_ridge() -> None:
    """1,979 TFLOP/s BF16 is printed with 2:4 sparsity: dense is half."""
    assert pytest.approx(1979e12) == 2 * PEAK
    assert ridge_flop_per_byte(1979e12, BANDWIDTH) > 2 * 295 - 1


def test_decode_in_16_bit_at_batch_1() -> None:
    """Intensity 1 FLOP/byte, 0.34 % of the compute peak; it grows as 2B/b."""
    assert decode_intensity_flop_per_byte(1, 2) == 1
    assert attainable_flop_per_s(1, PEAK, BANDWIDTH) / PEAK == pytest.approx(0.0034, abs=5e-5)
    assert decode_intensity_flop_per_byte(64, 2) == 64


def test_an_8b_in_q4_on_an_h100() -> None:
    """4.6 GB: ceiling 728 tok/s, intensity 3.48 to 3.51, memory bound 84 to 85 times, 437 to 583 tok/s at MBU 0.6 to 0.8."""
    ceiling = ceiling_tok_per_s(BANDWIDTH, 4.6e9)
    assert ceiling == pytest.approx(728, abs=0.5)
    assert [round(decode_intensity_flop_per_byte(1, b), 2) for b in (0.575, 0.57)] == [3.48, 3.51]
    for b, times in ((0.575, 85), (0.57, 84)):
        assert 295.4 / decode_intensity_flop_per_byte(1, b) == pytest.approx(times, abs=0.5)
        attained = attainable_flop_per_s(decode_intensity_flop_per_byte(1, b), PEAK, BANDWIDTH)
        assert 11.6e12 < attained < 11.8e12
        assert attained / PEAK == pytest.approx(0.012, abs=5e-4)
    assert round(0.6 * ceiling) == 437
    assert round(0.8 * ceiling) == 583
    assert 480 / ceiling > 0.5, "a measured 480 tok/s leaves no room for a kernel that doubles it"


@pytest.mark.parametrize(
    ("experts", "k", "batch", "read"),
    [(8, 2, 1, 2.0), (8, 2, 3, 4.625), (8, 2, 8, 7.199), (8, 2, 16, 7.920), (256, 8, 1, 8.0), (256, 8, 16, 101.96), (256, 8, 64, 222.44)],
)
def test_distinct_experts(experts: int, k: int, batch: int, read: float) -> None:
    assert distinct_experts_count(experts, k, batch) == pytest.approx(read, abs=6e-3)


def test_the_slower_of_two_decides() -> None:
    assert roof_s(1e12, 1e9, 1e12, 1e12) == 1.0
    assert roof_s(1e9, 1e12, 1e12, 1e12) == 1.0


def _work(window: float = math.inf) -> Work:
    return Work(2, 64, 1000.0, 800.0, 8, 2, 100.0, 10.0, 0.0, (KvGroup(4.0, 6.0, 6.0, window, 2.0),))


def test_weights_read_by_a_batch_are_the_distinct_experts() -> None:
    assert _work().weights_read_bytes(3) == pytest.approx(1000 + 800 * 4.625 / 8)


def test_prefill_counts_each_pair_of_tokens_once() -> None:
    """2·N·P without the head, one head, and f·P²/2; tokens behind a cached prefix look at it too."""
    assert _work().prefill_flop(10) == pytest.approx(2 * 90 * 10 + 20 + 6 * 50)
    whole, first = _work().prefill_flop(10), _work().prefill_flop(4)
    assert _work().prefill_flop(6, before_tok=4) == pytest.approx(whole - first + 20)


def test_a_window_caps_what_a_prompt_looks_at() -> None:
    """Window 4: the first four tokens look at 8 pairs, each later one at 4."""
    assert _work(4.0).prefill_flop(10) == pytest.approx(2 * 90 * 10 + 20 + 6 * (8 + 6 * 4))
    assert _work(4.0).prefill_flop(6, before_tok=4) == pytest.approx(2 * 90 * 6 + 20 + 6 * 6 * 4)
    assert _work(4.0).kv_read_bytes(100) == 16
