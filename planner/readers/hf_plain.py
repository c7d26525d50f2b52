"""Decoders of one recipe: the same attention and one dense feed-forward part in every layer. A row of `PLAIN` is a family."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.readers.hf_common import CONTEXT, INNER, heads, layers, start, window_of, windows
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import Shape
from planner.schema.llm import AttentionKind

Switch = bool | tuple[str, bool]
"""Always on or off, or a key of the file and what holds where it is absent."""


@dataclass(frozen=True)
class Plain:
    """What sets one family apart from Llama: biases, norms, positions, matrices of the feed-forward part, windows."""

    tied: bool = False
    norm_count: int = 2
    norm_bias: bool = False
    final_norm: bool = True
    qkv_bias: Switch = ("attention_bias", False)
    o_bias: Switch = ("attention_bias", False)
    mlp_bias: Switch = ("mlp_bias", False)
    head_bias: Switch = False
    gated: bool = True
    inner_times: int = 4
    """Width of the feed-forward part over the hidden size where the file does not give it."""
    head_norm: Switch = False
    """A norm of one head's width on queries and one on keys."""
    whole_norm: Switch = False
    """A norm over all query heads and one over all key heads."""
    position_extra_count: int | None = None
    """Rows of a learnt position table beyond the context; None without such a table."""
    embedding_norm: bool = False
    head_dim: int | None = None
    kv_heads: int | None = None
    layer_extra_count: int = 0
    has_sinks: bool = False
    """A learnt sink a head."""
    window: Literal["none", "all", "listed", "qwen"] = "none"
    period: int | None = None
    """Every so many layers one is full, where `layer_types` does not list them."""


PLAIN: dict[str, Plain] = {
    # pypi:transformers==5.24.0, class names beside the keys that published files leave out
    "gpt2": Plain(tied=True, norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, position_extra_count=0),
    "gpt_neox": Plain(norm_bias=True, qkv_bias=("attention_bias", True), o_bias=("attention_bias", True), mlp_bias=True, gated=False),
    "gptj": Plain(norm_count=1, norm_bias=True, qkv_bias=False, o_bias=False, mlp_bias=True, head_bias=True, gated=False),
    "codegen": Plain(norm_count=1, norm_bias=True, qkv_bias=False, o_bias=False, mlp_bias=True, head_bias=True, gated=False),
    "biogpt": Plain(tied=True, norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, position_extra_count=2),
    "xglm": Plain(tied=True, norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False),
    "bloom": Plain(tied=True, norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False, embedding_norm=True),
    "phi": Plain(norm_count=1, norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, head_bias=True, gated=False),
    "persimmon": Plain(norm_bias=True, qkv_bias=True, o_bias=True, mlp_bias=True, gated=False),
    "baichuan": Plain(qkv_bias=False, o_bias=False),
    "internlm": Plain(qkv_bias=("bias", True), o_bias=("bias", True)),
    "internlm2": Plain(qkv_bias=("bias", False), o_bias=("bias", False)),
    "internlm3": Plain(qkv_bias=("qkv_bias", False), o_bias=("bias", False), mlp_bias=("bias", False)),
    "aquila": Plain(),
    "cwm": Plain(window="listed"),
    "granite_swa": Plain(tied=True, window="listed", has_sinks=True),
    "iquestcoder": Plain(),
    "jais2": Plain(norm_bias=True, gated=False, qkv_bias=("attention_bias", True), o_bias=("attention_bias", True),
                   mlp_bias=("mlp_bias", True)),
    "orion": Plain(norm_bias=True),
    "minicpm": Plain(tied=True),
    "xverse": Plain(),
    "exaone": Plain(),
    "olmo": Plain(norm_count=0, final_norm=False),
    "seed_oss": Plain(qkv_bias=("attention_bias", True), o_bias=("attention_out_bias", False)),
    "glm": Plain(qkv_bias=("attention_bias", True), o_bias=False, head_dim=128),
    "glm4": Plain(qkv_bias=("attention_bias", True), o_bias=False, head_dim=128, norm_count=4),
    **dict.fromkeys(("glm4v", "glm4v_text", "glm_ocr", "glm_ocr_text"),
                    Plain(qkv_bias=("attention_bias", True), o_bias=False, norm_count=4)),
    "ernie4_5": Plain(tied=True, qkv_bias=("use_bias", False), o_bias=("use_bias", False), mlp_bias=("use_bias", False), head_dim=128),
    "hunyuan_v1_dense": Plain(tied=False, head_norm=("use_qk_norm", True)),
    "apertus": Plain(gated=False, head_norm=True, layer_extra_count=2),
    "helium": Plain(head_dim=128),
    "nemotron": Plain(norm_bias=True, gated=False, o_bias=("attention_bias", False)),
    "arcee": Plain(gated=False),
    "ministral3": Plain(head_dim=128),
    "ministral": Plain(window="all"),
    "nanochat": Plain(norm_count=0, final_norm=False, gated=False),
    "gemma": Plain(tied=True, head_dim=256),
    "vaultgemma": Plain(tied=True, head_dim=256, window="listed", period=2),
    **dict.fromkeys(("stablelm", "stablelm_epoch"), Plain(norm_bias=True, qkv_bias=("use_qkv_bias", False), o_bias=False)),
    "bitnet": Plain(norm_count=3),
}


def on(k: Keys, switch: Switch) -> bool:
    """Return whether a switch is on in this file."""
    return switch if isinstance(switch, bool) else k.flag(switch[0], default=switch[1])


def plain(k: Keys) -> Shape:
    """Lay out a family of `PLAIN`."""
    row = PLAIN[k.model_type]
    s = start(k, tied=row.tied)
    if row.position_extra_count is not None:
        s.counts["embedding"] += _learnt_positions(s, k.count(*CONTEXT) + row.position_extra_count)
    if row.embedding_norm:
        s.add_norms(has_bias=row.norm_bias)
    head_count, kv, width = heads(k, row.head_dim)
    size, n = k.count(*INNER, default=row.inner_times * s.hidden_size), layers(k)
    qkv_bias, o_bias, mlp_bias = on(k, row.qkv_bias), on(k, row.o_bias), on(k, row.mlp_bias)
    head_norm, whole_norm = on(k, row.head_norm), on(k, row.whole_norm)
    for kind in _kinds(k, row, n):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind), has_qkv_bias=qkv_bias, has_o_bias=o_bias,
                  extra_count=head_count if row.has_sinks else 0)
        s.add_norms(2 if head_norm else 0, width)
        s.add_norms(head_count + kv if whole_norm else 0, width)
        s.add_dense(size, is_gated=row.gated, has_bias=mlp_bias)
        s.add_norms(row.norm_count, has_bias=row.norm_bias)
        s.counts["mlp"] += row.layer_extra_count
    if row.final_norm:
        s.add_norms(has_bias=row.norm_bias)
    if on(k, row.head_bias):
        s.counts["head"] += s.vocab_size
    return s


def _learnt_positions(s: Shape, row_count: int) -> int:
    """Return the values of a learnt position table; they are looked up, never multiplied."""
    s.lookup_count += row_count * s.hidden_size if s.is_tied else 0
    return row_count * s.hidden_size


def _kinds(k: Keys, row: Plain, n: int) -> list[AttentionKind]:
    if row.window == "listed":
        if not (k.names("layer_types") or row.period) and k.has("sliding_window"):
            k.fault("layer_types", "missing, and the file states a window", "list one kind for each layer")
        return windows(k, n, row.period)
    if row.window == "all" and k.names("layer_types"):
        return windows(k, n)
    return ["sliding" if row.window == "all" and k.has("sliding_window") else "full"] * n
