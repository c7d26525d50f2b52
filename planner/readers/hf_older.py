"""Dense decoders with a part of their own: OPT, GPT-Neo, MPT, StableLM, Phi, Qwen 1, ChatGLM, EXAONE 4, SmolLM3, OpenELM and more."""

from __future__ import annotations

from planner.readers.hf_common import CONTEXT, heads, layers, per_layer_or_one, start, window_of, windows
from planner.readers.hf_keys import Keys
from planner.readers.hf_plain import plain
from planner.readers.hf_shape import Shape
from planner.schema.llm import AttentionKind

OPT_POSITION_EXTRA = 2
"""Rows of OPT's position table beyond the context (`pypi:transformers==5.24.0`, OPTLearnedPositionalEmbedding)."""


def opt(k: Keys) -> Shape:
    """OPT: learnt positions, biases everywhere, an embedding narrower than the layers in the 350M model."""
    h = k.count("hidden_size")
    narrow = k.count("word_embed_proj_dim", default=h)
    s = Shape(h, k.count("vocab_size"), k.flag("tie_word_embeddings", default=True))
    s.counts["embedding"] += s.vocab_size * narrow
    s.counts["head"] += 0 if s.is_tied else s.vocab_size * narrow
    positions = (k.count("max_position_embeddings") + OPT_POSITION_EXTRA) * h
    s.counts["embedding"] += positions
    s.lookup_count += positions if s.is_tied else 0
    s.counts["other"] += 2 * narrow * h if narrow != h else 0
    head_count, kv, width = heads(k)
    bias = k.flag("enable_bias", default=True)
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=bias, has_o_bias=bias)
        s.add_dense(k.count("ffn_dim"), is_gated=False, has_bias=bias)
        s.add_norms(2, has_bias=True)
    if k.flag("do_layer_norm_before", default=True) and not k.flag("_remove_final_layer_norm"):
        s.add_norms(has_bias=True)
    return s


def gpt_neo(k: Keys) -> Shape:
    """GPT-Neo: full and local layers in turn (a window of 256), listed as `attention_types`, learnt positions."""
    s = start(k, tied=True)
    positions = k.count("max_position_embeddings") * s.hidden_size
    s.counts["embedding"] += positions
    s.lookup_count += positions if s.is_tied else 0
    head_count, kv, width = heads(k)
    n, window = layers(k), k.count("window_size", default=256)
    listed = k.names("attention_layers") or ["global" if i % 2 == 0 else "local" for i in range(n)]
    if len(listed) < n or set(listed) - {"global", "local"}:
        k.fault("attention_layers", f"does not name {n} global or local layers", "list one kind for each layer")
    for kind in listed[:n]:
        local = kind == "local"
        s.add_gqa(head_count, kv, width, kind="sliding" if local else "full", window_tok=window if local else None, has_o_bias=True)
        s.add_dense(k.count("intermediate_size", default=4 * s.hidden_size), is_gated=False, has_bias=True)
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s


def mpt(k: Keys) -> Shape:
    """MPT: ALiBi instead of positions, grouped heads under `attn_config`, no biases."""
    s = start(k, tied=True)
    head_count = k.count("n_heads")
    attention = k.section("attn_config") if k.has("attn_config") else k.empty("attn_config")
    kv = 1 if attention.text("attn_type", default="") == "multiquery_attention" else attention.count("kv_n_heads", default=head_count)
    if k.flag("learned_pos_emb", default=True) and not attention.flag("alibi", default=True):
        s.counts["embedding"] += k.count("max_seq_len") * s.hidden_size
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, max(s.hidden_size // head_count, 1))
        s.add_dense(k.count("expansion_ratio", default=4) * s.hidden_size, is_gated=False)
        s.add_norms(2)
    s.add_norms()
    return s


def stablelm(k: Keys) -> Shape:
    """StableLM: a norm a head in the 12B model, one norm a layer where attention and feed-forward run side by side."""
    s = plain(k)
    head_count, kv, width = heads(k)
    n = layers(k)
    if k.flag("qk_layernorm"):
        s.add_norms(n * (head_count + kv), width)
    if k.flag("use_parallel_residual"):
        s.counts["norm"] -= n * 2 * s.hidden_size
    return s


def phi(k: Keys) -> Shape:
    """Phi-1 to 2: biases everywhere, attention and feed-forward side by side."""
    s = plain(k)
    if k.flag("qk_layernorm"):
        s.add_norms(2 * layers(k), heads(k)[2], has_bias=True)
    return s


def persimmon(k: Keys) -> Shape:
    """Persimmon: biases everywhere, a norm on each query and key head."""
    s = plain(k)
    if k.flag("qk_layernorm", default=True):
        s.add_norms(2 * layers(k), heads(k)[2], has_bias=True)
    return s


def bitnet(k: Keys) -> Shape:
    """BitNet b1.58: a norm before the output of attention and one before the output of the feed-forward part."""
    s = plain(k)
    s.add_norms(layers(k), k.count("intermediate_size"))
    return s


def qwen1(k: Keys) -> Shape:
    """Qwen 1: multi-head attention; `intermediate_size` is twice the width of its gated feed-forward part."""
    s = start(k)
    head_count = k.count("num_attention_heads")
    width = k.count("kv_channels", default=max(s.hidden_size // head_count, 1))
    for _ in range(layers(k)):
        s.add_gqa(head_count, head_count, width, has_qkv_bias=True)
        s.add_dense(max(k.count("intermediate_size") // 2, 1), has_bias=not k.flag("no_bias", default=True))
        s.add_norms(2)
    s.add_norms()
    return s


def chatglm(k: Keys) -> Shape:
    """ChatGLM 1 to 3 and GLM-4-9B in their first form: grouped heads under `multi_query_group_num`; the first is multi-head with biases."""
    first = not k.has("ffn_hidden_size")
    s = start(k, tied=first)
    head_count = k.count("num_attention_heads")
    groups = k.count("multi_query_group_num", default=1) if k.flag("multi_query_attention") else head_count
    width = k.count("kv_channels", default=max(s.hidden_size // head_count, 1))
    bias = first or k.flag("add_bias_linear")
    for _ in range(layers(k)):
        s.add_gqa(head_count, groups, width, has_qkv_bias=first or k.flag("add_qkv_bias", default=True), has_o_bias=bias)
        size = k.count("inner_hidden_size", default=4 * s.hidden_size) if first else k.count("ffn_hidden_size")
        s.add_dense(size, is_gated=not first, has_bias=bias)
        s.add_norms(2, has_bias=first or not k.flag("rmsnorm", default=True))
    if k.flag("post_layer_norm", default=True):
        s.add_norms(has_bias=first or not k.flag("rmsnorm", default=True))
    return s


def phi3small(k: Keys) -> Shape:
    """Phi-3-small: grouped heads, biases everywhere; its block-sparse layers are kept whole by the engines."""
    s = start(k, tied=True)
    head_count, kv, width = heads(k)
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=True, has_o_bias=True)
        s.add_dense(k.count("ff_intermediate_size"), has_bias=True)
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s


def exaone4(k: Keys) -> Shape:
    """EXAONE 4: a norm on each query and key head; `sliding_window_pattern` is a period, or letters (L local, G global)."""
    s = start(k)
    head_count, kv, width = heads(k)
    for kind in exaone_kinds(k, layers(k)):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        s.add_norms(2, width)
        s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def exaone_kinds(k: Keys, n: int) -> list[AttentionKind]:
    """Return each layer's kind in EXAONE 4: listed, by letters, or every so many full; all full without a window."""
    if not k.has("sliding_window"):
        return ["full"] * n
    if k.names("layer_types"):
        return windows(k, n)
    if k.is_text("sliding_window_pattern"):
        letters = k.text("sliding_window_pattern", default="")
        if not letters or set(letters) - {"L", "G"}:
            k.fault("sliding_window_pattern", f"{letters[:40]!r} is no pattern", "write a number, or letters L and G")
            return ["full"] * n
        return ["sliding" if letters[i % len(letters)] == "L" else "full" for i in range(n)]
    return windows(k, n, period=k.count("sliding_window_pattern", default=4))


def smollm3(k: Keys) -> Shape:
    """SmolLM3: tied; windows only where `use_sliding_window` is true, on the layers with rotary position."""
    s = start(k, tied=True)
    head_count, kv, width = heads(k)
    n = layers(k)
    used = k.flag("use_sliding_window") and k.has("sliding_window")
    interval = k.count("no_rope_layer_interval", default=4)
    rope = k.numbers("no_rope_layers") or [int((i + 1) % interval != 0) for i in range(n)]
    listed = windows(k, n) if used and k.names("layer_types") else None
    for i in range(n):
        kind: AttentionKind = listed[i] if listed else "sliding" if used and i < len(rope) and not rope[i] else "full"
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind), has_qkv_bias=k.flag("attention_bias"),
                  has_o_bias=k.flag("attention_bias"))
        s.add_dense(k.count("intermediate_size"), has_bias=k.flag("mlp_bias"))
        s.add_norms(2)
    s.add_norms()
    return s


def gpt_bigcode(k: Keys) -> Shape:
    """StarCoder 1 and SantaCoder: one KV head where `multi_query` is true, learnt positions, biases everywhere."""
    s = start(k, tied=True)
    positions = k.count(*CONTEXT) * s.hidden_size
    s.counts["embedding"] += positions
    s.lookup_count += positions if s.is_tied else 0
    head_count, _, width = heads(k)
    kv = 1 if k.flag("multi_query", default=True) else head_count
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=True, has_o_bias=True)
        s.add_dense(k.count("n_inner", default=4 * s.hidden_size), is_gated=False, has_bias=True)
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s


def deci(k: Keys) -> Shape:
    """DeciLM-7B: Llama with KV heads of their own in each layer."""
    s = start(k)
    head_count, _, width = heads(k)
    n, size = layers(k), k.count("intermediate_size")
    for kv in per_layer_or_one(k, "num_key_value_heads_per_layer", n):
        s.add_gqa(head_count, kv, width)
        s.add_dense(size)
        s.add_norms(2)
    s.add_norms()
    return s


def openelm(k: Keys) -> Shape:
    """OpenELM: heads, KV heads and feed-forward width of their own in each layer, a norm on each query and key head; tied."""
    s = Shape(k.count("model_dim"), k.count("vocab_size"), k.flag("share_input_output_layers", default=True))
    s.add_embedding()
    n, width, unit = k.count("num_transformer_layers"), k.count("head_dim"), k.count("ffn_dim_divisor", default=256)
    glu, normed = k.flag("ffn_with_glu", default=True), k.flag("normalize_qk_projections", default=True)
    times = k.positive_numbers("ffn_multipliers", n)
    for query, kv, wide in zip(
        per_layer_or_one(k, "num_query_heads", n), per_layer_or_one(k, "num_kv_heads", n), times, strict=True
    ):
        s.add_gqa(query, kv, width)
        s.add_norms(2 if normed else 0, width)
        s.add_dense(divisible(wide * s.hidden_size, unit), is_gated=glu)
        s.add_norms(2)
    s.add_norms()
    return s


def divisible(value: float, unit: int) -> int:
    """Return the multiple of `unit` nearest to `value`, at least one, and never more than a tenth below it.

    >>> divisible(0.73 * 1280, 256)
    1024
    """
    nearest = max(unit, int(value + unit / 2) // unit * unit)
    return nearest + unit if nearest < 0.9 * value else nearest
