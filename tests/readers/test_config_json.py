"""A Hugging Face config.json read into a shape: every family on a small file with figures worked by hand, and bad files."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.readers.config_json import MOST_BYTES, read_config_json, slug
from planner.readers.hf_families import FAMILIES
from planner.readers.quantization_config import native_format_id
from planner.schema.llm import Llm

FIXTURES = Path(__file__).parent / "fixtures" / "config_json"
GQA = 2 * (16 + 16) * 2  # bytes a layer keeps: 2 KV heads, key and value of 16, 2 bytes
WIDE = 2 * (32 + 32) * 2  # the same with heads 32 wide
MLA = (32 + 8) * 2  # latent 32 and rotary part 8, 2 bytes
DELTA_NET = 4 * 8 * 8 * 4 + (2 * 2 * 8 + 4 * 8) * 3 * 2  # fp32 state of 4 heads 8 x 8, convolution over q, k and v


def read(name: str) -> Llm:
    return read_config_json(FIXTURES / f"{name}.json")


def kv(llm: Llm) -> tuple[float, float]:
    """Bytes a token keeps at 16 bit while windows fill, and past them."""
    filling = past = 0.0
    for g in llm.attention:
        if g.kind in ("linear", "none") or g.cache_is_shared:
            continue
        if g.kind == "mla":
            values = (g.kv_lora_rank or 0) + (g.rope_dim or 0)
        else:
            values = g.kv_head_count * (g.head_dim if g.kv_is_one_tensor else g.head_dim + (g.v_head_dim or g.head_dim))
        here = g.layer_count * values * 2 / g.kv_compression
        filling += here
        past += 0 if g.window_tok else here
    return filling, past


@pytest.mark.parametrize(
    ("name", "filling", "past"),
    [
        ("llama", 4 * GQA, 4 * GQA),
        ("mistral_window", 4 * WIDE, 0),
        ("phi3", 4 * 2 * GQA, 0),
        ("qwen2_window_off", 4 * GQA, 4 * GQA),
        ("qwen2_window_on", 4 * GQA, GQA),
        ("qwen2_5_vl", 4 * GQA, 4 * GQA),
        ("qwen3", 4 * WIDE, 4 * WIDE),
        ("qwen3_moe", 4 * WIDE, 4 * WIDE),
        ("qwen3_vl", 4 * WIDE, 4 * WIDE),
        ("qwen3_5_moe", WIDE, WIDE),
        ("qwen3_next", 2 * WIDE, 2 * WIDE),
        ("llama4", 4 * GQA, GQA),
        ("mixtral", 4 * GQA, 4 * GQA),
        ("phimoe", 4 * GQA, 4 * GQA),
        ("gpt_oss", 4 * WIDE, 2 * WIDE),
        ("gemma2", 4 * WIDE, 2 * WIDE),
        ("gemma3", 7 * 4 * 512 * 2, 4 * 512 * 2),
        ("gemma4_moe", 3 * GQA + 1 * 64 * 2, 1 * 64 * 2),
        ("gemma4_shared", GQA + WIDE, WIDE),
        ("cohere2", 4 * GQA, GQA),
        ("falcon", 4 * GQA, 4 * GQA),
        ("deepseek_v2", 4 * MLA, 4 * MLA),
        ("deepseek_v3", 4 * MLA, 4 * MLA),
        ("deepseek_v32", 4 * MLA, 4 * MLA),
        ("glm_moe_dsa", 4 * MLA, 4 * MLA),
        ("kimi_k25", 4 * MLA, 4 * MLA),
        ("deepseek_v4", 4 * 64 + 2 * 64 / 4 + 64 / 128, 2 * 64 / 4 + 64 / 128),
        ("kimi_k3", MLA, MLA),
        ("glm4v_moe", 4 * WIDE, 4 * WIDE),
        ("minimax_m2", 4 * WIDE, 4 * WIDE),
        ("minimax_m3", 4 * WIDE, 4 * WIDE),
        ("nemotron_h", WIDE, WIDE),
        ("nemotron_nas", GQA + GQA / 2, GQA + GQA / 2),
        ("mimo_v2_flash", 1 * 40 * 2 + 3 * 2 * 40 * 2, 1 * 40 * 2),
        ("step3p7", 4 * WIDE, WIDE),
        ("jamba", GQA, GQA),
        ("granitemoehybrid", GQA, GQA),
        ("olmo3", 4 * GQA, GQA),
        ("starcoder2", 4 * GQA, 0),
        ("mllama", 3 * GQA, 3 * GQA),
    ],
)
def test_cache_of_every_family(name: str, filling: float, past: float) -> None:
    assert kv(read(name)) == (filling, past)


def test_every_fixture_is_read_and_its_layers_are_covered() -> None:
    for path in FIXTURES.glob("*.json"):
        llm = read_config_json(path)
        assert llm.id == path.stem
        assert sum(g.layer_count for g in llm.attention if not g.is_second_cache) == llm.layer_count


@pytest.mark.parametrize(
    ("name", "state", "indexer"),
    [
        ("qwen3_5_moe", 3 * DELTA_NET, 0),
        ("qwen3_next", 2 * DELTA_NET, 0),
        ("nemotron_h", 3 * (4 * 8 * 16 * 4 + (32 + 2 * 2 * 16) * 3 * 2), 0),
        ("granitemoehybrid", 3 * (4 * 8 * 16 * 4 + (32 + 2 * 1 * 16) * 3 * 2), 0),
        ("jamba", 7 * (128 * 16 * 4 + 128 * 3 * 2), 0),
        ("kimi_k3", 3 * (4 * 8 * 8 * 4 + 3 * 4 * 8 * 3 * 2), 0),
        ("deepseek_v4", 2 * (2 * 4 * 2 * (32 + 16) * 4) + 2 * 128 * 32 * 4, 2 * 2),
        ("deepseek_v32", 0, 4 * (16 + 4)),
        ("glm_moe_dsa", 0, 2 * (16 + 4)),
        ("minimax_m3", 0, 3 * 16 * 2),
        ("llama", 0, 0),
    ],
)
def test_fixed_state_and_indexer_keys(name: str, state: int, indexer: int) -> None:
    llm = read(name)
    assert sum(g.state_bytes_per_sequence for g in llm.attention) == state
    assert sum(g.indexer_bytes_per_tok for g in llm.attention) == indexer


def test_parameters_of_a_plain_model_by_hand() -> None:
    """4 layers: q and o 64 x 64, k and v 64 x 32; three matrices 64 x 96; two norms of 64, one more at the end."""
    p = read("llama").params
    assert (p.embedding_count, p.head_count) == (6400, 6400)
    assert p.attention_count == 4 * (2 * 64 * 64 + 2 * 64 * 32)
    assert p.mlp_count == 4 * 3 * 64 * 96
    assert p.norm_count == 9 * 64
    assert p.other_count == p.router_count == p.experts_count == 0
    assert p.active_count == p.total_count - 6400


def test_a_tied_embedding_is_counted_once_and_multiplied() -> None:
    p = read("qwen3").params
    assert p.head_count == 0
    assert p.active_count == p.total_count


def test_parameters_of_experts_by_hand() -> None:
    """3 of 4 layers have 8 experts of 3 x 64 x 24; a token uses 2 of 8; the first layer is dense."""
    p = read("qwen3_moe").params
    assert p.experts_count == 3 * 8 * 3 * 64 * 24
    assert p.router_count == 3 * 64 * 8
    assert p.mlp_count == 3 * 64 * 96
    assert p.active_count == p.total_count - 6400 - 3 * 6 * 3 * 64 * 24


def test_parameters_of_latent_attention_by_hand() -> None:
    """q through a rank of 24 to 4 x 24, kv to 32 + 8, up to 4 x (16 + 16), out 64 x 64."""
    assert read("deepseek_v3").params.attention_count == 4 * (64 * 24 + 24 * 96 + 64 * 40 + 32 * 128 + 64 * 64)
    assert read("deepseek_v2").params.attention_count == 4 * (64 * 96 + 64 * 40 + 32 * 128 + 64 * 64)


def test_per_layer_embeddings_are_looked_up_and_not_multiplied() -> None:
    p = read("gemma4_shared").params
    assert p.total_count - p.active_count == 100 * 4 * 8


def test_towers_and_prediction_layers_are_said_to_be_left_out() -> None:
    assert "vision tower is not counted" in (read("qwen2_5_vl").notes or "")
    assert read("qwen2_5_vl").vision_head_count == 8
    assert read("kimi_k25").vision_head_count == 16
    assert "prediction" in (read("deepseek_v3").notes or "")
    assert read("llama").notes is None


def test_encoders_keep_no_cache() -> None:
    assert read("bert").is_encoder
    assert not read("llama").is_encoder


def compressed(**weights: Any) -> dict[str, Any]:
    return {"quantization_config": {"quant_method": "compressed-tensors", "config_groups": {"group_0": {"weights": weights}}}}


@pytest.mark.parametrize(
    ("data", "expected"),
    [
        ({"torch_dtype": "bfloat16"}, "bf16"),
        ({"dtype": "float16"}, "fp16"),
        ({"text_config": {"dtype": "float32"}}, "fp32"),
        ({}, "bf16"),
        ({"quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}, "fp8_block"),
        ({"quantization_config": {"quant_method": "fp8"}}, "fp8"),
        ({"quantization_config": {"quant_method": "mxfp4"}}, "mxfp4"),
        ({"quantization_config": {"quant_method": "awq", "bits": 4}}, "awq_int4"),
        ({"quantization_config": {"quant_method": "modelopt", "quant_algo": "NVFP4"}}, "nvfp4"),
        (compressed(num_bits=4, type="int", group_size=32), "w4a16_int4_g32"),
        (compressed(num_bits=4, type="float", group_size=32), "mxfp4"),
        (compressed(num_bits=8, type="float", strategy="channel"), "fp8_channel"),
    ],
)  # fmt: skip
def test_native_format(data: dict[str, Any], expected: str) -> None:
    assert native_format_id(data) == expected


def test_a_file_called_config_takes_its_folder_s_name(tmp_path: Path) -> None:
    folder = tmp_path / "My-Model-7B"
    folder.mkdir()
    (folder / "config.json").write_bytes((FIXTURES / "llama.json").read_bytes())
    assert read_config_json(folder / "config.json").id == "my_model_7b"


def refusal(path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read_config_json(path)
    assert all(fault.file == str(path) for fault in caught.value.faults)
    assert all(fault.cure for fault in caught.value.faults)
    return str(caught.value)


def changed(tmp_path: Path, name: str, **keys: Any) -> Path:
    data = {**json.loads((FIXTURES / f"{name}.json").read_text(encoding="utf-8")), **keys}
    path = tmp_path / "changed.json"
    path.write_text(json.dumps({k: v for k, v in data.items() if v != "gone"}), encoding="utf-8")
    return path


def test_an_unknown_architecture_is_named_with_its_cure(tmp_path: Path) -> None:
    text = refusal(changed(tmp_path, "llama", model_type="qwen9"))
    assert "model_type: architecture 'qwen9' is not known" in text
    assert "did you mean" in text
    assert "workloads/models" in text


@pytest.mark.parametrize("value", ["gone", None, 7, ["llama"]])
def test_no_architecture(tmp_path: Path, value: Any) -> None:
    assert "model_type: missing" in refusal(changed(tmp_path, "llama", model_type=value))


def test_every_missing_key_is_named_at_once(tmp_path: Path) -> None:
    text = refusal(changed(tmp_path, "llama", hidden_size="gone", vocab_size=None, intermediate_size="gone"))
    assert [line.split(": ")[0].split()[-1] for line in text.splitlines()] == ["hidden_size", "intermediate_size", "vocab_size"]


@pytest.mark.parametrize(
    ("name", "keys", "said"),
    [
        ("llama", {"num_hidden_layers": "32"}, "num_hidden_layers: '32' is not a whole number"),
        ("llama", {"num_hidden_layers": True}, "num_hidden_layers"),
        ("llama", {"num_hidden_layers": -1}, "num_hidden_layers"),
        ("llama", {"num_hidden_layers": 10**7}, "num_hidden_layers"),
        ("llama", {"hidden_size": 0}, "hidden_size"),
        ("llama", {"hidden_size": 64.5}, "hidden_size"),
        ("llama", {"hidden_size": 10**9, "vocab_size": 10**9}, "less than or equal"),
        ("llama", {"num_key_value_heads": 3}, "kv_head_count must divide head_count"),
        ("llama", {"tie_word_embeddings": "yes"}, "tie_word_embeddings: 'yes' is neither true nor false"),
        ("gpt_oss", {"layer_types": ["full_attention"]}, "layer_types: 1 entries for 4 layers"),
        ("gpt_oss", {"layer_types": ["full_attention", "ring"] * 2}, "unknown kind 'ring'"),
        ("gpt_oss", {"layer_types": "full_attention"}, "layer_types: is not a list of strings"),
        ("gpt_oss", {"sliding_window": None}, "sliding_window: missing"),
        ("gpt_oss", {"num_experts_per_tok": 9}, "top_k"),
        ("deepseek_v3", {"kv_lora_rank": "gone"}, "kv_lora_rank: missing"),
        ("deepseek_v4", {"compress_ratios": [4]}, "compress_ratios: 1 entries for 4 layers"),
        ("mimo_v2_flash", {"hybrid_layer_pattern": [0, 1]}, "hybrid_layer_pattern: 2 entries for 4 layers"),
        ("nemotron_h", {"hybrid_override_pattern": "M?"}, "unknown block '?'"),
        ("nemotron_h", {"hybrid_override_pattern": "gone"}, "hybrid_override_pattern: missing"),
        ("nemotron_nas", {"block_configs": [{"attention": 1, "ffn": {"ffn_mult": 1}}]}, "block_configs[0].attention: is not an object"),
        ("qwen3_next", {"layer_types": ["linear_attention"]}, "layer_types"),
        ("granitemoehybrid", {"layer_types": ["mamba"]}, "layer_types"),
        ("kimi_k3", {"text_config": {"model_type": "kimi_linear"}}, "text_config.hidden_size: missing"),
    ],
)  # fmt: skip
def test_absurd_values_are_refused_by_name(tmp_path: Path, name: str, keys: dict[str, Any], said: str) -> None:
    assert said in refusal(changed(tmp_path, name, **keys))


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"", "Expecting value"),
        (b"{", "1 column"),
        (b"[1, 2]", "not an object"),
        (b"\xff\xfe\x00", "not UTF-8"),
        (b"[" * 200_000, "nested too deeply"),
        (b'{"model_type": "llama", "hidden_size": ' + b"9" * 6000 + b"}", "absurd number"),
        (b" " * (MOST_BYTES + 1), "see that it is the model's config.json"),
    ],
    ids=["empty", "cut", "list", "binary", "deep", "long number", "large"],
)
def test_files_that_are_no_config(tmp_path: Path, content: bytes, said: str) -> None:
    path = tmp_path / "bad.json"
    path.write_bytes(content)
    assert said in refusal(path)


def test_a_path_that_is_not_there_or_a_folder(tmp_path: Path) -> None:
    assert "no such file" in refusal(tmp_path / "none.json")
    assert "this is a folder" in refusal(tmp_path)


def test_a_pipe_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.json")
    assert "is not a regular file" in refusal(tmp_path / "pipe.json")
    assert "is not a regular file" in refusal(Path(os.devnull))


def test_every_family_has_a_small_file() -> None:
    seen = set()
    for path in FIXTURES.glob("*.json"):
        data = json.loads(path.read_text(encoding="utf-8"))
        seen |= {data["model_type"], *(data.get(part, {}).get("model_type") for part in ("text_config", "llm_config", "language_config"))}
    functions = {FAMILIES[name] for name in seen if name in FAMILIES}
    assert functions == set(FAMILIES.values())


def test_slug_is_an_id() -> None:
    assert slug("Qwen--Qwen3-8B") == "qwen_qwen3_8b"
    assert slug("///") == "config"


UNKNOWN = {
    "model_type": "novel9", "architectures": ["NovelForCausalLM"], "auto_map": {"AutoConfig": "configuration_novel.NovelConfig"},
    "hidden_size": 64, "num_hidden_layers": 4, "num_attention_heads": 4, "num_key_value_heads": 2, "intermediate_size": 96,
    "vocab_size": 100, "max_position_embeddings": 512, "kv_lora_rank": 32, "ssm_state_size": 16, "compress_ratio": 4, "rope_theta": 1e4,
}  # fmt: skip


def written(tmp_path: Path, data: Any) -> Path:
    path = tmp_path / "written.json"
    path.write_text(json.dumps(data), encoding="utf-8")
    return path


def test_an_unknown_architecture_is_told_with_what_may_matter_and_the_way_out(tmp_path: Path) -> None:
    text = refusal(written(tmp_path, UNKNOWN))
    assert "architecture 'novel9' (NovelForCausalLM) is not known" in text
    assert "compress_ratio, kv_lora_rank, ssm_state_size" in text
    assert "--assume" in text


def test_an_unknown_architecture_is_read_as_a_plain_decoder_on_request(tmp_path: Path) -> None:
    """Four layers of grouped heads, as Llama: the same cache and parameters, with a label."""
    llm = read_config_json(written(tmp_path, UNKNOWN), assume=True)
    assert kv(llm) == (4 * GQA, 4 * GQA)
    assert llm.params.total_count == read("llama").params.total_count
    notes = llm.notes or ""
    assert notes.startswith("Assumed: 'novel9' read as a plain decoder from hidden_size")
    assert "Not understood, and may change the memory: compress_ratio, kv_lora_rank, ssm_state_size." in notes


def test_an_assumed_mixture_of_experts_and_window(tmp_path: Path) -> None:
    data = {**UNKNOWN, "num_experts": 8, "num_experts_per_tok": 2, "moe_intermediate_size": 24, "first_k_dense_replace": 1,
            "sliding_window": 128}  # fmt: skip
    llm = read_config_json(written(tmp_path, data), assume=True)
    assert llm.params.experts_count == 3 * 8 * 3 * 64 * 24
    assert kv(llm) == (4 * GQA, 0)


def test_assuming_changes_nothing_for_a_known_architecture() -> None:
    path = FIXTURES / "qwen3.json"
    assert read_config_json(path, assume=True) == read_config_json(path)


def test_an_assumed_file_still_needs_its_sizes(tmp_path: Path) -> None:
    path = written(tmp_path, {"model_type": "novel9"})
    with pytest.raises(InputError) as caught:
        read_config_json(path, assume=True)
    told = {fault.place for fault in caught.value.faults}
    assert {"hidden_size", "num_hidden_layers", "num_attention_heads", "vocab_size", "max_position_embeddings"} <= told


def test_code_of_the_checkpoint_does_not_matter_where_the_architecture_is_known(tmp_path: Path) -> None:
    path = changed(tmp_path, "llama", auto_map={"AutoConfig": "configuration_mine.MineConfig"}, trust_remote_code=True)
    assert kv(read_config_json(path)) == (4 * GQA, 4 * GQA)


def test_a_language_part_of_another_kind_is_not_read_as_its_wrapper(tmp_path: Path) -> None:
    data = {"model_type": "llava", "text_config": {**UNKNOWN}}
    assert "architecture 'novel9'" in refusal(written(tmp_path, data))


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"model_type": "llama", "hidden_size": 64, "hidden_size": 128}', "hidden_size: is written twice with two values"),
        ('{"model_type": "llama", "hidden_size": NaN}', "hidden_size: 'nan' is not a whole number"),
        ('{"model_type": "llama", "hidden_size": -Infinity}', "hidden_size: '-inf' is not a whole number"),
        ('{"model_type": "llama", "hidden_size": 1e999}', "hidden_size: 'inf' is not a whole number"),
        ('{"model_type": "llama", "num_hidden_layers": 1000000000}', "'1000000000' is not a whole number from 1 to 10000"),
        ('{"model_type": "' + "x" * 4_000_000 + '"}', "is not known"),
    ],
    ids=["twice", "nan", "infinity", "overflow", "layers", "long name"],
)  # fmt: skip
def test_odd_json(tmp_path: Path, text: str, said: str) -> None:
    path = tmp_path / "odd.json"
    path.write_text(text, encoding="utf-8")
    told = refusal(path)
    assert said in told
    assert len(told) < 5_000


def test_a_fault_of_every_layer_is_told_once(tmp_path: Path) -> None:
    lines = refusal(written(tmp_path, {"model_type": "llama4", "num_hidden_layers": 10_000})).splitlines()
    assert len(lines) == len(set(lines)) < 12


JUNK: list[Any] = [
    None, True, False, 0, 1, -1, 3, 10**6, 10**10, 10**40, 0.5, -2.5, 1e308, float("inf"), float("nan"), "", "32", "auto", "\ud800", [],
    [0], [-5], [None], ["x"], [10**40], {}, {"a": 1}, [[1]], [True], "x" * 300, 1e-300,
]  # fmt: skip
FILES = sorted(path.name for path in FIXTURES.glob("*.json"))


def places(node: Any, at: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    inner = list(node.items()) if isinstance(node, dict) else list(enumerate(node)) if isinstance(node, list) else []
    return [here for key, value in inner for here in ((*at, key), *places(value, (*at, key)))]


@settings(max_examples=250, deadline=None)
@given(data=st.data(), name=st.sampled_from(FILES), count=st.integers(1, 3), assume=st.booleans())
def test_a_spoiled_file_is_read_or_refused_and_nothing_else(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, name: str, count: int, assume: bool
) -> None:
    """Whatever stands in a key, the answer is a shape that holds together or faults with their cures; never another exception."""
    document = json.loads((FIXTURES / name).read_text(encoding="utf-8"))
    for _ in range(count):
        found = places(document)
        if not found:
            break
        *way, last = data.draw(st.sampled_from(found))
        node = document
        for step in way:
            node = node[step]
        if data.draw(st.booleans()):
            node[last] = json.loads(json.dumps(data.draw(st.sampled_from(JUNK))))
        else:
            del node[last]
    path = tmp_path_factory.mktemp("spoiled") / "config.json"
    path.write_text(json.dumps(document), encoding="utf-8")
    try:
        llm = read_config_json(path, assume=assume)
    except InputError as error:
        assert all(fault.what and fault.cure for fault in error.faults)
        str(error).encode()
    else:
        assert sum(g.layer_count for g in llm.attention if not g.is_second_cache) == llm.layer_count
        (llm.notes or "").encode()


@settings(max_examples=60, deadline=None)
@given(
    layers=st.integers(1, 12), kv=st.integers(1, 4), group=st.integers(1, 4), width=st.integers(1, 64), hidden=st.integers(8, 256),
    inner=st.integers(1, 512), vocab=st.integers(1, 999),
)  # fmt: skip
def test_a_plain_model_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, layers: int, kv: int, group: int, width: int, hidden: int, inner: int, vocab: int
) -> None:
    """Cache and parameters follow the closed formulas whatever the sizes."""
    path = tmp_path_factory.mktemp("any") / "any.json"
    path.write_text(
        json.dumps(
            {
                "model_type": "llama", "hidden_size": hidden, "vocab_size": vocab, "num_hidden_layers": layers, "head_dim": width,
                "num_attention_heads": kv * group, "num_key_value_heads": kv, "intermediate_size": inner, "max_position_embeddings": 64,
            }
        ),
        encoding="utf-8",
    )  # fmt: skip
    llm = read_config_json(path)
    assert llm.attention[0].layer_count * llm.attention[0].kv_head_count * llm.attention[0].head_dim == layers * kv * width
    attention = hidden * width * (2 * kv * group + 2 * kv)
    assert llm.params.total_count == 2 * vocab * hidden + layers * (attention + 3 * hidden * inner + 2 * hidden) + hidden
