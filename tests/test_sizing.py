"""Sizing: placements, levers, warnings and rungs on the shipped catalog."""

from __future__ import annotations

import re
from functools import cache
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.errors import InputError
from planner.physics.extras import Extras
from planner.sizing import Placement, everywhere, lever_json, place, placements, sum_line, undivided
from planner.sizing_answer import answer
from planner.sizing_levers import Choices
from planner.sizing_notes import smallest_rung
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


def short_of(q: Question, gpu: str = "h100_sxm_80gb", count: int = 1) -> Placement:
    found = placements(catalog(), q, catalog().gpu(gpu), count, None, None)[0]
    assert not found.fits
    return found


def test_levers_name_every_kind_once() -> None:
    """Llama-3.3-70B in BF16 on one H100: 141 + 86 GB; no single format is enough, and 1 session does not help."""
    changes = short_of(question(weights="bf16")).lever_changes
    kinds = [lever.kind for lever in changes]
    assert {"kv_cache", "weights", "sessions", "context", "gpus"} <= set(kinds) and len(kinds) == len(set(kinds))
    assert [lever.fits for lever in changes] == sorted((lever.fits for lever in changes), reverse=True)
    text = " | ".join(map(str, changes))
    for words in ("KV in fp8 → ", "weights in awq_int4", "4 GPUs (TP 4)", " each: fits", "still does not fit, "):
        assert words in text


@pytest.mark.parametrize(
    ("weights", "kv", "gpu"), [("awq_int4", "fp16", "h100_sxm_80gb"), ("q4_k_m", "fp16", "l40s_48gb"), ("q6_k", "fp16", "h100_sxm_80gb"),
                               ("fp8", "fp8", "rtx_5090_32gb"), ("bf16", "fp16", "b200_sxm_180gb")],
)
def test_every_lever_that_says_it_fits_does_and_one_step_less_does_not(weights: str, kv: str, gpu: str) -> None:
    """Each lever is asked again as a question of its own; one session or one page more does not fit."""
    short = short_of(question(weights=weights, kv=kv), gpu)
    assert any(lever.fits for lever in short.lever_changes)
    for lever in short.lever_changes:
        now: dict[str, Any] = {"weights": weights, "kv": kv, "count": 1, "context_tok": 8192, "concurrency": 32}
        for words in lever.change.split(" and "):
            number = int(words.split()[0].replace(",", "")) if words[0].isdigit() else 0
            if words.startswith("KV in "):
                now["kv"] = words.removeprefix("KV in ")
            elif words.startswith("weights in "):
                now["weights"] = words.removeprefix("weights in ")
            else:
                now["context_tok" if "tokens" in words else "concurrency" if "session" in words else "count"] = number
        assert fits(gpu, **now) is lever.fits, lever.change
        if lever.fits and lever.kinds[-1] == "sessions":
            assert not fits(gpu, **{**now, "concurrency": now["concurrency"] + 1})
        if lever.fits and lever.kinds[-1] == "context":
            assert not fits(gpu, **{**now, "context_tok": now["context_tok"] + short.question.engine.kv_block_tok})


def fits(gpu: str, weights: str, kv: str, count: int, context_tok: int, concurrency: int) -> bool:
    q = question(weights=weights, kv=kv, context_tok=context_tok, concurrency=concurrency)
    found = place(q, catalog().gpu(gpu), count)
    return found is not None and found.fits


ASKED = (("weights", "bf16", "fp8", "awq_int4", "nvfp4"), ("kv", "fp16", "fp8"), ("margin_frac", 0.0, 0.05, 0.15))


@pytest.mark.parametrize("engine", ["sglang", "tensorrt_llm"])
@given(data=st.data())
@settings(max_examples=40, deadline=None)
def test_the_room_of_a_change_follows_the_engines_rule(engine: str, data: st.DataObject) -> None:
    """SGLang's fraction depends on the split, TensorRT-LLM's is of what weights leave: a lever's room is that of the load it makes."""
    more = {name: data.draw(st.sampled_from(values)) for name, *values in ASKED}
    more |= {"context_tok": data.draw(st.integers(300, 60_000)), "concurrency": data.draw(st.integers(1, 200))}
    gpu = catalog().gpu(data.draw(st.sampled_from(["h100_sxm_80gb", "l40s_48gb", "b200_sxm_180gb"])))
    p = placements(catalog(), question(engine=engine, **more), gpu, 1, None, None)[0]
    for lever in p.lever_changes:
        now, count = dict(more), 1
        for words in lever.change.split(" and "):
            number = int(words.split()[0].replace(",", "")) if words[0].isdigit() else 0
            if words.startswith(("KV in ", "weights in ")):
                now["kv" if words.startswith("KV") else "weights"] = words.split(" in ")[1]
            elif "GPUs" in words:
                count = number
            else:
                now["context_tok" if "tokens" in words else "concurrency"] = number
        made = place(question(engine=engine, **now), gpu, count)
        assert made is not None
        assert (made.answer.usable_bytes_per_gpu, made.fits) == (pytest.approx(lever.usable_bytes), lever.fits), lever.change


def test_barely_and_the_fraction_follow_the_engines_rule() -> None:
    """SGLang on one H100 keeps 13,440 MiB of 81,559 free (0.835), on eight 896 MiB more (0.824); 0.90 by hand stands."""
    q = question("llama_3.1_8b", "fp8", engine="sglang", concurrency=1)
    gpu = catalog().gpu("h100_sxm_80gb")
    found = placements(catalog(), q, gpu, None, None, None)
    assert [round(p.memory_frac, 3) for p in found] == [0.835, 0.834, 0.831, 0.824]
    assert [round(p.as_json()["memory_frac"], 3) for p in found] == [0.835, 0.834, 0.831, 0.824]
    assert round(answer(catalog(), q, gpu.id, 8).as_json()["memory_frac"], 3) == 0.824
    assert answer(catalog(), q).as_json()["memory_frac"] is None
    own = question("llama_3.1_8b", "fp8", engine="sglang", concurrency=1, memory_frac=0.9)
    assert answer(catalog(), own, gpu.id, 1).as_json()["memory_frac"] == answer(catalog(), own).as_json()["memory_frac"] == 0.9
    for engine in ("sglang", "tensorrt_llm", "vllm"):
        same = placements(catalog(), question("llama_3.1_8b", "bf16", engine=engine), gpu, 1, None, None)[0]
        assert same.advised_bytes_per_gpu == same.answer.usable_bytes_per_gpu


def test_levers_stay_among_the_files_and_the_cards_at_hand() -> None:
    """A GGUF question stays among GGUF formats; FP8 and NVFP4 weights are offered where the card multiplies in them."""
    gguf = [o.id for o in Choices(catalog(), question(weights="q6_k")).weights(catalog().gpu("h100_sxm_80gb"))]
    assert "q4_k_m" in gguf and all(catalog().weight_formats[name].is_gguf for name in gguf if name != "mxfp4")
    offered = {
        gpu: {o.id for o in Choices(catalog(), question(weights="bf16")).weights(catalog().gpu(gpu))}
        for gpu in ("a100_sxm_80gb", "h100_sxm_80gb", "b200_sxm_180gb")
    }
    assert "fp8" not in offered["a100_sxm_80gb"] and "fp8" in offered["h100_sxm_80gb"]
    assert "nvfp4" not in offered["h100_sxm_80gb"] and "nvfp4" in offered["b200_sxm_180gb"]
    assert all("awq_int4" in names for names in offered.values())


def test_a_format_that_loses_more_by_the_same_test_for_no_fewer_bits_is_not_offered() -> None:
    """Q4_1 keeps 5 bits and loses 2.4 % of perplexity, Q4_K_M 4.84 and 1.2 %; Q5_0 5.5 and 1.3 %, Q5_K_S 5.5 and 0.5 %."""
    names = [o.id for o in Choices(catalog(), question(weights="q8_0")).weights(catalog().gpu("h100_sxm_80gb"))]
    assert "q4_1" not in names and "q5_0" not in names
    assert names.index("q6_k") < names.index("q5_k_m") < names.index("q4_k_m") < names.index("q3_k_m") < names.index("q2_k")


def test_given_bytes_of_the_weights_are_scaled_to_another_format() -> None:
    """40 GB of Q4_K_M by a rule: Q3_K_M is in proportion, not the count by component."""
    rule = Choices(catalog(), question(weights_bytes=40e9))
    counted = Choices(catalog(), question())
    form, kv = catalog().weight_formats["q3_k_m"], question().kv
    share = counted.footprint(form, kv).weights_bytes / question().footprint.weights_bytes
    assert rule.footprint(form, kv).weights_bytes == pytest.approx(40e9 * share)


def test_fewer_than_4_bits_need_an_evaluation() -> None:
    """42 GB of Q4_K_M on 40 GB cards: Q3 fits, with its published loss, its source, and a warning that only the user clears."""
    q = question(context_tok=1024, concurrency=1)
    lever = next(lever for lever in short_of(q, "a100_sxm_40gb").lever_changes if lever.kind == "weights")
    assert lever.fits and lever.needs_evaluation
    data = lever_json(lever)
    assert data["needs_evaluation"] is True and "perplexity" in data["quality_note"] and data["source"].startswith("github:")
    lines = answer(catalog(), q, "a100_sxm_40gb", 1).lever_lines
    assert any(note and "only your own evaluation" in note for _, note in lines)


def test_another_split_is_a_lever_where_one_was_named() -> None:
    """DeepSeek-V3 on 16 GPUs: a latent is whole on every rank of TP 16 and shared out by stages."""
    q = question("deepseek_v3", "fp8", "fp16", context_tok=32_768, concurrency=600)
    named = placements(catalog(), q, catalog().gpu("gb200_186gb"), 16, 16, 1)[0]
    lever = next(lever for lever in named.lever_changes if lever.kind == "split")
    assert not named.fits and lever.fits
    free = place(q, catalog().gpu("gb200_186gb"), 16)
    assert free is not None and free.fits


def test_a_4_bit_float_cache_is_offered_where_the_card_has_it() -> None:
    """nvfp4 keys and values were logged on Blackwell; Hopper has no FP4."""
    tries = Choices(catalog(), question(weights="awq_int4"))
    assert "nvfp4" not in [o.id for o in tries.kv(catalog().gpu("h100_sxm_80gb"))]
    assert [o.id for o in tries.kv(catalog().gpu("rtx_5090_32gb"))] == ["fp8", "int8_per_token_head", "nvfp4"]
    assert "kv_format_needs_fp4" in warned(question(weights="awq_int4", kv="nvfp4"), "h100_sxm_80gb", 1)


def test_barely_is_not_worth_deploying() -> None:
    """Llama-2-70B in 16 bit on 2 A100 80GB: 129 GiB of weights; its maintainers say barely, take four or 4 bits (TGI issue 734)."""
    q = question("llama_2_70b", "fp16", context_tok=2048, concurrency=1)
    two = placements(catalog(), q, catalog().gpu("a100_sxm_80gb"), 2, None, None)[0]
    four = placements(catalog(), q, catalog().gpu("a100_sxm_80gb"), 4, None, None)[0]
    assert (two.verdict, four.verdict) == ("barely", "fits") and two.used_frac > 0.95
    assert "barely_fits" in warned(q, "a100_sxm_80gb", 2) and "barely_fits" not in warned(q, "a100_sxm_80gb", 4)
    bare = question("llama_2_70b", "fp16", context_tok=2048, concurrency=1, margin_frac=0.0)
    assert "barely_fits" in warned(bare, "a100_sxm_80gb", 2) and "barely_fits" not in warned(bare, "a100_sxm_80gb", 4)


@pytest.mark.parametrize(
    ("gpu", "count", "is_told"),
    [("h20_96gb", 8, True), ("h20_96gb", None, True), ("h20_96gb", 4, False), ("h800_sxm_80gb", 8, False), ("h200_sxm_141gb", 8, False)],
)
def test_what_only_the_margin_refuses_is_told(gpu: str, count: int | None, is_told: bool) -> None:
    """DeepSeek-V3 in FP8: eight H20 hold it in vLLM's 0.92 of a card, not in 0.85; fewer or smaller cards never, H200 with the margin."""
    q = question("deepseek_v3", "fp8", context_tok=4096, concurrency=1)
    assert ("margin_refuses" in warned(q, gpu, count)) is is_told
    bare = question("deepseek_v3", "fp8", context_tok=4096, concurrency=1, margin_frac=0.0)
    assert "margin_refuses" not in warned(bare, gpu, count)
    tight = question("deepseek_v3", "fp8", context_tok=4096, concurrency=1, memory_frac=0.85)
    assert "margin_refuses" not in warned(tight, gpu, count)


def test_the_sum_adds_up_on_paper() -> None:
    """The printed parts, rounded to a tenth, add up to the printed whole in GB and in GiB."""
    for q in (question(), question("deepseek_v3", "fp8", context_tok=4001), question("gemma_3_27b", "bf16", context_tok=100_000)):
        line = sum_line(q, undivided(q, catalog().gpu("h100_sxm_80gb")))
        for half in line.split("; "):
            left, right = re.sub(r"\(.*?\)", "", half).replace(",", "").split(" = ")
            parts = [float(part.split()[0]) for part in left.split(" + ")]
            assert sum(parts) == pytest.approx(float(right.split()[0]))


def test_the_bars_are_those_of_one_gpu_and_every_column_adds_up() -> None:
    """2 x A100: the terms of the fullest GPU follow one another up to its need; each column's parts add up to its sum."""
    found = answer(catalog(), question("llama_2_70b", "fp16", context_tok=2048, concurrency=1), "a100_sxm_80gb", 2)
    *parts, total = found.term_rows
    assert [row.start_bytes for row in parts] == pytest.approx([0.0, *(row.end_bytes for row in parts[:-1])])
    assert total.end_bytes == pytest.approx(found.placements[0].answer.per_gpu_bytes) and parts[0].is_largest
    for column in ("gb", "gib", "gb_per_gpu"):
        assert sum(float(getattr(row, column)) for row in parts) == pytest.approx(float(getattr(total, column)))


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
    longest = p.max_context_tok
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


@pytest.mark.parametrize(("llm", "weights", "is_told"), [
    ("qwen3.6_27b", "w4a16_int4", True), ("qwen3.6_27b", "bf16", False), ("qwen3.6_27b", "fp8", False), ("qwen3.6_27b", "q4_k_m", False),
    ("llama_3.1_8b", "w4a16_int4", False),
])
def test_a_format_that_may_spare_recurrent_layers_is_told(llm: str, weights: str, is_told: bool) -> None:
    """INT4 files of one maker quantise recurrent layers, others do not: the answer counts the smaller and says what the larger adds."""
    found = answer(catalog(), question(llm, weights, kv="fp16"), "h100_sxm_80gb").warnings
    assert ("recurrent_layers_may_stay_in_16_bit" in {w.name for w in found}) is is_told


def draft_warnings(llm: str, draft: str, weights: str = "bf16", engine: str = "vllm") -> set[str]:
    extras = Extras(draft=(catalog().llm(draft), catalog().weight_format("bf16")))
    return {name for name in warned(question(llm, weights, concurrency=1, engine=engine, extras=extras)) if name.startswith("draft_")}


def test_a_draft_model_that_cannot_help_is_named() -> None:
    """A 1B of the same family helps a 70B; the other way round it costs; another family's words have other numbers."""
    assert draft_warnings("llama_3.3_70b_instruct", "llama_3.2_1b") == set()
    assert draft_warnings("llama_3.2_1b", "llama_3.3_70b_instruct") == {"draft_is_no_smaller"}
    assert draft_warnings("llama_3.1_8b", "llama_3.1_8b") == {"draft_is_no_smaller"}
    assert draft_warnings("llama_3.3_70b_instruct", "llama_2_7b") == {"draft_has_another_vocabulary"}


@pytest.mark.parametrize(("engine", "apart", "is_told"), [("vllm", 128, True), ("llama_cpp", 128, False), ("llama_cpp", 129, True)])
def test_llama_cpp_takes_a_draft_of_128_words_more(engine: str, apart: int, is_told: bool) -> None:
    """Qwen2.5 pads 151,936 words to 152,064 from 7B on: vLLM refuses the pair, llama.cpp takes it."""
    llm, small = catalog().llm("llama_3.3_70b_instruct"), catalog().llm("llama_3.2_1b")
    draft = small.model_copy(update={"vocab_size": llm.vocab_size - apart})
    weights = "q4_k_m" if engine == "llama_cpp" else "fp8"
    q = question(llm.id, weights, engine=engine, extras=Extras(draft=(draft, catalog().weight_format("bf16"))))
    assert ("draft_has_another_vocabulary" in warned(q)) is is_told


def test_experts_of_a_dense_model_cannot_be_divided() -> None:
    with pytest.raises(InputError, match=r"--ep: llama_3.3_70b_instruct has no experts to divide; leave it out"):
        question(extras=Extras(experts_are_whole=True))
    assert question("qwen3_30b_a3b", "fp8", extras=Extras(experts_are_whole=True)).extras.experts_are_whole
