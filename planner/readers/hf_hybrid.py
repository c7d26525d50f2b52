"""Families that mix attention with recurrent layers. One small function a family."""

from __future__ import annotations

from collections.abc import Sequence

from planner.readers.hf_common import heads, layer_kinds, layers, start
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import FP32_BYTES, Shape
from planner.readers.hf_sparse import SHARED, SHARED_SIZE, expert_keys, routed

GRANITE_KINDS = {"attention": "attention", "full_attention": "attention", "mamba": "mamba", "linear_attention": "mamba"}
"""Kinds of layer as published files spell them, and as `pypi:transformers==5.24.0` writes them."""


def qwen3_next(k: Keys) -> Shape:
    """Qwen3-Next and Qwen3.5: every fourth layer gated attention, the others Gated DeltaNet."""
    s = start(k)
    head_count, kv, width = heads(k, 256)
    n, interval = layers(k), k.count("full_attention_interval", default=4)
    kinds = k.names("layer_types") or ["full_attention" if (i + 1) % interval == 0 else "linear_attention" for i in range(n)]
    if len(kinds) < n or set(kinds) - {"full_attention", "linear_attention"}:
        k.fault("layer_types", f"does not name {n} full_attention or linear_attention layers", "list one kind for each layer")
    experts = k.optional_count("num_experts")
    for kind in kinds[:n]:
        if kind == "full_attention":
            s.add_gqa(head_count, kv, width, has_output_gate=True)
            s.add_norms(2, width)
        else:
            s.add_delta_net(k.count("linear_num_key_heads"), k.count("linear_key_head_dim"), k.count("linear_num_value_heads"),
                            k.count("linear_value_head_dim"), k.count("linear_conv_kernel_dim"))
        if experts:
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("moe_intermediate_size"), shared_count=1,
                      shared_size=k.count("shared_expert_intermediate_size"), has_shared_gate=True)
        else:
            s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def nemotron_h(k: Keys) -> Shape:
    """Nemotron-H, Nano 2 and Nemotron 3: every sub-block is a layer of its own, one norm each."""
    s = start(k)
    letters = {"M": "mamba", "*": "attention", "-": "mlp", "E": "moe"}
    newer = {"linear_attention": "mamba", "full_attention": "attention"}
    pattern = k.text("hybrid_override_pattern", default="")
    kinds: Sequence[str] = [letters.get(c, c) for c in pattern] or [newer.get(x, x) for x in k.names("layers_block_type")]
    if not kinds:
        k.fault("hybrid_override_pattern", "missing", "give hybrid_override_pattern or layers_block_type")
    head_count, kv, width = heads(k)
    for kind in kinds:
        if kind == "mamba":
            s.add_mamba2(k.count("mamba_num_heads"), k.count("mamba_head_dim"), k.count("n_groups"), k.count("ssm_state_size"),
                         k.count("conv_kernel", default=4), has_conv_bias=k.flag("use_conv_bias", default=True))
        elif kind == "attention":
            s.add_gqa(head_count, kv, width)
        elif kind == "mlp":
            s.add_no_attention()
            s.add_dense(k.count("intermediate_size"), is_gated=False)
        elif kind == "moe":
            s.add_no_attention()
            s.add_moe(k.count("n_routed_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                      shared_count=k.optional_count("n_shared_experts") or 0,
                      shared_size=k.optional_count("moe_shared_expert_intermediate_size"), is_gated=False,
                      latent_size=k.optional_count("moe_latent_size"))
        else:
            k.fault("hybrid_override_pattern", f"unknown block {kind!r}", "known: " + ", ".join(letters.values()))
        s.add_norms()
    s.add_norms()
    return s


def jamba(k: Keys) -> Shape:
    """Jamba: one attention layer in eight, Mamba-1 in the others, experts on every second layer (none where there is one expert)."""
    s = start(k)
    head_count, kv, width = heads(k)
    inner, experts = k.count("mamba_expand", default=2) * s.hidden_size, k.count("num_experts", default=16)
    for i in range(layers(k)):
        if i % k.count("attn_layer_period", default=8) == k.index("attn_layer_offset", default=4):
            s.add_gqa(head_count, kv, width)
        else:
            s.add_mamba1(inner, k.count("mamba_d_state", default=16), k.count("mamba_dt_rank", default=-(-s.hidden_size // 16)),
                         k.count("mamba_d_conv", default=4))
        if experts > 1 and i % k.count("expert_layer_period", default=2) == k.index("expert_layer_offset", default=1):
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("intermediate_size"))
        else:
            s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def granite_hybrid(k: Keys) -> Shape:
    """Granite 4 hybrid: Mamba-2 with a few attention layers; a shared feed-forward part on every layer, experts in some."""
    s = start(k)
    head_count, kv, width = heads(k)
    experts = k.optional_count("num_local_experts")
    for kind in layer_kinds(k, layers(k), GRANITE_KINDS):
        if kind == "attention":
            s.add_gqa(head_count, kv, width)
        else:
            s.add_mamba2(k.count("mamba_n_heads"), k.count("mamba_d_head"), k.count("mamba_n_groups", default=1), k.count("mamba_d_state"),
                         k.count("mamba_d_conv", default=4), has_conv_bias=k.flag("mamba_conv_bias", default=True))
        shared = k.count("shared_intermediate_size")
        if experts:
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("intermediate_size"), shared_count=1, shared_size=shared)
        else:
            s.add_dense(shared)
        s.add_norms(2)
    s.add_norms()
    return s


def bailing_linear(k: Keys) -> Shape:
    """Ring-linear: lightning attention with an fp32 state, the last layer of each group and the layers after the last group full."""
    s = start(k)
    head_count, kv, width = heads(k)
    n, group, inner = layers(k), k.count("layer_group_size"), head_count * width
    experts, top_k, size = expert_keys(k)
    shared, shared_size = k.count_or_first(*SHARED, default=0), k.optional_first(*SHARED_SIZE)
    for i, has_experts in enumerate(routed(k, n)):
        if (i + 1) % group == 0 or i >= n // group * group:
            s.add_gqa(head_count, kv, width, has_qkv_bias=k.flag("use_qkv_bias"), has_o_bias=k.flag("use_bias"))
        else:
            s.counts["recurrent"] += 5 * s.hidden_size * inner + inner
            s.add_linear(inner * width * FP32_BYTES)
        s.add_norms(2 if k.flag("use_qk_norm", default=True) else 0, width)
        if has_experts:
            s.add_moe(experts, top_k, size, shared_count=shared, shared_size=shared_size)
        else:
            s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s
