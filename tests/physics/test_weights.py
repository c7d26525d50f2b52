"""Tensor types and bytes of weights: llama.cpp's published averages, fallbacks by hand, bounds."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.physics.gguf import BITS, gguf_bits, has_more_bits, stored_type
from planner.physics.weights import weight_bits, weights_bytes_by_component
from planner.physics.work import work_of

CATALOG: Catalog = load_catalog()
GGUF = sorted(name for name, form in CATALOG.weight_formats.items() if form.gguf is not None)


@pytest.mark.parametrize(
    ("form", "mean_bits"),
    [
        # bits a weight of Llama-3.1-8B, tools/quantize/README.md of github:ggml-org/llama.cpp@311c2c9f
        ("q8_0", 8.5008), ("q6_k", 6.5633), ("q5_k_m", 5.7036), ("q5_k_s", 5.5704), ("q4_k_m", 4.8944), ("q4_k_s", 4.6672),
        ("q3_k_l", 4.2979), ("q3_k_s", 3.6429), ("q2_k", 3.1593),
    ],
)
def test_llama_3_1_8b_has_the_published_bits(form: str, mean_bits: float) -> None:
    llm = CATALOG.llm("llama_3.1_8b")
    total = sum(weights_bytes_by_component(llm, CATALOG.weight_formats[form]).values())
    assert total * 8 / llm.params.total_count == pytest.approx(mean_bits, abs=5.1e-5)


def test_rows_that_blocks_do_not_divide_fall_back() -> None:
    """Qwen2.5-72B: 29,568 = 115.5 x 256 = 924 x 32, so ffn_down is Q5_0 for Q4_K and Q8_0 for Q6_K; half of 80 layers are Q6_K."""
    assert stored_type("q4_k", 29_568) == "q5_0"
    assert stored_type("q5_k", 29_568) == "q5_1"
    assert stored_type("q6_k", 29_568) == "q8_0"
    assert stored_type("iq3_xxs", 29_568) == "iq4_nl"
    assert stored_type("q4_0", 29_568) == "q4_0"
    assert stored_type("q4_k", 100) == "f16"
    assert stored_type("q8_0", 100) == "f16"
    form = CATALOG.weight_formats["q4_k_m"]
    more = sum(has_more_bits(i, 80) for i in range(80))
    assert weight_bits(CATALOG.llm("qwen2.5_72b"), form)["mlp"] == pytest.approx((2 * 4.5 + (more * 8.5 + (80 - more) * 5.5) / 80) / 3)


def test_the_layers_with_more_bits_are_counted_by_hand() -> None:
    """32 layers: 0-3, 28-31 and 6, 9, ..., 27 (3 apart, from 4 + 2): 8 + 8 = 16."""
    assert [i for i in range(32) if has_more_bits(i, 32)] == [0, 1, 2, 3, 6, 9, 12, 15, 18, 21, 24, 27, 28, 29, 30, 31]


def test_eight_experts_keep_key_and_value_at_eight_bits() -> None:
    """Mixtral-8x7B Q4_K_M: q 4.5, k and v (a quarter of q each) 8.5, output Q5_K 5.5: (4.5 + 0.5 x 8.5 + 5.5) / 2.5."""
    bits = gguf_bits(CATALOG.llm("mixtral_8x7b"), CATALOG.weight_formats["q4_k_m"].gguf)  # type: ignore[arg-type]
    assert bits["attention"] == pytest.approx((4.5 + 0.5 * 8.5 + 5.5) / 2.5)


def test_a_tied_embedding_is_stored_as_the_head_and_falcon_keeps_eight_bits() -> None:
    form = CATALOG.weight_formats["q4_k_m"]
    assert weight_bits(CATALOG.llm("llama_3.2_1b"), form)["embedding"] == BITS["q6_k"]
    assert weight_bits(CATALOG.llm("llama_3.1_8b"), form)["embedding"] == BITS["q4_k"]
    assert weight_bits(CATALOG.llm("falcon_40b"), form)["head"] == BITS["q8_0"]


@pytest.mark.parametrize("form", GGUF)
def test_every_model_stays_between_its_narrowest_type_and_16_bit(form: str) -> None:
    """No matrix is below the base type less the two IQ exceptions, none above 16 bit but norms, biases and routers."""
    weights = CATALOG.weight_formats[form]
    for llm_id in CATALOG.llm_ids():
        llm = CATALOG.llm(llm_id)
        bits = weight_bits(llm, weights)
        for name in ("attention", "mlp", "experts", "embedding", "head", "recurrent"):
            assert 1.5 <= bits[name] <= 16.5, (llm.id, name)


@given(st.sampled_from(sorted(BITS)), st.integers(1, 100_000))
def test_a_stored_type_has_blocks_that_divide_the_row(wanted: str, row: int) -> None:
    found = stored_type(wanted, row)  # type: ignore[arg-type]
    assert found in ("f16", "f32") or row % 32 == 0
    assert found == wanted or BITS[found] >= BITS[wanted]  # type: ignore[index]


def test_an_answer_is_kept_and_speed_reads_the_recurrent_layers() -> None:
    """Qwen3.6-27B in bf16: every step reads all but the input embedding and the tower, 2 B each."""
    llm, form = CATALOG.llm("qwen3.6_27b"), CATALOG.weight_formats["q8_0"]
    assert weight_bits(llm, form) is weight_bits(llm, form)
    p = llm.params
    read = 2 * (p.total_count - p.embedding_count - p.vision_count)
    assert work_of(llm, CATALOG.weight_formats["bf16"].bits_per_weight, 2).every_step_bytes == read


def test_a_fused_matrix_has_a_rule_of_its_own() -> None:
    """Phi-4, Q4_K_M: query, key and value in one matrix, 5,120 x (5,120 + 2 x 1,280), at Q5_K; the output matrix 5,120 x 5,120 at Q4_K."""
    c = load_catalog()
    fused, out = 5120 * (5120 + 2560), 5120 * 5120
    bits = weight_bits(c.llm("phi_4"), c.weight_format("q4_k_m"))
    assert bits["attention"] == pytest.approx((5.5 * fused + 4.5 * out) / (fused + out), rel=1e-3)


def test_recurrent_layers_of_a_delta_net_hold_one_too() -> None:
    """Qwen3.6-27B, Q4_K_M: 0.47 of a DeltaNet layer at Q5_K, the rest at Q4_K; plain Mamba layers all at the base type."""
    c = load_catalog()
    form = c.weight_format("q4_k_m")
    assert weight_bits(c.llm("qwen3.6_27b"), form)["recurrent"] == pytest.approx(0.47 * 5.5 + 0.53 * 4.5)
    assert weight_bits(c.llm("granite_4.0_h_small"), form)["recurrent"] == 4.5
