"""What must hold of memory for every model, load and split."""

from __future__ import annotations

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from planner.catalog import Catalog, load_catalog
from planner.physics import memory

MODELS = ("llama_3.3_70b_instruct", "deepseek_v3", "gemma_3_27b", "qwen3.6_27b", "gpt_oss_20b", "mixtral_8x7b", "deepseek_v3.2")
tokens = st.integers(1, 200_000)
sessions = st.integers(1, 500)


@cache
def catalog() -> Catalog:
    return load_catalog()


@cache
def shape(llm: str, kv: str = "fp16") -> memory.Footprint:
    c = catalog()
    return memory.footprint(c.llm(llm), c.weight_format("bf16"), c.kv_format(kv), c.engine("vllm"))


@given(st.sampled_from(MODELS), tokens, st.integers(0, 5000), sessions, st.integers(0, 100))
@settings(max_examples=150, deadline=None)
def test_more_never_needs_less(llm: str, context_tok: int, more_tok: int, concurrency: int, more_sessions: int) -> None:
    gpu = catalog().gpu("h100_sxm_80gb")
    small = memory.terms(shape(llm), gpu, 1, 1, context_tok, concurrency).total_bytes
    assert memory.terms(shape(llm), gpu, 1, 1, context_tok + more_tok, concurrency + more_sessions).total_bytes >= small


@given(st.sampled_from(MODELS), tokens, sessions)
@settings(max_examples=100, deadline=None)
def test_a_wider_split_never_holds_more_of_the_model(llm: str, context_tok: int, concurrency: int) -> None:
    """Weights, KV and activations of a GPU never grow with tp or pp; only the engine's collective buffers appear with tp > 1."""
    gpu, fp = catalog().gpu("h100_sxm_80gb"), shape(llm)
    sizes = [tp for tp in fp.tp_sizes if tp <= 16]
    by_tp = [memory.terms(fp, gpu, tp, 1, context_tok, concurrency, overhead_bytes=5e9).total_bytes for tp in sizes]
    assert by_tp == sorted(by_tp, reverse=True)
    by_pp = [memory.terms(fp, gpu, 1, pp, context_tok, concurrency, overhead_bytes=5e9).total_bytes for pp in (1, 2, 4, 8)]
    assert by_pp == sorted(by_pp, reverse=True)


@given(st.sampled_from(MODELS), tokens, sessions, st.floats(0.0, 0.5))
@settings(max_examples=150, deadline=None)
def test_max_sequences_is_the_edge(llm: str, context_tok: int, concurrency: int, margin_frac: float) -> None:
    """`fit` says yes exactly up to `max_sequences`."""
    gpu, fp = catalog().gpu("b200_sxm_180gb"), shape(llm)
    most = memory.max_sequences(fp, gpu, 8, 1, context_tok, None, margin_frac)
    for n in {concurrency, max(1, most), most + 1}:
        answer = memory.fit_footprint(fp, gpu, 8, 1, context_tok, n, None, margin_frac)
        assert isinstance(answer, memory.Fits) == (n <= most)
        assert sum(answer.terms.by_term.values()) == pytest.approx(answer.per_gpu_bytes)


@given(st.sampled_from(MODELS), st.integers(1, 4000))
@settings(max_examples=60, deadline=None)
def test_a_sequence_is_tokens_times_bytes_in_whole_pages(llm: str, pages: int) -> None:
    """Full pages: past-window rate × tokens + windowed part × min(tokens, window) + indexer + state, to the byte."""
    fp, tok = shape(llm), pages * 16
    windowed = sum(part.bytes_per_tok() * min(tok, part.window_tok) for part in fp.kv_parts if part.window_tok is not None)
    exact = fp.kv_bytes_per_tok_past_window * tok + windowed + fp.indexer_bytes_per_tok * tok + fp.state_bytes_per_sequence
    assert fp.kv_bytes_per_sequence(tok) == pytest.approx(exact, rel=1e-12)


@pytest.mark.parametrize("llm", MODELS)
def test_a_smaller_kv_format_never_needs_more(llm: str) -> None:
    assert shape(llm, "fp8").kv_bytes_per_sequence(10_000) <= shape(llm).kv_bytes_per_sequence(10_000)
