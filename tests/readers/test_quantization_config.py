"""`quantization_config` and `hf_quant_config.json`: bits by component, layers left in 16 bit, patterns that would not end."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.catalog import load_catalog
from planner.errors import InputError
from planner.physics.memory import weights_bytes_by_component
from planner.readers.config_json import read_config_json
from planner.readers.module_patterns import Patterns
from planner.readers.quantization_config import native_format_id, read_quantization, weights_of_config
from planner.schema.llm import WeightFormat

LLAMA = {
    "model_type": "llama", "hidden_size": 4096, "intermediate_size": 14336, "num_hidden_layers": 32, "num_attention_heads": 32,
    "num_key_value_heads": 8, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
    "torch_dtype": "bfloat16",
}
LLAMA_405B = {
    **LLAMA, "hidden_size": 16384, "intermediate_size": 53248, "num_hidden_layers": 126, "num_attention_heads": 128,
    "num_key_value_heads": 16,
}
MOE = {
    "model_type": "qwen3_moe", "hidden_size": 2048, "intermediate_size": 6144, "moe_intermediate_size": 768, "num_hidden_layers": 4,
    "num_attention_heads": 32, "num_key_value_heads": 4, "head_dim": 128, "vocab_size": 1000, "num_experts": 8, "num_experts_per_tok": 2,
    "max_position_embeddings": 4096, "tie_word_embeddings": False,
}


def weights(folder: Path, config: dict[str, Any], quantization: dict[str, Any], hf_quant: bool = False) -> tuple[WeightFormat, float]:
    """Return the format a config states with this quantisation, and the bytes of the model in it."""
    data = config if hf_quant else {**config, "quantization_config": quantization}
    path = folder / "config.json"
    path.write_text(json.dumps(data))
    llm = read_config_json(path)
    form = weights_of_config(data, llm, load_catalog().weight_formats, {"quantization": quantization} if hf_quant else None, str(path))
    return form, sum(weights_bytes_by_component(llm, form).values())


def test_llama_405b_fp8_against_the_log(tmp_path: Path) -> None:
    """vLLM 0.5.3 printed 57.752 GiB of weights on each of 8 GPUs (vllm-project/vllm#6746): 462.0 GiB.

    The checkpoint of that week left all attention and the feed-forward part of the first and last layer in 16 bit, and held every
    KV head twice (16: sgl-project/sglang#723). MLP: (2 x 16 + 124 x 8.00781) / 126 bits. 0.2 %: buffers and rounding of the log.
    """
    left = [f"model.layers.{i}.self_attn.{p}_proj" for i in range(126) for p in "qkvo"]
    left += [f"model.layers.{i}.mlp.{p}_proj" for i in (0, 125) for p in ("up", "gate", "down")]
    form, size = weights(tmp_path, LLAMA_405B, {"quant_method": "fbgemm_fp8", "modules_to_not_convert": ["lm_head", *left]})
    assert form.id == "fp8_channel" and form.bits_per_weight["attention"] == 16
    assert form.bits_per_weight["mlp"] == pytest.approx((2 * 16 + 124 * 8.00781) / 126)
    assert size / 2**30 == pytest.approx(8 * 57.752, rel=0.002)


@pytest.mark.parametrize(
    ("quantization", "form", "attention", "mlp"),
    [
        ({"quant_method": "awq", "bits": 4, "group_size": 128}, "awq_int4", 4.15625, 4.15625),
        ({"quant_method": "awq", "bits": 4, "group_size": 64, "modules_to_not_convert": ["mlp"]}, "awq_int4", 4.3125, 16),
        ({"quant_method": "gptq", "bits": 4, "group_size": 32, "desc_act": True}, "gptq_int4", 4.625, 4.625),
        ({"quant_method": "gptq", "bits": 8, "group_size": -1}, "int8", 8.00781, 8.00781),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "dynamic": {r"-:.*\.self_attn\..*": {}}}, "gptq_int4", 16, 4.15625),
        ({"quant_method": "gptq", "bits": 4, "group_size": 128, "modules_in_block_to_quantize": [["mlp.up_proj", "mlp.gate_proj"]]},
         "gptq_int4", 16, (2 * 4.15625 + 16) / 3),
        ({"quant_method": "fp8", "weight_block_size": [128, 128]}, "fp8_block", 8 + 32 / 16384, 8 + 32 / 16384),
        ({"quant_method": "fp8", "ignored_layers": ["model.layers.0.mlp", "model.layers.1.mlp.down_proj"]}, "fp8", 8,
         8 + 8 * (1 + 1 / 3) / 32),
        ({"quant_method": "bitsandbytes", "load_in_4bit": True, "bnb_4bit_use_double_quant": True}, "bnb_nf4_dq", 4.12695, 4.12695),
        ({"quant_method": "bitsandbytes", "load_in_8bit": True, "llm_int8_skip_modules": ["self_attn"]}, "int8", 16, 8.00781),
        ({"quant_method": "modelopt", "quant_algo": "NVFP4", "ignore": ["lm_head", "model.layers.*.self_attn*"]}, "nvfp4", 16, 4.5),
        ({"quant_method": "mxfp4", "modules_to_not_convert": ["model.layers.*.self_attn"]}, "mxfp4", 16, 16),
        ({"quant_method": "compressed-tensors", "ignore": ["lm_head", r"re:.*layers\.(0|1|2|3)\.mlp\..*"], "config_groups": {
            "g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 128}}}},
         "w4a16_int4", 4.125, (28 * 4.125 + 4 * 16) / 32),
        ({"quant_method": "compressed-tensors", "config_groups": {
            "a": {"targets": [r"re:.*self_attn.*"], "weights": {"num_bits": 8, "type": "float", "strategy": "channel"}},
            "b": {"targets": [r"re:.*mlp.*"], "weights": {"num_bits": 4, "type": "float", "group_size": 16}}}}, "nvfp4", 8.00781, 4.5),
    ],
)  # fmt: skip
def test_bits_by_hand(tmp_path: Path, quantization: dict[str, Any], form: str, attention: float, mlp: float) -> None:
    """Bits of a Llama of 32 layers: bits + 16/group (scale) + bits/group (zero point); a part left out weighed by its size."""
    found, _ = weights(tmp_path, LLAMA, quantization)
    assert found.id == form and found.quality_note == load_catalog().weight_formats[form].quality_note
    assert found.bits_per_weight["attention"] == pytest.approx(attention) and found.bits_per_weight["mlp"] == pytest.approx(mlp)
    assert found.bits_per_weight["embedding"] == found.bits_per_weight["head"] == found.bits_per_weight["norm"] == 16
    assert found.source_of("bits_per_weight").kind == "derived"
    assert native_format_id({"quantization_config": quantization}) == form


def test_experts_and_attention_apart(tmp_path: Path) -> None:
    ignore = ["re:.*self_attn.*", "re:.*mlp.gate$"]
    found, _ = weights(tmp_path, MOE, {"quant_method": "compressed-tensors", "ignore": ignore, "config_groups": {
        "g": {"targets": ["Linear"], "weights": {"num_bits": 4, "type": "int", "group_size": 32, "symmetric": True}}}})
    assert found.bits_per_weight["experts"] == 4.5 and found.bits_per_weight["attention"] == 16


def test_modelopt_beside_the_config(tmp_path: Path) -> None:
    found, _ = weights(tmp_path, LLAMA, {"quant_algo": "FP8", "exclude_modules": ["lm_head", "model.layers.5.mlp*"]}, hf_quant=True)
    assert found.id == "fp8" and found.bits_per_weight["mlp"] == pytest.approx((31 * 8 + 16) / 32)
    mixed = {f"model.layers.{i}.mlp.{p}_proj": {"quant_algo": "NVFP4"} for i in range(32) for p in ("up", "gate", "down")}
    mixed["model.layers.0.self_attn.q_proj"] = {"quant_algo": "FP8"}
    found, _ = weights(tmp_path, LLAMA, {"quant_algo": "MIXED_PRECISION", "quantized_layers": mixed}, hf_quant=True)
    assert found.id == "nvfp4" and found.bits_per_weight["mlp"] == 4.5
    assert found.bits_per_weight["attention"] == pytest.approx(16 - 8 * (4096 / (4096 + 1024 + 1024 + 4096)) / 32)


@pytest.mark.parametrize(
    ("quantization", "word"),
    [
        ({"quant_method": "quark"}, "'quark' is not known"), ({"quant_method": "awq", "bits": "four"}, "bits"),
        ({"quant_method": "gptq", "bits": 4, "group_size": -7}, "group_size"),
        ({"quant_method": "fp8", "weight_block_size": [0, 128]}, "weight_block_size"),
        ({"quant_method": "compressed-tensors"}, "config_groups"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": 3}}}, "is not an object with weights"),
        ({"quant_method": "compressed-tensors", "config_groups": {"g": {"weights": {"num_bits": 10**9}}}}, "absurd"),
        ({"quant_method": "fp8", "modules_to_not_convert": {"a": 1}}, "not a list"),
        ({"quant_method": "fp8", "modules_to_not_convert": [7]}, "not a short name"),
        ({"quant_method": "modelopt", "quant_algo": "INT3"}, "'INT3' is not known"),
        ({"quant_method": "modelopt", "quant_algo": "MIXED_PRECISION"}, "quantized_layers"),
    ],
)
def test_what_cannot_be_read_is_told(tmp_path: Path, quantization: dict[str, Any], word: str) -> None:
    with pytest.raises(InputError, match=word) as error:
        weights(tmp_path, LLAMA, quantization)
    assert "config.json" in str(error.value)


EVIL = (
    "(a+)+$", "(.*)*x", ".*.*.*.*.*x", "(?=.*a)b", r"(a)\1", "a{1,9999}" * 9, "(a|a)*b", "([a-z]+.)+q", "(", "a" * 400, "(a|aa)" * 40,
    "a?" * 60 + "b", "[0--", "[[a]b]",
)


@pytest.mark.parametrize("evil", EVIL)
def test_expressions_that_would_not_end_are_not_run(tmp_path: Path, evil: str) -> None:
    start = time.monotonic()
    with pytest.raises(InputError, match="--weights"):
        weights(tmp_path, LLAMA, {"quant_method": "fp8", "ignore": ["re:" + evil]})
    assert time.monotonic() - start < 2


@given(st.text(alphabet="abl.*+?()[]{}\\dwS|^$re:0-9,_", max_size=60))
def test_any_pattern_ends(text: str) -> None:
    """Every pattern is refused, or answers for names as long as they get in far less than a second."""
    patterns = Patterns(["re:" + text, text])
    start = time.monotonic()
    if patterns.why_not is None:
        for i in range(20):
            patterns.match(f"layers.{i}.self_attn.kv_a_proj_with_mqa_aaaaaaaaaaaaaaaa")
    assert time.monotonic() - start < 1


def test_many_names_are_looked_up_at_once() -> None:
    """1,500 whole names, as files of 126 layers list them, cost no more than a look-up each."""
    patterns = Patterns([f"model.layers.{i}.self_attn.{p}_proj" for i in range(400) for p in "qkvo"])
    assert patterns.why_not is None and patterns.match("layers.399.self_attn.q_proj") and not patterns.match("layers.400.self_attn.q_proj")
    assert Patterns(["x*" + str(i) for i in range(300)]).why_not is not None


def test_a_method_without_a_format_names_itself() -> None:
    assert native_format_id({"quantization_config": {"quant_method": "Quark"}}) == "quark"
    assert read_quantization({"quant_method": "fbgemm_fp8"}).method == "fbgemm-fp8"
