"""Every shape in workloads/models: valid, named by its id, sourced, and right where published figures say what is right."""

from __future__ import annotations

import re
from functools import cache
from pathlib import Path

import pytest
import yaml

from planner.schema.llm import Llm

MODELS = Path(__file__).resolve().parents[2] / "workloads" / "models"
IDS = sorted(path.stem for path in MODELS.glob("*.yaml"))
NEEDED = (
    "llama_3.3_70b_instruct", "llama_3.1_8b", "llama_3.1_70b", "llama_3.1_405b", "qwen3_32b", "qwen3_8b", "qwen3_30b_a3b",
    "qwen3_235b_a22b", "qwen2.5_7b", "qwen2.5_72b", "gpt_oss_20b", "gpt_oss_120b", "deepseek_v3", "deepseek_r1", "deepseek_v2_lite",
    "mistral_small_3_24b", "mixtral_8x7b", "gemma_3_27b", "phi_4",
)  # fmt: skip


@cache
def model(name: str) -> Llm:
    return Llm.model_validate(yaml.safe_load((MODELS / f"{name}.yaml").read_text(encoding="utf-8")))


def kv_bytes_per_tok(llm: Llm, *, windows_are_full: bool) -> float:
    """KV of one more token at 16 bit, by the definition in workloads/models/README.md, written out apart from planner.physics."""
    if llm.is_encoder:
        return 0
    total = 0.0
    for g in llm.attention:
        if g.kind in ("linear", "none") or g.cache_is_shared or (windows_are_full and g.window_tok):
            continue
        if g.kind == "mla":
            values = (g.kv_lora_rank or 0) + (g.rope_dim or 0)
        elif g.kv_is_one_tensor:
            values = g.kv_head_count * g.head_dim
        else:
            values = g.kv_head_count * (g.head_dim + (g.head_dim if g.v_head_dim is None else g.v_head_dim))
        total += g.layer_count * values * 2 / g.kv_compression
    return total


@pytest.mark.parametrize("name", IDS)
def test_file_is_valid_and_named_by_its_id(name: str) -> None:
    llm = model(name)
    assert llm.id == name
    assert llm.sources["default"].locator
    assert llm.hf_repo


TOTALS = yaml.safe_load((Path(__file__).parent / "parameter_totals.yaml").read_text(encoding="utf-8"))["totals"]


def test_every_model_has_a_total_counted_apart() -> None:
    assert set(TOTALS) == set(IDS)


@pytest.mark.parametrize("name", IDS)
def test_the_components_sum_to_the_total_counted_apart(name: str) -> None:
    assert model(name).params.total_count == TOTALS[name]["total_count"]


def test_the_native_formats_are_formats_of_the_catalog() -> None:
    text = (MODELS.parents[1] / "hardware" / "formats.yaml").read_text(encoding="utf-8")
    known = set(re.findall(r"^\s*- id: (\S+)", text, flags=re.MULTILINE))
    assert {model(name).native_weights for name in IDS} <= known


def test_there_are_many_and_the_named_ones_are_among_them() -> None:
    assert len(IDS) >= 130
    assert set(NEEDED) <= set(IDS)


@pytest.mark.parametrize("name", IDS)
def test_parts_are_consistent(name: str) -> None:
    """Groups cover the layers, experts are counted where there are some, and an untied head is as large as the embedding."""
    llm = model(name)
    p = llm.params
    assert sum(g.layer_count for g in llm.mlp) <= llm.layer_count
    assert bool(p.experts_count) == any(g.kind == "moe" for g in llm.mlp) == bool(p.router_count)
    assert p.embedding_count >= llm.vocab_size * llm.hidden_size
    assert p.head_count in (0, llm.vocab_size * llm.hidden_size, llm.vocab_size * llm.hidden_size + llm.vocab_size)
    assert p.active_count < p.total_count or (p.head_count == 0 and p.active_count == p.total_count)


@pytest.mark.parametrize("name", IDS)
def test_active_parameters_are_the_parts_a_token_multiplies(name: str) -> None:
    """Attention, feed-forward, router, norms, head, used experts and the active part of the rest give `active_count` exactly."""
    llm = model(name)
    p = llm.params
    parts = p.attention_count + p.mlp_count + p.router_count + p.norm_count + p.head_count + p.recurrent_count
    parts += llm.active_experts_count + llm.active_other_count
    assert p.active_count in ({parts} if p.head_count else {parts, parts + p.embedding_count})


def test_the_vision_tower_is_not_active_and_the_recurrent_layers_are() -> None:
    """Qwen3.5-35B-A3B: 446,571,248 are the tower; 30 DeltaNet layers by hand are the recurrent part."""
    llm = model("qwen3.5_35b_a3b")
    channels = 2 * 16 * 128 + 32 * 128
    layer = 2048 * (channels + 2 * 32 * 128 + 2 * 32) + channels * 4 + 2 * 32 + 128
    assert llm.params.recurrent_count == 30 * layer
    assert llm.params.vision_count == 446_571_248
    assert llm.params.other_count == llm.active_other_count == model("gemma_3_27b").active_other_count == 0


@pytest.mark.parametrize(
    ("name", "layers", "layer"),
    [
        # Mamba-2 by hand: in (inner x 2 + 2 groups x state + heads), out, convolution with bias, A, D, dt bias, inner norm
        ("nemotron_3_nano_30b_a3b", 23, 2688 * (2 * 4096 + 2 * 8 * 128 + 64) + 4096 * 2688 + (4096 + 2 * 8 * 128) * 5 + 3 * 64 + 4096),
        ("nemotron_h_8b", 24, 4096 * (2 * 8192 + 2 * 8 * 128 + 128) + 8192 * 4096 + (8192 + 2 * 8 * 128) * 5 + 3 * 128 + 8192),
        # Gated DeltaNet: 48 value heads and 16 key heads of 128; q, k, v and gate, two vectors a head, out
        ("qwen3.6_27b", 48, 5120 * (2 * 2048 + 3 * 6144 + 2 * 48) + (2 * 2048 + 6144) * 4 + 2 * 48 + 128),
        ("qwen3_next_80b_a3b", 36, 2048 * (2 * 2048 + 3 * 4096 + 2 * 32) + (2 * 2048 + 4096) * 4 + 2 * 32 + 128),
    ],
)
def test_recurrent_layers_are_their_matrices(name: str, layers: int, layer: int) -> None:
    """Widths of the published config.json of each model, multiplied out."""
    assert model(name).params.recurrent_count == layers * layer


@pytest.mark.parametrize("name", IDS)
def test_layers_with_a_state_have_recurrent_parameters_and_no_others_do(name: str) -> None:
    llm = model(name)
    assert bool(llm.params.recurrent_count) == any(g.kind == "linear" for g in llm.attention)


def test_what_is_left_in_other_is_known() -> None:
    """Per-layer embeddings (Gemma 4 E), a prediction layer, hyper-connections, position tables: nothing above 0.5 % beside them."""
    large = {name for name in IDS if model(name).params.other_count > 0.005 * model(name).params.total_count}
    assert large == {"gemma_4_e2b", "gemma_4_e4b", "mimo_7b"}


@pytest.mark.parametrize("name", IDS)
def test_routed_experts_are_their_matrices(name: str) -> None:
    """All routed experts: layers x experts x matrices x width x size, and biases where gpt-oss has them."""
    llm = model(name)
    counted = 0
    for g in llm.mlp:
        if g.kind == "moe":
            matrices, width = (3 if g.is_gated else 2), g.expert_input_size or llm.hidden_size
            bias = 2 * g.expert_intermediate_size + width if llm.family == "gpt_oss" else 0
            counted += g.layer_count * g.expert_count * (matrices * width * g.expert_intermediate_size + bias)
    assert llm.params.experts_count == counted


@pytest.mark.parametrize(
    ("name", "filling", "past"),
    [
        ("llama_3.3_70b_instruct", 327_680, 327_680),  # 2 x 80 x 8 x 128 x 2
        ("llama_3.1_8b", 131_072, 131_072),  # llama.cpp prints 64 MiB at 512 tokens
        ("llama_3.1_405b", 516_096, 516_096),  # 126 layers, 8 KV heads
        ("llama_2_7b", 524_288, 524_288),  # multi-head: 32 KV heads
        ("mistral_small_3_24b", 163_840, 163_840),
        ("qwen3_30b_a3b", 98_304, 98_304),
        ("qwen3_235b_a22b", 192_512, 192_512),
        ("deepseek_v3", 70_272, 70_272),  # 61 x (512 + 64) x 2, one latent for all heads
        ("deepseek_v2_lite", 31_104, 31_104),  # 27 x 576 x 2
        ("deepseek_v4_flash", 49_568, 5_536),
        ("qwen3.5_35b_a3b", 20_480, 20_480),  # 10 of 40 layers keep a cache
        ("gpt_oss_120b", 73_728, 36_864),
        ("gpt_oss_20b", 49_152, 24_576),
        ("gemma_3_27b", 507_904, 81_920),
        ("gemma_4_26b_a4b", 225_280, 20_480),  # 5 x 2 x 1024 x 2 and 25 x 8 x 512 x 2
        ("gemma_4_e2b", 18_432, 6_144),  # 20 of 35 layers reuse a cache
        ("mimo_v2_flash", 222_720, 23_040),  # keys 192, values 128
        ("falcon_7b", 8_192, 8_192),  # one KV head
        ("phi_3_mini_4k", 393_216, 0),  # window on every layer
        ("nemotron_h_56b", 40_960, 40_960),
        ("llama_3.3_nemotron_super_49b", 200_704, 200_704),  # 49 of 80 layers
        ("bge_m3", 0, 0),
    ],
)
def test_kv_bytes_per_token_are_the_published_ones(name: str, filling: int, past: int) -> None:
    llm = model(name)
    assert kv_bytes_per_tok(llm, windows_are_full=False) == filling
    assert kv_bytes_per_tok(llm, windows_are_full=True) == past


@pytest.mark.parametrize(
    ("name", "state", "indexer"),
    [
        # llama.cpp logs 50.25 MiB a sequence with its convolution state in fp32; that state is 2 bytes here: 24 x 8192 x 3 x 2 less
        ("qwen3.5_9b", int(50.25 * 2**20) - 24 * 8192 * 3 * 2, 0),
        ("nemotron_3_nano_30b_a3b", 23 * (64 * 64 * 128 * 4 + (64 * 64 + 2 * 8 * 128) * 3 * 2), 0),
        ("deepseek_v3.2", 0, 61 * (128 + 4)),
        ("glm_5.2", 0, 21 * (128 + 4)),
        ("deepseek_v4_flash", 11_345_920, 336),
        ("llama_3.1_8b", 0, 0),
    ],
)
def test_fixed_state_and_indexer_keys(name: str, state: int, indexer: int) -> None:
    llm = model(name)
    assert sum(g.state_bytes_per_sequence for g in llm.attention) == state
    assert sum(g.indexer_bytes_per_tok for g in llm.attention) == indexer


@pytest.mark.parametrize(
    ("name", "total"),
    [
        # totals printed by the hub for the safetensors of each repository
        ("llama_3.1_8b", 8_030_261_248), ("llama_3.3_70b_instruct", 70_553_706_496), ("llama_3.1_405b", 405_853_388_800),
        ("qwen3_8b", 8_190_735_360), ("qwen3_32b", 32_762_123_264), ("qwen3_235b_a22b", 235_093_634_560),
        ("mixtral_8x7b", 46_702_792_704), ("gpt_oss_120b", 116_829_156_672), ("gemma_3_27b", 27_432_406_640),
        ("phi_4", 14_659_507_200), ("mistral_small_3_24b", 23_572_403_200), ("deepseek_v2_lite", 15_706_484_224),
    ],
)  # fmt: skip
def test_totals_are_the_published_ones(name: str, total: int) -> None:
    assert model(name).params.total_count == total


@pytest.mark.parametrize(
    ("name", "published_billion", "tolerance"),
    [
        ("gpt_oss_20b", 3.6, 0.01), ("gpt_oss_120b", 5.1, 0.01), ("deepseek_v3", 37, 0.02), ("mixtral_8x7b", 12.9, 0.02),
        ("qwen3_235b_a22b", 22, 0.03), ("qwen3_30b_a3b", 3.3, 0.1),
    ],
)  # fmt: skip
def test_active_parameters_are_near_the_published_round_figures(name: str, published_billion: float, tolerance: float) -> None:
    assert model(name).params.active_count / 1e9 == pytest.approx(published_billion, rel=tolerance)


def test_a_plain_dense_model_leaves_nothing_unexplained() -> None:
    """Llama-3.1-8B by hand: 32 x (4096 x (4096 + 2 x 1024) + 4096 x 4096) attention, 32 x 3 x 4096 x 14336 feed-forward."""
    p = model("llama_3.1_8b").params
    assert p.attention_count == 32 * (4096 * (4096 + 2 * 1024) + 4096 * 4096)
    assert p.mlp_count == 32 * 3 * 4096 * 14336
    assert p.embedding_count == p.head_count == 128256 * 4096
    assert p.norm_count == (2 * 32 + 1) * 4096
    assert p.other_count == p.experts_count == p.router_count == 0
