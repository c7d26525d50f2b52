"""Sizing: placements, levers, warnings and rungs on the shipped catalog."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from planner.catalog import Catalog, load_catalog
from planner.errors import InputError
from planner.sizing import everywhere, place, placements
from planner.sizing_answer import answer
from planner.sizing_notes import longest_context_tok, smallest_rung
from planner.sizing_question import Question, ask


@cache
def catalog() -> Catalog:
    return load_catalog()


def question(
    llm: str = "llama_3.3_70b_instruct", weights: str = "q4_k_m", kv: str = "fp16",
    context_tok: int = 8192, concurrency: int = 32, **more: Any,
) -> Question:
    return ask(catalog(), llm, weights, kv, context_tok, concurrency, **more)


def warned(q: Question, gpu: str | None = None, count: int | None = None) -> set[str]:
    return {w.name for w in answer(catalog(), q, gpu, count).warnings}


def test_the_70b_lesson_in_finer_figures() -> None:
    """B2 with our own byte counts and llama.cpp: not one H100, two do, one B200 does; the KV cache is the largest term."""
    h100 = placements(catalog(), question(), catalog().gpu("h100_sxm_80gb"), None, None, None)
    assert [(p.gpu_count, p.fits) for p in h100] == [(1, False), (2, True), (4, True), (8, True)]
    assert [p.gpu_count for p in h100 if p.is_smallest] == [2]
    assert placements(catalog(), question(), catalog().gpu("b200_sxm_180gb"), 1, None, None)[0].fits
    assert answer(catalog(), question(), "h100_sxm_80gb").terms.dominant_term == "kv_cache"


@pytest.mark.parametrize(("context_tok", "concurrency", "fits"), [(8192, 32, False), (8192, 16, True), (4096, 32, True)])
def test_8_bit_kv_and_half_the_load(context_tok: int, concurrency: int, fits: bool) -> None:
    """B3, B4 in finer figures."""
    q = question(kv="q8_0", context_tok=context_tok, concurrency=concurrency)
    assert placements(catalog(), q, catalog().gpu("h100_sxm_80gb"), 1, None, None)[0].fits is fits


def test_levers_name_kv_sessions_context_weights_and_count() -> None:
    levers = " | ".join(placements(catalog(), question(weights="bf16"), catalog().gpu("h100_sxm_80gb"), None, None, None)[0].levers)
    for word in ("KV in fp8", "weights in fp8", "4 GPUs (TP 4)", "each: fits", "still does not fit"):
        assert word in levers
    short = placements(catalog(), question(weights="awq_int4"), catalog().gpu("h100_sxm_80gb"), 1, None, None)[0]
    assert any(" sessions" in lever and lever.endswith(": fits") for lever in short.levers)
    assert any(" tokens" in lever and lever.endswith(": fits") for lever in short.levers)


def test_every_lever_that_says_it_fits_does() -> None:
    """The sessions and the context that a lever promises fit when asked for."""
    q = question(weights="awq_int4")
    short = placements(catalog(), q, catalog().gpu("h100_sxm_80gb"), 1, None, None)[0]
    plain = [lever for lever in short.levers if lever.endswith(": fits") and lever[0].isdigit() and "GPUs" not in lever]
    assert plain
    for lever in plain:
        number = int(lever.split()[0].replace(",", ""))
        changed = {"concurrency": number} if "session" in lever else {"context_tok": number}
        again = question(weights="awq_int4", **changed)
        assert placements(catalog(), again, catalog().gpu("h100_sxm_80gb"), 1, None, None)[0].fits


def test_a_4_bit_float_cache_is_offered_where_the_card_has_it() -> None:
    """nvfp4 keys and values were logged on Blackwell; Hopper has no FP4."""
    for gpu, offered in (("h100_sxm_80gb", False), ("rtx_5090_32gb", True)):
        levers = placements(catalog(), question(weights="awq_int4"), catalog().gpu(gpu), 1, None, None)[0].levers
        assert any("nvfp4" in lever for lever in levers if lever.startswith("KV in")) is offered
    assert "kv_format_needs_fp4" in warned(question(weights="awq_int4", kv="nvfp4"), "h100_sxm_80gb", 1)


def test_28_heads_over_eight_gpus() -> None:
    """B12: TP 4 x PP 2 for Qwen2.5-7B."""
    p = place(question("qwen2.5_7b", "bf16", concurrency=4), catalog().gpu("h100_sxm_80gb"), 8)
    assert p is not None and (p.tp, p.pp) == (4, 2)


def test_default_engine_follows_the_format() -> None:
    assert question().engine.id == "llama_cpp"
    assert question(weights="fp8").engine.id == "vllm"
    assert question(engine="vllm").engine.id == "vllm"


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"weights": "fp8", "engine": "llama_cpp", "kv": "q8_0"}, ["llama_cpp does not run 'fp8'", "--engine vllm"]),
        ({"weights": "fp8", "kv": "q8_0"}, ["kv_cache: vllm does not run 'q8_0'"]),
        ({"llm": "llama_3.3_70b_instrukt", "weights": "fp9", "kv": "fp17"}, ["llama_3.3_70b_instruct", "no 'fp9'", "no 'fp17'"]),
        ({"engine": "vlm"}, ["no profile for engine 'vlm'", "vllm"]),
    ],
)
def test_bad_input_is_told_at_once_with_a_cure(more: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(InputError) as error:
        question(**more)
    for word in words:
        assert word in str(error.value)


def test_a_split_that_is_not_the_count_is_refused() -> None:
    with pytest.raises(InputError, match="tp 4 x pp 1 is not 8 GPUs"):
        placements(catalog(), question(weights="fp8"), catalog().gpu("h100_sxm_80gb"), 8, 4, 1)


@pytest.mark.parametrize(
    ("more", "gpu", "count", "name"),
    [
        ({}, "h100_sxm_80gb", None, "weights_only"),
        ({"llm": "llama_3.1_8b", "weights": "bf16"}, "h100_sxm_80gb", None, "seven_b_is_not_seven_gb"),
        ({"weights": "q3_k_m"}, "h100_sxm_80gb", None, "below_4_bits_without_evaluation"),
        ({}, "apple_m2_ultra_192gb", None, "unified_is_not_hbm"),
        ({"weights": "awq_int4", "concurrency": 1}, "l40s_48gb", 2, "tensor_parallel_over_pcie"),
        ({"weights": "fp8", "concurrency": 1}, "a100_sxm_80gb", 2, "no_native_arithmetic"),
        ({"llm": "mistral_7b_v0.1", "weights": "bf16", "context_tok": 100_000}, "h100_sxm_80gb", 8, "context_beyond_model"),
        ({"engine": "vllm"}, "h100_sxm_80gb", 2, "gguf_is_experimental_here"),
        ({"llm": "qwen3_0.6b", "weights": "bf16", "context_tok": 64, "concurrency": 2000}, "h100_sxm_80gb", 1, "engine_sequence_limit"),
    ],
)
def test_mistakes_are_warned_of(more: dict[str, Any], gpu: str, count: int | None, name: str) -> None:
    """Part D of the worked figures, as far as memory goes."""
    assert name in warned(question(**more), gpu, count)


def test_a_full_card_is_warned_of() -> None:
    """B13 with the margin taken away by the user: it fits and is called dangerous."""
    q = question("llama_3.1_8b", "bf16", concurrency=1, margin_frac=0.0, memory_frac=1.0, weights_bytes=83e9, overhead_bytes=0.5e9)
    assert {"high_fill", "no_reserve"} <= warned(q, "h100_sxm_80gb", 1)


def test_a_plain_answer_earns_no_warning() -> None:
    assert warned(question("qwen3_32b", "bf16", context_tok=2048, concurrency=1), "h100_sxm_80gb", 2) == set()


def test_unified_memory_shows_capacity_and_bandwidth() -> None:
    """B14: both figures stand in the warning, and what the GPU may use of it."""
    text = next(w.text for w in answer(catalog(), question(), "apple_m2_ultra_192gb").warnings if w.name == "unified_is_not_hbm")
    assert "206.2 GB" in text and "800 GB/s" in text and "may use" in text


def test_the_smallest_rung_holds_the_load_and_grows_with_it() -> None:
    order = ["laptop", "workstation", "node", "cluster"]
    small = smallest_rung(catalog(), question("llama_3.1_8b", concurrency=1))
    large = smallest_rung(catalog(), question("deepseek_v3", "fp8", context_tok=32_768, concurrency=64))
    assert small["name"] == "laptop" and order.index(large["name"]) >= order.index("node")
    for rung in (small, large):
        assert rung["node"] in catalog().nodes and rung["reason"] and rung["runs_well"] and rung["cannot"]


def test_no_machine_is_an_answer_too() -> None:
    rung = smallest_rung(catalog(), question("llama_3.1_405b", "fp32", context_tok=131_072, concurrency=10_000))
    assert rung["name"] is None and "no machine" in rung["reason"]


def test_the_longest_context_is_the_edge() -> None:
    q = question(concurrency=32)
    p = place(q, catalog().gpu("b200_sxm_180gb"), 1)
    assert p is not None
    longest = longest_context_tok(q, p)
    for tok, fits in ((longest, True), (longest + q.engine.kv_block_tok, False)):
        again = place(question(concurrency=32, context_tok=tok), catalog().gpu("b200_sxm_180gb"), 1)
        assert again is not None and again.fits is fits


def test_without_an_accelerator_every_one_that_the_engine_runs_on_is_tried() -> None:
    found = everywhere(catalog(), question(weights="fp8"))
    tried = {p.gpu.id for p in found}
    assert {"h100_sxm_80gb", "mi300x_192gb", "l40s_48gb"} <= tried and not any(g.startswith("apple") for g in tried)
    for gpu in tried:
        of_it = [p for p in found if p.gpu.id == gpu]
        assert [p.fits for p in of_it[:-1]] == [False] * (len(of_it) - 1)


def test_terms_add_up() -> None:
    data = answer(catalog(), question(), "h100_sxm_80gb").as_json()
    parts = data["weights_bytes"] + data["kv_bytes"] + data["activation_bytes"] + data["overhead_bytes"]
    assert parts == pytest.approx(data["total_bytes"])
    assert sum(data["weights_bytes_by_component"].values()) == pytest.approx(data["weights_bytes"])
