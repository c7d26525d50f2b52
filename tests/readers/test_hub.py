"""A model of the Hub, over a transport that is not there: what is fetched, and one line for each way it can fail."""

from __future__ import annotations

import json
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import huggingface_hub
import pytest
from huggingface_hub import errors

from planner.catalog import load_catalog
from planner.errors import InputError
from planner.readers.hub import FILES, hub_id, read_hub

CONFIG: dict[str, Any] = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2, "num_attention_heads": 4,
    "num_key_value_heads": 2, "vocab_size": 256, "max_position_embeddings": 2048, "tie_word_embeddings": False, "torch_dtype": "bfloat16",
}


class Hub:
    """What the package's three functions answer: files of one model, a size, or a fault."""

    def __init__(self, folder: Path, files: dict[str, str], fault: Exception | None = None, size: int = 100) -> None:
        self.folder, self.files, self.fault, self.size = folder, files, fault, size
        self.asked: list[str] = []

    def metadata(self, url: str, timeout: float) -> Any:
        assert timeout <= 10
        name = url.rsplit("/", 1)[-1]
        self.asked.append(name)
        if self.fault is not None:
            raise self.fault
        if name not in self.files:
            raise made(errors.RemoteEntryNotFoundError, 404)
        return SimpleNamespace(size=self.size)

    def download(self, repo: str, name: str, local_files_only: bool = False, etag_timeout: float = 0) -> str:
        if local_files_only and self.fault is not None:
            raise errors.LocalEntryNotFoundError("not in the cache")
        path = self.folder / name
        path.write_text(self.files[name])
        return str(path)


def made(kind: Any, status: int) -> Exception:
    """Return one of the package's faults with a status, whatever its constructor asks for."""
    error: Any = kind.__new__(kind)
    error.response = SimpleNamespace(status_code=status)
    assert isinstance(error, Exception)
    return error


@pytest.fixture
def hub(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Hub:
    found = Hub(tmp_path, {"config.json": json.dumps(CONFIG)})
    monkeypatch.setattr(huggingface_hub, "get_hf_file_metadata", found.metadata)
    monkeypatch.setattr(huggingface_hub, "hf_hub_download", found.download)
    return found


def read(name: str = "hub:Maker/Model-1B") -> Any:
    return read_hub(name, load_catalog().weight_formats)


def test_a_model_is_named_by_its_repository(hub: Hub) -> None:
    found = read()
    assert (found.llm.id, found.llm.name, found.llm.hf_repo) == ("maker_model_1b", "Maker/Model-1B", "Maker/Model-1B")
    assert found.weights.id == "bf16" and found.weights_bytes_by_component is None and hub.asked == list(FILES)


def test_an_index_of_the_hub_states_the_sum(hub: Hub) -> None:
    index = {"metadata": {"total_size": 213_632}, "weight_map": {"lm_head.weight": "model-00001-of-00001.safetensors"}}
    hub.files["model.safetensors.index.json"] = json.dumps(index)
    found = read()
    assert found.split_follows_shape and sum(found.weights_bytes_by_component.values()) == pytest.approx(213_632)


@pytest.mark.parametrize(
    ("fault", "word"),
    [
        (made(errors.GatedRepoError, 403), "is gated; accept its terms"), (made(errors.RepositoryNotFoundError, 404), "not on the Hub"),
        (made(errors.HfHubHTTPError, 429), "refuses more requests"), (made(errors.HfHubHTTPError, 503), "status 503"),
        (errors.OfflineModeIsEnabled("off"), "cannot be reached"), (TimeoutError("slow"), "cannot be reached"),
        (errors.HFValidationError("odd"), "is not a name of the Hub"),
    ],
)
def test_each_fault_is_one_line_with_its_cure(hub: Hub, fault: Exception, word: str) -> None:
    hub.fault = fault
    with pytest.raises(InputError, match=word) as error:
        read()
    assert "\n" not in str(error.value) and "download its config.json and give the path" in str(error.value)


def test_no_config_and_too_large_a_one(hub: Hub) -> None:
    hub.size = 10**9
    with pytest.raises(InputError, match="1000000000 bytes"):
        read()
    hub.files.clear()
    with pytest.raises(InputError, match=r"no config\.json"):
        read()


@pytest.mark.parametrize("name", ["hub:alone", "hub:a/b/c", "hub:../etc", "hub:", "hub:a/..", "hub:a b/c"])
def test_names_that_are_none(name: str) -> None:
    assert hub_id(name) is None
    with pytest.raises(InputError, match="names no model of the Hub"):
        read(name)
