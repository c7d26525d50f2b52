"""Memory by term against figures done by hand, published or logged; the source of each stands in its docstring."""

from __future__ import annotations

from functools import cache

import pytest

from planner.catalog import Catalog, load_catalog
from planner.errors import InputError
from planner.physics import activations, device, memory
from planner.physics.memory import DoesNotFit, Fits
from planner.physics.work import work_of
from planner.units import BYTES_PER_GIB, BYTES_PER_MIB

GIB = BYTES_PER_GIB


@cache
def catalog() -> Catalog:
    return load_catalog()


def shape(llm: str, weights: str = "bf16", kv: str = "fp16", engine: str = "vllm") -> memory.Footprint:
    c = catalog()
    return memory.footprint(c.llm(llm), c.weight_format(weights), c.kv_format(kv), c.engine(engine))


def fit_70b(kv: str, gpu: str, tp: int, context_tok: int = 8192, concurrency: int = 32) -> Fits | DoesNotFit:
    """The 70B lesson: rule weights of 40 GB, 6 GB of activations and overhead a GPU, vLLM, the default margin."""
    c = catalog()
    return memory.fit(
        c.llm("llama_3.3_70b_instruct"), c.weight_format("q4_k_m"), c.kv_format(kv), c.gpu(gpu), tp, 1, context_tok, concurrency,
        c.engine("vllm"), None, overhead_bytes=6e9, weights_bytes=40e9,
    )


@pytest.mark.parametrize(
    ("weights", "gb"),
    [("fp32", 32), ("bf16", 16), ("fp16", 16), ("fp8", 8), ("int8", 8), ("q5_k_m", 5.7), ("q4_k_m", 4.6), ("q3_k_m", 3.4)],
)
def test_bytes_per_parameter_by_the_rule(weights: str, gb: float) -> None:
    """B1: an 8B (8.03 × 10⁹ parameters) is 32, 16, 8, 5.7, 4.6 and 3.4 GB by the rule of thumb of its format."""
    rule = catalog().weight_format(weights).rule_bytes_per_param
    assert catalog().llm("llama_3.1_8b").params.total_count * rule / 1e9 == pytest.approx(gb, rel=0.02)


@pytest.mark.parametrize(
    ("llm", "weights", "file_bytes"),
    [
        ("llama_3.1_8b", "bf16", 16_060_522_496), ("llama_3.3_70b_instruct", "fp8", 67.72 * GIB),
        ("qwen3_32b", "bf16", 61.03 * GIB),
    ],
)
def test_weights_match_published_sizes(llm: str, weights: str, file_bytes: float) -> None:
    """Weights within 0.5 % of safetensors totals and of what vLLM logged after loading (67.72, 61.03 GiB)."""
    assert shape(llm, weights).weights_bytes == pytest.approx(file_bytes, rel=0.005)


def test_the_70b_lesson_does_not_fit_one_card() -> None:
    """B2: 40 GB + 327,680 B × 8,192 × 32 = 85.9 GB + 6 GB = 132 GB: not one H100; the KV cache is the largest term."""
    one = fit_70b("fp16", "h100_sxm_80gb", 1)
    assert isinstance(one, DoesNotFit)
    assert shape("llama_3.3_70b_instruct").kv_bytes_per_tok == 327_680
    assert one.terms.kv_bytes == 327_680 * 8192 * 32 == pytest.approx(85.9e9, rel=1e-3)
    assert one.terms.total_bytes == pytest.approx(132e9, rel=2e-3)
    assert one.dominant_term == "kv_cache" and one.terms.kv_bytes > 2 * one.terms.weights_bytes
    assert one.usable_bytes_per_gpu == pytest.approx(85.5e9 * 0.85, rel=1e-3)
    assert isinstance(fit_70b("fp16", "h100_sxm_80gb", 2), Fits)
    assert isinstance(fit_70b("fp16", "b200_sxm_180gb", 1), Fits)


def test_kv_in_8_bit_is_not_enough_and_half_the_load_is() -> None:
    """B3, B4: KV in 8 bit 43 GB, total 89 GB: still no; 16 sessions or 4,096 tokens 67.4 GB: fits."""
    half_kv = fit_70b("fp8", "h100_sxm_80gb", 1)
    assert isinstance(half_kv, DoesNotFit) and half_kv.terms.total_bytes == pytest.approx(89e9, rel=1e-3)
    for fewer in (fit_70b("fp8", "h100_sxm_80gb", 1, concurrency=16), fit_70b("fp8", "h100_sxm_80gb", 1, context_tok=4096)):
        assert isinstance(fewer, Fits) and fewer.terms.total_bytes == pytest.approx(67.4e9, rel=2e-3)


def test_a_latent_is_not_doubled_nor_divided() -> None:
    """B6: DeepSeek-V3 keeps 61 × (512 + 64) × 2 = 70,272 B a token, 4.2891 GiB at 65,536 tokens, on every rank of TP 8."""
    fp = shape("deepseek_v3", "fp8")
    assert fp.kv_bytes_per_tok == 70_272
    assert fp.kv_bytes_per_sequence(65_536) / GIB == pytest.approx(4.2891, abs=5e-5)
    assert fp.kv_bytes_per_sequence(65_536, tp=8) == fp.kv_bytes_per_sequence(65_536)


def test_the_engine_decides_what_a_latent_costs() -> None:
    """B7: DeepSeek-V2-Lite at 32,768 tokens: 972 MiB of latent, 8,640 MiB where the engine expands it (logged)."""
    latent, expanded = shape("deepseek_v2_lite"), shape("deepseek_v2_lite", "q4_k_m", engine="llama_cpp")
    assert latent.kv_bytes_per_tok == 31_104 and latent.kv_bytes_per_sequence(32_768) == 972 * BYTES_PER_MIB
    assert expanded.kv_bytes_per_tok == 276_480 and expanded.kv_bytes_per_sequence(32_768) == 8_640 * BYTES_PER_MIB
    assert shape("deepseek_v2_lite", "q4_k_m", engine="llama_cpp_latent").kv_bytes_per_tok == 31_104


def test_only_some_layers_of_a_hybrid_keep_kv() -> None:
    """B8: Qwen 27B class, 16 of 64 layers: 65,536 B a token, 16,384 MiB at 262,144; 35B-A3B, 10 of 40: 20,480 B."""
    fp = shape("qwen3.6_27b")
    assert fp.kv_bytes_per_tok == 65_536
    assert fp.kv_bytes_per_sequence(262_144) - fp.state_bytes_per_sequence == 16_384 * BYTES_PER_MIB
    assert fp.kv_bytes_per_sequence(64) - fp.kv_bytes_per_tok * 64 == fp.state_bytes_per_sequence > 0
    assert shape("qwen3.6_35b_a3b").kv_bytes_per_tok == 20_480


@pytest.mark.parametrize(
    ("llm", "weights", "weights_gib", "tp", "pp", "sequences", "kv_gib"),
    [
        ("llama_3.1_70b", "bf16", None, 8, 1, 9, 40.0),
        ("llama_3.1_405b", "bf16", None, 8, 1, 0, 63.0),
        ("llama_3.1_405b", "bf16", None, 8, 2, 4, 63.0),
        ("llama_3.1_405b", "fp8", 405e9 / GIB, 8, 1, 2, 63.0),
        ("llama_3.1_405b", "fp8", 462.0, 8, 1, 1, 63.0),
    ],
)
def test_long_context_on_eight_h100(
    llm: str, weights: str, weights_gib: float | None, tp: int, pp: int, sequences: int, kv_gib: float
) -> None:
    """B9: 131,072 tokens, 79.65 GiB a card, fraction 0.9, margin 0, 5.3 GiB of overhead a card."""
    c = catalog()
    given = None if weights_gib is None else weights_gib * GIB
    fp = memory.footprint(c.llm(llm), c.weight_format(weights), c.kv_format("fp16"), c.engine("vllm"), given)
    assert fp.kv_bytes_per_sequence(131_072) / GIB == kv_gib
    assert memory.max_sequences(fp, c.gpu("h100_sxm_80gb"), tp, pp, 131_072, 0.9, 0.0, 5.3 * GIB) == sequences


@pytest.mark.parametrize(
    ("llm", "weights", "tp", "frac", "kv_room_gib"),
    [
        ("llama_3.1_8b", "bf16", 1, 0.9, 51.38), ("qwen3_32b", "bf16", 2, 0.9, 34.49), ("qwen3_32b", "bf16", 1, 0.9, 4.45),
        ("qwen3_0.6b", "bf16", 1, 0.9, 64.45), ("llama_3.3_70b_instruct", "fp8", 2, 0.9, 32.0),
        ("llama_3.3_70b_instruct", "fp8", 1, 0.9, -1.44),
    ],
)
def test_room_for_kv_within_half_a_gib_of_logs(llm: str, weights: str, tp: int, frac: float, kv_room_gib: float) -> None:
    """B10: KV room that vLLM 0.11 logged on H100 80 GB (github:llm-d-incubation/llm-d-planner, empirical memory results)."""
    fp, gpu = shape(llm, weights, engine="vllm_0.19"), catalog().gpu("h100_sxm_80gb")
    empty = memory.terms(fp, gpu, tp, 1, 16_000, 0).total_bytes
    assert (device.usable_bytes(gpu, frac, 0.0) - empty) / GIB == pytest.approx(kv_room_gib, abs=0.5)


def test_a_mistral_token_and_its_pool() -> None:
    """B10: Mistral-Small-24B keeps 163,840 B a token: 184,832 tokens are 28.203 GiB (logged pool)."""
    fp = shape("mistral_small_3_24b")
    assert fp.kv_bytes_per_tok == 163_840 and fp.kv_bytes_per_tok * 184_832 / GIB == pytest.approx(28.203, abs=1e-3)


@pytest.mark.parametrize(
    ("gpu", "mib"),
    [
        ("h100_sxm_80gb", 81_559), ("a100_sxm_80gb", 81_920), ("l40s_48gb", 46_068), ("a10_24gb", 23_028), ("l4_24gb", 23_034),
        ("t4_16gb", 15_360),
    ],
)
def test_capacity_is_what_the_device_shows(gpu: str, mib: int) -> None:
    """B11: MiB that nvidia-smi prints."""
    assert device.device_bytes(catalog().gpu(gpu)) == mib * BYTES_PER_MIB


def test_a_need_above_what_an_h100_shows() -> None:
    """B11: 79.8 GiB do not fit an "80 GB" H100; 20.31 GiB at fraction 0.9 need a card of 22.57 GiB."""
    assert device.usable_bytes(catalog().gpu("h100_sxm_80gb"), 1.0, 0.0) < 79.8 * GIB
    assert device.device_bytes_needed(20.31 * GIB, 0.9) / GIB == pytest.approx(22.57, abs=0.005)


def test_98_percent_is_refused_at_the_default_margin() -> None:
    """B13: what fills 98 % of the device does not fit at the default margin, whatever fraction the engine may use."""
    c = catalog()
    gpu = c.gpu("h100_sxm_80gb")
    args = (c.llm("llama_3.1_8b"), c.weight_format("bf16"), c.kv_format("fp16"), gpu, 1, 1, 1024, 1, c.engine("vllm"))
    weights_bytes = 0.98 * device.device_bytes(gpu) - 0.2e9
    assert isinstance(memory.fit(*args, memory_frac=1.0, overhead_bytes=0.0, weights_bytes=weights_bytes), DoesNotFit)
    assert isinstance(memory.fit(*args, memory_frac=1.0, margin_frac=0.0, overhead_bytes=0.0, weights_bytes=weights_bytes), Fits)


def test_unified_memory_is_shared_with_the_host() -> None:
    """B14: of a Mac with 192 GB the GPU may use less than all."""
    mac = catalog().gpu("apple_m2_ultra_192gb")
    assert mac.gpu_memory_share_frac is not None and mac.gpu_memory_share_frac < 1
    assert device.usable_bytes(mac, 1.0, 0.0) == device.device_bytes(mac) * mac.gpu_memory_share_frac


def test_one_reserve_never_both() -> None:
    """Usable is the smaller of the engine's fraction and 1 − margin, not their product."""
    gpu = catalog().gpu("h100_sxm_80gb")
    assert device.usable_bytes(gpu, 0.92, 0.15) == device.device_bytes(gpu) * 0.85
    assert device.usable_bytes(gpu, 0.8, 0.15) == device.device_bytes(gpu) * 0.8


def test_a_window_caps_what_its_layers_keep() -> None:
    """Gemma-3-27B: 5 of 6 layers keep at most 1,024 tokens; past that only the full layers grow."""
    fp = shape("gemma_3_27b")
    grown = fp.kv_bytes_per_sequence(32_768) - fp.kv_bytes_per_sequence(16_384)
    assert grown == fp.kv_bytes_per_tok_past_window * 16_384 < fp.kv_bytes_per_tok * 16_384 / 4
    assert fp.kv_bytes_per_sequence(1024) == fp.kv_bytes_per_tok * 1024


def test_kv_heads_are_replicated_once_they_cannot_be_divided() -> None:
    """Llama 70B has 8 KV heads: TP 8 keeps one each, TP 16 one each as well, so 16 GPUs hold two copies."""
    fp = shape("llama_3.1_70b")
    assert fp.kv_bytes_per_sequence(4096, tp=8) == fp.kv_bytes_per_sequence(4096) / 8 == fp.kv_bytes_per_sequence(4096, tp=16)


def test_an_encoder_keeps_no_cache() -> None:
    """BGE-M3 reads its input in one pass."""
    fp = shape("bge_m3")
    assert fp.kv_bytes_per_tok == 0 and fp.kv_bytes_per_sequence(8192) == 0


def test_llama_cpp_compute_buffer() -> None:
    """512 × (128,256 + 4,096) × 4 B = 258.5 MiB for Llama-3-8B (logged), and a 16-bit mask on top."""
    c = catalog()
    fp = shape("llama_3_8b", "q4_k_m", engine="llama_cpp")
    got = activations.activation_bytes(fp.llm, fp.engine, c.gpu("rtx_4090_24gb"), 1, 512)
    assert got / BYTES_PER_MIB == pytest.approx(258.5 + 0.5, abs=0.01)


@pytest.mark.parametrize(("tp", "pp", "word"), [(3, 1, "by tensor"), (1, 99, "stages")])
def test_a_split_the_model_does_not_allow_is_refused(tp: int, pp: int, word: str) -> None:
    """64 heads and 256 experts: 3 is invalid; 61 layers are not 99 stages."""
    c = catalog()
    with pytest.raises(InputError, match=word):
        memory.fit_footprint(shape("deepseek_v3", "fp8"), c.gpu("h200_sxm_141gb"), tp, pp, 4096, 1)


def test_a_tied_head_is_stored_and_read_at_the_heads_type() -> None:
    """llama.cpp keeps a tied token embedding at the output head's Q6_K (6.5625 bits), not at the embedding's Q4_K (4.5)."""
    c = catalog()
    tied, untied, form = c.llm("llama_3.2_1b"), c.llm("llama_3.1_8b"), c.weight_format("q4_k_m")
    assert tied.params.head_count == 0 and untied.params.head_count > 0 and form.is_gguf
    matrix_bytes = tied.params.embedding_count * 6.5625 / 8
    assert memory.weights_bytes_by_component(tied, form)["embedding"] == pytest.approx(matrix_bytes)
    assert memory.weights_bytes_by_component(untied, form)["embedding"] == pytest.approx(untied.params.embedding_count * 4.5 / 8)
    by_head = [work_of(tied, {**form.bits_per_weight, "head": bits}, 2.0).every_step_bytes for bits in (6.5625, 16.0)]
    assert by_head[0] - matrix_bytes == pytest.approx(by_head[1] - tied.params.embedding_count * 2)
    assert memory.weights_bytes_by_component(tied, c.weight_format("fp8"))["embedding"] == tied.params.embedding_count * 2


def test_a_fraction_set_by_hand_is_the_one_that_temporary_tensors_see() -> None:
    """SGLang keeps 16.5 % of an H100 free for them by its rule; at 0.999 by hand 0.1 % is left, and what is more than that counts."""
    c = catalog()
    llm, weights, kv, gpu = c.llm("llama_3.1_8b"), c.weight_format("bf16"), c.kv_format("fp16"), c.gpu("h100_sxm_80gb")
    engine = c.engine("sglang")
    by_rule = memory.fit(llm, weights, kv, gpu, 1, 1, 8192, 1, engine)
    by_hand = memory.fit(llm, weights, kv, gpu, 1, 1, 8192, 1, engine, 0.999, 0.0)
    own = activations.activation_bytes(llm, engine, gpu, 1, 8192, memory_frac=0.999)
    assert by_hand.terms.activation_bytes == own > by_rule.terms.activation_bytes
