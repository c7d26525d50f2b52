"""Public questions over how many cards, and split how: asked of `planner size` as their askers would."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from sizing_asked import (
    LLAMA_33B,
    NO_MARGIN,
    QWEN2_VL_72B_AWQ,
    QWEN15_32B,
    QWEN25_72B_AWQ,
    QWEN25_VL_72B,
    QWEN25_VL_72B_AWQ,
    Size,
    load,
    on,
    said,
    told,
    written,
)

K3 = (*load("kimi_k3", "fp8_block", 8192), "--weights-gb", "2820", "--whole-tower")


@pytest.mark.parametrize(
    ("gpu", "count", "verdict", "label_gb"),
    [("h200_sxm_141gb", 16, "does not fit", 2256), ("h200_sxm_141gb", 24, "barely", 3384), ("b300_sxm_288gb", 16, "fits", 4608)],
)
def test_a_recipe_that_contradicts_itself(size: Size, gpu: str, count: int, verdict: str, label_gb: float) -> None:
    """O07, vllm-project/recipes#688: 2.82 TB x 1.2 = 3,384 GB declared; 16 x 141 = 2,256 no, 24 x 141 just that, 16 x 288 = 4,608 yes.

    Twenty-four hold it, TP 8 x PP 3: 126.7 GB of the 128.1 that the default margin leaves of each, which is called barely.
    """
    found = size(*K3, *on(gpu, count))
    placed = found["placements"][0]
    assert placed["verdict"] == verdict and placed["label_gb"] == label_gb and found["recipe_min_gb"] == 3384
    assert (label_gb >= found["recipe_min_gb"]) is (verdict != "does not fit")
    if count == 24:
        assert (placed["tp"], placed["pp"]) == (8, 3)
        assert placed["bytes_per_gpu"] / 1e9 == pytest.approx(126.7, abs=0.1)
        assert placed["usable_bytes_per_gpu"] / 1e9 == pytest.approx(128.1, abs=0.1)
        assert all(word in said(found, "rule_of_thumb_differs") for word in ("3,384.0 GB", "24 x 141 GB", "just enough", "'barely'"))
    else:
        assert "rule_of_thumb_differs" not in told(found)


def test_its_tensor_parallel_size_cuts_a_block(size: Size) -> None:
    """O07, inclusionAI/humming#69: at TP 16 a shard of 33,792 / 16 = 2,112 is no multiple of 128; TP 8 is."""
    found = size(*K3, *on("h200_sxm_141gb", 16, "--tp", "16"))
    assert found["exit"] == 2 and "33,792 / 16 = 2,112" in found["err"] and "128" in found["err"] and "valid: 1, 2, 4, 8" in found["err"]


def test_a_tower_that_does_not_divide_is_told_how(size: Size) -> None:
    """O07: 12 heads of the vision tower do not divide by 8; vLLM keeps the tower whole (--mm-encoder-tp-mode data, recipes#698)."""
    found = size(*load("kimi_k3", "fp8_block", 8192), "--weights-gb", "2820", *on("h200_sxm_141gb", 24, "--tp", "8", "--pp", "3"))
    assert found["exit"] == 2 and "12 heads of the vision tower" in found["err"] and "--whole-tower" in found["err"]


def test_fifty_two_heads_over_three_cards(size: Size, tmp_path: Path) -> None:
    """O13, vllm-project/vllm#414: 52 mod 3 = 1; 1, 2, 4, 13, 26 and 52 are valid, and four V100 32 GB hold LLaMA-33B.

    Two divide the heads, but 65.1 GB of FP16 are 32.5 each, with nothing left of 34.1: two are for a smaller format. TP 8 is
    invalid too (vllm-project/vllm#2652).
    """
    model = written(tmp_path, "llama-33b", LLAMA_33B)
    three = size(*load(model, "fp16", 2048), *on("v100_sxm_32gb", 3, "--tp", "3"))
    assert three["exit"] == 2 and "52 heads do not divide by 3" in three["err"] and "valid: 1, 2, 4, 13, 26, 52" in three["err"]
    four = size(*load(model, "fp16", 2048), *on("v100_sxm_32gb", 4, "--tp", "4"))
    assert four["placements"][0]["fits"] is True and four["weights_bytes"] / 1e9 == pytest.approx(66, rel=0.02)
    two = size(*load(model, "fp16", 2048), *on("v100_sxm_32gb", 2, "--tp", "2"))
    assert two["exit"] == 1 and two["placements"][0]["terms_per_gpu"]["weights"] == pytest.approx(32.5e9, rel=0.001)
    eight = size(*load(model, "fp16", 2048), *on("v100_sxm_32gb", 8, "--tp", "8"))
    assert eight["exit"] == 2 and "52 heads do not divide by 8" in eight["err"]
    assert "2 replicas of TP 4" in eight["err"]


def test_six_cards_do_not_divide_sixty_four_heads(size: Size) -> None:
    """O14, vllm-project/vllm#11147: 64 heads do not divide by six; six cards are six stages of a pipeline."""
    asked = (*load("llama_3.1_70b", "bf16", 8192), *on("rtx_a6000_48gb", 6))
    refused = size(*asked, "--tp", "6")
    assert refused["exit"] == 2 and "64 heads do not divide by 6" in refused["err"]
    staged = size(*asked, "--pp", "6")["placements"][0]
    assert (staged["tp"], staged["pp"]) == (1, 6)


@pytest.mark.parametrize("config", [QWEN25_VL_72B_AWQ, QWEN25_72B_AWQ], ids=["vl", "text"])
def test_quantisation_blocks_forbid_a_split(size: Size, tmp_path: Path, config: dict[str, Any]) -> None:
    """O15, vllm-project/vllm#13640: 29,568 / 2 = 14,784 is no multiple of 128 (115.5): AWQ of Qwen2.5-VL-72B runs on one card only.

    The text model has the same width.
    """
    model = written(tmp_path, "qwen2.5-72b-awq", config)
    two = size(*load(model, None, 8192), *on("a800_sxm_80gb", 2, "--tp", "2"))
    assert two["exit"] == 2 and "29,568 / 2 = 14,784 is no multiple of the quantisation group of 128" in two["err"]
    assert "valid: 1;" in two["err"]
    assert size(*load(model, None, 8192), *on("a800_sxm_80gb", 1))["placements"][0]["verdict"] == "fits"


def test_the_generation_before_and_other_formats_split(size: Size, tmp_path: Path) -> None:
    """O15: Qwen2-VL-72B (29,696 wide, 116 groups a half) works with the same command; so does the later one in another format."""
    older = written(tmp_path, "qwen2-vl-72b-awq", QWEN2_VL_72B_AWQ)
    assert size(*load(older, None, 8192), *on("a800_sxm_80gb", 2, "--tp", "2"))["placements"][0]["verdict"] == "fits"
    plain = written(tmp_path, "qwen2.5-vl-72b", QWEN25_VL_72B)
    assert size(*load(plain, "fp8", 8192), *on("a800_sxm_80gb", 2, "--tp", "2"))["placements"][0]["verdict"] == "fits"


def test_three_cards_are_no_answer_for_sixty_four_heads(size: Size) -> None:
    """O16, vllm-project/vllm#12400: a plain sum would pick three cards; tensor parallelism over three is refused."""
    found = size(*load("llama_3.3_70b_instruct", "fp8", 131072, 5), *on("h100_sxm_80gb", 3, "--tp", "3"))
    assert found["exit"] == 2 and "64 heads do not divide by 3" in found["err"] and "valid: 1, 2, 4, 8" in found["err"]


def test_forty_heads_over_six_cards_are_three_replicas(size: Size, tmp_path: Path) -> None:
    """X06, vllm-project/vllm#4232: TP 6 is invalid for 40 heads; in 4 bit two T4 hold Qwen1.5-32B, so six are three replicas."""
    asked = (*load(written(tmp_path, "qwen1.5-32b", QWEN15_32B), "gptq_int4", 2048), *NO_MARGIN)
    refused = size(*asked, *on("t4_16gb", 6, "--tp", "6"))
    assert refused["exit"] == 2 and "40 heads do not divide by 6" in refused["err"]
    assert "3 replicas of TP 2 behind a proxy" in refused["err"]
    two = size(*asked, *on("t4_16gb", 2, "--tp", "2"))
    assert two["placements"][0]["fits"] is True and two["replicas"] == []
    six = size(*asked, *on("t4_16gb", 6))
    [suggested] = six["replicas"]
    assert (suggested["count"], suggested["gpu_count_each"], suggested["tp"], suggested["pp"]) == (3, 2, 2, 1)
    assert suggested["bytes_per_gpu"] == two["placements"][0]["bytes_per_gpu"]
    assert suggested["max_sequences"] == 3 * two["placements"][0]["max_sequences"]
    assert "3 replicas of TP 2" in said(six, "replicas_instead") and six["placements"][0]["pp"] == 3


def test_no_replicas_where_none_fits_or_none_is_needed(size: Size, tmp_path: Path) -> None:
    """X06 the other way: 16 bit does not fit two T4, and eight cards divide forty heads."""
    model = written(tmp_path, "qwen1.5-32b", QWEN15_32B)
    assert size(*load(model, "fp16", 2048), *on("t4_16gb", 6))["replicas"] == []
    assert size(*load(model, "fp16", 2048), *on("t4_16gb", 8))["replicas"] == []
