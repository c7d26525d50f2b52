"""Memory beside the model and its sessions, and splits by data and experts, in figures worked by hand."""

from __future__ import annotations

import json
from functools import cache
from typing import Any

import pytest

from planner.catalog import Catalog, load_catalog
from planner.cli.main import main
from planner.errors import InputError
from planner.physics import memory
from planner.physics.extras import Extras, adapter_bytes
from planner.physics.memory import DoesNotFit, Fits

LOAD = ["--context", "8192", "--concurrency", "16", "--gpu", "h100_sxm_80gb"]


@cache
def catalog() -> Catalog:
    return load_catalog()


def footprint(llm: str, weights: str = "bf16", kv: str = "fp16", engine: str = "vllm", **extras: Any) -> memory.Footprint:
    c = catalog()
    return memory.footprint(c.llm(llm), c.weight_format(weights), c.kv_format(kv), c.engine(engine), extras=Extras(**extras))


def terms(fp: memory.Footprint, tp: int = 1, pp: int = 1, context: int = 8192, sessions: int = 16) -> memory.MemoryTerms:
    return memory.terms(fp, catalog().gpu("h100_sxm_80gb"), tp, pp, context, sessions)


def test_adapters_on_every_matrix() -> None:
    """Llama-3.1-8B, rank 16: 32 layers x 16 x (8,192 + 2 x 5,120 + 8,192 + 3 x 18,432) = 41,943,040 parameters, 2 B each."""
    each = adapter_bytes(catalog().llm("llama_3.1_8b"), Extras(adapter_count=1))
    assert each.per_gpu(1) == 41_943_040 * 2
    ten = terms(footprint("llama_3.1_8b", adapter_count=10)).by_term
    assert ten["adapters"] == 10 * each.per_gpu(1)
    assert terms(footprint("llama_3.1_8b", adapter_count=10, adapter_rank=64)).by_term["adapters"] == 40 * each.per_gpu(1)


def test_adapters_on_attention_only_and_under_tensor_parallelism() -> None:
    """q 8,192, k and v 5,120 each, o 8,192 a layer: 32 x 16 x 26,624 = 13,631,488. The way in stays whole on each rank: 16,384 of it."""
    each = adapter_bytes(catalog().llm("llama_3.1_8b"), Extras(adapter_count=1, adapter_targets="attention"))
    assert each.per_gpu(1) == 13_631_488 * 2
    assert each.per_gpu(2) == 32 * 16 * (16_384 + (26_624 - 16_384) / 2) * 2


def test_a_mixture_has_adapters_on_every_expert() -> None:
    """Mixtral-8x7B: attention 32 x (8,192 + 2 x 5,120 + 8,192), experts 32 x 8 x 3 x 18,432, times rank 16."""
    each = adapter_bytes(catalog().llm("mixtral_8x7b"), Extras(adapter_count=1, adapter_targets="experts"))
    assert each.per_gpu(1) == 16 * 32 * (26_624 + 8 * 3 * 18_432) * 2
    assert adapter_bytes(catalog().llm("mixtral_8x7b"), Extras(adapter_count=1)).per_gpu(1) == 16 * 32 * 26_624 * 2


def test_a_draft_model_keeps_weights_and_a_cache_of_its_own() -> None:
    """Llama-3.2-1B (16 layers, 8 KV heads of 64) keeps 32,768 B a token: 16 x 8,192 of them beside its weights."""
    draft = catalog().llm("llama_3.2_1b"), catalog().weight_format("bf16")
    fp = footprint("llama_3.3_70b_instruct", "fp8", draft=draft)
    own = footprint("llama_3.2_1b")
    assert own.kv_bytes_per_tok == 32_768
    assert terms(fp).by_term["draft"] == own.weights_bytes + 16 * 8192 * 32_768
    assert terms(fp, tp=2).by_term["draft"] == pytest.approx(terms(fp).by_term["draft"] / 2, rel=1e-3)


def test_a_pool_of_prefixes_is_one_more_sequence_that_honours_windows() -> None:
    """Gemma-3-27B keeps 52 of 62 layers to 1,024 tokens: a pool of 100,000 tokens costs what a sequence of that length does."""
    fp = footprint("gemma_3_27b", prefix_pool_tok=100_000)
    assert terms(fp).by_term["prefix_pool"] == fp.kv_bytes_per_sequence(100_000)
    assert terms(fp).by_term["prefix_pool"] < 0.3 * 100_000 * fp.kv_bytes_per_tok


def test_images_take_context_and_the_encoders_cache() -> None:
    """Two images of 1,024 tokens in 16 sessions: 16 x 2,048 x 57,344 B; the cache of the encoder holds one step, 8,192 x 3,584 x 2 B."""
    fp = footprint("qwen2.5_vl_7b", image_count=2, image_tok=1024)
    assert fp.kv_bytes_per_tok == 57_344
    assert terms(fp).by_term["images"] == 16 * 2048 * 57_344 + 8192 * 3584 * 2


def test_an_image_takes_what_the_model_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Gemma 3 pools every image to 256 tokens (mm_tokens_per_image of its config.json)."""
    args = ["--llm", "gemma_3_27b", "--weights", "fp8", *LOAD, "--count", "1", "--images", "3"]
    assert run(capsys, *args)[1]["images_bytes"] == run(capsys, *args, "--image-tok", "256")[1]["images_bytes"]


def test_nothing_is_added_by_default() -> None:
    assert set(terms(footprint("llama_3.1_8b")).by_term) == {"weights", "kv_cache", "activations", "overhead"}


def test_total_is_the_sum_and_sessions_leave_room() -> None:
    plain, full = footprint("llama_3.1_8b"), footprint("llama_3.1_8b", adapter_count=64, prefix_pool_tok=50_000)
    need = terms(full)
    assert need.total_bytes == pytest.approx(sum(need.by_term.values()))
    gpu = catalog().gpu("h100_sxm_80gb")
    assert memory.max_sequences(full, gpu, 1, 1, 8192) < memory.max_sequences(plain, gpu, 1, 1, 8192)


def test_loading_in_16_bit_decides() -> None:
    """DeepSeek-V3: 671.0 x 10^9 parameters x 2 B / 8 = 167.8 GB a card while loading, 150.8 GB there (sgl-project/sglang#2895)."""
    bf16 = catalog().weight_format("bf16")
    gpu = catalog().gpu("h200_sxm_141gb")
    found = memory.fit_footprint(footprint("deepseek_v3", "fp8", loads_in=bf16), gpu, 8, 1, 4096, 1, margin_frac=0.0)
    assert isinstance(found, DoesNotFit) and found.loading_bytes > 167e9 and "while it loads" in found.reason
    assert isinstance(memory.fit_footprint(footprint("deepseek_v3", "fp8"), gpu, 8, 1, 4096, 1, margin_frac=0.0), Fits)
    small = memory.fit_footprint(footprint("llama_3.1_8b", "fp8", loads_in=bf16), gpu, 1, 1, 4096, 1)
    assert isinstance(small, Fits)


def test_no_lever_promises_what_loading_forbids(capsys: pytest.CaptureFixture[str]) -> None:
    """Fewer sessions, a shorter context or a smaller cache do not lower the peak of 16-bit weights; more GPUs do."""
    args = ["--llm", "deepseek_v3", "--weights", "fp8", "--context", "4096", "--concurrency", "8", "--quantize-at-load"]
    code, data, _ = run(capsys, *args, "--gpu", "h200_sxm_141gb", "--count", "8", "--margin-frac", "0")
    place = data["placements"][0]
    assert code == 1 and place["max_sequences"] == 0 and place["max_context_tok"] == 0
    assert {lever["kind"] for lever in place["lever_changes"] if lever["fits"]} == {"gpus"}


@pytest.mark.parametrize(("dp", "fits"), [(8, True), (3, False)])
def test_experts_divide_over_all_ranks(dp: int, fits: bool) -> None:
    """256 experts over three ranks leave one behind."""
    fp = footprint("deepseek_v3", "fp8", dp=dp)
    assert bool(fp.tp_sizes) is fits
    if not fits:
        assert "256 experts do not divide by 1 x 3 ranks" in memory.split_fault(fp, 1).what


def test_data_parallel_attention_divides_sessions_and_experts() -> None:
    """DeepSeek-V3 over 8 ranks: each holds all but the experts whole, 1/8 of the experts, and 2 of 16 sessions' latents."""
    fp, one = footprint("deepseek_v3", "fp8", dp=8), footprint("deepseek_v3", "fp8")
    parts = one.weights_bytes_by_component
    need = terms(fp)
    assert need.weights_bytes == pytest.approx(one.weights_bytes - parts["experts"] * 7 / 8)
    assert need.kv_bytes == 2 * one.kv_bytes_per_sequence(8192)
    assert terms(one, tp=8).kv_bytes == 16 * one.kv_bytes_per_sequence(8192)
    gpu = catalog().gpu("h200_sxm_141gb")
    assert memory.max_sequences(fp, gpu, 1, 1, 8192) > 4 * memory.max_sequences(one, gpu, 8, 1, 8192)


@pytest.mark.parametrize(
    ("llm", "weights", "engine", "whole", "valid"),
    [
        ("qwen3_235b_a22b", "fp8_block", "vllm", False, (1, 2, 4)),
        ("qwen3_235b_a22b", "fp8_block", "vllm", True, (1, 2, 4, 8, 16, 32, 64)),
        ("qwen3_235b_a22b", "fp8", "vllm", False, (1, 2, 4, 8, 16, 32, 64)), ("deepseek_v3", "fp8_block", "vllm", False, (1, 2, 4, 8, 16)),
        ("qwen2.5_72b", "awq_int4", "vllm", False, (1,)), ("qwen2.5_72b", "awq_int4", "tensorrt_llm", False, (1, 2, 4, 8, 16, 32, 64)),
        ("llama_3.3_70b_instruct", "awq_int4", "sglang", False, (1, 2, 4, 8, 16, 32)),
    ],
)
def test_splits_that_cut_a_group_are_left_out(llm: str, weights: str, engine: str, whole: bool, valid: tuple[int, ...]) -> None:
    """Experts of 1,536 / 8 = 192 and an MLP of 29,568 / 2 = 14,784 are no multiples of 128; 28,672 / 64 = 448 neither."""
    assert footprint(llm, weights, engine=engine, experts_are_whole=whole).tp_sizes == valid


def test_every_obstacle_is_named() -> None:
    gpu = catalog().gpu("h100_sxm_80gb")
    with pytest.raises(InputError) as caught:
        memory.fit_footprint(footprint("qwen3_235b_a22b", "fp8_block"), gpu, 8, 1, 4096, 1)
    told = str(caught.value.faults[0])
    assert "1,536 / 8 = 192" in told and "128" in told and "valid: 1, 2, 4" in told
    with pytest.raises(InputError) as caught:
        memory.fit_footprint(footprint("qwen2.5_7b"), gpu, 3, 1, 4096, 1)
    assert "28 heads do not divide by 3" in str(caught.value.faults[0])


def run(capsys: pytest.CaptureFixture[str], *args: str) -> tuple[int, dict[str, Any], str]:
    with pytest.raises(SystemExit) as stop:
        main(["size", *args, "--json"])
    out, err = capsys.readouterr()
    return int(stop.value.code or 0), json.loads(out), err


def test_command_adds_terms_and_keeps_the_old_keys(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--llm", "llama_3.1_8b", "--weights", "bf16", *LOAD, "--count", "1"]
    _, plain, _ = run(capsys, *args)
    code, data, _ = run(capsys, *args, "--adapters", "8", "--draft-llm", "llama_3.2_1b", "--prefix-pool", "20000")
    assert code == 0 and set(plain) < set(data)
    assert data["adapters_bytes"] == 8 * 83_886_080 and data["draft_bytes"] > 2e9 and data["prefix_pool_bytes"] == 20_000 * 131_072
    parts = ("weights", "kv", "activation", "overhead", "adapters", "draft", "prefix_pool")
    assert data["total_bytes"] == pytest.approx(sum(data[f"{part}_bytes"] for part in parts))


def test_command_takes_ranks_and_limits(capsys: pytest.CaptureFixture[str]) -> None:
    args = ["--llm", "deepseek_v3", "--weights", "fp8", "--context", "8192", "--concurrency", "64", "--gpu", "h200_sxm_141gb"]
    _, data, _ = run(capsys, *args, "--dp", "8", "--ep", "--tp", "1", "--pp", "1")
    assert [(p["gpu_count"], p["tp"], p["dp"]) for p in data["placements"]] == [(8, 1, 8)]
    small = ["--llm", "llama_3.1_8b", "--weights", "bf16", *LOAD, "--count", "1"]
    few, many = (run(capsys, *small, "--max-sequences", n)[1]["activation_bytes"] for n in ("128", "1024"))
    assert few < many


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (["--adapter-rank", "8"], "--adapter-rank"), (["--images", "2"], "--image-tok"), (["--image-tok", "2"], "--image-tok"),
        (["--draft-weights", "fp8"], "--draft-weights"), (["--draft-llm", "nobody"], "--draft-llm"),
        (["--draft-llm", "bge_m3"], "an encoder"),
        (["--dp", "3", "--count", "4"], "3 data-parallel ranks"),
    ],
)
def test_options_without_their_partner_are_told(capsys: pytest.CaptureFixture[str], more: list[str], told: str) -> None:
    code, _, err = run(capsys, "--llm", "llama_3.1_8b", "--weights", "bf16", *LOAD, *more)
    assert code == 2 and told in err


def test_16_bit_weights_are_not_quantised_at_load(capsys: pytest.CaptureFixture[str]) -> None:
    code, _, err = run(capsys, "--llm", "llama_3.1_8b", "--weights", "bf16", *LOAD, "--quantize-at-load")
    assert code == 2 and "--quantize-at-load" in err
