"""Public questions about memory whose answer is known: asked of `planner size` as its users would.

Each docstring names the thread and the arithmetic that gives the answer. GiB = 2^30 bytes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import main

GIB = 1024**3
Size = Callable[..., dict[str, Any]]
NO_MARGIN = ("--margin-frac", "0")

QWEN_72B = {
    "model_type": "qwen2", "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 24576, "num_attention_heads": 64,
    "num_key_value_heads": 64, "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False,
}
LLAMA_33B = {
    "model_type": "llama", "num_hidden_layers": 60, "hidden_size": 6656, "intermediate_size": 17920, "num_attention_heads": 52,
    "num_key_value_heads": 52, "vocab_size": 32000, "max_position_embeddings": 2048, "tie_word_embeddings": False,
}
QWEN15_32B = {
    "model_type": "qwen2", "num_hidden_layers": 64, "hidden_size": 5120, "intermediate_size": 27392, "num_attention_heads": 40,
    "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 32768, "tie_word_embeddings": False,
}
QWEN25_72B_AWQ = {
    "model_type": "qwen2", "num_hidden_layers": 80, "hidden_size": 8192, "intermediate_size": 29568, "num_attention_heads": 64,
    "num_key_value_heads": 8, "vocab_size": 152064, "max_position_embeddings": 128000, "tie_word_embeddings": False,
    "quantization_config": {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True},
}


@pytest.fixture
def size(capsys: pytest.CaptureFixture[str]) -> Size:
    def call(*args: str) -> dict[str, Any]:
        with pytest.raises(SystemExit) as stop:
            main(["size", *args, "--json"])
        out, err = capsys.readouterr()
        data: dict[str, Any] = json.loads(out) if out else {}
        return {**data, "exit": int(stop.value.code or 0), "err": err}

    return call


def written(tmp_path: Path, name: str, config: dict[str, Any]) -> str:
    path = tmp_path / f"{name}.json"
    path.write_text(json.dumps(config))
    return str(path)


def load(llm: str, weights: str, context: int, sessions: int = 1, kv: str = "fp16") -> list[str]:
    return ["--llm", llm, "--weights", weights, "--kv-cache", kv, "--context", str(context), "--concurrency", str(sessions)]


def test_same_size_class_eight_times_the_cache(size: Size, tmp_path: Path) -> None:
    """ggml-org/llama.cpp#6032: 2 x 80 x 64 x 128 x 2 B x 8,192 = 20.0 GiB for Qwen-72B (MHA), 2.5 GiB for Llama-70B (8 KV heads)."""
    mha = size(*load(written(tmp_path, "qwen-72b", QWEN_72B), "q6_k", 8192))
    gqa = size(*load("llama_3.1_70b", "q6_k", 8192))
    assert mha["kv_bytes"] == 20 * GIB and gqa["kv_bytes"] == 2.5 * GIB


@pytest.mark.parametrize(("context", "fits", "kv_gib"), [(131072, False, 16), (8192, True, 1)])
def test_the_default_context_is_the_models_longest(size: Size, context: int, fits: bool, kv_gib: int) -> None:
    """ggml-org/llama.cpp#9517: 128 KiB a token x 131,072 = 16 GiB beside a 4.58 GiB file: not on 12 GB; 8,192 tokens do."""
    found = size(*load("llama_3.1_8b", "q4_k_m", context), "--gpu", "rtx_4070_ti_12gb", "--count", "1")
    assert found["kv_bytes"] == kv_gib * GIB and found["placements"][0]["fits"] is fits
    assert found["weights_bytes"] == pytest.approx(4.58 * GIB, rel=0.005)


@pytest.mark.parametrize(
    ("gpu", "weights", "count", "fits"),
    [
        ("h800_sxm_80gb", "fp8", 8, False), ("h20_96gb", "fp8", 8, True), ("h800_sxm_80gb", "fp8", 16, True),
        ("a100_sxm_80gb", "bf16", 16, False), ("a100_sxm_80gb", "bf16", 32, True),
    ],
)
def test_deepseek_v3_on_eighty_gigabyte_cards(size: Size, gpu: str, weights: str, count: int, fits: bool) -> None:
    """InternLM/lmdeploy#2960, deepseek-ai/DeepSeek-V3#11: 671/8 = 83.9 GB > 80; 96 GB hold it; BF16 is 1,342 GB: 32 cards."""
    found = size(*load("deepseek_v3", weights, 4096), "--gpu", gpu, "--count", str(count), *NO_MARGIN)
    assert found["placements"][0]["fits"] is fits


def test_fp8_on_ampere_is_told(size: Size) -> None:
    """Ampere has no FP8 arithmetic: the same checkpoint saves memory there, not time, or needs 16 bit."""
    found = size(*load("deepseek_v3", "fp8", 4096), "--gpu", "a100_sxm_80gb", "--count", "16", *NO_MARGIN)
    assert "no_native_arithmetic" in {w["name"] for w in found["warnings"]}


def test_llama_405b_fp8_on_one_node(size: Size) -> None:
    """vllm-project/vllm#6746: 504 KiB a token, 63.0 GiB for 131,072; 4,096 tokens work on 8 x A100 80 GB with the 462 GiB logged."""
    found = size(*load("llama_3.1_405b", "fp8", 131072))
    assert found["kv_bytes_per_tok"] == 504 * 1024 and found["kv_bytes"] == 63 * GIB
    short = size(
        *load("llama_3.1_405b", "fp8", 4096), "--gpu", "a100_sxm_80gb", "--count", "8", "--weights-gb", str(462 * GIB / 1e9), *NO_MARGIN
    )
    assert short["placements"][0]["fits"] is True


@pytest.mark.parametrize(
    ("gpu", "context", "fits"),
    [
        ("h100_sxm_80gb", 1_000_000, True), ("h100_sxm_80gb", 2_500_000, False), ("h200_sxm_141gb", 3_600_000, True),
        ("h200_sxm_141gb", 10_000_000, False),
    ],
)
def test_llama_4_scout_at_its_advertised_context(size: Size, gpu: str, context: int, fits: bool) -> None:
    """vLLM blog, Llama 4 (2025-04-05), 0.8.3: 192 KiB a token in every layer; 1M on 8 x H100, 3.6M on 8 x H200, never 10M."""
    found = size(*load("llama_4_scout", "bf16", context), "--engine", "vllm_0.8", "--gpu", gpu, "--count", "8", *NO_MARGIN)
    assert found["kv_bytes_per_tok"] == 192 * 1024 and found["placements"][0]["fits"] is fits


def test_kimi_k2_needs_two_nodes(size: Size) -> None:
    """MoonshotAI/Kimi-K2#76: 1,128 GB x 0.9 = 1,015 GB against about 1,000 GB of weights: nothing left; 16 GPUs are the unit."""
    eight, sixteen = (
        size(*load("kimi_k2", "fp8_block", 131072), "--gpu", "h200_sxm_141gb", "--count", str(n))["placements"][0] for n in (8, 16)
    )
    assert eight["fits"] is False and sixteen["fits"] is True


@pytest.mark.parametrize(("gpu", "count", "fits"), [("h200_sxm_141gb", 16, False), ("b300_sxm_288gb", 16, True)])
def test_a_recipe_that_contradicts_itself(size: Size, gpu: str, count: int, fits: bool) -> None:
    """vllm-project/recipes#688: 2.82 TB of checkpoint do not fit 16 x 141 = 2,256 GB; 16 x 288 = 4,608 GB hold it."""
    found = size(*load("kimi_k3", "fp8_block", 8192), "--weights-gb", "2820", "--gpu", gpu, "--count", str(count))
    assert found["placements"][0]["fits"] is fits


def test_sliding_windows_are_not_full_attention(size: Size) -> None:
    """gpustack/gpustack#2101: 139 GB were estimated for Gemma-3-27B Q4_K_M at 128,000 tokens; about 32 GB were seen at 85,000."""
    found = size(*load("gemma_3_27b", "q4_k_m", 85_000, kv="q8_0"))
    assert found["total_bytes"] < 34e9


def test_ollama_reserves_every_slot(size: Size) -> None:
    """ollama/ollama#9246: 32,768 tokens x 4 slots = 131,072 tokens: 16.0 GiB for Llama-3.1-8B, 20.6 GiB with a 4.58 GiB file."""
    found = size(*load("llama_3.1_8b", "q4_k_m", 32768, 4))
    assert found["kv_bytes"] == 16 * GIB
    assert (found["kv_bytes"] + found["weights_bytes"]) / GIB == pytest.approx(20.6, abs=0.05)


def test_the_engine_decides_what_mla_costs(size: Size) -> None:
    """ollama/ollama#8447: 61 x (24,576 + 16,384) x 2 B x 2,048 = 9,760 MiB where the latent is expanded, 137.25 MiB where not."""
    expanded = size(*load("deepseek_r1", "q4_k_m", 2048), "--engine", "llama_cpp")
    latent = size(*load("deepseek_r1", "q4_k_m", 2048), "--engine", "llama_cpp_latent")
    assert expanded["kv_bytes"] == 9760 * 2**20 and latent["kv_bytes"] == 137.25 * 2**20


def test_two_cards_that_barely_hold_it(size: Size) -> None:
    """huggingface/text-generation-inference#734: Llama-2-70B in FP16 on 2 x A100 80 GB: barely, not worth deploying; four are advised."""
    two = size(*load("llama_2_70b", "fp16", 4096), "--gpu", "a100_sxm_80gb", "--count", "2", *NO_MARGIN)
    four = size(*load("llama_2_70b", "fp16", 4096), "--gpu", "a100_sxm_80gb", "--count", "4")
    assert two["weights_bytes"] / GIB == pytest.approx(129, abs=0.6)
    assert "barely_fits" in {w["name"] for w in two["warnings"]} or two["placements"][0]["fits"] is False
    assert four["placements"][0]["fits"] is True and "barely_fits" not in {w["name"] for w in four["warnings"]}


def test_quantising_while_loading_needs_the_16_bit_first(size: Size) -> None:
    """sgl-project/sglang#2895: 671 GB after, 1,342 GB while loading, 1,128 GB there: it fits afterwards and never gets there."""
    asked = (*load("deepseek_v3", "fp8", 4096), "--gpu", "h200_sxm_141gb", "--count", "8", "--engine", "sglang", *NO_MARGIN)
    offline, online = size(*asked), size(*asked, "--quantize-at-load")
    assert offline["placements"][0]["fits"] is True and online["placements"][0]["fits"] is False
    assert "load" in online["placements"][0]["reason"]


def test_fifty_two_heads_over_three_cards(size: Size, tmp_path: Path) -> None:
    """vllm-project/vllm#414: 52 mod 3 = 1; 1, 2, 4, 13, 26 and 52 are valid. Four V100 32 GB hold LLaMA-33B."""
    model = written(tmp_path, "llama-33b", LLAMA_33B)
    three = size(*load(model, "fp16", 2048), "--gpu", "v100_sxm_32gb", "--count", "3", "--tp", "3")
    assert three["exit"] == 2 and "1, 2, 4, 13, 26, 52" in three["err"]
    four = size(*load(model, "fp16", 2048), "--gpu", "v100_sxm_32gb", "--count", "4", "--tp", "4")
    assert four["placements"][0]["fits"] is True
    assert size(*load(model, "fp16", 2048), "--gpu", "v100_sxm_32gb", "--count", "8", "--tp", "8")["exit"] == 2


def test_six_cards_do_not_divide_sixty_four_heads(size: Size) -> None:
    """vllm-project/vllm#11147: 64 heads do not divide by six; six cards are six stages of a pipeline."""
    asked = (*load("llama_3.1_70b", "bf16", 8192), "--gpu", "rtx_a6000_48gb", "--count", "6")
    assert size(*asked, "--tp", "6")["exit"] == 2
    staged = size(*asked, "--pp", "6")["placements"][0]
    assert (staged["tp"], staged["pp"]) == (1, 6)


def test_quantisation_blocks_forbid_a_split(size: Size, tmp_path: Path) -> None:
    """vllm-project/vllm#13640: 29,568 / 2 = 14,784 is no multiple of the group of 128: AWQ of this model runs on one card only."""
    model = written(tmp_path, "qwen2.5-72b-awq", QWEN25_72B_AWQ)
    two = size(*load(model, "awq_int4", 8192), "--gpu", "a100_sxm_80gb", "--count", "2", "--tp", "2")
    assert two["exit"] == 2 and "128" in two["err"] and "29,568" in two["err"].replace("29568", "29,568")
    assert size(*load(model, "awq_int4", 8192), "--gpu", "a100_sxm_80gb", "--count", "1")["placements"][0]["fits"] is True


@pytest.mark.parametrize(
    ("gpu", "count", "kv", "fits"),
    [
        ("h100_sxm_80gb", 1, "fp16", False), ("h100_sxm_80gb", 2, "fp16", False), ("h100_sxm_80gb", 2, "fp8", False),
        ("h100_sxm_80gb", 4, "fp8", True), ("h200_sxm_141gb", 2, "fp16", False), ("h200_sxm_141gb", 2, "fp8", True),
    ],
)
def test_five_people_with_the_whole_window(size: Size, gpu: str, count: int, kv: str, fits: bool) -> None:
    """vllm-project/vllm#12400: 40 GiB a user; five and 65.7 GiB of 8-bit weights need 265.7 GiB, or 165.7 with KV in 8 bit."""
    asked = (*load("llama_3.3_70b_instruct", "int8", 131072, 5, kv), "--gpu", gpu, "--count", str(count))
    found = size(*asked, "--engine", "vllm_0.19", *NO_MARGIN)
    assert found["kv_bytes"] == (200 if kv == "fp16" else 100) * GIB and found["placements"][0]["fits"] is fits


def test_three_cards_are_no_answer_for_sixty_four_heads(size: Size) -> None:
    """The same thread: a plain sum would pick three cards; tensor parallelism over three is refused."""
    asked = (*load("llama_3.3_70b_instruct", "fp8", 131072, 5), "--gpu", "h100_sxm_80gb", "--count", "3", "--tp", "3")
    assert size(*asked)["exit"] == 2


def test_a_context_that_one_card_cannot_hold(size: Size) -> None:
    """Graph-COM/SubgraphRAG#19: Llama-3.1-8B BF16 on a 24 GB card at 131,072 tokens: no; 4.76 GiB logged are 39,024 tokens."""
    asked = (*load("llama_3.1_8b", "bf16", 131072), "--gpu", "rtx_3090_24gb", "--count", "1", *NO_MARGIN)
    assert size(*asked)["placements"][0]["fits"] is False
    assert size(*load("llama_3.1_8b", "bf16", 39_024))["kv_bytes"] / GIB == pytest.approx(4.76, abs=0.01)


def test_forty_heads_over_six_cards(size: Size, tmp_path: Path) -> None:
    """vllm-project/vllm#4232: TP 6 is invalid for 40 heads; in 4 bit two T4 hold Qwen1.5-32B, so six are three replicas."""
    model = written(tmp_path, "qwen1.5-32b", QWEN15_32B)
    assert size(*load(model, "awq_int4", 4096), "--gpu", "t4_16gb", "--count", "6", "--tp", "6")["exit"] == 2
    two = size(*load(model, "gptq_int4", 2048), "--gpu", "t4_16gb", "--count", "2", "--tp", "2", *NO_MARGIN)
    assert two["placements"][0]["fits"] is True


@pytest.mark.parametrize(
    ("gpu", "count", "fits"),
    [
        ("h100_sxm_80gb", 8, False), ("gb200_186gb", 4, False), ("h100_sxm_80gb", 16, True), ("gb200_186gb", 8, True),
        ("h200_sxm_141gb", 8, True),
    ],
)
def test_deepseek_v4_pro_by_node(size: Size, gpu: str, count: int, fits: bool) -> None:
    """vllm-project/recipes#779: 865 GB of weights: not 640 nor 768 GB; 16 H100, 8 GB200 or 8 H200."""
    found = size(*load("deepseek_v4_pro", "fp8", 65536), "--weights-gb", "865", "--gpu", gpu, "--count", str(count), *NO_MARGIN)
    assert found["placements"][0]["fits"] is fits


@pytest.mark.parametrize(
    ("llm", "weights", "count", "fits"),
    [
        ("gpt_oss_120b", "mxfp4", 1, True), ("llama_3.1_70b", "bf16", 1, False), ("llama_3.1_70b", "bf16", 2, True),
        ("command_r_plus_08_2024", "bf16", 1, False),
    ],
)
def test_one_small_machine_is_enough_for_four_bit(size: Size, llm: str, weights: str, count: int, fits: bool) -> None:
    """mark-ramsey-ri/vllm-dgx-spark#8: gpt-oss-120b is 65 GB of about 120 usable; 70B in BF16 (141 GB) and Command R+ (208 GB) need two."""
    found = size(*load(llm, weights, 8192), "--gpu", "gb10_128gb", "--count", str(count), *NO_MARGIN)
    assert found["placements"][0]["fits"] is fits
