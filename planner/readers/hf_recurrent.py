"""Recurrent families and hybrids beside those of `hf_hybrid`: Mamba, RG-LRU, lightning attention, short convolutions."""

from __future__ import annotations

from planner.readers.hf_common import INNER, heads, layer_kinds, layers, start
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import BF16_BYTES, FP32_BYTES, Shape
from planner.readers.hf_sparse import expert_keys, routed


def mamba1(k: Keys) -> Shape:
    """Mamba and Falcon-Mamba: every layer a Mamba-1 mixer, no attention and no cache that grows."""
    s = start(k, tied=True)
    inner = k.count("intermediate_size", "d_inner", default=k.count("expand", default=2) * s.hidden_size)
    auto = -(-s.hidden_size // 16)
    rank = auto if k.is_text("time_step_rank") else k.count("time_step_rank", default=auto)
    for _ in range(layers(k)):
        s.add_mamba1(inner, k.count("state_size", default=16), rank, k.count("conv_kernel", default=4), has_inner_norms=False,
                     has_conv_bias=k.flag("use_conv_bias", default=True),
                     has_bias=k.flag("use_bias"))
        s.add_norms()
    s.add_norms()
    return s


def mamba2(k: Keys) -> Shape:
    """Mamba-2 and Codestral Mamba: every layer a Mamba-2 mixer."""
    s = start(k)
    for _ in range(layers(k)):
        s.add_mamba2(k.count("num_heads"), k.count("head_dim"), k.count("n_groups", default=1), k.count("state_size"),
                     k.count("conv_kernel", default=4), has_conv_bias=k.flag("use_conv_bias", default=True), has_bias=k.flag("use_bias"))
        s.add_norms()
    s.add_norms()
    return s


def bamba(k: Keys) -> Shape:
    """Bamba: Mamba-2 with attention at `attn_layer_indices`, a gated feed-forward part in every layer."""
    s = start(k)
    head_count, kv, width = heads(k)
    n, full = layers(k), set(k.numbers("attn_layer_indices"))
    for i in range(n):
        if i in full:
            s.add_gqa(head_count, kv, width, has_qkv_bias=k.flag("attention_bias"), has_o_bias=k.flag("attention_bias"))
        else:
            _mamba2(k, s, k.count("mamba_expand", default=2) * s.hidden_size)
        s.add_dense(k.count("intermediate_size"), has_bias=k.flag("mlp_bias"))
        s.add_norms(2)
    s.add_norms()
    return s


def falcon_h1(k: Keys) -> Shape:
    """Falcon-H1: attention and Mamba-2 side by side in every layer, so each keeps a cache and a state."""
    s = start(k)
    head_count, kv, width = heads(k)
    inner = k.count("mamba_d_ssm", default=k.count("mamba_expand", default=2) * s.hidden_size)
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=k.flag("attention_bias"), has_o_bias=k.flag("attention_bias"))
        _mamba2(k, s, inner, beside=True, has_norm=k.flag("mamba_rms_norm"))
        s.add_dense(k.count("intermediate_size"), has_bias=k.flag("mlp_bias"))
        s.add_norms(2)
    s.add_norms()
    return s


def _mamba2(k: Keys, s: Shape, inner: int, beside: bool = False, has_norm: bool = True) -> None:
    """Add one Mamba-2 mixer from the `mamba_` keys that Bamba, Falcon-H1 and Granite share."""
    count = k.count("mamba_n_heads")
    width = max(inner // count, 1) if k.is_text("mamba_d_head") else k.count("mamba_d_head", default=max(inner // count, 1))
    s.add_mamba2(count, width, k.count("mamba_n_groups", default=1), k.count("mamba_d_state"), k.count("mamba_d_conv", default=4),
                 has_conv_bias=k.flag("mamba_conv_bias", default=True), has_bias=k.flag("mamba_proj_bias"), has_norm=has_norm,
                 beside=beside)


def zamba2(k: Keys) -> Shape:
    """Zamba2: Mamba-2 layers; a few run one of the shared attention blocks first, twice as wide, each with a cache of its own."""
    s = start(k, tied=True)
    h, n = s.hidden_size, layers(k)
    head_count = k.count("num_attention_heads")
    kv, width = k.count("num_key_value_heads", default=head_count), k.count("attention_head_dim", default=max(2 * h // head_count, 1))
    size, rank = k.count(*INNER, default=4 * h), k.count("adapter_rank", "lora_rank", default=128)
    kinds = layer_kinds(k, n, {"hybrid": "hybrid", "mamba": "mamba", "linear_attention": "mamba", "m": "mamba", "g": "hybrid"})
    blocks = min(k.count("num_mem_blocks", default=1), max(kinds.count("hybrid"), 1))
    inner = k.count("mamba_expand", default=2) * h
    mixer_heads = k.count("n_mamba_heads", default=max(inner // k.count("mamba_headdim", default=64), 1))
    for kind in kinds:
        hybrid = kind == "hybrid"
        s.add_mamba2(mixer_heads, max(inner // mixer_heads, 1), k.count("mamba_ngroups", default=1),
                     k.count("mamba_d_state", "state_size"), k.count("mamba_d_conv", default=4), has_bias=k.flag("add_bias_linear"),
                     beside=hybrid)
        s.add_norms()
        if hybrid:
            s.add_cache(head_count, kv, width)
            s.counts["attention"] += h * h
            s.counts["mlp"] += rank * (h + 2 * size)
            if k.flag("use_shared_attention_adapter"):
                s.counts["attention"] += 3 * rank * (2 * h + head_count * width)
    s.counts["attention"] += blocks * (2 * h * width * (head_count + 2 * kv) + head_count * width * h)
    s.counts["mlp"] += blocks * 3 * h * size
    s.add_norms(blocks * 3)
    s.add_norms()
    s.notes.append(f"{blocks} attention blocks are shared: weights count once, the cache at every use.")
    return s


def zamba(k: Keys) -> Shape:
    """Zamba: Mamba-1 layers with heads; a few run the one shared attention block first, each with a cache of its own."""
    s = start(k, tied=True)
    h, n = s.hidden_size, layers(k)
    head_count = k.count("num_attention_heads")
    kv, width = k.count("num_key_value_heads", default=head_count), k.count("attention_head_dim", default=max(2 * h // head_count, 1))
    inner = k.count("mamba_expand", default=2) * h
    period, offset = k.count("attn_layer_period", default=6), k.index("attn_layer_offset", default=4)
    known = {"hybrid": "hybrid", "mamba": "mamba", "linear_attention": "mamba"}
    listed = k.names("layers_block_type") or k.names("layer_types")
    kinds = layer_kinds(k, n, known) if listed else ["hybrid" if i % period == offset else "mamba" for i in range(n)]
    rank = k.count("mamba_dt_rank", default=-(-h // 16))
    for kind in kinds:
        s.add_mamba1(inner, k.count("mamba_d_state", default=16), rank, k.count("mamba_d_conv", default=4), has_inner_norms=False,
                     has_conv_bias=k.flag("mamba_conv_bias", default=True), has_bias=k.flag("mamba_proj_bias"),
                     beside=kind == "hybrid")
        s.add_norms()
        if kind == "hybrid":
            s.add_cache(head_count, kv, width)
            s.counts["attention"] += h * h
    s.counts["attention"] += 2 * h * width * (head_count + 2 * kv) + head_count * width * h
    s.counts["mlp"] += 3 * h * k.count("intermediate_size", default=4 * h)
    s.add_norms(4)
    s.notes.append("One attention block is shared: its weights count once, the cache at every use.")
    return s


def recurrent_gemma(k: Keys) -> Shape:
    """RecurrentGemma (Griffin): two RG-LRU layers to one with a window; `intermediate_size` is twice the feed-forward width."""
    s = start(k, tied=True)
    h, n = s.hidden_size, layers(k)
    head_count, kv, width = heads(k)
    lru, conv = k.count("lru_width", default=h), k.count("conv1d_width", default=4)
    pattern = k.names("block_types") or ["recurrent", "recurrent", "attention"]
    if set(pattern) - {"recurrent", "attention"}:
        k.fault("block_types", "names a block that is neither recurrent nor attention", "write recurrent or attention")
    for i in range(n):
        if pattern[i % len(pattern)] == "attention":
            s.add_gqa(head_count, kv, width, kind="sliding", window_tok=k.count("attention_window_size", default=2048), has_o_bias=True,
                      has_qkv_bias=k.flag("attention_bias"))
        else:
            s.counts["recurrent"] += 3 * h * lru + 2 * lru + h + lru * (conv + 1) + lru + 2 * (lru * lru // head_count + lru)
            s.add_linear(lru * FP32_BYTES + lru * (conv - 1) * BF16_BYTES)
        s.add_dense(max(k.count("intermediate_size") // 2, 1), has_bias=True)
        s.add_norms(2)
    s.add_norms()
    return s


def minimax_01(k: Keys) -> Shape:
    """MiniMax-Text-01 and M1: lightning attention with an fp32 state of heads x width x width, a full layer now and then; experts."""
    s = start(k)
    h, n = s.hidden_size, layers(k)
    head_count, kv, width = heads(k)
    if k.has("attn_type_list"):
        kinds = ["full" if x == 1 else "linear" for x in k.numbers("attn_type_list")]
        if len(kinds) < n:
            k.fault("attn_type_list", f"{len(kinds)} entries for {n} layers", "list one number for each layer")
    else:
        kinds = layer_kinds(k, n, {"full_attention": "full", "linear_attention": "linear"})
    experts, top_k, size = expert_keys(k)
    shared = k.count_or_first("shared_intermediate_size", default=0)
    for kind in kinds[:n]:
        if kind == "full":
            s.add_gqa(head_count, kv, width)
        else:
            inner = head_count * width
            s.counts["recurrent"] += 5 * h * inner + inner
            s.add_linear(inner * width * FP32_BYTES)
        s.add_moe(experts, top_k, size, shared_count=1 if shared else 0, shared_size=shared)
        s.add_norms(2)
    s.add_norms()
    return s


def lfm2(k: Keys) -> Shape:
    """LFM2, dense and mixture of experts: gated short convolutions with a few attention layers; tied."""
    s = start(k, tied=True)
    h, n = s.hidden_size, layers(k)
    head_count, kv, width = heads(k)
    conv, bias = k.count("conv_L_cache", default=3), int(k.flag("conv_bias"))
    full = set(k.numbers("full_attn_idxs"))
    kinds = (["full" if i in full else "conv" for i in range(n)] if full and not k.names("layer_types")
             else layer_kinds(k, n, {"full_attention": "full", "conv": "conv", "linear_attention": "conv"}))
    size = k.count("intermediate_size", "block_ff_dim")
    experts = k.optional_count("num_experts")
    if not experts and k.flag("block_auto_adjust_ff_dim", default=True):
        unit = k.count("block_multiple_of", default=256)
        times = k.number("block_ffn_dim_multiplier") if k.has("block_ffn_dim_multiplier") else 1.0
        size = -(-int(times * (2 * size // 3)) // unit) * unit
    for kind, has_experts in zip(kinds, routed(k, n) if experts else [False] * n, strict=True):
        if kind == "full":
            s.add_gqa(head_count, kv, width)
            s.add_norms(2, width)
        else:
            s.counts["recurrent"] += 4 * h * h + h * conv + bias * (h * 3 + h + h)
            s.add_linear(h * (conv - 1) * BF16_BYTES)
        if experts and has_experts:
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("moe_intermediate_size"))
        else:
            s.add_dense(size)
        s.add_norms(2)
    s.add_norms()
    return s


def olmo_hybrid(k: Keys) -> Shape:
    """OLMo Hybrid: Gated DeltaNet with a full layer in four, norms over the whole q and k."""
    s = start(k)
    head_count, kv, width = heads(k)
    n = layers(k)
    for kind in layer_kinds(k, n, {"full_attention": "full", "linear_attention": "linear"}, period=4):
        if kind == "full":
            s.add_gqa(head_count, kv, width)
            s.add_norms(head_count + kv, width)
        else:
            s.add_delta_net(k.count("linear_num_key_heads", default=head_count), k.count("linear_key_head_dim"),
                            k.count("linear_num_value_heads", default=head_count), k.count("linear_value_head_dim"),
                            k.count("linear_conv_kernel_dim", default=4))
        s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s
