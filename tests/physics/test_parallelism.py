"""Valid tensor-parallel sizes and layouts."""

from __future__ import annotations

import pytest

from planner.catalog import load_catalog
from planner.physics.parallelism import kv_heads_per_gpu, layouts, llm_valid_tp, stage_frac, valid_tp


@pytest.mark.parametrize(
    ("head_count", "kv_head_count", "sizes"),
    [
        (52, 52, (1, 2, 4)), (40, 40, (1, 2, 4, 5, 8)), (28, 28, (1, 2, 4, 7)), (12, 12, (1, 2, 3, 4, 6)),
        (40, 8, (1, 2, 4, 8)), (40, 10, (1, 2, 5)), (28, 4, (1, 2, 4)), (12, 2, (1, 2, 4, 6)), (12, 4, (1, 2, 4)),
    ],
)
def test_sizes_up_to_eight(head_count: int, kv_head_count: int, sizes: tuple[int, ...]) -> None:
    """B12: heads divide, and KV heads divide or are replicated evenly."""
    assert valid_tp(head_count, kv_head_count) == sizes


def test_experts_and_heads_both_count() -> None:
    """B12: 64 heads and 256 experts: 3 is invalid; DeepSeek-V3 (128 heads, 256 experts) splits over powers of two."""
    assert 3 not in valid_tp(64, 64)
    assert llm_valid_tp(load_catalog().llm("deepseek_v3")) == (1, 2, 4, 8)


def test_eight_gpus_for_28_heads() -> None:
    """B12: Qwen2.5-7B (28 heads, 4 KV heads) takes TP 4 x PP 2 on eight GPUs, never TP 8 nor TP 7."""
    assert layouts(load_catalog().llm("qwen2.5_7b"), 8, 8) == ((4, 2), (2, 4), (1, 8))


def test_tensor_parallelism_stays_in_the_fast_link_domain() -> None:
    llm = load_catalog().llm("llama_3.1_405b")
    assert layouts(llm, 16, 8) == ((8, 2), (4, 4), (2, 8), (1, 16))
    assert layouts(llm, 16, 1) == ((1, 16),)
    assert layouts(llm, 16, 8, max_tp=1) == ((1, 16),)


def test_heads_left_on_a_gpu_and_layers_on_a_stage() -> None:
    """8 KV heads: one is left at TP 8 and stays at TP 16; 61 layers over 2 stages leave 31 on the fuller one."""
    assert [kv_heads_per_gpu(8, tp) for tp in (1, 4, 8, 16)] == [8, 2, 1, 1]
    assert stage_frac(61, 2) == pytest.approx(31 / 61)


def test_a_tower_kept_whole_forbids_no_split() -> None:
    """Kimi-K3: 12 heads of the tower, 96 of the text. vllm-project/recipes#698 runs TP 8 with the tower replicated; TP 16 cuts a block.

    33,792 / 16 = 2,112 and 3,072 / 16 = 192 are no multiples of 128 (inclusionAI/humming#69).
    """
    k3 = load_catalog().llm("kimi_k3")
    assert llm_valid_tp(k3, 16, 128) == (1, 2, 4)
    assert llm_valid_tp(k3, 16, 128, tower_is_whole=True) == (1, 2, 4, 8)
