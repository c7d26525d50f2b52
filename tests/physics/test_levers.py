"""Levers: the smallest change of each kind, tried through the memory functions; searches against counting one by one."""

from __future__ import annotations

from functools import cache

from hypothesis import given
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.physics import memory
from planner.physics.device import usable_bytes
from planner.physics.levers import Case, FormatOption, Lever, largest, levers
from planner.physics.memory import Footprint


@cache
def catalog() -> Catalog:
    return load_catalog()


def lesson(kv: str) -> Footprint:
    """The 70B of B2: 40 GB of weights by the rule."""
    c = catalog()
    return memory.footprint(c.llm("llama_3.3_70b_instruct"), c.weight_format("q4_k_m"), c.kv_format(kv), c.engine("vllm"), 40e9)


def option(kv: str) -> FormatOption:
    return FormatOption(kv, 8 * catalog().kv_formats[kv].bytes_per_value, lesson(kv))


def tried(*kv: str) -> list[Lever]:
    gpu = catalog().gpu("h100_sxm_80gb")
    options = [option(name) for name in kv]
    return levers(lesson("fp16"), gpu, 1, 1, 8192, 32, usable_bytes(gpu, 0.9, 0.15), 6e9, options, bigger=[(2, 1), (4, 1)])


def test_b2_to_b4_as_levers() -> None:
    """KV in FP8: 89 GB, still not one H100; with 16 sessions or 4,096 tokens 67.4 GB: the most that fit are at least those."""
    by_kind = {lever.kind: lever for lever in tried("fp8")}
    assert str(by_kind["kv_cache"]) == "KV in fp8 → 88.9 GB: still does not fit, 16.3 GB too much"
    sessions, context = by_kind["kv_cache+sessions"], by_kind["kv_cache+context"]
    assert sessions.fits and int(sessions.change.split()[-2]) >= 16 and sessions.change == "KV in fp8 and 19 sessions"
    assert context.fits and int(context.change.split()[-2].replace(",", "")) >= 4096
    gpu = catalog().gpu("h100_sxm_80gb")
    for context_tok, concurrency in ((8192, 16), (4096, 32)):
        case = Case(gpu, 1, 1, context_tok, concurrency, usable_bytes(gpu, 0.9, 0.15), 6e9)
        assert round(case.tried(lesson("fp8"))[0] / 1e9) == 67 and case.fits(lesson("fp8"))
    assert str(by_kind["gpus"]) == "2 GPUs (TP 2) → 69.0 GB each: fits"


def test_a_single_format_that_is_enough_is_not_paired() -> None:
    """NVFP4 keeps 0.5625 B a value: 40 + 24.2 + 6 = 70.2 GB of 72.7."""
    found = tried("fp8", "nvfp4")
    assert {lever.kind for lever in found} == {"kv_cache", "sessions", "context", "gpus"}
    assert next(str(lever) for lever in found if lever.kind == "kv_cache") == "KV in nvfp4 → 70.2 GB: fits"


def test_the_least_harmful_comes_first_and_what_fails_last() -> None:
    found = tried("fp8")
    assert [lever.fits for lever in found] == sorted((lever.fits for lever in found), reverse=True)
    good = [lever.harm for lever in found if lever.fits]
    assert good == sorted(good) and len(found) == len({lever.kind for lever in found})
    assert found == tried("fp8")


def test_nothing_helps_and_how_much_is_missing() -> None:
    """60 GB of overhead leave no room for 40 GB of weights: every change says what is still too much."""
    gpu = catalog().gpu("h100_sxm_80gb")
    found = levers(lesson("fp16"), gpu, 1, 1, 8192, 32, usable_bytes(gpu, 0.9, 0.15), 60e9, [option("fp8")])
    assert found and not any(lever.fits for lever in found)
    assert all("too much" in str(lever) for lever in found)


def test_one_session_of_a_short_context_has_no_such_lever() -> None:
    gpu = catalog().gpu("l4_24gb")
    found = levers(lesson("fp16"), gpu, 1, 1, 128, 1, usable_bytes(gpu, 0.9, 0.15), 6e9)
    assert not {lever.kind for lever in found} & {"sessions", "context"}


@given(
    start=st.floats(0, 1e6), slope=st.floats(0, 1e4), knee=st.integers(0, 400), steep=st.floats(0, 1e4),
    room=st.floats(0, 1e7), limit=st.integers(0, 500),
)
def test_the_edge_is_the_one_found_by_counting(start: float, slope: float, knee: int, steep: float, room: float, limit: int) -> None:
    """A need with a knee (a window that is full) and a constant part, against trying every number."""

    def need(n: int) -> float:
        return start + slope * min(n, knee) + steep * max(0, n - knee)

    assert largest(need, room, limit) == max((n for n in range(1, limit + 1) if need(n) <= room), default=0)


@given(context_tok=st.integers(1, 60_000), concurrency=st.integers(1, 300))
def test_most_sessions_and_longest_context_are_edges(context_tok: int, concurrency: int) -> None:
    gpu = catalog().gpu("h100_sxm_80gb")
    case = Case(gpu, 1, 1, context_tok, concurrency, usable_bytes(gpu, 0.9, 0.15), 6e9)
    fp, page = lesson("fp8"), catalog().engine("vllm").kv_block_tok
    n = case.most_sessions(fp)
    assert n == 0 or case.excess(fp, concurrency=n) <= 0
    assert n == concurrency - 1 or case.excess(fp, concurrency=n + 1) > 0
    tok = case.longest_context_tok(fp, 131_072)
    assert tok % page == 0 and (tok == 0 or case.excess(fp, context_tok=tok) <= 0)
    assert tok + page > 131_072 or case.excess(fp, context_tok=tok + page) > 0
