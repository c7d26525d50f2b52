"""A model from a folder, a file of tensors or an index: exact bytes, what is left out, what is missing."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import load_catalog
from planner.errors import InputError
from planner.readers.checkpoint import Checkpoint, is_checkpoint_path, read_checkpoint

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
LAYER = {
    "self_attn.q_proj": [64, 64], "self_attn.k_proj": [32, 64], "self_attn.v_proj": [32, 64], "self_attn.o_proj": [64, 64],
    "mlp.gate_proj": [128, 64], "mlp.up_proj": [128, 64], "mlp.down_proj": [64, 128],
    "input_layernorm": [64], "post_attention_layernorm": [64],
}
SHAPES = {
    "model.embed_tokens.weight": [256, 64], "lm_head.weight": [256, 64], "model.norm.weight": [64],
    **{f"model.layers.{i}.{name}.weight": shape for i in range(2) for name, shape in LAYER.items()},
}
BYTES = {"embedding": 32768, "head": 32768, "attention": 49152, "mlp": 98304, "norm": 640}
"""256 x 64 x 2; 2 x (2 x 64 x 64 + 2 x 32 x 64) x 2; 2 x 3 x 128 x 64 x 2; 5 x 64 x 2."""


def tensors(path: Path, shapes: dict[str, list[int]], dtype: str = "BF16") -> None:
    """Write the header of a safetensors file, without the data."""
    header: dict[str, Any] = {}
    end = 0
    for name, shape in shapes.items():
        size = 2
        for side in shape:
            size *= side
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps(header).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)


def config(folder: Path, **more: Any) -> Path:
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **more}))
    return path


def read(path: Path, weights: str | None = None) -> Checkpoint:
    return read_checkpoint(path, load_catalog().weight_formats, weights=weights)


def held(found: Checkpoint) -> dict[str, float]:
    assert found.weights_bytes_by_component is not None
    return {name: value for name, value in found.weights_bytes_by_component.items() if value}


def test_a_folder_and_its_file_are_read_alike(tmp_path: Path) -> None:
    config(tmp_path)
    tensors(tmp_path / "model.safetensors", SHAPES)
    for path in (tmp_path, tmp_path / "model.safetensors"):
        found = read(path)
        assert held(found) == BYTES and found.tensor_bytes_are_exact and found.weights.id == "bf16"
        assert found.notes == ("Only the first part of a file is there: its header states the bytes.",)


def test_tensors_win_over_the_dtype_of_the_config(tmp_path: Path) -> None:
    config(tmp_path, torch_dtype="float32")
    tensors(tmp_path / "model.safetensors", SHAPES, "F16")
    assert read(tmp_path).weights.id == "fp16"


def test_shards_by_an_index(tmp_path: Path) -> None:
    config(tmp_path)
    names = list(SHAPES)
    shards = {"model-00001-of-00002.safetensors": names[:5], "model-00002-of-00002.safetensors": names[5:]}
    index = tmp_path / "model.safetensors.index.json"
    weight_map = {name: shard for shard, held_names in shards.items() for name in held_names}
    index.write_text(json.dumps({"metadata": {"total_size": 427_264}, "weight_map": weight_map}))
    alone = read(index)
    assert alone.split_follows_shape and not alone.tensor_bytes_are_exact and sum(held(alone).values()) == pytest.approx(427_264)
    assert held(alone) == pytest.approx({name: 2 * value for name, value in BYTES.items()})
    assert any("2 of 2 shards are not there" in note for note in alone.notes)
    assert any("see that both are of one model" in note for note in alone.notes)
    for shard, held_names in shards.items():
        tensors(tmp_path / shard, {name: SHAPES[name] for name in held_names})
    for path in (tmp_path, index, tmp_path / "model-00002-of-00002.safetensors"):
        assert held(read(path)) == BYTES
    assert any("427264 bytes, its shards hold 213632" in note for note in read(index).notes)
    (tmp_path / "model-00001-of-00002.safetensors").unlink()
    index.write_text(json.dumps({"weight_map": weight_map}))
    for path in (index, tmp_path / "model-00002-of-00002.safetensors"):
        with pytest.raises(InputError, match="1 of 2 shards are not there"):
            read(path)


def test_layers_that_predict_and_a_tied_head_are_counted_apart(tmp_path: Path) -> None:
    config(tmp_path, tie_word_embeddings=True)
    tensors(tmp_path / "model.safetensors", {**SHAPES, "model.layers.2.self_attn.q_proj.weight": [64, 64]})
    found = read(tmp_path)
    assert held(found) == {name: value for name, value in BYTES.items() if name != "head"}
    assert any("8192 bytes of multi-token-prediction" in note for note in found.notes)
    assert any("32768 bytes repeats the tied embedding" in note for note in found.notes)


def test_two_models_mixed_are_noted(tmp_path: Path) -> None:
    config(tmp_path, num_hidden_layers=8)
    tensors(tmp_path / "model.safetensors", SHAPES)
    assert any("see that both are of one model" in note for note in read(tmp_path).notes)


def test_a_quantisation_beside_the_config(tmp_path: Path) -> None:
    path = config(tmp_path)
    (tmp_path / "hf_quant_config.json").write_text(json.dumps({"quantization": {"quant_algo": "NVFP4", "exclude_modules": ["lm_head"]}}))
    found = read(path)
    assert found.weights.id == "nvfp4" and found.weights.bits_per_weight["mlp"] == 4.5 and found.weights_bytes_by_component is None


def test_a_format_named_stands_in_for_one_that_cannot_be_read(tmp_path: Path) -> None:
    path = config(tmp_path, quantization_config={"quant_method": "quark"})
    assert read(path, "fp8").weights.id == "fp8"
    with pytest.raises(InputError, match="name a shipped format with --weights"):
        read(path)
    assert not read(config(tmp_path, torch_dtype=None)).weights_are_stated and read(config(tmp_path)).weights_are_stated


def test_what_is_missing_is_told(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"a folder without config\.json"):
        read(tmp_path)
    tensors(tmp_path / "model.safetensors", SHAPES)
    with pytest.raises(InputError, match=r"no config\.json beside them"):
        read(tmp_path / "model.safetensors")
    for name in ("a.gguf", "b.gguf"):
        (tmp_path / name).touch()
    with pytest.raises(InputError, match=r"give one of them: a\.gguf, b\.gguf"):
        read(tmp_path)
    for name in ("none.gguf", "none.safetensors"):
        with pytest.raises(InputError, match="there is no such file"):
            read(tmp_path / name)
    config(tmp_path)
    tensors(tmp_path / "model.safetensors", {})
    with pytest.raises(InputError, match="holds no tensor"):
        read(tmp_path)


def test_names_of_files(tmp_path: Path) -> None:
    assert is_checkpoint_path(str(tmp_path)) and is_checkpoint_path("x.gguf") and is_checkpoint_path("a/config.json")
    assert not is_checkpoint_path("qwen3_8b") and not is_checkpoint_path("org/name") and not is_checkpoint_path("x\0/y")
