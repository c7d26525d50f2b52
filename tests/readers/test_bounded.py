"""Files read whole within bounds: every reader refuses alike, by kind and size, before a byte is read."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from planner.catalog import load_catalog
from planner.errors import InputError
from planner.readers import config_json
from planner.readers.bounded import decoded, read_bounded
from planner.readers.checkpoint import read_checkpoint
from planner.readers.config_json import read_config_json
from planner.readers.measured_csv import read_measured_csv
from planner.readers.prices_csv import read_price_csv
from planner.readers.safetensors_header import read_index
from planner.readers.yaml_file import read_yaml
from planner.schema.prices import PriceRow

FIXTURES = Path(__file__).parent / "fixtures" / "config_json"
READERS: dict[str, Callable[[Path], Any]] = {
    "yaml": lambda path: read_yaml(path, max_bytes=1_000_000), "config": read_config_json, "index": read_index,
    "measured": read_measured_csv, "prices": lambda path: read_price_csv(path, PriceRow),
}


def refusal(read: Callable[[Path], Any], path: Path) -> str:
    with pytest.raises(InputError) as caught:
        read(path)
    assert len(caught.value.faults) == 1 and caught.value.faults[0].file == str(path)
    return str(caught.value)


@pytest.mark.parametrize("name", READERS)
def test_every_reader_refuses_alike(tmp_path: Path, name: str) -> None:
    read, huge, text = READERS[name], tmp_path / "huge", tmp_path / "text"
    with huge.open("wb") as stream:
        stream.truncate(10**9)
    text.write_bytes(b"id,x\n\xff\xfe\n")
    assert "the file is too large: 1,000,000,000 bytes, at most " in refusal(read, huge)
    assert ": no such file; check the path" in refusal(read, tmp_path / "none")
    assert ": this is a folder, not a file; give the path of a" in refusal(read, tmp_path).replace("of the", "of a")
    assert "UTF-8" in refusal(read, text)
    if name != "yaml":
        os.mkfifo(tmp_path / "pipe")
        assert ": is not a regular file; give the path of" in refusal(read, tmp_path / "pipe")


def test_bytes_up_to_the_bound_and_no_further(tmp_path: Path) -> None:
    path = tmp_path / "ten"
    path.write_bytes(b"0123456789")
    assert read_bounded(path, 10, "a file") == b"0123456789"
    with pytest.raises(InputError, match=r"shown: the file is too large: 10 bytes, at most 9 bytes are read; see that it is a file"):
        read_bounded(path, 9, "a file", file="shown")
    with pytest.raises(InputError, match="too large: more, at most 9 bytes"):
        read_bounded(Path("/dev/zero"), 9, "a file", may_be_pipe=True)


def test_where_a_text_is_no_text() -> None:
    assert decoded("\ufeffä".encode(), "f", "a file") == "ä"
    with pytest.raises(InputError, match=r"f:3: not UTF-8 text \(byte 0xff\); give a file, saved as UTF-8"):
        decoded(b"a\nb\n\xff", "f", "a file")


def test_a_config_beside_tensors_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "config.json").write_bytes((FIXTURES / "llama.json").read_bytes())
    read: list[Path] = []

    def counted(path: Path, *args: Any, **more: Any) -> bytes:
        read.append(path)
        return read_bounded(path, *args, **more)

    monkeypatch.setattr(config_json, "read_bounded", counted)
    assert read_checkpoint(tmp_path, load_catalog().weight_formats).llm.layer_count > 0
    assert read == [tmp_path / "config.json"]
