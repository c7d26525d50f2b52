"""Files of measurements: what is read, and that every fault is told at once."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.errors import InputError
from planner.readers.measured_csv import read_measured_csv

HEAD = "id,engine,model,weight_format,accelerator,metric,value,tp,input_tokens,concurrency_or_batch,note"


def write(tmp_path: Path, *lines: str) -> Path:
    path = tmp_path / "runs.csv"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_reads_numbers_words_and_quoted_commas(tmp_path: Path) -> None:
    row, other = read_measured_csv(write(
        tmp_path, HEAD, 'a,vLLM,llama_3.1_8b,bf16,h100_sxm_80gb,tpot_mean_ms,12.5,2,~1024,"all 8 requests, at once","say ""x"""', "",
        "b,vLLM,m,f,g,decode_tok_s,1e2,,,,",
    ))
    assert (row.value, row.tp, row.input_tok, row.load, row.note) == (12.5, 2, 1024.0, "all 8 requests, at once", 'say "x"')
    assert (other.value, other.tp, other.input_tok, other.gpu_count) == (100.0, None, None, None)


def test_the_number_of_requests_is_read_where_it_stands(tmp_path: Path) -> None:
    rows = read_measured_csv(write(tmp_path, HEAD + ",requests", "a,e,m,f,g,x,5,,,,,80", "b,e,m,f,g,x,5,,,,,"))
    assert [row.request_count for row in rows] == [80, None]


def test_all_faults_at_once(tmp_path: Path) -> None:
    path = write(
        tmp_path, HEAD, "a,e,m,f,g,x,0,,,,", ",e,m,f,g,x,5,,,,", "b,e,m,f,g,x,nan,,,,", "c,e,m", "d,e,m,f,g,x,1,,,,", "d,e,m,f,g,x,2,,,,",
    )
    with pytest.raises(InputError) as caught:
        read_measured_csv(path)
    told = [(fault.line, fault.place) for fault in caught.value.faults]
    assert told == [(2, "value"), (3, "id"), (4, "value"), (5, ""), (7, "id")]


@pytest.mark.parametrize(
    ("content", "word"),
    [
        (b"", "empty"), (b"id,engine\n", "missing"), (HEAD.encode() + b",tp\n", "twice"), (b"\xff\xfe\x00", "UTF-8"),
        (HEAD.encode() + b'\na,"b', "CSV"),
    ],
)
def test_what_is_no_such_file_is_refused(tmp_path: Path, content: bytes, word: str) -> None:
    path = tmp_path / "runs.csv"
    path.write_bytes(content)
    with pytest.raises(InputError) as caught:
        read_measured_csv(path)
    assert word in str(caught.value.faults[0])


def test_a_huge_file_is_refused_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "runs.csv"
    with path.open("wb") as stream:
        stream.truncate(10**9)
    with pytest.raises(InputError, match="too large"):
        read_measured_csv(path)


@given(st.binary(max_size=200))
@settings(max_examples=150, deadline=None)
def test_any_bytes_are_read_or_refused(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.csv"
    path.write_bytes(HEAD.encode() + b"\n" + content)
    try:
        rows = read_measured_csv(path)
    except InputError as error:
        assert error.faults
    else:
        assert all(row.value > 0 and row.id for row in rows)


def test_a_pipe_is_refused_at_once(tmp_path: Path) -> None:
    """A pipe that nobody writes to would be waited for; a device would never end."""
    os.mkfifo(tmp_path / "pipe.csv")
    for path in (tmp_path / "pipe.csv", Path("/dev/zero")):
        with pytest.raises(InputError, match="not a regular file"):
            read_measured_csv(path)
