"""GGUF files by family: windows that llama.cpp holds in code, shared caches, fused matrices, experts; and files made to cost time.

Unless said otherwise a layer has width 256, 4 heads of 64 and one KV head: 2 x 64 x 2 B = 256 B of cache a token at 16 bit.
"""

from __future__ import annotations

import struct
import time
import tracemalloc
from functools import cache
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from planner.catalog import Catalog, load_catalog
from planner.errors import InputError
from planner.physics import memory
from planner.readers.checkpoint import Checkpoint, read_checkpoint
from planner.readers.gguf_header import Skipped, read_header

from .gguf_files import Shapes, dense_layer, llama, write_gguf

KEYS: dict[str, Any] = {
    "context_length": 32768, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": 1,
    "attention.key_length": 64, "attention.value_length": 64,
}
ENDS: Shapes = {"token_embd.weight": ((256, 500), "F16"), "output_norm.weight": ((256,), "F32")}


@cache
def catalog() -> Catalog:
    return load_catalog()


def read(path: Path) -> Checkpoint:
    return read_checkpoint(path, catalog().weight_formats)


def footprint(found: Checkpoint) -> memory.Footprint:
    c = catalog()
    return memory.footprint(
        found.llm, found.weights, c.kv_format("fp16"), c.engine("llama_cpp"), bytes_by_component=found.weights_bytes_by_component
    )


def stack(n: int, layer: Shapes | None = None) -> Shapes:
    """Return `n` layers, each of the given tensors (written for layer 0), with embedding and last norm."""
    one = layer or dense_layer(0, 256, 256, 64, 512, "F16")
    return ENDS | {name.replace("blk.0.", f"blk.{i}."): what for i in range(n) for name, what in one.items()}


@pytest.mark.parametrize(
    ("arch", "n", "keys", "windows"),
    [
        ("gemma2", 4, {"attention.sliding_window": 4096}, [4096, 0, 4096, 0]),
        ("gemma2", 4, {}, [4096, 0, 4096, 0]),
        ("gemma3", 8, {"attention.sliding_window": 1024}, [1024] * 5 + [0] + [1024] * 2),
        ("gemma3n", 5, {"attention.sliding_window": 512}, [512] * 4 + [0]),
        ("gpt-oss", 4, {"attention.sliding_window": 128}, [128, 0, 128, 0]),
        ("cohere2", 4, {"attention.sliding_window": 4096}, [4096] * 3 + [0]),
        ("cohere2", 4, {"attention.sliding_window": 4096, "attention.sliding_window_pattern": 2}, [4096, 0, 4096, 0]),
        ("cohere2", 4, {"attention.sliding_window": 4096, "attention.sliding_window_pattern": 1}, [0] * 4),
        ("cohere2", 4, {"attention.sliding_window": 4096, "attention.sliding_window_pattern": 9}, [4096] * 4),
        ("olmo2", 4, {"attention.sliding_window": 4096}, [4096] * 3 + [0]),
        ("olmo2", 4, {}, [0] * 4),
        ("llama4", 4, {}, [8192] * 3 + [0]),
        ("llama4", 4, {"attention.sliding_window": 0}, [0] * 4),
        ("phi3", 2, {"attention.sliding_window": 2047}, [0] * 2),
        ("starcoder2", 2, {"attention.sliding_window": 4096}, [0] * 2),
        ("llama", 2, {}, [0] * 2), ("qwen2", 2, {}, [0] * 2), ("qwen3", 2, {}, [0] * 2), ("mistral3", 2, {}, [0] * 2),
        ("granite", 2, {}, [0] * 2), ("command-r", 2, {}, [0] * 2),
    ],
)
def test_windows_by_family(tmp_path: Path, arch: str, n: int, keys: dict[str, Any], windows: list[int]) -> None:
    """As github:ggml-org/llama.cpp sets them in src/models; a cache of 256 B a token and layer, of full layers alone past the window."""
    found = read(write_gguf(tmp_path / "m.gguf", arch, {"block_count": n, **KEYS, **keys}, stack(n)))
    held = {group.window_tok or 0: group.layer_count for group in found.llm.attention}
    assert held == {window: windows.count(window) for window in windows}
    if arch == "llama4" and any(windows):
        assert {group.kind for group in found.llm.attention} == {"chunked", "full"}
    result = footprint(found)
    assert result.kv_bytes_per_tok == n * 256 and result.kv_bytes_per_tok_past_window == windows.count(0) * 256


def test_gemma4_head_shapes_shared_caches_and_embeddings_of_each_layer(tmp_path: Path) -> None:
    """Windowed layers of 2 KV heads of 64 (512 B), full ones of 1 of 128 (512 B); the last two keep nothing: 2 of 4 layers count.

    The layers' own embeddings, 500 rows of 4 x 16, are in the file and never multiplied.
    """
    keys = {
        "block_count": 4, **KEYS, "attention.key_length": 128, "attention.value_length": 128, "attention.key_length_swa": 64,
        "attention.value_length_swa": 64, "attention.head_count_kv": [2, 1, 2, 1], "attention.sliding_window": 512,
        "attention.sliding_window_pattern": [True, False, True, False], "attention.shared_kv_layers": 2,
    }
    tensors = stack(4, dense_layer(0, 256, 256, 128, 512, "F16")) | {"per_layer_token_embd.weight": ((64, 500), "F16")}
    found = read(write_gguf(tmp_path / "m.gguf", "gemma4", keys, tensors))
    result, params = footprint(found), found.llm.params
    assert result.kv_bytes_per_tok == 2 * 512 and result.kv_bytes_per_tok_past_window == 512
    assert sum(group.layer_count for group in found.llm.attention if group.cache_is_shared) == 2
    assert params.other_count == 64 * 500 and params.active_count == params.total_count - 64 * 500
    assert found.weights_bytes_by_component is not None and found.weights_bytes_by_component["other"] == 64 * 500 * 2


def test_matrices_that_are_joined_or_missing(tmp_path: Path) -> None:
    """Phi-3 joins q, k, v and gate with up; Falcon has no gate. Parameters are the tensors', the MLP's kind follows."""
    b = "blk.0."
    common: Shapes = {
        b + "attn_norm.weight": ((256,), "F32"), b + "attn_qkv.weight": ((256, 384), "F16"), b + "attn_output.weight": ((256, 256), "F16"),
        b + "ffn_down.weight": ((512, 256), "F16"),
    }
    phi_layers = stack(2, common | {b + "ffn_up.weight": ((256, 1024), "F16")})
    phi = read(write_gguf(tmp_path / "p.gguf", "phi3", {"block_count": 2, **KEYS}, phi_layers))
    falcon_layers = stack(2, common | {b + "ffn_up.weight": ((256, 512), "F16")})
    falcon = read(write_gguf(tmp_path / "f.gguf", "falcon", {"block_count": 2, **KEYS}, falcon_layers))
    assert phi.llm.mlp[0].is_gated and phi.llm.params.mlp_count == 2 * 3 * 256 * 512
    assert not falcon.llm.mlp[0].is_gated and falcon.llm.params.mlp_count == 2 * 2 * 256 * 512
    for found in (phi, falcon):
        assert found.llm.params.attention_count == 2 * (256 * 384 + 256 * 256) and footprint(found).kv_bytes_per_tok == 2 * 256


def test_a_shared_expert_lies_with_the_mlp_and_its_gate_with_the_router(tmp_path: Path) -> None:
    """qwen2moe: 8 experts of 128 in MXFP4 (17 B for 32 weights), 2 used; a shared one of 384 in Q8_0 (34 B for 32)."""
    b = "blk.0."
    layer: Shapes = {name: what for name, what in dense_layer(0, 256, 256, 64, 512, "F16").items() if "ffn_" not in name} | {
        b + "ffn_gate_inp.weight": ((256, 8), "F32"), b + "ffn_gate_inp_shexp.weight": ((256,), "F32"),
        **{b + f"ffn_{part}_exps.weight": (dims, "MXFP4") for part, dims in
           (("gate", (256, 128, 8)), ("up", (256, 128, 8)), ("down", (128, 256, 8)))},
        **{b + f"ffn_{part}_shexp.weight": (dims, "Q8_0") for part, dims in
           (("gate", (256, 384)), ("up", (256, 384)), ("down", (384, 256)))},
    }
    keys = {"block_count": 2, **KEYS, "expert_count": 8, "expert_used_count": 2}
    found = read(write_gguf(tmp_path / "m.gguf", "qwen2moe", keys, stack(2, layer)))
    parts = found.weights_bytes_by_component
    assert parts is not None
    assert parts["experts"] == 2 * 3 * 8 * 256 * 128 // 32 * 17 and parts["mlp"] == 2 * 3 * 256 * 384 // 32 * 34
    assert parts["router"] == 2 * (256 * 8 + 256) * 4
    (group,) = found.llm.mlp
    assert (group.top_k, group.shared_expert_count, group.shared_expert_intermediate_size) == (2, 1, 384)
    assert found.weights.bits_per_weight["experts"] == 4.25 and found.weights.bits_per_weight["mlp"] == 8.5


def test_a_latent_without_its_rotary_width_is_refused(tmp_path: Path) -> None:
    path = write_gguf(tmp_path / "m.gguf", "deepseek2", {"block_count": 1, **KEYS, "attention.kv_lora_rank": 32}, stack(1))
    with pytest.raises(InputError, match=r"deepseek2\.rope\.dimension_count: missing"):
        read(path)


@pytest.mark.parametrize(
    ("keys", "told"),
    [
        ({"block_count": 1}, r"blk\.1: a layer beyond llama\.block_count, 1"), ({"block_count": 3}, r"blk\.2: no tensor of this layer"),
        ({"attention.head_count_kv": 2}, r"2 KV heads of 64 in layer 0, whose attn_k\.weight has 64 rows"),
        ({"attention.head_count_kv": 3}, r"4 heads do not divide by 3 KV heads"),
        ({"attention.head_count_kv": [1]}, r"1 values for 2 layers"),
    ],
)
def test_keys_that_contradict_the_tensors_are_refused(tmp_path: Path, keys: dict[str, Any], told: str) -> None:
    """llama.cpp refuses them as well: the cache would be laid out for another model."""
    with pytest.raises(InputError, match=told):
        read(write_gguf(tmp_path / "m.gguf", "llama", {**KEYS, "block_count": 2, **keys}, stack(2)))


def test_a_real_model_from_its_header_alone(tmp_path: Path) -> None:
    """Qwen3-8B at its published sizes in Q8_0, header only (16 GB of tensors never written): components as in workloads/models.

    Bytes: every matrix 34 B for 32 weights, every norm 4 B a weight.
    """
    path, width, words = tmp_path / "Qwen3-8B-Q8_0.gguf", 4096, 151_936
    layer: Shapes = {
        "attn_norm": ((width,), "F32"), "ffn_norm": ((width,), "F32"), "attn_q_norm": ((128,), "F32"), "attn_k_norm": ((128,), "F32"),
        "attn_q": ((width, 4096), "Q8_0"), "attn_k": ((width, 1024), "Q8_0"), "attn_v": ((width, 1024), "Q8_0"),
        "attn_output": ((4096, width), "Q8_0"), "ffn_gate": ((width, 12288), "Q8_0"), "ffn_up": ((width, 12288), "Q8_0"),
        "ffn_down": ((12288, width), "Q8_0"),
    }
    tensors: Shapes = {"token_embd": ((width, words), "Q8_0"), "output": ((width, words), "Q8_0"), "output_norm": ((width,), "F32")}
    tensors |= {f"blk.{i}.{name}": what for i in range(36) for name, what in layer.items()}
    writer = gguf.GGUFWriter(path, "qwen3")
    for key, value in {
        "block_count": 36, "context_length": 40960, "embedding_length": width, "attention.head_count": 32, "attention.head_count_kv": 8,
        "attention.key_length": 128, "attention.value_length": 128,
    }.items():
        writer.add_uint32(f"qwen3.{key}", value)
    writer.add_file_type(7)
    for name, (dims, kind) in tensors.items():
        quant = gguf.GGMLQuantizationType[kind]
        writer.add_tensor_info(name + ".weight", tuple(reversed(dims)), np.dtype(np.float32), 0, raw_dtype=quant)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_ti_data_to_file()
    writer.close()
    found, shipped = read(path), catalog().llm("qwen3_8b")
    assert path.stat().st_size < 100_000 and found.llm.params == shipped.params and found.llm.vocab_size == words
    assert found.llm.attention == shipped.attention and found.weights.id == "q8_0"
    norms = shipped.params.norm_count
    assert found.weights_bytes_by_component is not None
    assert sum(found.weights_bytes_by_component.values()) == (shipped.params.total_count - norms) * 34 // 32 + norms * 4
    assert footprint(found).kv_bytes_per_tok == 36 * 2 * 8 * 128 * 2


def test_parts_must_be_those_of_one_model(tmp_path: Path) -> None:
    """The number of tensors that a split file states is held against what is there, under any name; none may stand twice."""
    one = llama(tmp_path / "m-00001-of-00002.gguf", layers=1)
    (tmp_path / "m-00002-of-00002.gguf").write_bytes(one.read_bytes())
    with pytest.raises(InputError, match="two parts hold the same tensor"):
        read(one)
    with pytest.raises(InputError, match=r"split\.tensors\.count: the whole has 40 tensors, 12 are here"):
        read(llama(tmp_path / "renamed.gguf", layers=1, split__tensors__count=40))
    assert read(llama(tmp_path / "whole.gguf", layers=1, split__tensors__count=12)).llm.layer_count == 1


def test_lists_without_end_cost_no_memory(tmp_path: Path) -> None:
    """5,000 lists of 4,096 single bytes (20 MB): the first million values are kept, the rest are known by their length."""
    def text(value: str) -> bytes:
        return struct.pack("<Q", len(value)) + value.encode()

    lists = b"".join(text(f"k{i}") + struct.pack("<IIQ", 9, 0, 4096) + bytes(4096) for i in range(5000))
    path = tmp_path / "m.gguf"
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 5000) + lists)
    tracemalloc.start()
    try:
        header = read_header(path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert header.metadata["k0"] == [0] * 4096 and header.metadata["k4999"] == Skipped(4096)
    assert peak_bytes < 30_000_000
    texts = b"".join(text(f"k{i}") + struct.pack("<I", 8) + text("x" * 65_000) for i in range(1100))
    path.write_bytes(b"GGUF" + struct.pack("<IQQ", 3, 0, 1100) + texts)
    with pytest.raises(InputError, match="bytes of keys, names and texts"):
        read_header(path)


def test_layers_all_unlike_and_absurd_numbers_cost_no_time(tmp_path: Path) -> None:
    """3,000 layers, each of another width, are grouped in one pass; a layer number of 5,000 digits is no layer."""
    n = 3000
    tensors = ENDS | {f"blk.{i}.ffn_down.weight": ((i + 1, 1), "F16") for i in range(n)} | {f"blk.{'9' * 5000}.x": ((1,), "F32")}
    path = write_gguf(tmp_path / "m.gguf", "llama", {"block_count": n, **KEYS}, tensors)
    began = time.perf_counter()
    found = read(path)
    assert time.perf_counter() - began < 5 and len(found.llm.mlp) == n


def test_experts_in_tensors_of_their_own_are_experts(tmp_path: Path) -> None:
    """Mixtral as converted before March 2024: `ffn_down.3.weight`. 4 experts of 3 matrices of 256 x 128, of which 2 work."""
    b = "blk.0."
    layer = {k: v for k, v in dense_layer(0, 256, 256, 64, 512, "F16").items() if "ffn_" not in k or "norm" in k}
    layer[b + "ffn_gate_inp.weight"] = ((256, 4), "F32")
    for expert in range(4):
        layer |= {
            f"{b}ffn_gate.{expert}.weight": ((256, 128), "F16"), f"{b}ffn_up.{expert}.weight": ((256, 128), "F16"),
            f"{b}ffn_down.{expert}.weight": ((128, 256), "F16"),
        }
    keys = {"block_count": 2, **KEYS, "expert_count": 4, "expert_used_count": 2}
    found = read(write_gguf(tmp_path / "m.gguf", "llama", keys, stack(2, layer)))
    (moe,) = found.llm.mlp
    assert (moe.kind, moe.expert_count, moe.top_k, moe.expert_intermediate_size, moe.is_gated) == ("moe", 4, 2, 128, True)
    assert found.llm.params.experts_count == 2 * 4 * 3 * 256 * 128 and found.llm.params.mlp_count == 0
    assert found.llm.params.active_count < found.llm.params.total_count - 2 * 2 * 3 * 256 * 128 + 1


@pytest.mark.parametrize(
    ("wide", "told"),
    [
        ({"blk.0.attn_v.weight": ((256, 128), "F16")}, r"1 KV heads whose values have 64 in layer 0, whose attn_v\.weight has 128 rows"),
        ({"blk.0.attn_qkv.weight": ((256, 300), "F16")}, r"4 heads and 1 KV heads of 64 in layer 0, whose attn_qkv\.weight has 300 rows"),
    ],
)
def test_widths_of_values_and_of_the_joined_matrix_are_those_of_the_keys(tmp_path: Path, wide: Shapes, told: str) -> None:
    """Keys that promise a cache of another width than the matrices write would make it wrong unseen: the joined one has 384 rows."""
    layer = dense_layer(0, 256, 256, 64, 512, "F16")
    if "blk.0.attn_qkv.weight" in wide:
        layer = {k: v for k, v in layer.items() if not k.startswith(("blk.0.attn_q", "blk.0.attn_k", "blk.0.attn_v"))}
    with pytest.raises(InputError, match=told):
        read(write_gguf(tmp_path / "m.gguf", "llama", {"block_count": 1, **KEYS}, stack(1, layer | wide)))
    right = {name: (((256, 384) if "qkv" in name else (256, 64)), "F16") for name in wide}
    found = read(write_gguf(tmp_path / "r.gguf", "llama", {"block_count": 1, **KEYS}, stack(1, layer | right)))
    assert footprint(found).kv_bytes_per_tok == 256


@pytest.mark.parametrize(("causal", "kv"), [(True, 256), (False, 0), (None, 256)])
def test_a_model_that_sees_both_ways_keeps_no_cache(tmp_path: Path, causal: bool | None, kv: int) -> None:
    """Embedding and diffusion models state `attention.causal` false: llama.cpp makes no cache for them."""
    more = {} if causal is None else {"llama__attention__causal": causal}
    found = read(write_gguf(tmp_path / "m.gguf", "llama", {"block_count": 1, **KEYS}, stack(1), **more))
    assert footprint(found).kv_bytes_per_tok == kv and found.llm.is_encoder is (causal is False)


def test_kimi_delta_attention_keeps_a_state_and_no_latent(tmp_path: Path) -> None:
    """Kimi-Linear: 3 of 4 layers feed q, k and v through convolutions into 4 matrices of 32 x 32; the fourth keeps 32 + 16 values.

    3 x (3 x (4 - 1) x 4 x 32 + 4 x 32 x 32) x 4 B = 62,976 B a sequence; the matrices of those layers are recurrent parameters.
    """
    b = "blk.0."
    ffn = {k: v for k, v in dense_layer(0, 256, 256, 64, 512, "F16").items() if "attn_" not in k or "norm" in k}
    kda = ffn | {
        **{b + f"attn_{x}.weight": ((256, 128), "F16") for x in "qkv"}, b + "attn_output.weight": ((128, 256), "F16"),
        **{b + f"ssm_conv1d_{x}.weight": ((4, 1, 128), "F32") for x in "qkv"}, b + "ssm_beta.weight": ((256, 4), "F16"),
        b + "ssm_f_a.weight": ((256, 32), "F16"), b + "ssm_f_b.weight": ((32, 128), "F16"),
    }
    mla = ffn | {
        b + "attn_q.weight": ((256, 192), "F16"), b + "attn_kv_a_mqa.weight": ((256, 48), "F16"),
        b + "attn_output.weight": ((128, 256), "F16"),
        b + "attn_k_b.weight": ((32, 32, 4), "F16"), b + "attn_v_b.weight": ((32, 32, 4), "F16"),
    }
    tensors = dict(ENDS)
    for i in range(4):
        tensors |= {name.replace("blk.0.", f"blk.{i}."): what for name, what in (mla if i == 3 else kda).items()}
    keys = {
        "block_count": 4, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4,
        "attention.head_count_kv": [0, 0, 0, 4], "attention.kv_lora_rank": 32, "rope.dimension_count": 16, "ssm.conv_kernel": 4,
        "kda.head_dim": 32, "attention.key_length_mla": 48, "attention.value_length_mla": 32,
    }
    path = write_gguf(tmp_path / "m.gguf", "kimi-linear", keys, tensors)
    with pytest.raises(InputError, match="'kimi-linear' is not known"):
        read(path)
    found = read_checkpoint(path, catalog().weight_formats, assume=True)
    assert [(g.kind, g.layer_count) for g in found.llm.attention] == [("linear", 3), ("mla", 1)]
    result = memory.footprint(found.llm, found.weights, catalog().kv_format("fp16"), catalog().engine("llama_cpp_latent"))
    assert result.state_bytes_per_sequence == 62_976 and result.kv_bytes_per_tok == 48 * 2
    assert found.llm.params.recurrent_count == 3 * (4 * 128 * 256 + 3 * 4 * 128 + 256 * 4 + 256 * 32 + 32 * 128)
    del keys["kda.head_dim"]
    with pytest.raises(InputError, match=r"kimi-linear\.kda\.head_dim: missing"):
        read_checkpoint(write_gguf(tmp_path / "n.gguf", "kimi-linear", keys, tensors), catalog().weight_formats, assume=True)


@pytest.mark.parametrize(("more", "own"), [({}, 20), ({"attention.shared_kv_layers": 15}, 10)])
def test_gemma3n_shares_the_caches_of_its_last_layers(tmp_path: Path, more: dict[str, Any], own: int) -> None:
    """llama.cpp has the number in code: the first 20 layers keep a cache, the rest read those; a key that says otherwise counts."""
    keys = {"block_count": 25, **KEYS, "attention.sliding_window": 512, **more}
    found = read(write_gguf(tmp_path / "m.gguf", "gemma3n", keys, stack(25)))
    assert footprint(found).kv_bytes_per_tok == own * 256
