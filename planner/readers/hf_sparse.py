"""Mixtures of experts of one recipe: plain attention, routed experts in the layers that the file names. A row of `SPARSE` is a family."""

from __future__ import annotations

from dataclasses import dataclass

from planner.readers.hf_common import heads, layers, per_layer, qwen_windows, start, window_of, windows
from planner.readers.hf_keys import Keys
from planner.readers.hf_plain import Plain, on
from planner.readers.hf_shape import Shape
from planner.schema.llm import AttentionKind

EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts")
TOP_K = ("num_experts_per_tok", "num_experts_per_token", "moe_topk", "moe_top_k", "moe_k")
EXPERT_SIZE = ("moe_intermediate_size", "expert_ffn_hidden_size", "intermediate_size", "ffn_hidden_size")
SHARED = ("num_shared_experts", "n_shared_experts", "moe_num_shared_experts", "num_shared_expert")
SHARED_SIZE = ("shared_expert_intermediate_size", "moe_shared_expert_intermediate_size", "shared_intermediate_size")
"""Names that families give to the same number, the commonest first."""


@dataclass(frozen=True)
class Sparse:
    """What sets one family apart: its attention as in `Plain`, and its experts."""

    attention: Plain
    shared_count: int = 0
    """Shared experts where the file gives their width and not their number."""
    has_shared_gate: bool = False
    has_router_bias: bool = False
    """One correction an expert, a parameter of the router."""
    dense_first: int = 0
    """Layers without experts at the start, where the file does not say."""
    beside_is_hidden: bool = False
    """A dense part as wide as the model runs beside the experts (Arctic)."""


SPARSE: dict[str, Sparse] = {
    "qwen2_moe": Sparse(Plain(qkv_bias=("qkv_bias", True), o_bias=False, window="qwen"), shared_count=1, has_shared_gate=True),
    "olmoe": Sparse(Plain(whole_norm=True)),
    "flex_olmo": Sparse(Plain(whole_norm=True)),
    "dots1": Sparse(Plain(head_norm=True, window="qwen")),
    "deepseek": Sparse(Plain()),
    "aria_text": Sparse(Plain()),
    "granitemoe": Sparse(Plain()),
    "granitemoeshared": Sparse(Plain(), shared_count=1),
    "ernie4_5_moe": Sparse(Plain(tied=True, qkv_bias=("use_bias", False), o_bias=("use_bias", False), mlp_bias=("use_bias", False)),
                           has_router_bias=True),
    **dict.fromkeys(
        ("ernie4_5_moe_vl", "ernie4_5_vl_moe", "ernie4_5_vl_moe_text"),
        Sparse(Plain(tied=True, qkv_bias=("use_bias", False), o_bias=("use_bias", False)), has_router_bias=True),
    ),
    "hunyuan_v1_moe": Sparse(Plain(head_norm=("use_qk_norm", True)), shared_count=1),
    "hunyuan": Sparse(Plain(head_norm=("use_qk_norm", False)), shared_count=1),
    "hy_v3": Sparse(Plain(head_norm=True), dense_first=1),
    "bailing_moe": Sparse(Plain(qkv_bias=("use_qkv_bias", False), o_bias=("use_bias", False), head_norm=("use_qk_norm", False))),
    "bailing_moe_v2": Sparse(Plain(qkv_bias=("use_qkv_bias", False), o_bias=("use_bias", False), head_norm=("use_qk_norm", True))),
    "sarvam_moe": Sparse(Plain(head_norm=("use_qk_norm", True))),
    "granitemoe_swa": Sparse(Plain(window="listed", has_sinks=True), shared_count=1),
    "cohere2_moe": Sparse(Plain(tied=True, norm_count=1, window="listed", period=4)),
    "mellum": Sparse(Plain(head_norm=True, window="listed")),
    "solar_open": Sparse(Plain()),
    "exaone_moe": Sparse(Plain(head_norm=True, window="listed", period=4), dense_first=1),
    "afmoe": Sparse(Plain(head_norm=True, norm_count=4, window="listed", period=4), dense_first=1, has_router_bias=True),
    "arctic": Sparse(Plain(norm_count=3), beside_is_hidden=True),
    "grok-1": Sparse(Plain(norm_count=4)),
    "grok1": Sparse(Plain(norm_count=4)),
    "git": Sparse(Plain(norm_count=4)),
}
"""Families of `pypi:transformers==5.24.0` and of code that checkpoints carry with them (arctic, grok-1, bailing_moe, deepseek).

Grok-2 calls itself `git`; a model of images to text of that name holds no experts and is told so.
"""


def routed(k: Keys, n: int, dense_first: int = 0) -> list[bool]:
    """Return for each layer whether it holds experts, by whichever of the known keys the file says it with."""
    if k.names("mlp_layer_types"):
        kinds = k.names("mlp_layer_types")
        if len(kinds) < n or set(kinds) - {"dense", "sparse"}:
            k.fault("mlp_layer_types", f"does not name {n} dense or sparse layers", "list one kind for each layer")
            return [True] * n
        return [kind == "sparse" for kind in kinds[:n]]
    if k.is_list("moe_layer_freq"):
        return [bool(x) for x in per_layer(k, "moe_layer_freq", n)]
    first = k.index("first_k_dense_replace", k.index("num_dense_layers", k.index("moe_layer_start_index", dense_first)))
    last = n - 1 if k.plain_int("moe_layer_end_index") == -1 else k.index("moe_layer_end_index", n - 1)
    step = k.count("decoder_sparse_step", "moe_layer_interval", "moe_layer_frequency", "moe_layer_freq", default=1)
    offset = 1 if k.has("decoder_sparse_step") or k.has("moe_layer_interval") else 0
    dense = set(k.numbers("mlp_only_layers"))
    return [first <= i <= last and i not in dense and (i + offset) % step == 0 for i in range(n)]


def expert_keys(k: Keys) -> tuple[int, int, int]:
    """Return (experts, experts a token, width of one), each the first of the known names; of a list a layer, the first entry."""
    return k.count_or_first(*EXPERTS), k.count_or_first(*TOP_K), k.count_or_first(*EXPERT_SIZE)


def sparse(k: Keys) -> Shape:
    """Lay out a family of `SPARSE`."""
    row = SPARSE.get(k.model_type) or Sparse(Plain())
    base = row.attention
    s = start(k, tied=base.tied)
    head_count, kv, width = heads(k, base.head_dim)
    n = layers(k)
    qkv_bias, o_bias, mlp_bias = on(k, base.qkv_bias), on(k, base.o_bias), on(k, base.mlp_bias)
    head_norm, whole_norm = on(k, base.head_norm), on(k, base.whole_norm)
    shares = k.count("cla_share_factor", default=2) if k.flag("use_cla") else 1
    experts, top_k, size = expert_keys(k)
    beside = k.count("intermediate_size") if k.flag("residual_moe") else 0
    if row.beside_is_hidden and k.flag("parallel_attn_mlp_res", default=True):
        beside = s.hidden_size
    image_size = k.second("moe_intermediate_size") if k.model_type.startswith("ernie4_5") else None
    image_experts = (k.second("moe_num_experts") or experts) if image_size else 0
    shared = k.count_or_first(*SHARED, default=0) or row.shared_count
    shared_size = k.optional_first(*SHARED_SIZE)
    if row.shared_count and shared_size is None and k.model_type in ("qwen2_moe", "granitemoeshared", "granitemoe_swa"):
        shared = 0
    beside_attention = s.hidden_size * head_count * width if k.model_type == "afmoe" else head_count if base.has_sinks else 0
    for i, (kind, has_experts) in enumerate(zip(_kinds(k, base, n), routed(k, n, row.dense_first), strict=True)):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind), has_qkv_bias=qkv_bias, has_o_bias=o_bias,
                  cache_is_shared=i % shares != 0, extra_count=beside_attention)
        s.add_norms(2 if head_norm else 0, width)
        s.add_norms(head_count + kv if whole_norm else 0, width)
        if has_experts and experts > 1:
            s.add_moe(experts, top_k, size, shared_count=shared, shared_size=shared_size, has_shared_gate=row.has_shared_gate,
                      router_extra_count=experts if row.has_router_bias else 0, beside_size=beside)
            if image_size:
                s.add_idle_experts(image_experts, image_size)
        else:
            s.add_dense(k.count("intermediate_size", "ffn_hidden_size"), has_bias=mlp_bias)
        s.add_norms(base.norm_count, has_bias=base.norm_bias)
    s.add_norms(has_bias=base.norm_bias)
    return s


def _kinds(k: Keys, base: Plain, n: int) -> list[AttentionKind]:
    if base.window == "qwen":
        return qwen_windows(k, n)
    if base.window == "listed":
        return windows(k, n, k.count("sliding_window_pattern", "global_attn_every_n_layers", default=base.period or 1))
    return ["full"] * n


def dbrx(k: Keys) -> Shape:
    """DBRX: norms without bias, sizes under `attn_config` and `ffn_config`."""
    s = start(k)
    attention, ffn = k.section("attn_config"), k.section("ffn_config")
    head_count = k.count("n_heads")
    for _ in range(layers(k)):
        s.add_gqa(head_count, attention.count("kv_n_heads", default=head_count), max(s.hidden_size // head_count, 1))
        s.add_moe(ffn.count("moe_num_experts"), ffn.count("moe_top_k"), ffn.count("ffn_hidden_size"))
        s.add_norms(2)
    s.add_norms()
    return s
