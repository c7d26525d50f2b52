"""YAML is read within bounds, with lines, and without the traps of YAML 1.1; faults are plain, each with line and cure."""

import datetime
import os
import re
import time
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel, ConfigDict, Field

from planner.errors import Fault, InputError
from planner.readers.yaml_file import Document, parse_yaml, read_yaml, read_yaml_fast, validate


def parsed(text: str | bytes) -> Document:
    return parse_yaml(text.encode() if isinstance(text, str) else text, "f.yaml")


def faults_of(text: str | bytes) -> tuple[Fault, ...]:
    with pytest.raises(InputError) as caught:
        parsed(text)
    return caught.value.faults


# --- values -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("400e6", 400e6), ("1e6", 1e6), ("1.5E-3", 1.5e-3), ("60_000", 60000), ("-5", -5), ("0x1F", 31), (".5", 0.5), ("3.", 3.0),
        ("12:30", "12:30"), ("1:30", "1:30"), ("010", "010"), ("2026-12", "2026-12"), ("2026-11-30", datetime.date(2026, 11, 30)),
        ("2026-13-44", "2026-13-44"), ("no", False), ("on", True), ("~", None), ("null", None), ("'400e6'", "400e6"), ('"no"', "no"),
        ("!!str 5", "5"), ("1e999", float("inf")), (".inf", float("inf")), ("e6", "e6"), ("llama_3.1_8b", "llama_3.1_8b"),
    ],
)  # fmt: skip
def test_plain_scalars(written: str, value: Any, tmp_path: Path) -> None:
    text = f"a: {written}\n"
    assert parsed(text).data == {"a": value}
    assert type(parsed(text).data["a"]) is type(value)
    path = tmp_path / "f.yaml"
    path.write_text(text)
    if "!!" not in written:
        assert read_yaml_fast(path) == {"a": value}, "both readers agree"


def test_keys_are_text() -> None:
    assert parsed("on: 1\n2026: 2\nno: 3\n").data == {"on": 1, "2026": 2, "no": 3}


def test_a_huge_whole_number_does_not_hang() -> None:
    assert parsed("a: " + "9" * 100_000).data == {"a": float("inf")}


def test_aliases_and_merges() -> None:
    text = "base: &b {p: 1, q: 2}\nx:\n  <<: *b\n  p: 3\ny: *b\n"
    assert parsed(text).data == {"base": {"p": 1, "q": 2}, "x": {"p": 3, "q": 2}, "y": {"p": 1, "q": 2}}


def test_lines() -> None:
    document = parsed("# comment\na:\n  b:\n    - 1\n    - {c: 2}\nd: 3\n")
    assert [document.line_of(p) for p in (("a",), ("a", "b"), ("a", "b", 1), ("a", "b", 1, "c"), ("d",))] == [2, 3, 5, 5, 6]
    assert document.line_of(("a", "missing")) == 2, "a key that is not written is told at its parent"


def test_plain_text() -> None:
    document = parsed("a: no\nb: 'no'\nc: []\n")
    assert [document.plain_text((k,)) for k in "abcd"] == ["no", None, None, None]


# --- what is refused ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "what"),
    [
        ("a: 1\nb: 2\na: 3\n", 3, "stands twice (first on line 1)"),
        ("a:\n\tb: 1\n", 2, "a tab indents this line"),
        ("a: 1\nb: c: d\n", 2, "a ':' where no key can stand"),
        ("a: [1, 2\n", 2, "not valid YAML"),
        ("a: *nothing\n", 1, "refers to no anchor"),
        ("a: &a [1, *a]\n", 1, "refers to itself"),
        ("a: 1\n---\nb: 2\n", 2, "a second YAML document"),
        ("a: !!python/object/apply:os.system ['true']\n", 1, "tag !!python/object/apply:os.system is not accepted"),
        ("a: !mine 3\n", 1, "tag !mine is not accepted"),
        ("? [1, 2]\n: 3\n", 1, "a key must be a single word"),
        (b"a: 1\nb: \xff\n", 2, "not UTF-8"),
        (b"a: 1\nb: \0\n", 2, "NUL byte"),
        ("", 1, "the file is empty"),
        ("# only a comment\n", 1, "the file is empty"),
        ("a: 1\n<<: 3\n", 2, "takes a mapping"),
    ],
)
def test_refused_with_a_line(text: str | bytes, line: int, what: str) -> None:
    (fault,) = faults_of(text)
    assert (fault.file, fault.line) == ("f.yaml", line)
    assert what in fault.what
    assert fault.cure
    assert "\n" not in str(fault)


def test_control_characters_are_refused_in_one_line() -> None:
    (fault,) = faults_of("a: \x07\n")
    assert "control characters are not allowed" in fault.what


def test_all_duplicate_keys_are_told() -> None:
    assert [f.line for f in faults_of("a: 1\na: 2\nb: {c: 1, c: 2}\n")] == [2, 3]


def bomb(levels: int = 12) -> str:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{i}: &a{i} [{', '.join([f'*a{i - 1}'] * 9)}]" for i in range(1, levels)]
    return "\n".join(lines)


def test_an_alias_bomb_is_refused_by_both_readers(tmp_path: Path) -> None:
    """Twelve levels of nine stand for 9^12 values."""
    (fault,) = faults_of(bomb())
    assert fault.line is not None
    assert "values once aliases are expanded" in fault.what
    path = tmp_path / "bomb.yaml"
    path.write_text(bomb())
    with pytest.raises(InputError, match="once aliases are expanded"):
        read_yaml_fast(path)


@pytest.mark.parametrize("text", ["[" * 100_000, "{a: " * 50_000, "- " * 100_000, "\n".join(" " * i + "a:" for i in range(2000))])
def test_deep_nesting_does_not_crash(text: str, tmp_path: Path) -> None:
    (fault,) = faults_of(text)
    assert "nest" in fault.what
    path = tmp_path / "deep.yaml"
    path.write_text(text)
    with pytest.raises(InputError, match="nest"):
        read_yaml_fast(path)


def test_a_large_file_is_refused_by_its_size_before_it_is_read(tmp_path: Path) -> None:
    path = tmp_path / "big.yaml"
    with path.open("wb") as stream:
        stream.truncate(50_000_000)
    before = time.process_time()
    with pytest.raises(InputError) as caught:
        read_yaml(path, max_bytes=1_000_000)
    assert time.process_time() - before < 0.5, "nothing was parsed"
    (fault,) = caught.value.faults
    assert "50,000,000 bytes, at most 1,000,000" in str(fault)


def test_paths_that_are_no_file(tmp_path: Path) -> None:
    for path, what in ((tmp_path, "this is a folder"), (tmp_path / "none.yaml", "no such file"), (Path("a\0b"), "cannot be read")):
        with pytest.raises(InputError, match=what):
            read_yaml(path, max_bytes=1000)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no named pipes here")
def test_an_endless_stream_is_bounded() -> None:
    with pytest.raises(InputError, match="too large"):
        read_yaml(Path("/dev/zero"), max_bytes=1000)


@given(st.binary(max_size=200))
def test_any_bytes_give_a_document_or_faults(raw: bytes) -> None:
    try:
        parsed(raw)
    except InputError as error:
        assert error.faults


@given(st.text(alphabet="ab:-[]{}&*!|>'\"#%@`? \n\t0e6,~<", max_size=60))
def test_any_yaml_like_text_gives_a_document_or_faults(text: str) -> None:
    try:
        parsed(text)
    except InputError as error:
        assert error.faults


# --- validate -----------------------------------------------------------------------------------------------------------


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Cat(Strict):
    kind: Literal["cat"]
    lives: Annotated[int, Field(ge=1, le=9)]


class Dog(Strict):
    kind: Literal["dog"]
    tricks: tuple[str, ...]


class Owner(Strict):
    name: str
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]
    count_or_word: int | Literal["many"] = 1
    numbers: str | tuple[float, ...] = "none"
    extra: Cat | None = None
    born: datetime.date | None = None
    is_kind: bool = True


def check(text: str) -> list[str]:
    with pytest.raises(InputError) as caught:
        validate(Owner, parsed(text))
    return [str(f) for f in caught.value.faults]


GOOD = "name: Ada\npet: {kind: cat, lives: 9}\n"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("nam: Ada\npet: {kind: cat, lives: 9}\n", ["unknown key 'nam'; did you mean 'name'?", "'name' is missing; add `name:`"]),
        (GOOD.replace("9", "12"), ["f.yaml:2 pet.lives: 12 is out of range; accepted: at least 1 and at most 9"]),
        (GOOD.replace("9", "nine"), ["pet.lives: the text 'nine' where a number is due; write a plain number, accepted: at least 1"]),
        (GOOD.replace("cat", "cta"), ["f.yaml:2 pet.kind: cta is none of cat, dog; did you mean 'cat'?"]),
        (GOOD.replace("lives", "live"), ["unknown key 'live'; did you mean 'lives'?", "'lives' is missing"]),
        (GOOD.replace("9", "1.5"), ["1.5 is not a whole number"]),
        (GOOD.replace("Ada", "no"), ["f.yaml:1 name: YAML reads no as false; text is due; write it in quotes: 'no'"]),
        (GOOD.replace("Ada", "12"), ["12 where text is due; write it in quotes: '12'"]),
        (GOOD + "numbers: [1, x]\n", ["f.yaml:3 numbers[1]: the text 'x' where a number is due"]),
        (GOOD + "extra: {kind: cat, lives: 0}\n", ["f.yaml:3 extra.lives: 0 is out of range"]),
        (GOOD + "extra: 3\n", ["3 where a mapping of keys is due; write `key: value` lines below it (keys: kind, lives)"]),
        (GOOD + "born: soon\n", ["the text 'soon' is not a date; write year-month-day"]),
        (GOOD + "is_kind: maybe\n", ["the text 'maybe' where yes or no is due; write true or false"]),
    ],
)
def test_one_fault_for_each_mistake(text: str, expected: list[str]) -> None:
    found = check(text)
    assert len(found) == len(expected), found
    for part in expected:
        assert sum(part in fault for fault in found) == 1, (part, found)


def test_a_failed_union_is_one_fault() -> None:
    assert len(check(GOOD + "count_or_word: [1]\n")) == 1
    assert len(check(GOOD + "numbers: {a: 1}\n")) == 1


def test_no_jargon_reaches_the_user() -> None:
    text = "nam: 3\npet: {kind: dog, tricks: sit}\ncount_or_word: x\nnumbers: [a]\nborn: 1\nis_kind: 7\nextra: []\n"
    for fault in check(text):
        assert not re.search(r"pydantic|valid (string|dictionary|integer)|Input should|parsing|type=|str\b.*tuple", fault), fault


def test_lists_and_a_part_of_the_file() -> None:
    document = parsed("cats:\n  - {kind: cat, lives: 3}\n  - {kind: cat, lives: 30}\n")
    with pytest.raises(InputError) as caught:
        validate(list[Cat], document, "shown.yaml", under="cats")
    assert str(caught.value) == "shown.yaml:3 cats[1].lives: 30 is out of range; accepted: at least 1 and at most 9"
    with pytest.raises(InputError, match="'dogs' is missing"):
        validate(list[Cat], document, under="dogs")


def test_a_valid_document() -> None:
    owner = validate(Owner, parsed(GOOD + "count_or_word: many\nnumbers: [1, 2]\n"))
    assert (owner.count_or_word, owner.numbers) == ("many", (1.0, 2.0))
