"""Temporary tensors of a step, an engine's own limits, and what its memory fraction is a fraction of."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.physics import activations, device, memory
from planner.units import BYTES_PER_GIB as GIB
from planner.units import BYTES_PER_MIB as MIB


@cache
def catalog() -> Catalog:
    """Return the shipped catalog."""
    return load_catalog()


@pytest.mark.parametrize(
    ("engine", "gpu", "tokens", "sequences"),
    [
        ("vllm", "h100_sxm_80gb", 8192, 1024), ("vllm", "a100_sxm_80gb", 2048, 256), ("vllm", "rtx_4090_24gb", 2048, 256),
        ("vllm_0.9", "mi300x_192gb", 8192, 1024), ("vllm_0.8", "h200_sxm_141gb", 8192, 1024), ("vllm_0.8", "mi300x_192gb", 2048, 256),
        ("vllm_0.8.3", "rtx_4090_24gb", 2048, 1024), ("vllm_0.8.3", "h100_sxm_80gb", 8192, 1024), ("vllm_0.7", "h100_sxm_80gb", 2048, 256),
    ],
)
def test_batching_defaults_by_version(engine: str, gpu: str, tokens: int, sequences: int) -> None:
    """vLLM pulls 15357 (1,024 everywhere in 0.8.0), 16158 (256 again but on H100 and H200), 17885 (not on A100)."""
    found = activations.batch_default(catalog().engine(engine), catalog().gpu(gpu))
    assert (found.max_batched_tok, found.max_sequence_count) == (tokens, sequences)


@pytest.mark.parametrize(("context_tok", "tokens"), [(1024, 2048), (20_000, 20_000), (32_768, 32_768), (32_769, 2048), (131_072, 2048)])
def test_v0_reads_a_prompt_whole_up_to_32768(context_tok: int, tokens: int) -> None:
    """vLLM 0.6 and 0.7 cut prompts only where the context is above 32,768 tokens (issue 10517: 2.07 GiB for 20,000)."""
    c = catalog()
    engine, gpu = c.engine("vllm_0.7"), c.gpu("rtx_3090_24gb")
    assert activations.step_tok(engine, gpu, context_tok) == tokens
    if context_tok == 20_000:
        got = activations.activation_bytes(c.llm("llama_3.1_8b"), engine, gpu, 1, context_tok)
        assert got / GIB == pytest.approx(2.07, abs=0.015)


def test_before_0_5_4_a_prompt_is_read_whole_whatever_its_length() -> None:
    """vLLM 0.5.3 (vllm-project/vllm#8185, pull 6666): 405B at TP 8: 131,072 x (6 x 53,248 / 8 + 6 x 16,384) B = 18.1 GB a GPU."""
    c = catalog()
    engine, gpu = c.engine("vllm_0.5"), c.gpu("h100_sxm_80gb")
    assert [activations.step_tok(engine, gpu, n) for n in (1024, 4096, 131_072)] == [2048, 4096, 131_072]
    assert activations.activation_bytes(c.llm("llama_3.1_405b"), engine, gpu, 8, 131_072) == 131_072 * 138_240


def test_limits_set_by_hand_replace_the_defaults() -> None:
    """128 sequences and 2,048 tokens of Qwen2.5-7B: 128 x 152,064 x 38.9 B = 0.705 GiB instead of 5.64."""
    c = catalog()
    args = (c.llm("qwen2.5_7b"), c.engine("vllm_0.19"), c.gpu("h100_sxm_80gb"), 1, 4096)
    assert activations.activation_bytes(*args) / GIB == pytest.approx(5.64, abs=0.005)
    got = activations.activation_bytes(*args, max_batched_tok=2048, max_sequence_count=128)
    assert got / GIB == pytest.approx(0.705, abs=0.001)
    wide = activations.activation_bytes(*args, max_batched_tok=32_768, max_sequence_count=1)
    assert wide == 32_768 * 6 * (18_944 + 3584)


@pytest.mark.parametrize(
    ("gpu", "tp", "frac"),
    [
        ("h100_sxm_80gb", 1, (81_559 - 13_440) / 81_559), ("h100_sxm_80gb", 8, (81_559 - 13_440 - 7 * 128) / 81_559),
        ("t4_16gb", 1, (15_360 - 3728) / 15_360),
    ],
)
def test_sglang_fraction_follows_card_and_split(gpu: str, tp: int, frac: float) -> None:
    """SGLang 0.5.16: 512 + 1.5 x chunk + 128 x tp x pp + 2 x graph batch MiB stay free (aiconfigurator's mirror of it)."""
    assert activations.default_fraction(catalog().engine("sglang"), catalog().gpu(gpu), tp) == pytest.approx(frac, rel=1e-9)


def test_sglang_keeps_at_least_ten_gib_on_large_cards() -> None:
    """An H20 of 95.6 GiB with a small chunk would keep less: the rule's floor holds."""
    c = catalog()
    engine = c.engine("sglang")
    small = engine.model_copy(update={"batch_defaults": (engine.batch_defaults[0],)})
    gpu = c.gpu("h20_96gb")
    assert (1 - activations.default_fraction(small, gpu)) * device.device_bytes(gpu) == pytest.approx(10 * GIB)
    assert activations.default_fraction(c.engine("vllm"), gpu) == 0.92


@pytest.mark.parametrize(
    ("left", "weights", "frac", "pool", "within"), [(230.20, 56.98, 0.911, 204.63, 0.02), (97.27, 15.47, 0.35, 23.64, 0.4)]
)
def test_the_static_part_of_sglang_is_weights_and_pool(left: float, weights: float, frac: float, pool: float, within: float) -> None:
    """SGLang pull 18263: 230.20 GB free after 56.98 GB of weights at 0.911 leave a pool of 204.63.

    A hybrid model at 0.35 (Ling-3.0-tiny) fills 0.35 GB less in its three pools, which are rounded down to whole tokens and
    slots of state. In our terms: usable = f x device + (1 - f) x what was taken first, less that and the weights.
    """
    free = left + weights
    gpu = catalog().gpu("mi300x_192gb").model_copy(update={"memory_device_mib": free * GIB / MIB})
    assert (device.usable_bytes(gpu, frac, 0.0) / GIB - weights) == pytest.approx(pool, abs=within)
    other = 3.0 * GIB
    larger = gpu.model_copy(update={"memory_device_mib": (free * GIB + other) / MIB})
    assert (device.usable_bytes(larger, frac, 0.0, other) - other) / GIB - weights == pytest.approx(pool, abs=within)


def test_the_fraction_of_tensorrt_llm_bounds_the_pool_alone() -> None:
    """0.9 of what 6.53 GiB of weights leave of an A100: 64.75 GiB logged (TensorRT-LLM issue 1400), not 0.9 of the card less weights."""
    c = catalog()
    engine, gpu = c.engine("tensorrt_llm"), c.gpu("a100_sxm_80gb")
    taken = device.taken_first(engine, 6.53 * GIB, 0.3 * GIB, activations.overhead_bytes_per_gpu(engine, 1, gpu))
    pool = device.usable_bytes(gpu, 0.9, 0.0, taken) - taken
    assert pool == pytest.approx(0.9 * (device.device_bytes(gpu) - taken))
    assert pool / GIB == pytest.approx(64.75, abs=0.5)
    assert device.taken_first(c.engine("vllm"), 1.0, 2.0, 4.0) == 0.0 and device.taken_first(c.engine("sglang"), 1.0, 2.0, 4.0) == 4.0


@given(
    taken=st.floats(0, 2e12), more=st.floats(0, 1e12), frac=st.floats(0.01, 1), margin=st.floats(0, 0.99),
    gpu=st.sampled_from(["h100_sxm_80gb", "rtx_3090_24gb", "apple_m1_8gb"]),
)
def test_usable_never_passes_the_margin_and_grows_with_what_is_taken_first(
    taken: float, more: float, frac: float, margin: float, gpu: str
) -> None:
    """The margin is kept whatever an engine's fraction is of."""
    card = catalog().gpu(gpu)
    room = device.usable_bytes(card, 1.0, 0.0)
    low, high = (device.usable_bytes(card, frac, margin, value) for value in (taken, taken + more))
    assert 0 <= low <= high * (1 + 1e-12)
    assert high <= room * (1 - margin) * (1 + 1e-12)


def test_tensors_outside_the_fraction_count_only_where_they_overflow() -> None:
    """SGLang keeps a sixth of an H100 free: 8,192 tokens of a 70B need 2 GiB of those 13; at a fraction of 0.99 they do not fit."""
    c = catalog()
    args = (c.llm("llama_3.1_70b"), c.engine("sglang"), c.gpu("h100_sxm_80gb"), 1, 8192)
    assert activations.activation_bytes(*args) == 0.0
    peak = activations.peak_bytes(args[0], args[1], 1, 8192, 8192, 1024)
    over = activations.activation_bytes(*args, memory_frac=0.99)
    assert over == pytest.approx(peak - 0.01 * device.device_bytes(args[2])) and over > 0


def test_transformers_reads_every_prompt_of_a_batch_at_once() -> None:
    """Qwen2.5-7B, 4 prompts of 1,000 tokens: 4,000 x (6 x 18,944 + 8 x 3,584) B."""
    c = catalog()
    args = (c.llm("qwen2.5_7b"), c.engine("transformers"), c.gpu("a100_sxm_80gb"), 1, 1000)
    assert activations.activation_bytes(*args, concurrency=4) == 4000 * (6 * 18_944 + 8 * 3584)
    assert activations.activation_bytes(*args) == 1000 * (6 * 18_944 + 8 * 3584)


def test_scores_are_kept_without_flash_attention() -> None:
    """Llama-3.1-405B at 4,096 tokens: 512 x (4,096 x 129 + 4 x 16,384) x 4 B = 1,160 MiB, as llama.cpp b5935 logged."""
    c = catalog()
    got = activations.activation_bytes(c.llm("llama_3.1_405b"), c.engine("llama_cpp_b5900"), c.gpu("h100_sxm_80gb"), 1, 4096)
    assert got / MIB == 1160.0


@pytest.mark.parametrize(
    ("gpu", "context_tok"), [("l4_24gb", 4096), ("rtx_3090_24gb", 32_768), ("rtx_4090_24gb", 32_768), ("rtx_6000_ada_48gb", 262_144)]
)
def test_ollama_opens_a_context_by_the_size_of_the_card(gpu: str, context_tok: int) -> None:
    """docs/context-length.mdx: 4k below 24 GiB, 32k to 48, 256k above; cards sold as 24 and 48 GB show 23.99 and 47.99."""
    assert activations.default_context_tok(catalog().engine("ollama"), catalog().gpu(gpu)) == context_tok


def test_ollama_reserves_context_times_slots() -> None:
    """Case O09: 24 GiB, 4 slots of the default 32,768 are 131,072 tokens, 16.0 GiB for Llama-3.1-8B in 16 bit."""
    c = catalog()
    engine, gpu = c.engine("ollama"), c.gpu("rtx_3090_24gb")
    context_tok = activations.default_context_tok(engine, gpu)
    assert context_tok is not None and 4 * context_tok == 131_072
    fp = memory.footprint(c.llm("llama_3.1_8b"), c.weight_format("q4_k_m"), c.kv_format("fp16"), engine)
    assert memory.terms(fp, gpu, 1, 1, context_tok, 4).kv_bytes / GIB == 16.0
    assert activations.default_context_tok(c.engine("vllm"), gpu) is None


def test_bytes_outside_the_allocator_by_card() -> None:
    """V0 logged 1.79 GiB on an 80 GB card (issue 10511) and 0.03 to 0.35 on small ones; without a card the small figure is taken."""
    c = catalog()
    engine = c.engine("vllm_0.7")
    small, large = (activations.overhead_bytes_per_gpu(engine, 1, c.gpu(gpu)) for gpu in ("rtx_3090_24gb", "a100_sxm_80gb"))
    assert (large - small) / GIB == pytest.approx(1.79 - 0.22, abs=0.001)
    assert activations.overhead_bytes_per_gpu(engine, 1) == small


@given(
    engine=st.sampled_from(["vllm", "vllm_0.7", "llama_cpp", "llama_cpp_b5900", "transformers", "mlx", "tensorrt_llm"]),
    tokens=st.integers(1, 65_536), more=st.integers(0, 65_536), context_tok=st.integers(1, 200_000), sequences=st.integers(1, 4096),
)
def test_a_larger_step_never_needs_less(engine: str, tokens: int, more: int, context_tok: int, sequences: int) -> None:
    """Monotone in tokens of a step, sequences and context; a split never needs more than the whole."""
    c = catalog()
    llm, profile = c.llm("qwen3_32b"), c.engine(engine)
    base = activations.peak_bytes(llm, profile, 1, context_tok, tokens, sequences)
    assert base <= activations.peak_bytes(llm, profile, 1, context_tok, tokens + more, sequences)
    assert base <= activations.peak_bytes(llm, profile, 1, context_tok + more, tokens, sequences + more)
    assert activations.peak_bytes(llm, profile, 2, context_tok, tokens, sequences) <= base
