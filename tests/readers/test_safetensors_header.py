"""safetensors headers and indexes: exact bytes, names to components, and files that lie."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.errors import InputError
from planner.readers.safetensors_header import MOST_HEADER_BYTES, MOST_SHARDS, MOST_TENSORS, Tensor, read_index, read_shards, shards_of
from planner.readers.tensor_names import COMPONENTS, bytes_by_component, component_of, packed_format


def write(path: Path, tensors: dict[str, tuple[str, list[int], int]], data: bool = True, **extra: Any) -> Path:
    """Write a file of tensors `name: (dtype, shape, bytes)`, all zeros; without `data` only its header."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    end = 0
    for name, (dtype, shape, size) in tensors.items():
        header[name] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + size]}
        end += size
    raw = json.dumps({**header, **extra}).encode()
    path.write_bytes(len(raw).to_bytes(8, "little") + raw + (b"\0" * end if data else b""))
    return path


def raw(path: Path, header: bytes | str, length: int | None = None) -> Path:
    body = header.encode() if isinstance(header, str) else header
    path.write_bytes((len(body) if length is None else length).to_bytes(8, "little") + body)
    return path


def read_header(path: Path) -> tuple[list[Tensor], bool]:
    return read_shards(path.parent, [path.name])


def test_bytes_are_those_of_the_file(tmp_path: Path) -> None:
    """12 x 4 BF16 is 96 bytes, 3 F32 are 12, 10 x 2 of 4 bit are 10: 118 in all, as the file's size less its header."""
    path = write(tmp_path / "m.safetensors", {"a": ("BF16", [12, 4], 96), "b": ("F32", [3], 12), "c": ("F4", [10, 2], 10)})
    tensors, is_whole = read_header(path)
    header = int.from_bytes(path.read_bytes()[:8], "little")
    assert is_whole and sum(t.byte_count for t in tensors) == 118 == path.stat().st_size - 8 - header
    assert [(t.name, t.dtype, t.shape) for t in tensors] == [("a", "BF16", (12, 4)), ("b", "F32", (3,)), ("c", "F4", (10, 2))]


def test_a_header_alone_is_enough(tmp_path: Path) -> None:
    tensors, is_whole = read_header(write(tmp_path / "m.safetensors", {"a": ("F16", [1000, 1000], 2_000_000)}, data=False))
    assert not is_whole and tensors[0].byte_count == 2_000_000


ONE = {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}


@pytest.mark.parametrize(
    ("header", "word"),
    [
        ('{"a": 1', "JSON"), (b"\xff\xfe{}", "UTF-8"), ("[1]", "not an object"), ('{"a": 3}', "not an object of dtype"),
        ('{"a": {"dtype": "F16", "shape": [2], "data_offsets": [0, 4]}, "a": 1}', "written twice"),
        ('{"a": NaN}', "NaN"), ('{"a":' + "[" * 100_000 + "]" * 100_000 + "}", "deep"),
        (json.dumps({"a": {**ONE, "dtype": "Q9"}}), "not known"), (json.dumps({"a": {**ONE, "shape": [-2]}}), "shape"),
        (json.dumps({"a": {**ONE, "shape": [True]}}), "shape"), (json.dumps({"a": {**ONE, "shape": [1] * 40}}), "shape"),
        (json.dumps({"a": {**ONE, "data_offsets": [-4, 0]}}), "data_offsets"),
        (json.dumps({"a": {**ONE, "data_offsets": [4, 0]}}), "offsets say"),
        (json.dumps({"a": {**ONE, "data_offsets": [0, 8]}}), "offsets say"),
        (json.dumps({"a": ONE, "b": {**ONE, "data_offsets": [2, 6]}}), "overlap"),
        (json.dumps({"a": {**ONE, "data_offsets": [8, 12]}}), "gap"),
    ],
)  # fmt: skip
def test_headers_that_lie(tmp_path: Path, header: str | bytes, word: str) -> None:
    with pytest.raises(InputError, match=word) as error:
        read_header(raw(tmp_path / "m.safetensors", header))
    assert "m.safetensors" in str(error.value) and len(str(error.value)) < 700


def test_lengths_that_lie(tmp_path: Path) -> None:
    path = tmp_path / "m.safetensors"
    for length, word in ((50, "in a file of"), (MOST_HEADER_BYTES + 1, "format's"), (2**63, "format's"), (0, "too short")):
        with pytest.raises(InputError, match=word):
            read_header(raw(path, "{}", length))
    path.write_bytes(b"abc")
    with pytest.raises(InputError, match="too short"):
        read_header(path)
    whole = write(path, {"a": ("F16", [2], 4)})
    whole.write_bytes(whole.read_bytes() + b"more")
    with pytest.raises(InputError, match="accounts for"):
        read_header(whole)
    with pytest.raises(InputError, match="regular"):
        read_header(tmp_path)


@given(st.binary(max_size=200))
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.mktemp("any") / "m.safetensors"
    path.write_bytes(data)
    try:
        tensors, _ = read_header(path)
    except InputError:
        return
    assert all(t.byte_count >= 0 for t in tensors)


def test_shards_by_name_and_a_tensor_in_two(tmp_path: Path) -> None:
    names = shards_of(tmp_path / "model-00002-of-00003.safetensors")
    assert names == [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)] and shards_of(Path("a.safetensors")) == ["a.safetensors"]
    for name in names[:2]:
        write(tmp_path / name, {"same": ("U8", [4], 4)})
    with pytest.raises(InputError, match="two shards"):
        read_shards(tmp_path, names[:2])
    with pytest.raises(InputError, match="shard 9 of 3"):
        shards_of(Path("model-00009-of-00003.safetensors"))


def test_shards_share_the_limits_of_one_header(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three shards of 40 kB of metadata and two tensors each: within the limits alone, not together."""
    names = [f"model-0000{i}-of-00003.safetensors" for i in (1, 2, 3)]
    for i, name in enumerate(names):
        write(tmp_path / name, {f"{i}.{k}": ("U8", [4], 4) for k in range(2)}, __metadata__={"note": "x" * 40_000})
    assert len(read_shards(tmp_path, names)[0]) == 6
    monkeypatch.setattr("planner.readers.safetensors_header.MOST_HEADER_BYTES", 100_000)
    with pytest.raises(InputError, match=r"00003-of-00003\.safetensors header: the shards' headers together pass 100,000 bytes"):
        read_shards(tmp_path, names)
    assert len(read_shards(tmp_path, names[:2])[0]) == 4
    monkeypatch.undo()
    monkeypatch.setattr("planner.readers.safetensors_header.MOST_TENSORS", 5)
    with pytest.raises(InputError, match="together hold more than 5 tensors"):
        read_shards(tmp_path, names)


def test_thousands_of_hostile_shards_take_the_work_of_one(tmp_path: Path) -> None:
    """Two thousand links to one header of 60 MB of blanks: the second ends it."""
    whole = tmp_path / "blank.safetensors"
    with whole.open("wb") as file:
        file.write((60_000_000).to_bytes(8, "little") + b"{}" + b" " * (60_000_000 - 2))
    names = []
    for number in range(1, MOST_SHARDS + 1):
        names.append(f"m-{number:05d}-of-{MOST_SHARDS:05d}.safetensors")
        (tmp_path / names[-1]).hardlink_to(whole)
    start = time.process_time()
    with pytest.raises(InputError, match="together pass"):
        read_shards(tmp_path, names)
    assert time.process_time() - start < 5


@pytest.mark.parametrize("body", ['{"a":[' + "[]," * (3 * MOST_TENSORS) + "[]]}", '{"a":[' + "1," * (12 * MOST_TENSORS + 1) + "1]}"])
def test_a_header_of_more_values_than_tensors_take(tmp_path: Path, body: str) -> None:
    """Millions of lists or numbers would take gigabytes once read: they are counted before."""
    with pytest.raises(InputError, match="more values than"):
        read_header(raw(tmp_path / "m.safetensors", body))


def test_a_name_of_thousands_of_parts(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="more than 64 parts"):
        read_header(write(tmp_path / "m.safetensors", {"a." * 10_000: ("U8", [4], 4)}))


@pytest.mark.parametrize(
    ("text", "word"),
    [
        ("{}", "weight_map"), ('{"weight_map": {"a": "../../etc/x.safetensors"}}', "beside the index"),
        ('{"weight_map": {"a": 3}}', "beside"),
        ('{"metadata": {"total_size": -1}, "weight_map": {"a": "m.safetensors"}}', "total_size"),
        ('{"metadata": {"total_size": true}, "weight_map": {"a": "m.safetensors"}}', "total_size"), ("nope", "JSON"),
    ],
)
def test_indexes_that_lie(tmp_path: Path, text: str, word: str) -> None:
    path = tmp_path / "model.safetensors.index.json"
    path.write_text(text)
    with pytest.raises(InputError, match=word):
        read_index(path)


def test_a_gigabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "model.safetensors.index.json"
    with path.open("wb") as file:
        file.truncate(10**9)
    with pytest.raises(InputError, match="1,000,000,000 bytes"):
        read_index(path)


NAMES = {
    "model.embed_tokens.weight": "embedding", "lm_head.weight": "head", "model.layers.0.self_attn.q_proj.weight_scale_inv": "attention",
    "model.layers.0.self_attn.q_norm.weight": "norm", "model.norm.weight": "norm", "model.layers.1.mlp.gate.weight": "router",
    "model.layers.1.mlp.experts.5.gate_proj.qweight": "experts", "model.layers.1.mlp.shared_experts.up_proj.weight": "mlp",
    "model.layers.1.mlp.experts.gate_up_proj_blocks": "experts", "model.layers.1.mlp.router.weight": "router",
    "model.layers.2.linear_attn.in_proj_qkvz.weight": "recurrent", "backbone.layers.0.mixer.in_proj.weight": "recurrent",
    "backbone.layers.0.mixer.A_log": "recurrent", "backbone.layers.1.mixer.q_proj.weight": "attention",
    "model.visual.blocks.0.attn.qkv.weight": "vision", "multi_modal_projector.linear_1.weight": "vision",
    "audio_tower.layers.0.fc1.weight": "vision", "model.layers.61.self_attn.q_a_proj.weight": "mtp",
    "mtp.layers.0.mlp.up_proj.weight": "mtp",
    "transformer.h.0.attn.c_attn.weight": "attention", "transformer.wte.weight": "embedding",
    "model.layers.0.feed_forward.w1.weight": "mlp",
    "model.strange": "other",
}


def test_names_to_components(tmp_path: Path) -> None:
    """Names as published by Llama, DeepSeek V3 (61 layers, one more predicts), Qwen3-Next, Nemotron-H, Qwen-VL, GPT-2 and gpt-oss."""
    tensors, _ = read_header(write(tmp_path / "m.safetensors", {name: ("U8", [2**i], 2**i) for i, name in enumerate(NAMES)}))
    found = bytes_by_component(tensors, 61)
    expected = dict.fromkeys((*COMPONENTS, "mtp"), 0)
    for i, component in enumerate(NAMES.values()):
        expected[component] += 2**i
    assert found == expected and sum(found.values()) == 2 ** len(NAMES) - 1
    assert component_of("model.layers.61.self_attn.q_proj.weight", layer_count=80) == "attention"


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        ({"x.weight": ("BF16", [8], 16)}, "bf16"), ({"x.weight": ("F16", [8], 16)}, "fp16"), ({"x.weight": ("F32", [8], 32)}, "fp32"),
        ({"x.qweight": ("I32", [8], 32), "x.qzeros": ("I32", [1], 4), "x.scales": ("F16", [1], 2)}, "awq_int4"),
        ({"x.qweight": ("I32", [8], 32), "x.g_idx": ("I32", [1], 4)}, "gptq_int4"),
        ({"x.weight": ("F8_E4M3", [8], 8), "x.weight_scale": ("F32", [], 4)}, "fp8"),
        ({"x.weight": ("F8_E4M3", [8, 8], 64), "x.weight_scale": ("BF16", [8, 1], 16)}, "fp8_channel"),
        ({"x.weight": ("F8_E4M3", [8], 8), "x.weight_scale_inv": ("F32", [1], 4)}, "fp8_block"),
        ({"x.weight_packed": ("I32", [8], 32), "x.weight_scale": ("BF16", [8], 16)}, "w4a16_int4"),
        ({"x_blocks": ("U8", [32], 32), "x_scales": ("U8", [2], 2)}, "mxfp4"),
        ({"x.weight": ("U8", [32], 32), "x.weight_scale": ("F8_E4M3", [4], 4)}, "nvfp4"),
        ({"x.weight": ("U8", [32], 32), "x.absmax": ("U8", [4], 4), "x.nested_absmax": ("F32", [1], 4)}, "bnb_nf4_dq"),
        ({"x.weight": ("I8", [32], 32), "x.SCB": ("F32", [4], 16)}, "int8"),
    ],
)
def test_packing_shows_the_format(tmp_path: Path, tensors: dict[str, tuple[str, list[int], int]], expected: str) -> None:
    assert packed_format(read_header(write(tmp_path / "m.safetensors", tensors))[0]) == expected
