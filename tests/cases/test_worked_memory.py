"""Worked figures of memory, B1 to B14, each asked of `planner size` (training: `--train`)."""

from __future__ import annotations

import pytest
from sizing_asked import GIB, NO_MARGIN, Size, load, on, said, told, written

from planner.catalog import load_catalog
from planner.schema.engine import EngineProfile

MIB = 2**20
C = load_catalog()
WIKITEXT = "github:ggml-org/llama.cpp README of quantize"


def engine_of(weights: str) -> list[str]:
    """Return the options of an engine that runs the format where the default does not."""
    return ["--engine", "llama_cpp"] if weights == "fp32" else []


@pytest.mark.parametrize(
    ("weights", "rule_gb", "counted_gb"),
    [
        ("fp32", 32, 32.1), ("bf16", 16, 16.06), ("fp16", 16, 16.06), ("fp8", 8, 9.08), ("int8", 8, 9.09), ("q5_k_m", 5.7, 5.73),
        ("q4_k_m", 4.6, 4.91), ("q3_k_m", 3.4, 4.01),
    ],
)
def test_b1_an_8b_by_the_rule_and_by_count(size: Size, weights: str, rule_gb: float, counted_gb: float) -> None:
    """B1: 4, 2, 1, 0.71, 0.57 and 0.43 B a parameter make 32, 16, 8, 5.7, 4.6 and 3.4 GB of an 8B; our count beside."""
    found = size(*load("llama_3.1_8b", weights, 1024), *engine_of(weights))
    assert found["rule_weights_bytes"] / 1e9 == pytest.approx(rule_gb, rel=0.02)
    assert found["weights_bytes"] / 1e9 == pytest.approx(counted_gb, abs=0.03)


@pytest.mark.parametrize(
    ("weights", "rule", "printed", "loss"),
    [
        ("q5_k_m", "0.71 B a parameter is 5.7 GB by rule, 5.7 GB counted", "3.4313 to 3.4451", 0.004),
        ("q4_k_m", "0.57 B a parameter is 4.6 GB by rule, 4.9 GB counted", "3.4313 to 3.4725", 0.012),
        ("q3_k_m", "0.43 B a parameter is 3.5 GB by rule, 4.0 GB counted", "3.4313 to 3.5932", 0.0472),
    ],
)
def test_b1_rule_count_and_loss_are_printed_with_their_source(page, size: Size, weights: str, rule: str, printed: str, loss: float) -> None:  # type: ignore[no-untyped-def]
    """B1: wikitext perplexity of Llama-2-70B over 3.4313, as the maker of the formats publishes it."""
    out = " ".join(page(*load("llama_3.1_8b", weights, 1024), *on("rtx_3090_24gb", 1)).split())
    assert rule in out and printed in out and WIKITEXT in out
    quality = size(*load("llama_3.1_8b", weights, 1024), *on("rtx_3090_24gb", 1))["weights_quality"]
    assert quality["loss_frac"] == loss and quality["source"].startswith(WIKITEXT) and printed in quality["note"]
    assert loss == pytest.approx(float(printed.split()[-1]) / 3.4313 - 1, abs=1e-4)


@pytest.mark.parametrize(("weights", "words"), [("bf16", "reference"), ("fp8", "arxiv.org/abs/2411.02355"), ("int8", "99.4 %")])
def test_b1_the_loss_of_eight_bits(size: Size, weights: str, words: str) -> None:
    """B1: FP8 and INT8 state theirs too; BF16 is what they are measured against."""
    quality = size(*load("llama_3.1_8b", weights, 1024))["weights_quality"]
    assert words in quality["note"] + str(quality["source"])


LESSON = ("--weights-gb", "40", "--overhead-gb", "6", "--engine", "vllm")


@pytest.mark.parametrize(
    ("kv", "context", "sessions", "kv_gb", "total_gb", "one_fits"),
    [
        ("fp16", 8192, 32, 85.9, 131.9, False), ("fp8", 8192, 32, 42.9, 88.9, False), ("fp8", 8192, 16, 21.5, 67.5, True),
        ("fp8", 4096, 32, 21.5, 67.5, True),
    ],
)
def test_b2_to_b4_the_lesson(size: Size, kv: str, context: int, sessions: int, kv_gb: float, total_gb: float, one_fits: bool) -> None:
    """B2 to B4: 40 GB of weights, 86 or 43 GB of cache, 6 GB beside: 132, 89 and 67.4 GB against 0.85 x 85.5 = 72.7 GB of one H100."""
    asked = (*load("llama_3.3_70b_instruct", "q4_k_m", context, sessions, kv), *LESSON)
    one = size(*asked, *on("h100_sxm_80gb", 1))
    assert one["kv_bytes"] / 1e9 == pytest.approx(kv_gb, abs=0.06) and one["total_bytes"] / 1e9 == pytest.approx(total_gb, abs=0.06)
    assert one["weights_bytes"] == 40e9 and one["kv_bytes_per_tok"] == (327_680 if kv == "fp16" else 163_840)
    assert one["placements"][0]["fits"] is one_fits and one["placements"][0]["usable_bytes_per_gpu"] / 1e9 == pytest.approx(72.7, abs=0.05)
    if kv == "fp16":
        assert one["dominant_term"] == "kv_cache" and one["kv_bytes"] > 2 * one["weights_bytes"]
        assert size(*asked, *on("h100_sxm_80gb", 2))["placements"][0]["fits"] is True
        assert size(*asked, *on("b200_sxm_180gb", 1))["placements"][0]["fits"] is True


@pytest.mark.parametrize(
    ("kind", "gpu", "low_gb", "high_gb", "fits"),
    [("full", "h100_sxm_80gb", 126, 132, False), ("lora", "rtx_4090_24gb", 18, 20, True), ("qlora", "rtx_4090_24gb", 6, 8, True)],
)
def test_b5_fine_tuning_an_8b(size: Size, kind: str, gpu: str, low_gb: float, high_gb: float, fits: bool) -> None:
    """B5: 2 + 2 + 8 + 4 = 16 B a parameter, 128 GB, not one H100; LoRA "about 18-20" GB, QLoRA "about 6-8": on an RTX 4090.

    Whole GB, as the figures are given. QLoRA is 8.4: 6.3 of base, adapters and their state, 1.2 of temporary tensors (a vocabulary
    of 128,256 takes half of that in logits), 1.0 of driver and context. A 512-token sequence, rank 16 on all linear layers.
    """
    found = size("--llm", "llama_3.1_8b", "--train", kind, "--context", "512", "--concurrency", "1", *on(gpu, 1))
    assert low_gb <= round(found["total_bytes"] / 1e9) <= high_gb and found["placements"][0]["fits"] is fits
    states = sum(found[term] for term in ("weights_bytes", "adapter_bytes", "gradient_bytes", "optimizer_bytes"))
    if kind == "full":
        assert states / found["total_count"] == pytest.approx(16) and states / 1e9 == pytest.approx(128, rel=0.005)
    if kind == "qlora":
        assert states / 1e9 == pytest.approx(6.4, abs=0.05)


def test_b5_ninety_billion_over_eight(size: Size) -> None:
    """B5: 90B x 16 B / 8 = 180 GB each (88.6B by count: 177) before activations: infeasible on 80 GB."""
    found = size("--llm", "llama_3.2_90b_vision", "--train", "full", "--context", "2048", "--concurrency", "1", *on("h100_sxm_80gb", 8))
    [placed] = found["placements"]
    assert placed["fits"] is False and placed["bytes_per_gpu"] / 1e9 > 175


def test_b6_the_latent_of_deepseek_v3(size: Size) -> None:
    """B6: 61 x (512 + 64) x 2 = 70,272 B a token, 4.2891 GiB at 65,536; TP 8 leaves the latent of a GPU unchanged."""
    found = size(*load("deepseek_v3", "fp8", 65536), *on("h200_sxm_141gb", 8, "--tp", "8"))
    assert found["kv_bytes_per_tok"] == 70_272 and found["kv_bytes"] / GIB == pytest.approx(4.2891, abs=1e-4)
    assert found["placements"][0]["terms_per_gpu"]["kv_cache"] == found["kv_bytes"]


WRONG = 61 * 2 * 7168 * 2
"""1,748,992: keys and values as wide as the hidden size, as if heads were 7,168 / 128 = 56 values wide and all cached."""
EXPANDED = 61 * 128 * (192 + 128) * 2


@pytest.mark.parametrize("engine", list(C.engines.values()), ids=lambda profile: profile.id)
def test_b6_the_wrong_figure_never_appears(size: Size, page, engine: EngineProfile) -> None:  # type: ignore[no-untyped-def]
    """B6: under every engine and KV format the latent's 576 values a layer and token, or, where it expands, 128 x (192 + 128).

    An expanded cache is named so, with both figures.
    """
    assert WRONG == 1_748_992
    gpu = {"mlx": "apple_m2_ultra_192gb"}.get(engine.engine, "h200_sxm_141gb")
    usual = "bf16" if engine.engine in ("transformers", "tensorrt_llm") else "fp8"
    weights = {"llama_cpp": "q4_k_m", "mlx": "mlx_4bit"}.get(engine.engine, usual)
    for kv in C.kv_formats.values():
        if engine.engine not in kv.runs_on:
            continue
        asked = (*load("deepseek_v3", weights, 4096, kv=kv.id), "--engine", engine.id, *on(gpu, 8))
        found = size(*asked)
        values = EXPANDED / 2 if engine.mla_expands_kv else 35_136
        assert found["kv_bytes_per_tok"] == pytest.approx(values * kv.bytes_per_value)
        assert ("latent_is_expanded" in told(found)) is engine.mla_expands_kv
        if engine.mla_expands_kv and kv.bytes_per_value == 2:
            assert "4,997,120 B a token" in said(found, "latent_is_expanded") and "70,272" in said(found, "latent_is_expanded")
        assert "1748992" not in str(found) and "1,748,992" not in str(found)
    assert "1,748,992" not in page(*asked)


@pytest.mark.parametrize(("engine", "per_tok", "mib"), [("llama_cpp_latent", 31_104, 972), ("llama_cpp", 276_480, 8640)])
def test_b7_the_engine_decides(size: Size, engine: str, per_tok: int, mib: int) -> None:
    """B7: DeepSeek-V2-Lite, 32,768 tokens, 27 layers: 31,104 B a token are 972 MiB, expanded 276,480 are 8,640 MiB (logged)."""
    found = size(*load("deepseek_v2_lite", "q4_k_m", 32768), "--engine", engine)
    assert found["kv_bytes_per_tok"] == per_tok and found["kv_bytes"] == mib * MIB


@pytest.mark.parametrize(("llm", "per_tok", "state_free_mib"), [("qwen3.6_27b", 65_536, 16_384), ("qwen3.6_35b_a3b", 20_480, 5_120)])
def test_b8_hybrids(size: Size, llm: str, per_tok: int, state_free_mib: int) -> None:
    """B8: 16 of 64 layers keep 4 heads of 256: 65,536 B a token, 16,384 MiB at 262,144 (logged); 10 of 40 keep 2: 20,480.

    The recurrent state is the same at any length.
    """
    long, short = (size(*load(llm, "fp8", context)) for context in (262_144, 4096))
    assert long["kv_bytes_per_tok"] == short["kv_bytes_per_tok"] == per_tok
    assert long["kv_fixed_bytes_per_sequence"] == short["kv_fixed_bytes_per_sequence"] > 0
    assert long["kv_bytes"] - long["kv_fixed_bytes_per_sequence"] == state_free_mib * MIB


@pytest.mark.parametrize(
    ("llm", "weights", "given_gb", "count", "kv_gib", "sequences"),
    [
        ("llama_3.1_70b", "bf16", None, 8, 40.0, 9), ("llama_3.1_405b", "bf16", None, 8, 63.0, 0),
        ("llama_3.1_405b", "bf16", None, 16, 63.0, 4), ("llama_3.1_405b", "fp8", 405, 8, 63.0, 2),
        ("llama_3.1_405b", "fp8", 462 * GIB / 1e9, 8, 63.0, 1),
    ],
)
def test_b9_whole_windows_on_eight_h100(
    size: Size, llm: str, weights: str, given_gb: float | None, count: int, kv_gib: float, sequences: int
) -> None:
    """B9: 131,072 tokens, 79.65 GiB a card, fraction 0.9, margin 0, 5.3 GiB of overhead a card."""
    given = [] if given_gb is None else ["--weights-gb", str(given_gb)]
    rules = ("--memory-frac", "0.9", *NO_MARGIN, "--overhead-gb", str(5.3 * GIB / 1e9))
    found = size(*load(llm, weights, 131072), *given, *on("h100_sxm_80gb", count), *rules)
    assert found["kv_bytes_per_sequence"] / GIB == kv_gib and found["placements"][0]["max_sequences"] == sequences
    assert found["placements"][0]["fits"] is (sequences > 0)


LOGGED = ("--engine", "vllm_0.12", "--memory-frac", "0.9", *NO_MARGIN)


@pytest.mark.parametrize(
    ("llm", "weights", "count", "weights_gib", "activation_gib", "non_torch_gib", "room_gib"),
    [
        ("llama_3.1_8b", "bf16", 1, 14.99, 4.76, 0.13, 51.38), ("qwen3_32b", "bf16", 2, 30.59, 5.64, 0.54, 34.49),
        ("gpt_oss_20b", "mxfp4", 1, 13.47, 7.38, 0.13, 50.28),
    ],
)
def test_b10_a_ledger_of_an_h100(
    size: Size, llm: str, weights: str, count: int, weights_gib: float, activation_gib: float, non_torch_gib: float, room_gib: float
) -> None:
    """B10: logged by vLLM 0.11 with fraction 0.9, 16,000 tokens: weights, activation, non-torch, KV room, GiB a GPU.

    Weights as the engine holds them: the experts of gpt-oss are padded from 2,880 to 3,072 inputs, 0.63 GiB beyond the file's 12.81.
    The parameters alone are 0.03 GiB under the log (Llama) and 0.08 (half of 32.76B x 2 B is 30.51): what else loading allocates.
    """
    found = size(*load(llm, weights, 16_000), *on("h100_sxm_80gb", count), *LOGGED)
    placed, profile = found["placements"][0], C.engine("vllm_0.12")
    need = {name: value / GIB for name, value in placed["terms_per_gpu"].items()}
    usual = (profile.driver_bytes + profile.context_bytes + (profile.collective_bytes if count > 1 else 0)) / GIB
    padding = need["overhead"] - usual
    assert need["weights"] + padding == pytest.approx(weights_gib, abs=0.09)
    assert need["activations"] == pytest.approx(activation_gib, abs=0.09)
    assert (usual - profile.driver_bytes / GIB) == pytest.approx(non_torch_gib, abs=0.01)
    room = placed["usable_bytes_per_gpu"] / GIB - need["weights"] - need["activations"] - need["overhead"]
    assert room == pytest.approx(room_gib, abs=0.1)
    assert ("experts_are_padded" in told(found)) is (llm == "gpt_oss_20b")


def test_b10_the_pool_of_mistral_small(size: Size) -> None:
    """B10: Mistral-Small-24B on an H100, vLLM 0.11, 0.95: 163,840 B a token; 184,832 tokens are 28.203 GiB (logged pool)."""
    found = size(*load("mistral_small_3_24b", "bf16", 184_832), *on("h100_sxm_80gb", 1), "--engine", "vllm_0.12", "--memory-frac", "0.95")
    assert found["kv_bytes_per_tok"] == 163_840 and found["kv_bytes"] / GIB == pytest.approx(28.203, abs=5e-4)


def test_b10_a_70b_in_8_bit_is_refused_on_one(size: Size) -> None:
    """B10: Llama-3.3-70B-FP8 on one H100: the log ends at -1.44 GiB."""
    found = size(*load("llama_3.3_70b_instruct", "fp8", 16_000), *on("h100_sxm_80gb", 1), *LOGGED)
    placed = found["placements"][0]
    need = placed["terms_per_gpu"]
    room = placed["usable_bytes_per_gpu"] - need["weights"] - need["activations"] - need["overhead"]
    assert found["exit"] == 1 and placed["fits"] is False and room / GIB == pytest.approx(-1.44, abs=0.15)


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [
        ("h100_sxm_80gb", 81_559), ("a100_sxm_80gb", 81_920), ("l40s_48gb", 46_068), ("a10_24gb", 23_028), ("l4_24gb", 23_034),
        ("t4_16gb", 15_360),
    ],
)
def test_b11_what_a_device_shows(size: Size, gpu: str, mib: int) -> None:
    """B11: all of the device's MiB are usable at fraction 1 and margin 0, no more."""
    found = size(*load("qwen3_0.6b", "bf16", 1024), *on(gpu, 1), "--memory-frac", "1", *NO_MARGIN)
    assert found["placements"][0]["usable_bytes_per_gpu"] == mib * MIB


@pytest.mark.parametrize(
    ("gpu", "need_gib", "frac", "fits"),
    [("h100_sxm_80gb", 79.8, "1", False), ("a10_24gb", 20.31, "0.9", False), ("rtx_3090_24gb", 20.31, "0.9", True)],
)
def test_b11_a_need_beside_the_label(size: Size, gpu: str, need_gib: float, frac: str, fits: bool) -> None:
    """B11: 79.8 GiB do not fit an H100 "80 GB" (79.65); 20.31 GiB at 0.9 need 22.57 GiB: an A10 shows 22.49, an RTX 3090 24.00."""
    bare = size(*load("qwen3_0.6b", "bf16", 16), *on(gpu, 1), "--overhead-gb", "0")
    given = (need_gib * GIB - bare["kv_bytes"]) / 1e9
    found = size(
        *load("qwen3_0.6b", "bf16", 16), *on(gpu, 1), "--overhead-gb", "0", "--weights-gb", str(given), "--memory-frac", frac, *NO_MARGIN
    )
    assert found["total_bytes"] / GIB == pytest.approx(need_gib) and found["placements"][0]["fits"] is fits


@pytest.mark.parametrize(
    ("heads", "kv_heads", "valid"),
    [
        (52, 52, (1, 2, 4)), (40, 40, (1, 2, 4, 5, 8)), (28, 28, (1, 2, 4, 7)), (12, 12, (1, 2, 3, 4, 6)), (40, 8, (1, 2, 4, 8)),
        (40, 10, (1, 2, 5)), (28, 4, (1, 2, 4)), (12, 2, (1, 2, 4, 6)), (12, 4, (1, 2, 4)),
    ],
)
def test_b12_valid_sizes(size: Size, tmp_path, heads: int, kv_heads: int, valid: tuple[int, ...]) -> None:  # type: ignore[no-untyped-def]
    """B12: heads % tp = 0 and (kv % tp = 0 or tp % kv = 0), each size up to 8 tried on that many GPUs."""
    config = {
        "model_type": "llama", "num_hidden_layers": 8, "hidden_size": heads * 64, "intermediate_size": 6720, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": 26880, "max_position_embeddings": 4096, "tie_word_embeddings": False,
    }
    model = written(tmp_path, f"{heads}_{kv_heads}", config)
    taken = [tp for tp in range(1, 9) if size(*load(model, "bf16", 1024), *on("h100_sxm_80gb", tp, "--tp", str(tp)))["exit"] == 0]
    assert tuple(taken) == valid


def test_b12_three_divides_neither_heads_nor_experts(size: Size) -> None:
    """B12: 64 heads and 256 experts: 3 is invalid, for both reasons where both stand."""
    for llm, heads in (("deepseek_v4_flash", 64), ("deepseek_v3", 128)):
        found = size(*load(llm, "fp8_block", 1024), *on("h200_sxm_141gb", 3, "--tp", "3"))
        assert found["exit"] == 2 and "256 experts do not divide by 3" in found["err"]
        assert found["err"].count(f"{heads} heads do not divide by 3") == 1


def test_b12_eight_gpus_for_28_heads(size: Size) -> None:
    """B12: Qwen2.5-7B on eight GPUs is TP 4 x PP 2, or two replicas of TP 4: 24 sessions each are more than two L4 hold."""
    found = size(*load("qwen2.5_7b", "bf16", 32768, 48), *on("l4_24gb", 8))
    assert (found["placements"][0]["tp"], found["placements"][0]["pp"]) == (4, 2)
    [suggested] = found["replicas"]
    assert (suggested["count"], suggested["tp"], suggested["pp"]) == (2, 4, 1)


def test_b13_98_percent_is_refused(size: Size) -> None:
    """B13: what fills 98 % of an H100 (85.5 GB) is refused at the default margin, and called dangerous where the margin is taken away."""
    asked = (*load("llama_3.1_8b", "bf16", 1024), "--weights-gb", "83.68", "--overhead-gb", "0", *on("h100_sxm_80gb", 1))
    default, bare = size(*asked), size(*asked, *NO_MARGIN, "--memory-frac", "1")
    assert default["placements"][0]["fits"] is False
    assert default["total_bytes"] / 85.52e9 == pytest.approx(0.98, abs=0.002)
    assert bare["placements"][0]["fits"] is True and "the first long prompt ends it" in said(bare, "high_fill")


def test_b14_unified_memory(size: Size) -> None:
    """B14: a Mac with 192 GB holds a 70B in 8 bit; 800 GB/s stand beside 1,500 to 8,000 of HBM, and the GPU may use less than all."""
    found = size(*load("llama_3.3_70b_instruct", "q8_0", 8192), *on("apple_m2_ultra_192gb", 1))
    text = said(found, "unified_is_not_hbm")
    assert found["placements"][0]["fits"] is True and "800 GB/s" in text and "1,500 to 8,000" in text and "its GPU may use" in text
    whole = size(*load("llama_3.3_70b_instruct", "q8_0", 8192), *on("apple_m2_ultra_192gb", 1), *NO_MARGIN, "--memory-frac", "1")
    assert whole["placements"][0]["usable_bytes_per_gpu"] < 192e9
