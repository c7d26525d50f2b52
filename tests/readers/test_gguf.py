"""GGUF files: exact bytes, shapes of families, split and cut files, and headers that lie."""

from __future__ import annotations

import json
import os
import struct
import time
from functools import cache
from pathlib import Path

import gguf
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.cli.main import main
from planner.errors import InputError
from planner.physics import memory
from planner.readers.checkpoint import Checkpoint, read_checkpoint
from planner.sizing_question import ask

from .gguf_files import Shapes, dense_layer, llama, write_gguf

BYTES = {
    "F32": (1, 4), "F16": (1, 2), "BF16": (1, 2), "Q4_K": (256, 144), "Q6_K": (256, 210), "Q8_0": (32, 34), "Q5_0": (32, 22),
    "MXFP4": (32, 17),
}
"""Weights and bytes of a block, as llama.cpp defines them."""


@cache
def catalog() -> Catalog:
    return load_catalog()


def read(path: Path, assume: bool = False) -> Checkpoint:
    return read_checkpoint(path, catalog().weight_formats, assume)


def stored(count: int, kind: str) -> int:
    block, size = BYTES[kind]
    return count // block * size


def cache_of(found: Checkpoint, kv: str = "fp16", engine: str = "llama_cpp") -> memory.Footprint:
    c = catalog()
    own = found.weights_bytes_by_component
    return memory.footprint(found.llm, found.weights, c.kv_format(kv), c.engine(engine), bytes_by_component=own)


def test_bytes_and_shape_of_a_llama(tmp_path: Path) -> None:
    """A layer: q and o 262,144, k 65,536, gate and up 524,288 each in Q4_K; v 65,536, down 524,288 in Q6_K; 512 B a token."""
    found = read(llama(tmp_path / "small-Q4_K_M.gguf"))
    parts = found.weights_bytes_by_component
    assert parts is not None and found.tensor_bytes_are_exact
    assert parts["attention"] == 2 * (stored(262_144 + 65_536 + 262_144, "Q4_K") + stored(65_536, "Q6_K"))
    assert parts["mlp"] == 2 * (stored(2 * 524_288, "Q4_K") + stored(524_288, "Q6_K"))
    assert parts["embedding"] == stored(512_000, "Q4_K") and parts["head"] == stored(512_000, "Q6_K")
    assert parts["norm"] == 5 * 512 * 4
    llm = found.llm
    assert (llm.layer_count, llm.hidden_size, llm.vocab_size, llm.max_context_tok) == (2, 512, 1000, 8192)
    assert found.weights.id == "q4_k_m" and found.weights.is_gguf
    fp = cache_of(found)
    assert fp.kv_bytes_per_tok == 2 * 2 * 2 * 64 * 2 and fp.weights_bytes == sum(parts.values())
    assert llm.params.active_count == llm.params.total_count - 512_000


@pytest.mark.parametrize("kind", sorted(BYTES))
def test_exact_to_the_byte_for_each_type(tmp_path: Path, kind: str) -> None:
    """The tensors of a file are what its size exceeds its header by, alignment of 32 bytes aside."""
    path = llama(tmp_path / "m.gguf", kind=kind, v_kind=kind)
    found = read(path)
    assert found.weights_bytes_by_component is not None
    total = sum(found.weights_bytes_by_component.values())
    matrices = 2 * (2 * 262_144 + 2 * 65_536 + 3 * 524_288) + 2 * 512_000
    assert total == stored(matrices, kind) + 5 * 512 * 4
    reader = gguf.GGUFReader(path)
    assert total == sum(t.n_bytes for t in reader.tensors)


def test_a_file_cut_behind_its_header_reads_alike(tmp_path: Path) -> None:
    """A range download of the first bytes holds all that is needed."""
    path = llama(tmp_path / "m.gguf")
    whole = read(path)
    start = gguf.GGUFReader(path).data_offset
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(path.read_bytes()[:start])
    assert read(cut).weights_bytes_by_component == whole.weights_bytes_by_component


def test_big_endian_and_tokenizer_lists(tmp_path: Path) -> None:
    words = [f"word {i}" for i in range(5000)]
    more = {"tokenizer__ggml__tokens": words, "tokenizer__ggml__scores": [0.5] * 5000}
    little, big = (read(llama(tmp_path / f"{e.name}.gguf", endianess=e, **more)) for e in gguf.GGUFEndian)
    assert little.weights_bytes_by_component == big.weights_bytes_by_component
    same = {"id": "x", "name": "x", "sources": {}}
    assert little.llm.model_copy(update=same) == big.llm.model_copy(update=same)


def test_split_files_are_one_model(tmp_path: Path) -> None:
    first = llama(tmp_path / "m-00001-of-00002.gguf", layers=2)
    whole = read(first.rename(tmp_path / "whole.gguf"))
    keys = {
        "block_count": 2, "context_length": 8192, "embedding_length": 512, "feed_forward_length": 1024, "attention.head_count": 8,
        "attention.head_count_kv": 2,
    }
    head = {"token_embd.weight": ((512, 1000), "Q4_K"), "output_norm.weight": ((512,), "F32"), "output.weight": ((512, 1000), "Q6_K")}
    one, two = tmp_path / "m-00001-of-00002.gguf", tmp_path / "m-00002-of-00002.gguf"
    write_gguf(one, "llama", keys, head | dense_layer(0, 512, 512, 128, 1024, "Q4_K", "Q6_K"), general__file_type=15)
    with pytest.raises(InputError, match="part of the split file is missing"):
        read(one)
    write_gguf(two, "llama", {}, dense_layer(1, 512, 512, 128, 1024, "Q4_K", "Q6_K"))
    for part in (one, two):
        assert read(part).weights_bytes_by_component == whole.weights_bytes_by_component
    assert read(two).llm.name == "m"


def test_parts_share_the_limits_of_one_file(tmp_path: Path) -> None:
    """A thousand links to a part whose list has 1,500,000 empty texts (12 MB, sparse): the third passes four million of them."""
    one = tmp_path / "one.gguf"
    with one.open("wb") as stream:
        stream.write(lying(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 8, 1_500_000)))
        stream.truncate(20_000_000)
    for number in range(1, 1001):
        (tmp_path / f"m-{number:05d}-of-01000.gguf").hardlink_to(one)
    start = time.process_time()
    with pytest.raises(InputError, match=r"m-00003-of-01000.gguf k: more than 4,000,000 texts"):
        read(tmp_path / "m-00001-of-01000.gguf")
    assert time.process_time() - start < 5


@pytest.mark.parametrize(
    ("limit", "most", "told"),
    [
        ("MOST_TENSORS", 20, "10, with 12 in the parts before, is more than 20"),
        ("MOST_KEYS", 10, "2, with 9 in the parts before, is more than 10"),
        ("MOST_HEADER_BYTES", 1_500, "all headers of a model may have 1,500 bytes"),
        ("MOST_TEXT_BYTES_IN_ALL", 450, "more than 450 bytes"),
    ],
)
def test_each_limit_is_that_of_all_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, limit: str, most: int, told: str) -> None:
    """Each of two parts stays below the limit, both together do not."""
    llama(tmp_path / "m-00001-of-00002.gguf", layers=1, list=[1, 2])
    write_gguf(tmp_path / "m-00002-of-00002.gguf", "llama", {}, dense_layer(0, 512, 512, 128, 1024) | {"x": ((512,), "F32")}, list=[1, 2])
    monkeypatch.setattr(f"planner.readers.gguf_header.{limit}", most)
    with pytest.raises(InputError, match=told):
        read(tmp_path / "m-00001-of-00002.gguf")


def test_more_parts_than_are_read_and_parts_that_are_gone(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="one of 1,001 parts, more than 1,000; join them with llama-gguf-split"):
        read(llama(tmp_path / "m-00001-of-01001.gguf", layers=1))
    with pytest.raises(InputError, match="979 more parts are missing") as caught:
        read(llama(tmp_path / "n-00001-of-01000.gguf", layers=1))
    assert len(caught.value.faults) == 21


def mixture(i: int, d: int, kv: int, ff: int, experts: int) -> Shapes:
    own = {k: v for k, v in dense_layer(i, d, d, kv, ff, "F16").items() if "ffn_" not in k or "norm" in k}
    b = f"blk.{i}."
    return own | {
        b + "ffn_gate_inp.weight": ((d, experts), "F32"), b + "ffn_gate_exps.weight": ((d, ff, experts), "F16"),
        b + "ffn_up_exps.weight": ((d, ff, experts), "F16"), b + "ffn_down_exps.weight": ((ff, d, experts), "F16"),
    }


def test_a_mixture_of_experts_with_a_dense_first_layer_and_windows(tmp_path: Path) -> None:
    """gpt-oss: every second layer sees 128 tokens; 8 experts of which 2 work: active parameters lack 6/8 of them."""
    tensors = {"token_embd.weight": ((256, 500), "F16"), "output.weight": ((256, 500), "F16"), "output_norm.weight": ((256,), "F32")}
    tensors |= dense_layer(0, 256, 256, 64, 512, "F16")
    for i in range(1, 4):
        tensors |= mixture(i, 256, 64, 128, 8)
    keys = {
        "block_count": 4, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": 1,
        "attention.key_length": 64, "attention.value_length": 64, "attention.sliding_window": 128, "expert_count": 8,
        "expert_used_count": 2,
    }
    found = read(write_gguf(tmp_path / "moe.gguf", "gpt-oss", keys, tensors))
    llm, fp = found.llm, cache_of(found)
    assert fp.kv_bytes_per_tok == 4 * 256 and fp.kv_bytes_per_tok_past_window == 2 * 256
    moe = next(g for g in llm.mlp if g.kind == "moe")
    assert (moe.layer_count, moe.expert_count, moe.top_k, moe.expert_intermediate_size) == (3, 8, 2, 128)
    assert llm.params.experts_count == 3 * 8 * 3 * 256 * 128 and llm.params.router_count == 3 * 256 * 8
    assert llm.params.active_count == llm.params.total_count - llm.params.experts_count * 6 // 8 - 256 * 500
    assert found.weights.id == "fp16"


@pytest.mark.parametrize("splits", [True, False])
def test_a_latent_and_how_llama_cpp_keeps_it(tmp_path: Path, splits: bool) -> None:
    """DeepSeek: rank 32 + rope 16 = 96 B a token and layer as a latent, 4 heads x (48 + 32) x 2 B where it is expanded."""
    b = "blk.0."
    tensors = {
        "token_embd.weight": ((256, 500), "F16"), "output_norm.weight": ((256,), "F32"), b + "attn_norm.weight": ((256,), "F32"),
        b + "attn_q.weight": ((256, 192), "F16"), b + "attn_kv_a_mqa.weight": ((256, 48), "F16"),
        b + "attn_output.weight": ((128, 256), "F16"),
        b + "ffn_gate.weight": ((256, 512), "F16"), b + "ffn_up.weight": ((256, 512), "F16"), b + "ffn_down.weight": ((512, 256), "F16"),
    }
    keys = {
        "block_count": 1, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4, "attention.kv_lora_rank": 32,
        "rope.dimension_count": 16, "attention.key_length": 48, "attention.value_length": 32,
    }
    if splits:
        tensors |= {b + "attn_k_b.weight": ((32, 32, 4), "F16"), b + "attn_v_b.weight": ((32, 32, 4), "F16")}
        keys |= {"attention.key_length": 48, "attention.value_length": 32, "attention.key_length_mla": 48, "attention.value_length_mla": 32}
    else:
        tensors[b + "attn_kv_b.weight"] = ((32, 256), "F16")
    found = read(write_gguf(tmp_path / "mla.gguf", "deepseek2", keys, tensors))
    assert cache_of(found, engine="llama_cpp_latent").kv_bytes_per_tok == 96
    assert cache_of(found).kv_bytes_per_tok == 4 * (48 + 32) * 2
    assert ("llama_cpp_latent" in found.notes[0]) is splits is found.keeps_latent
    asked = ask(catalog(), str(found.path), None, "fp16", 1024, 1)
    assert asked.engine.id == ("llama_cpp_latent" if splits else "llama_cpp")
    assert ask(catalog(), str(found.path), None, "fp16", 1024, 1, "llama_cpp").engine.id == "llama_cpp"
    assert found.llm.params.head_count == 0


def test_recurrent_layers_keep_a_state(tmp_path: Path) -> None:
    """Qwen3-Next: 3 of 4 layers recurrent; state 16 x 64 + (4 - 1) x (64 + 2 x 2 x 16) values of 4 B a layer; parameters apart."""
    tensors = {"token_embd.weight": ((128, 300), "F16"), "output_norm.weight": ((128,), "F32")}
    for i in range(4):
        if i % 4 == 3:
            tensors |= dense_layer(i, 128, 128, 64, 256, "F16")
            continue
        own = {k: v for k, v in dense_layer(i, 128, 128, 64, 256, "F16").items() if "attn_" not in k or "norm" in k}
        b = f"blk.{i}."
        tensors |= own | {
            b + "attn_qkv.weight": ((128, 128), "F16"), b + "attn_gate.weight": ((128, 64), "F16"),
            b + "ssm_conv1d.weight": ((4, 128), "F32"),
            b + "ssm_out.weight": ((64, 128), "F16"),
        }
    keys = {
        "block_count": 4, "context_length": 4096, "embedding_length": 128, "attention.head_count": 2, "attention.head_count_kv": 1,
        "attention.key_length": 64, "attention.value_length": 64, "ssm.inner_size": 64, "ssm.state_size": 16, "ssm.conv_kernel": 4,
        "ssm.group_count": 2,
    }
    found = read(write_gguf(tmp_path / "hybrid.gguf", "qwen3next", keys, tensors))
    fp = cache_of(found)
    assert fp.kv_bytes_per_tok == 2 * 64 * 2 and fp.state_bytes_per_sequence == 3 * 4 * (16 * 64 + 3 * (64 + 64))
    assert found.llm.params.recurrent_count == 3 * (128 * 128 + 128 * 64 + 4 * 128 + 64 * 128)


def test_layers_that_guess_ahead_are_left_out(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": ((256, 500), "F16"), "output_norm.weight": ((256,), "F32")}
    for i in range(3):
        tensors |= dense_layer(i, 256, 256, 64, 512, "F16")
    keys = {
        "block_count": 3, "nextn_predict_layers": 1, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4,
        "attention.head_count_kv": 1,
    }
    found = read(write_gguf(tmp_path / "mtp.gguf", "glm4moe", keys, tensors))
    assert found.llm.layer_count == 2 and found.llm.params.mlp_count == 2 * 3 * 256 * 512 and "guess ahead" in found.notes[0]


def test_unknown_architectures_are_refused_or_assumed(tmp_path: Path) -> None:
    tensors = {"token_embd.weight": ((256, 500), "F16"), "output_norm.weight": ((256,), "F32")} | dense_layer(0, 256, 256, 64, 512, "F16")
    keys = {"block_count": 1, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": 1}
    path = write_gguf(tmp_path / "new.gguf", "brandnew", keys, tensors)
    with pytest.raises(InputError, match="'brandnew' is not known"):
        read(path)
    found = read(path, assume=True)
    assert found.notes[0].startswith("Assumed") and cache_of(found).kv_bytes_per_tok == 256
    with pytest.raises(InputError, match="a vision projector"):
        read(write_gguf(tmp_path / "mmproj.gguf", "clip", {}, {"v.patch_embd.weight": ((32, 32), "F16")}))


def test_the_command_answers_from_a_file_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = llama(tmp_path / "small-Q4_K_M.gguf")
    with pytest.raises(SystemExit) as stop:
        main(["size", "--llm", str(path), "--context", "8192", "--concurrency", "2", "--gpu", "rtx_4090_24gb", "--json"])
    data = json.loads(capsys.readouterr().out)
    found = read(path)
    assert stop.value.code == 0 and found.weights_bytes_by_component is not None
    assert (data["engine"], data["weights"], data["kv_bytes_per_tok"]) == ("llama_cpp", "q4_k_m", 1024)
    assert data["weights_bytes"] == sum(found.weights_bytes_by_component.values()) and data["kv_bytes"] == 2 * 8192 * 1024
    assert data["checkpoint"]["tensor_bytes_are_exact"] is True


def lying(tensors: int = 0, keys: int = 0, rest: bytes = b"", version: int = 3) -> bytes:
    return b"GGUF" + struct.pack("<IQQ", version, tensors, keys) + rest


def text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"", "cannot be read|does not begin"), (b"GGML", "does not begin"), (b"GGUF\x03", "the header wants"),
        (lying(version=7), "version 7"), (lying(tensors=2**63), "tensor_count"), (lying(keys=10**9), "metadata_kv_count"),
        (lying(keys=1, rest=struct.pack("<Q", 2**62)), "wants"),
        (lying(keys=1, rest=text(b"k") + struct.pack("<I", 77)), "unknown kind 77"),
        (lying(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 8, 2**40)), "wants"),
        (lying(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 9, 2)), "unknown kind 9"),
        (lying(keys=1, rest=text(b"k") + struct.pack("<IIQQ", 9, 8, 2, 2**60) + bytes(64)), "runs past"),
        (lying(keys=2, rest=(text(b"k") + struct.pack("<IB", 0, 1)) * 2), "stands twice"),
        (lying(tensors=1, rest=text(b"t") + struct.pack("<I", 900)), "900 dimensions"),
        (lying(tensors=1, rest=text(b"t") + struct.pack("<IQQIQ", 2, 2**40, 2**40, 0, 0)), "values"),
        (lying(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 32, 999, 0)), "tensor type 999"),
        (lying(tensors=1, rest=text(b"t") + struct.pack("<IQIQ", 1, 33, 12, 0)), "no multiple"), (lying(), "holds no tensor"),
    ],
)
def test_headers_that_lie_are_refused(tmp_path: Path, content: bytes, told: str) -> None:
    path = tmp_path / "m.gguf"
    path.write_bytes(content)
    with pytest.raises(InputError, match=told) as caught:
        read(path)
    assert str(path) in str(caught.value)


def test_a_gigabyte_of_header_is_refused(tmp_path: Path) -> None:
    """A sparse file of 1 GB whose only list claims a hundred million texts: bounded by what a header may have, not by the file."""
    path = tmp_path / "huge.gguf"
    with path.open("wb") as stream:
        stream.write(lying(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 8, 10**8)))
        stream.truncate(10**9)
    with pytest.raises(InputError):
        read(path)
    many = tmp_path / "many.gguf"
    with many.open("wb") as stream:
        stream.write(lying(keys=1, rest=text(b"k") + struct.pack("<IIQ", 9, 8, 3_900_000)))
        stream.truncate(10**9)
    with pytest.raises(InputError):
        read(many)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        read(tmp_path / "gone.gguf")
    os.mkfifo(tmp_path / "pipe.gguf")
    with pytest.raises(InputError):
        read(tmp_path / "pipe.gguf")


@given(st.data())
@settings(max_examples=120, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_spoiled_headers_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    folder = tmp_path_factory.getbasetemp()
    source = folder / "fuzz-source.gguf"
    if not source.exists():
        llama(source, tokenizer__ggml__tokens=["a", "b"], general__name="fuzz")
    raw = bytearray(source.read_bytes()[: gguf.GGUFReader(source).data_offset])
    for _ in range(data.draw(st.integers(0, 4))):
        raw[data.draw(st.integers(0, len(raw) - 1))] = data.draw(st.integers(0, 255))
    path = folder / "fuzz.gguf"
    path.write_bytes(bytes(raw[: data.draw(st.integers(0, len(raw)))]))
    try:
        found = read(path, assume=data.draw(st.booleans()))
    except InputError as error:
        assert error.faults
    else:
        assert found.llm.params.total_count > 0


@pytest.mark.parametrize("gone", ["attention.head_count", "context_length", "expert_used_count"])
def test_a_key_that_memory_hangs_on_is_not_invented(tmp_path: Path, gone: str) -> None:
    """Without a head count no cache would be counted, without the experts in use every parameter but one expert's would be idle."""
    tensors = {"token_embd.weight": ((256, 500), "F16"), "output_norm.weight": ((256,), "F32")} | mixture(0, 256, 64, 128, 8)
    keys = {
        "block_count": 1, "context_length": 4096, "embedding_length": 256, "attention.head_count": 4, "attention.head_count_kv": 1,
        "expert_count": 8, "expert_used_count": 2,
    }
    assert cache_of(read(write_gguf(tmp_path / "whole.gguf", "qwen3moe", keys, tensors))).kv_bytes_per_tok == 256
    del keys[gone]
    with pytest.raises(InputError, match=gone):
        read(write_gguf(tmp_path / "less.gguf", "qwen3moe", keys, tensors))
