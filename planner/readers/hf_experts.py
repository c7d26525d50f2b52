"""Families with grouped-query attention and a mixture of experts. One small function a family."""

from __future__ import annotations

from planner.readers.hf_common import biting_window, heads, layers, per_layer, per_layer_or_one, qwen_windows, start, window_of, windows
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import BF16_BYTES, Shape
from planner.readers.hf_sparse import EXPERTS, routed
from planner.schema.llm import AttentionKind


def qwen3(k: Keys) -> Shape:
    """Qwen3, dense, mixture of experts and the language part of VL: explicit head width, a norm on each query and key head."""
    s = start(k)
    head_count, kv, width = heads(k, None if k.model_type == "qwen3_moe" else 128)
    experts, n, bias = k.optional_first(*EXPERTS), layers(k), k.flag("attention_bias")
    for kind, has_experts in zip(qwen_windows(k, n), routed(k, n), strict=True):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind), has_qkv_bias=bias, has_o_bias=bias)
        s.add_norms(2, width)
        if experts and has_experts:
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("moe_intermediate_size"))
        else:
            s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def llama4(k: Keys) -> Shape:
    """Llama 4: three chunked layers to one full, experts on every `interleave_moe_layer_step`-th layer."""
    s = start(k)
    head_count, kv, width = heads(k)
    step, n = k.count("interleave_moe_layer_step", default=1), layers(k)
    rope = per_layer(k, "no_rope_layers", n) if k.numbers("no_rope_layers") else [int((i + 1) % 4 != 0) for i in range(n)]
    for i in range(n):
        chunked = bool(rope[i])
        s.add_gqa(head_count, kv, width, kind="chunked" if chunked else "full",
                  window_tok=k.count("attention_chunk_size") if chunked else None)
        if (i + 1) % step == 0:
            s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("intermediate_size"), shared_count=1)
        else:
            s.add_dense(k.count("intermediate_size_mlp"))
        s.add_norms(2)
    s.add_norms()
    return s


def mixtral(k: Keys) -> Shape:
    """Mixtral: Llama attention, every layer a mixture of experts; a window where the file states one that bites."""
    s = start(k)
    head_count, kv, width = heads(k)
    kind: AttentionKind = "sliding" if biting_window(k) else "full"
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def phimoe(k: Keys) -> Shape:
    """Phi-3.5-MoE: Mixtral with biases on attention and head where the file says so, and norms with a bias."""
    s = start(k)
    head_count, kv, width = heads(k)
    bias = k.flag("attention_bias")
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=bias, has_o_bias=bias)
        s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("intermediate_size"))
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    s.counts["head"] += s.vocab_size if k.flag("lm_head_bias") else 0
    return s


def gpt_oss(k: Keys) -> Shape:
    """gpt-oss: windowed and full layers in turn, a learnt sink a head, biases everywhere."""
    s = start(k)
    head_count, kv, width = heads(k)
    n = layers(k)
    experts = k.count("num_local_experts")
    for kind in windows(k, n):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind),
                  has_qkv_bias=True, has_o_bias=True, extra_count=head_count)
        s.add_moe(experts, k.count("num_experts_per_tok", "experts_per_token"), k.count("intermediate_size"), has_expert_bias=True,
                  router_extra_count=experts)
        s.add_norms(2)
    s.add_norms()
    return s


def gemma4(k: Keys) -> Shape:
    """Gemma 4: two head shapes, K used as V on full layers, layers that reuse a cache, experts or per-layer embeddings."""
    s = start(k, tied=True)
    n, h = layers(k), s.hidden_size
    reuse = n - (k.optional_count("num_kv_shared_layers") or 0)
    per_layer, v_is_k = k.optional_count("hidden_size_per_layer_input") or 0, k.flag("attention_k_eq_v")
    for i, kind in enumerate(windows(k, n)):
        full, shared = kind == "full", i >= reuse
        own = k.layer_entry("per_layer_config", i)
        width = own.count("head_dim", default=k.count("global_head_dim", "head_dim") if full else k.count("head_dim"))
        kv = own.count("num_key_value_heads", default=k.count("num_global_key_value_heads" if full and v_is_k else "num_key_value_heads",
                                                              "num_key_value_heads"))
        s.add_gqa(k.count("num_attention_heads"), kv, width, kind=kind, window_tok=None if full else k.count("sliding_window"),
                  v_is_k=full and v_is_k, cache_is_shared=shared)
        s.add_norms(1 if shared else 2, width)
        size = k.count("intermediate_size") * (2 if shared and k.flag("use_double_wide_mlp") else 1)
        if k.flag("enable_moe_block"):
            experts = k.count("num_experts")
            s.add_moe(experts, k.count("top_k_experts"), k.count("moe_intermediate_size"), beside_size=size,
                      router_extra_count=h + experts)
            s.add_norms(3)
        else:
            s.add_dense(size)
        s.add_norms(4)
        if per_layer:
            s.counts["other"] += 2 * h * per_layer
            s.add_norms()
    if per_layer:
        s.lookup_count = k.count("vocab_size_per_layer_input", "vocab_size") * n * per_layer
        s.counts["other"] += s.lookup_count + h * n * per_layer
        s.add_norms(1, per_layer)
        s.notes.append("other_count holds the per-layer embeddings, which are looked up and not multiplied.")
    s.add_norms()
    return s


def gemma3n(k: Keys) -> Shape:
    """Gemma 3n: windows of 512 with a full layer in five, last layers that reuse a cache, AltUp, Laurel, per-layer embeddings."""
    s = start(k, tied=True)
    n, h = layers(k), s.hidden_size
    head_count, kv, width = heads(k, 256)
    reuse = n - k.index("num_kv_shared_layers", default=15)
    inputs, rank = k.count("altup_num_inputs", default=4), k.count("laurel_rank", default=64)
    per_layer = k.count("hidden_size_per_layer_input", default=256)
    sizes = per_layer_or_one(k, "intermediate_size", n)
    for i, kind in enumerate(windows(k, n, period=5)):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=k.count("sliding_window", default=512) if kind == "sliding" else None,
                  cache_is_shared=i >= reuse)
        s.add_norms(1 if i >= reuse else 2, width)
        s.add_dense(sizes[i])
        s.counts["other"] += h + inputs**2 + inputs**3 + inputs * h + 2 * h * rank + 2 * h * per_layer
        s.add_norms(7)
    s.lookup_count = k.count("vocab_size_per_layer_input", default=262144) * n * per_layer
    s.counts["other"] += s.lookup_count + h * n * per_layer + 2 * (inputs - 1) * h * h
    s.add_norms(1, per_layer)
    s.add_norms()
    s.notes.append("other_count holds the per-layer embeddings, which are looked up and not multiplied.")
    return s


def glm4_moe(k: Keys) -> Shape:
    """GLM-4.5, 4.6 and the language part of 4.5V: first layers dense, bias on q, k and v, q and k normed in the large one."""
    s = start(k)
    head_count, kv, width = heads(k)
    for i in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=k.flag("attention_bias", default=True))
        if k.flag("use_qk_norm"):
            s.add_norms(2, width)
        if i < k.count("first_k_dense_replace", default=1):
            s.add_dense(k.count("intermediate_size"))
        else:
            s.add_moe(k.count("n_routed_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                      shared_count=k.optional_count("n_shared_experts") or 0)
        s.add_norms(2)
    s.add_norms()
    return s


def minimax(k: Keys) -> Shape:
    """MiniMax M2 and M3: full attention with normed q and k; M3 adds dense first layers, a shared expert and a block indexer."""
    s = start(k)
    head_count, kv, width = heads(k)
    n = layers(k)
    sparse = k.section("sparse_attention_config") if k.has("sparse_attention_config") else None
    freq = sparse.numbers("sparse_attention_freq") if sparse is not None else []
    kinds = k.names("layer_types")
    shared = 1 if k.has("shared_intermediate_size") else k.optional_count("n_shared_experts") or 0
    three = k.model_type.startswith("minimax_m3_vl")
    for i, has_experts in enumerate(routed(k, n)):
        if sparse is not None:
            index_width = sparse.count("sparse_index_dim") if i < len(freq) and freq[i] else 0
            index_heads = sparse.count("sparse_num_index_heads") if index_width else 0
        else:
            is_sparse = i < len(kinds) and kinds[i] == "minimax_m3_sparse"
            index_width, index_heads = (k.count("index_head_dim"), k.count("index_n_heads")) if is_sparse else (0, 0)
        s.add_gqa(head_count, kv, width, indexer_bytes_per_tok=index_width * BF16_BYTES,
                  extra_count=s.hidden_size * index_width * (index_heads + 1) if index_width else 0)
        if index_width:
            s.add_norms(2, index_width)
        if k.text("qk_norm_type", default="per_head" if three else "per_layer") == "per_head":
            s.add_norms(2, width)
        else:
            s.add_norms(head_count + kv, width)
        if has_experts:
            s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size", "intermediate_size"),
                      shared_count=shared, shared_size=k.optional_count("shared_intermediate_size"))
        else:
            s.add_dense(k.count("dense_intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def mimo_v2(k: Keys) -> Shape:
    """MiMo-V2-Flash: windowed layers with more KV heads than full ones, values narrower than keys, a sink a windowed head."""
    s = start(k)
    n = layers(k)
    listed = k.has("hybrid_layer_pattern") or not k.names("layer_types")
    kinds = ["sliding" if x else "full" for x in per_layer(k, "hybrid_layer_pattern", n)] if listed else windows(k, n)
    for i, (kind, has_experts) in enumerate(zip(kinds, routed(k, n), strict=True)):
        windowed, own = kind == "sliding", k.layer_entry("per_layer_config", i)
        p = "swa_" if windowed else ""
        head_count = own.count("num_attention_heads", default=k.count(f"{p}num_attention_heads", "num_attention_heads"))
        has_sink = k.flag("add_swa_attention_sink_bias" if windowed else "add_full_attention_sink_bias", default=windowed)
        sinks = head_count if has_sink else 0
        plain_kv = k.count("num_key_value_heads") * (2 if windowed else 1)
        kv = own.count("num_key_value_heads", default=k.count(f"{p}num_key_value_heads", default=plain_kv))
        s.add_gqa(head_count, kv, k.count(f"{p}head_dim", "head_dim"), v_head_dim=k.count(f"{p}v_head_dim", "v_head_dim"),
                  kind="sliding" if windowed else "full", window_tok=k.count("sliding_window") if windowed else None,
                  extra_count=sinks)
        if has_experts:
            s.add_moe(k.count("n_routed_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                      shared_count=k.optional_count("n_shared_experts") or 0)
        else:
            s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def step3(k: Keys) -> Shape:
    """Step-3.7-Flash: listed windowed and full layers, first layers dense, one shared expert."""
    s = start(k)
    head_count, kv, width = heads(k)
    n = layers(k)
    for kind, has_experts in zip(windows(k, n), routed(k, n), strict=True):
        here = k.count("num_sliding_attention_heads", default=head_count) if kind == "sliding" else head_count
        s.add_gqa(here, kv, width, kind=kind, window_tok=window_of(k, kind))
        if not has_experts:
            s.add_dense(k.count("intermediate_size"))
        else:
            experts = k.count("num_experts", "n_routed_experts", "num_local_experts")
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                      shared_count=k.count("n_shared_experts", default=1) if k.has("share_expert_dim") else 0,
                      shared_size=k.optional_count("share_expert_dim"))
        s.add_norms(2)
    s.add_norms()
    s.notes.append("Norms of q and k and gates of this family are not stated in the file and not counted.")
    return s
