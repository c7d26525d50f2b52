"""What talking costs: an all-reduce's two terms, and two cards over PCIe against NVLink."""

from __future__ import annotations

import math

import pytest

from planner.physics.links import NO_LINK, Link, allreduce_s, bubble_frac, handover_s, tensor_parallel_s
from planner.physics.steps import Efficiency, EfficiencyBand, step_model
from planner.physics.work import KvGroup, Work

NVLINK = Link("nvlink", 4.3e-6, 0.2e-6, 296e9, True)
PCIE = Link("pcie", 5e-6, 4e-6, 20e9, False)
SMALL = Work(32, 4096, 4.6e9, 0.0, 1, 1, 8e9, 0.5e9, 0.0, (KvGroup(131072.0, 524288.0, 524288.0, math.inf, 8.0),))


def test_one_gpu_sends_nothing() -> None:
    assert allreduce_s(1e9, 1, NO_LINK) == 0


def test_a_ring_moves_twice_the_message_less_its_own_part() -> None:
    """512 MiB over 8 GPUs at 296 GB/s: 2·7/8 of it, 3.2 ms."""
    assert allreduce_s(2**29, 8, NVLINK) == pytest.approx(4.3e-6 + 1.4e-6 + 1.75 * 2**29 / 296e9)


def test_two_allreduces_a_layer() -> None:
    assert tensor_parallel_s(80, 8192, 1, 2, NVLINK) == pytest.approx(160 * allreduce_s(16384, 2, NVLINK))


def test_bubbles_shrink_with_microbatches() -> None:
    assert bubble_frac(4, 1) == 0.75
    assert bubble_frac(4, 13) == pytest.approx(3 / 16)
    assert handover_s(8192, 4, PCIE) == pytest.approx(5e-6 + 65536 / 20e9)


def test_two_cards_over_pcie_may_be_slower_than_one() -> None:
    """A prompt of 2,000 tokens: NVLink helps, PCIe costs more than the second card gives."""
    e = Efficiency(0.7, 0.5, 0.5, 0.0, 2e-5)
    band = EfficiencyBand(e, e, e)
    one, fast, slow = (step_model(SMALL, 3.35e12, 989.5e12, band, tp, link=link) for tp, link in ((1, NO_LINK), (2, NVLINK), (2, PCIE)))
    assert fast.prefill_s(2000) < one.prefill_s(2000) < slow.prefill_s(2000)
    assert fast.decode_step_s(1, 500) < slow.decode_step_s(1, 500)
    assert fast.decode_step_s(1, 500) > one.decode_step_s(1, 500) / 2, "two are not twice"


def test_a_pipeline_gives_one_stream_nothing_and_a_batch_throughput() -> None:
    e = Efficiency(0.7, 0.5, 0.5, 0.0, 2e-5)
    band = EfficiencyBand(e, e, e)
    one, two = step_model(SMALL, 1e12, 4e14, band), step_model(SMALL, 1e12, 4e14, band, pp=2, link=PCIE)
    assert two.decode_step_s(1, 500) > one.decode_step_s(1, 500)
    assert 64 / two.decode_step_s(64, 500) > 64 / one.decode_step_s(64, 500)


@pytest.mark.parametrize(("tp", "bandwidth"), [(0, 1e12), (1, 0.0)])
def test_impossible_shapes_are_refused(tp: int, bandwidth: float) -> None:
    e = Efficiency(0.7, 0.5, 0.5, 0.0, 0.0)
    with pytest.raises(ValueError, match=r"at least 1|positive"):
        step_model(SMALL, bandwidth, 1e14, EfficiencyBand(e, e, e), tp=tp)
