"""`planner size` on the files users have: ids, paths, folders, names of the Hub, formats read from them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.cli.main import main

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}
LOAD = ("--context", "512", "--concurrency", "1", "--gpu", "h100_sxm_80gb", "--count", "1")
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(["size", *args, *LOAD])
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


def config(folder: Path, **more: Any) -> str:
    path = folder / "config.json"
    path.write_text(json.dumps({**CONFIG, **more}))
    return str(path)


def tensors(folder: Path) -> str:
    """Write two tensors' header: an embedding of 256 x 64 and a projection of 128 x 64, F16: 49,152 bytes."""
    header = {
        "model.embed_tokens.weight": {"dtype": "F16", "shape": [256, 64], "data_offsets": [0, 32768]},
        "model.layers.0.mlp.up_proj.weight": {"dtype": "F16", "shape": [128, 64], "data_offsets": [32768, 49152]},
    }
    raw = json.dumps(header).encode()
    path = folder / "model.safetensors"
    path.write_bytes(len(raw).to_bytes(8, "little") + raw)
    return str(path)


def data(run: Run, *args: str) -> dict[str, Any]:
    code, out, err = run(*args, "--json")
    assert code == 0 and err == ""
    found: dict[str, Any] = json.loads(out)
    return found


def test_a_config_states_its_format(run: Run, tmp_path: Path) -> None:
    found = data(run, "--llm", config(tmp_path, quantization_config={"quant_method": "fp8"}))
    assert (found["weights"], found["kv_cache"], found["engine"]) == ("fp8", "fp16", "vllm")
    assert found["checkpoint"] == {"path": str(tmp_path / "config.json"), "tensor_bytes_are_exact": False, "notes": []}
    assert found["weights_bytes"] == 65536 + 73728 + 640   # ends of 16 bit, layers of 8, norms of 16


def test_the_file_s_bytes_count_while_its_format_stays(run: Run, tmp_path: Path) -> None:
    config(tmp_path)
    path = tensors(tmp_path)
    for args in (("--llm", path), ("--llm", str(tmp_path)), ("--llm", path, "--weights", "fp16")):
        found = data(run, *args)
        assert found["weights_bytes"] == 49_152 and found["weights"] == "fp16" and found["checkpoint"]["tensor_bytes_are_exact"]
        assert found["weights_bytes_by_component"]["embedding"] == 32_768 and found["weights_bytes_by_component"]["mlp"] == 16_384
        assert any(w["name"] == "file" and "one model" in w["text"] for w in found["warnings"])
    other = data(run, "--llm", path, "--weights", "fp8")
    assert other["weights"] == "fp8" and other["weights_bytes"] == 139_904 and not other["checkpoint"]["tensor_bytes_are_exact"]
    given = data(run, "--llm", path, "--weights-gb", "1")
    assert given["weights_bytes"] == 10**9 and not given["checkpoint"]["tensor_bytes_are_exact"]


def test_a_model_of_the_catalog_has_no_file(run: Run) -> None:
    assert data(run, "--llm", "qwen3_8b", "--weights", "bf16")["checkpoint"] is None


def test_assumed_is_said(run: Run, tmp_path: Path) -> None:
    path = config(tmp_path, model_type="never_seen")
    code, _, err = run("--llm", path)
    assert code == 2 and "'never_seen'" in err and "--assume" in err
    assert any(w["name"] == "assumed_shape" for w in data(run, "--llm", path, "--assume")["warnings"])


@pytest.mark.parametrize(
    ("args", "word"),
    [
        (("--llm", "qwen3_8b"), "--weights: no format named"), (("--llm", "no_such_model"), "no model 'no_such_model'"),
        (("--llm", "absent/config.json"), "no such file"), (("--llm", "absent.gguf"), "there is no such file"),
        (("--llm", "hub:alone"), "names no model of the Hub"), (("--llm", "qwen3_8b", "--weights", "fp9"), "fp9"),
    ],
)
def test_what_is_wrong_is_one_line(run: Run, args: tuple[str, ...], word: str) -> None:
    code, out, err = run(*args)
    assert code == 2 and out == "" and word in err and err.count("\n") == 1


def test_hostile_files_are_refused(run: Run, tmp_path: Path) -> None:
    path = config(tmp_path, torch_dtype=None)
    code, _, err = run("--llm", path)
    assert code == 2 and "does not state its format" in err
    large = tmp_path / "large.json"
    with large.open("wb") as file:
        file.truncate(10**9)
    (tmp_path / "deep.json").write_text("[" * 200_000)
    (tmp_path / "latin.json").write_bytes(b'{"a": "\xe9"}')
    (tmp_path / "long.safetensors").write_bytes((10**6).to_bytes(8, "little") + b"{}")
    (tmp_path / "empty").mkdir()
    for name in ("large.json", "deep.json", "latin.json", "long.safetensors", "empty"):
        code, _, err = run("--llm", str(tmp_path / name))
        assert code == 2 and name in err and err.count("\n") == 1


def test_a_plain_name_of_the_hub_is_asked_for_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config(tmp_path)
    monkeypatch.setattr("planner.readers.hub.fetch", lambda repo: tmp_path)
    for name in ("Maker/Model-1B", "hub:Maker/Model-1B"):
        assert data(run, "--llm", name)["llm"] == "maker_model_1b"
