"""The cache of one attention group by hand: kinds, windows, pages, compression, replication, cross attention."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from planner.physics.kv_cache import KvPart, kv_bytes_per_tok, kv_part, mla_bytes_per_tok, paged_tok
from planner.schema.llm import AttentionGroup

BF16 = 2.0


def group(**keys: object) -> AttentionGroup:
    return AttentionGroup.model_validate({"layer_count": 4, "kind": "full", "head_count": 8, "kv_head_count": 2, "head_dim": 16, **keys})


def part(**keys: object) -> KvPart:
    found = kv_part(group(**keys), BF16)
    assert found is not None
    return found


def test_grouped_heads() -> None:
    """4 layers x 2 KV heads x (16 + 16) x 2 bytes."""
    assert part().bytes_per_tok() == 4 * 2 * 32 * 2
    assert part(v_head_dim=8).bytes_per_tok() == 4 * 2 * 24 * 2


def test_one_tensor_for_both_counts_once() -> None:
    """DeepSeek V4: the latent is key and value at once."""
    assert part(kv_is_one_tensor=True).bytes_per_tok() == 4 * 2 * 16 * 2


def test_latent_is_not_doubled_and_is_replicated() -> None:
    """DeepSeek-V3: 61 x (512 + 64) x 2 = 70,272 bytes a token on one GPU and on each of eight."""
    latent = part(layer_count=61, kind="mla", head_count=128, kv_head_count=0, head_dim=192, v_head_dim=128, kv_lora_rank=512, rope_dim=64)
    assert latent.bytes_per_tok(1) == latent.bytes_per_tok(8) == 70_272
    assert mla_bytes_per_tok(61, 512, 64, BF16) == 70_272


def test_an_engine_that_expands_the_latent() -> None:
    """DeepSeek-V2-Lite: 27 x 16 heads x (192 + 128) x 2 = 276,480 bytes, and 8,640 MiB at 32,768 tokens as llama.cpp logged."""
    lite = group(layer_count=27, kind="mla", head_count=16, kv_head_count=0, head_dim=192, v_head_dim=128, kv_lora_rank=512, rope_dim=64)
    expanded = kv_part(lite, BF16, mla_expands_kv=True)
    assert expanded is not None
    assert expanded.bytes_per_tok() == 276_480
    assert expanded.bytes_of(32_768, 1, 16) == 8_640 * 2**20
    assert expanded.bytes_per_tok(4) == 276_480 / 4


def test_expanding_needs_the_heads() -> None:
    bare = group(kind="mla", head_count=0, kv_head_count=0, head_dim=0, kv_lora_rank=512, rope_dim=64)
    with pytest.raises(ValueError, match="head_count and head_dim"):
        kv_part(bare, BF16, mla_expands_kv=True)


def test_a_window_is_the_most_that_is_kept() -> None:
    """Bytes x min(tokens, window), tokens in whole pages."""
    one = part(kind="sliding", window_tok=128).bytes_per_tok()
    windowed = part(kind="sliding", window_tok=128)
    assert windowed.bytes_of(100, 1, 16) == one * 112
    assert windowed.bytes_of(128, 1, 16) == windowed.bytes_of(100_000, 1, 16) == one * 128


def test_chunks_are_windows_unless_the_engine_keeps_all() -> None:
    chunked = group(kind="chunked", window_tok=128)
    kept, whole = kv_part(chunked, BF16), kv_part(chunked, BF16, chunked_keeps_all=True)
    assert kept is not None
    assert whole is not None
    assert kept.bytes_of(1024, 1, 16) == kept.bytes_per_tok() * 128
    assert whole.bytes_of(1024, 1, 16) == whole.bytes_per_tok() * 1024


def test_compressed_entries_share_their_bytes() -> None:
    """One entry for 128 tokens: a 128th of the bytes a token."""
    assert part(kv_compression=128).bytes_per_tok() == part().bytes_per_tok() / 128
    assert part(kv_compression=128).bytes_of(1280, 1, 16) == part().bytes_per_tok() * 10


def test_heads_are_split_down_to_one_and_then_replicated() -> None:
    """2 KV heads: halves on two GPUs, and no less on four or eight."""
    whole = part()
    assert whole.bytes_per_tok(2) == whole.bytes_per_tok() / 2
    assert whole.bytes_per_tok(4) == whole.bytes_per_tok(8) == whole.bytes_per_tok() / 2


def test_cross_attention_is_constant() -> None:
    """4 layers x 2 heads x 32 x 2 bytes x 1,500 encoder tokens, whatever the length; nothing a token, in whole pages where paged."""
    cross = part(kind="cross", window_tok=1500, is_second_cache=True)
    assert cross.bytes_per_tok() == 0
    assert cross.constant_bytes() == 4 * 2 * 32 * 2 * 1500
    assert cross.constant_bytes(2) == cross.constant_bytes() / 2
    assert cross.bytes_of(1, 1, 1) == cross.bytes_of(10_000, 1, 1) == cross.constant_bytes()
    assert cross.bytes_of(1, 1, 16) == 4 * 2 * 32 * 2 * 1504
    assert part().constant_bytes() == 0


@pytest.mark.parametrize("keys", [{"kind": "linear", "state_bytes_per_sequence": 64}, {"kind": "none"}, {"cache_is_shared": True}])
def test_groups_without_a_cache(keys: dict[str, object]) -> None:
    assert kv_part(group(**keys), BF16) is None


@pytest.mark.parametrize(
    "keys",
    [{"kind": "cross"}, {"kind": "cross", "window_tok": 8, "head_dim": 0}, {"window_tok": 8}, {"kind": "sliding"}, {"kv_head_count": 3}],
)
def test_incoherent_groups_are_refused(keys: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"window_tok|needs head_count|must divide"):
        group(**keys)


@given(
    context=st.integers(1, 10**6), block=st.sampled_from([1, 16, 32, 64, 256]), window=st.none() | st.integers(1, 10**5),
    tp=st.sampled_from([1, 2, 4, 8]), compression=st.sampled_from([1, 4, 128]),
)  # fmt: skip
def test_bytes_grow_with_the_context_and_stay_below_the_whole(
    context: int, block: int, window: int | None, tp: int, compression: int
) -> None:
    """Longer is never less; pages never hold less than the tokens; a window never more than itself; a split never more than the whole."""
    kept = part(kind="sliding" if window else "full", window_tok=window, kv_compression=compression)
    here = kept.bytes_of(context, tp, block)
    assert here <= kept.bytes_of(context + 1, tp, block)
    assert here <= kept.bytes_of(context, 1, block)
    least = min(context, window or context)
    assert kept.bytes_per_tok(tp) * least <= here <= kept.bytes_per_tok(tp) * min(paged_tok(context, block), window or 10**9)


def test_formula_takes_bytes_below_one() -> None:
    assert kv_bytes_per_tok(80, 8, 128, 0.5625) == 92_160
