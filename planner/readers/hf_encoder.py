"""Encoders: text in, vectors out; they keep no cache. A row of `ENCODER_ROWS` is a family."""

from __future__ import annotations

from dataclasses import dataclass

from planner.readers.hf_common import layers
from planner.readers.hf_keys import Keys
from planner.readers.hf_plain import Switch, on
from planner.readers.hf_shape import Shape


@dataclass(frozen=True)
class Encoder:
    """What sets one family apart from BERT: position table, token types, biases, gated feed-forward, norms, pooler."""

    has_positions: bool = True
    type_default_count: int = 2
    qkv_bias: Switch = True
    o_bias: Switch = True
    up_bias: Switch = True
    down_bias: Switch = True
    gated: bool = False
    norm_bias: Switch = True
    has_pooler: bool = True
    bucket_key: str | None = None
    """Key with the rows of a table of relative positions, one value a head."""


ENCODER_ROWS: dict[str, Encoder] = {
    # classes of pypi:transformers==5.24.0; `NomicBert` also as its first remote code spells it
    **dict.fromkeys(("bert", "roberta", "xlm-roberta", "camembert", "xlm-roberta-xl", "ernie"), Encoder()),
    "mpnet": Encoder(type_default_count=0, bucket_key="relative_attention_num_buckets"),
    "distilbert": Encoder(type_default_count=0, has_pooler=False),
    "deberta-v2": Encoder(type_default_count=0, has_pooler=False),
    "nomic_bert": Encoder(has_positions=False, qkv_bias=("qkv_proj_bias", False), o_bias=("qkv_proj_bias", False),
                          up_bias=("mlp_fc1_bias", False), down_bias=("mlp_fc2_bias", False), gated=True, has_pooler=False),
    **dict.fromkeys(("gte", "new"), Encoder(has_positions=False, type_default_count=1, up_bias=False, gated=True, has_pooler=False)),
    "jina_embeddings_v3": Encoder(has_positions=False, type_default_count=1),
}
HIDDEN, WIDE = ("hidden_size", "dim", "n_embd"), ("intermediate_size", "hidden_dim", "n_inner")
HEADS = ("num_attention_heads", "n_heads", "n_head")
ENCODER_LAYERS = ("num_hidden_layers", "n_layers", "n_layer")


def encoder(k: Keys) -> Shape:
    """Lay out a family of `ENCODER_ROWS`: embedding, positions, token types and a norm before layers of two norms each."""
    row = ENCODER_ROWS[k.model_type]
    h = k.count(*HIDDEN)
    s = Shape(h, k.count("vocab_size"), is_tied=True)
    s.add_embedding()
    positions = k.count("max_position_embeddings", "n_positions") if row.has_positions else 0
    types = k.index("type_vocab_size", default=row.type_default_count)
    if k.model_type == "deberta-v2":
        positions = positions if k.flag("position_biased_input", default=True) else 0
    s.counts["embedding"] += (positions + types) * h
    norm_bias, head_count = on(k, row.norm_bias), k.count(*HEADS)
    s.add_norms(has_bias=norm_bias)
    size, width = k.count(*WIDE), max(h // head_count, 1)
    qkv_bias, o_bias = on(k, row.qkv_bias), on(k, row.o_bias)
    gated = row.gated and "glu" in k.text("activation_function", default="swiglu")
    experts, every = k.optional_count("num_experts"), k.count("moe_every_n_layers", default=1)
    for i in range(layers(k)):
        s.add_gqa(head_count, head_count, width, has_qkv_bias=qkv_bias, has_o_bias=o_bias)
        if experts and i % every == every - 1:
            s.add_moe(experts, k.count("moe_top_k", default=1), size, is_gated=gated)
            s.counts["mlp"] += h
        else:
            s.add_dense(size, is_gated=gated)
            s.counts["mlp"] += (size * (2 if gated else 1) if on(k, row.up_bias) else 0) + (h if on(k, row.down_bias) else 0)
        s.add_norms(2, has_bias=norm_bias)
    if row.bucket_key:
        s.counts["other"] += k.count(row.bucket_key, default=32) * head_count
    if row.has_pooler:
        s.counts["other"] += h * h + h
    if k.model_type == "deberta-v2" and k.flag("relative_attention"):
        buckets = k.index("position_buckets", default=0) if (k.plain_int("position_buckets") or 0) > 0 else positions
        s.counts["embedding"] += 2 * (buckets or k.count("max_position_embeddings")) * h
        s.add_norms(1 if "layer_norm" in k.text("norm_rel_ebd", default="none") else 0, has_bias=True)
    s.lookup_count = s.counts["embedding"]
    return s


def modernbert(k: Keys) -> Shape:
    """ModernBERT: windows and full layers in turn, gated feed-forward, no biases, the first layer without its first norm."""
    h = k.count("hidden_size")
    s = Shape(h, k.count("vocab_size"), is_tied=True)
    s.add_embedding()
    head_count, n, size = k.count("num_attention_heads"), layers(k), k.count("intermediate_size")
    bias, norm_bias, mlp_bias = k.flag("attention_bias"), k.flag("norm_bias"), k.flag("mlp_bias")
    s.add_norms(has_bias=norm_bias)
    for i in range(n):
        s.add_gqa(head_count, head_count, max(h // head_count, 1), has_qkv_bias=bias, has_o_bias=bias)
        s.add_dense(size, has_bias=mlp_bias)
        s.add_norms(2 if i else 1, has_bias=norm_bias)
    s.add_norms(has_bias=norm_bias)
    s.lookup_count = s.counts["embedding"]
    return s


def albert(k: Keys) -> Shape:
    """ALBERT: one layer's weights used by all layers, an embedding narrower than the layers."""
    h, narrow = k.count("hidden_size"), k.count("embedding_size", default=128)
    s = Shape(h, k.count("vocab_size"), is_tied=True)
    s.counts["embedding"] += (s.vocab_size + k.count("max_position_embeddings") + k.index("type_vocab_size", default=2)) * narrow
    s.counts["other"] += narrow * h + h
    s.add_norms(1, narrow, has_bias=True)
    head_count, size = k.count("num_attention_heads"), k.count("intermediate_size")
    groups = k.count("num_hidden_groups", default=1) * k.count("inner_group_num", default=1)
    for i in range(layers(k)):
        if i < groups:
            s.add_gqa(head_count, head_count, max(h // head_count, 1), has_qkv_bias=True, has_o_bias=True)
            s.add_dense(size, is_gated=False, has_bias=True)
            s.add_norms(2, has_bias=True)
        else:
            s.add_cache(head_count, head_count, max(h // head_count, 1))
    s.counts["other"] += h * h + h
    s.lookup_count = s.counts["embedding"]
    s.notes.append("All layers share weights, which count once.")
    return s


def electra(k: Keys) -> Shape:
    """ELECTRA: BERT with an embedding of its own width and no pooler."""
    h, narrow = k.count("hidden_size"), k.count("embedding_size", default=128)
    s = Shape(h, k.count("vocab_size"), is_tied=True)
    s.counts["embedding"] += (s.vocab_size + k.count("max_position_embeddings") + k.index("type_vocab_size", default=2)) * narrow
    s.counts["other"] += narrow * h + h if narrow != h else 0
    s.add_norms(1, narrow, has_bias=True)
    head_count, size = k.count("num_attention_heads"), k.count("intermediate_size")
    for _ in range(layers(k)):
        s.add_gqa(head_count, head_count, max(h // head_count, 1), has_qkv_bias=True, has_o_bias=True)
        s.add_dense(size, is_gated=False, has_bias=True)
        s.add_norms(2, has_bias=True)
    s.lookup_count = s.counts["embedding"]
    return s
