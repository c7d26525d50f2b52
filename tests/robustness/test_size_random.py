"""Random questions to `planner size`, in process: the answer never contradicts itself, and what a lever promises holds."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.errors import InputError
from planner.physics.extras import Extras
from planner.sizing import Placement, placements
from planner.sizing_answer import answer
from planner.sizing_question import Question, ask

MODELS = (
    "llama_3.1_8b", "llama_3.3_70b_instruct", "deepseek_v3", "gemma_3_27b", "gpt_oss_120b", "qwen3_235b_a22b", "qwen3.6_27b",
    "mixtral_8x7b", "granite_4.0_h_small", "bge_m3", "llama_4_scout", "deepseek_v3.2", "qwen2.5_vl_7b",
)
GPUS = (
    "h100_sxm_80gb", "a100_sxm_40gb", "l4_24gb", "rtx_4090_24gb", "b200_sxm_180gb", "mi300x_192gb", "gb10_128gb", "apple_m4_max_128gb",
    "t4_16gb",
)
ENGINES = ("vllm", "sglang", "tensorrt_llm", "llama_cpp", "transformers", "mlx", "vllm_0.7", "ollama")
FORMATS = ("bf16", "fp16", "fp8", "fp8_block", "awq_int4", "q4_k_m", "q8_0", "int8", "mxfp4")


@cache
def catalog() -> Catalog:
    return load_catalog()


questions = st.fixed_dictionaries({
    "llm": st.sampled_from(MODELS), "weights": st.sampled_from(FORMATS), "kv_cache": st.sampled_from(("fp16", "fp8", "q8_0")),
    "context_tok": st.integers(1, 300_000), "concurrency": st.integers(1, 2000), "engine": st.sampled_from(ENGINES),
    "margin_frac": st.sampled_from((0.0, 0.15, 0.5)), "memory_frac": st.sampled_from((None, 0.5, 0.95)),
})
extras = st.builds(
    Extras, adapter_count=st.sampled_from((0, 0, 3)), prefix_pool_tok=st.sampled_from((0, 0, 5000)), dp=st.sampled_from((1, 1, 1, 2, 8)),
    experts_are_whole=st.booleans(), max_sequence_count=st.sampled_from((None, 64)),
)


def asked(given_: dict[str, Any], more: Extras) -> Question | None:
    more = replace(more, memory_frac=given_["memory_frac"])
    try:
        return ask(catalog(), extras=more, **given_)
    except InputError as error:
        assert error.faults and all(fault.what for fault in error.faults)
        return None


@given(questions, extras, st.sampled_from(GPUS), st.sampled_from((None, 1, 2, 4, 8, 16)))
@settings(max_examples=150, deadline=None)
def test_an_answer_agrees_with_itself(given_: dict[str, Any], more: Extras, gpu: str, count: int | None) -> None:
    question = asked(given_, more)
    if question is None:
        return
    try:
        found = answer(catalog(), question, gpu, count)
    except InputError as error:
        assert error.faults
        return
    data = found.as_json()
    need = found.terms
    assert data["total_bytes"] == pytest.approx(sum(need.by_term.values()), rel=1e-9)
    assert (data.get("reason_code") is None) is any(p["fits"] for p in data["placements"])
    for p, shown in zip(found.placements, data["placements"], strict=True):
        check(question, p, shown)


def check(question: Question, p: Placement, shown: dict[str, Any]) -> None:
    assert p.gpu_count == p.tp * p.pp * question.extras.dp
    assert shown["fits"] is (shown["bytes_per_gpu"] <= shown["usable_bytes_per_gpu"])
    assert sum(shown["terms_per_gpu"].values()) == pytest.approx(shown["bytes_per_gpu"], rel=1e-9)
    if shown["fits"]:
        assert shown["verdict"] != "does not fit" and not shown["levers"]
        if not question.llm.is_encoder:
            assert shown["max_sequences"] >= question.concurrency
        if question.context_tok <= question.llm.max_context_tok:
            assert shown["max_context_tok"] >= question.context_tok - question.engine.kv_block_tok
    elif not question.llm.is_encoder:
        assert shown["max_sequences"] < question.concurrency + question.extras.dp


@given(questions, st.sampled_from(GPUS), st.sampled_from((1, 4, 8)))
@settings(max_examples=60, deadline=None)
def test_what_a_lever_promises_holds(given_: dict[str, Any], gpu: str, count: int) -> None:
    """Fewer sessions, a shorter context, another KV or weight format: asked for as its own question, it fits."""
    question = asked(given_, Extras())
    if question is None:
        return
    try:
        place = placements(catalog(), question, catalog().gpu(gpu), count, None, None)[0]
    except InputError:
        return
    for lever in place.lever_changes:
        if not lever.fits or len(lever.kinds) > 1 or lever.kinds[0] in ("split", "gpus"):
            continue
        changed = dict(given_)
        if lever.kinds[0] == "sessions":
            changed["concurrency"] = int(lever.change.split()[0].replace(",", ""))
        elif lever.kinds[0] == "context":
            changed["context_tok"] = int(lever.change.split()[0].replace(",", ""))
        else:
            changed[lever.kinds[0]] = lever.formats[0].id
        again = asked(changed, Extras())
        assert again is not None
        found = placements(catalog(), again, catalog().gpu(gpu), count, None, None)[0]
        assert found.fits, (lever.change, given_, gpu, count)
