"""Families with grouped-query attention and a mixture of experts. One small function a family."""

from __future__ import annotations

from planner.readers.hf_common import heads, layers, per_layer, qwen_windows, start, window_of, windows
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import BF16_BYTES, Shape


def qwen3(k: Keys) -> Shape:
    """Qwen3, dense, mixture of experts and the language part of VL: explicit head width, a norm on each query and key head."""
    s = start(k)
    head_count, kv, width = heads(k, 128)
    experts = k.optional_count("num_experts")
    for i, kind in enumerate(qwen_windows(k, layers(k))):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        s.add_norms(2, width)
        if experts and i not in k.numbers("mlp_only_layers") and (i + 1) % k.count("decoder_sparse_step", default=1) == 0:
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
    """Mixtral: Llama attention, every layer a mixture of experts."""
    s = start(k)
    head_count, kv, width = heads(k)
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width)
        s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def phimoe(k: Keys) -> Shape:
    """Phi-3.5-MoE: Mixtral with biases on attention and head, and norms with a bias."""
    s = start(k)
    head_count, kv, width = heads(k)
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, has_qkv_bias=True, has_o_bias=True)
        s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("intermediate_size"))
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    s.counts["head"] += s.vocab_size
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
    per_layer = k.optional_count("hidden_size_per_layer_input") or 0
    for i, kind in enumerate(windows(k, n)):
        full, shared = kind == "full", i >= reuse
        width = k.count("global_head_dim", "head_dim") if full else k.count("head_dim")
        kv = k.count("num_global_key_value_heads", "num_key_value_heads") if full else k.count("num_key_value_heads")
        s.add_gqa(k.count("num_attention_heads"), kv, width, kind=kind, window_tok=None if full else k.count("sliding_window"),
                  v_is_k=full and k.flag("attention_k_eq_v"), cache_is_shared=shared)
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
    routed = per_layer(k, "moe_layer_freq", n) if k.has("moe_layer_freq") else [1] * n
    shared = k.optional_count("n_shared_experts") or 0
    for i in range(n):
        index_width = sparse.count("sparse_index_dim") if sparse is not None and i < len(freq) and freq[i] else 0
        index_heads = sparse.count("sparse_num_index_heads") if sparse is not None and index_width else 0
        s.add_gqa(head_count, kv, width, indexer_bytes_per_tok=index_width * BF16_BYTES,
                  extra_count=s.hidden_size * index_width * (index_heads + 1) if index_width else 0)
        if index_width:
            s.add_norms(2, index_width)
        if k.text("qk_norm_type", default="per_layer") == "per_head":
            s.add_norms(2, width)
        else:
            s.add_norms(head_count + kv, width)
        if routed[i]:
            s.add_moe(k.count("num_local_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size", "intermediate_size"),
                      shared_count=shared)
        else:
            s.add_dense(k.count("dense_intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def mimo_v2(k: Keys) -> Shape:
    """MiMo-V2-Flash: windowed layers with more KV heads than full ones, values narrower than keys, a sink a windowed head."""
    s = start(k)
    n = layers(k)
    routed = per_layer(k, "moe_layer_freq", n)
    for windowed, has_experts in zip(per_layer(k, "hybrid_layer_pattern", n), routed, strict=True):
        p = "swa_" if windowed else ""
        head_count = k.count(f"{p}num_attention_heads", "num_attention_heads")
        sinks = head_count if k.flag("add_swa_attention_sink_bias" if windowed else "add_full_attention_sink_bias") else 0
        s.add_gqa(head_count, k.count(f"{p}num_key_value_heads"), k.count(f"{p}head_dim"), v_head_dim=k.count(f"{p}v_head_dim"),
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
    for i, kind in enumerate(windows(k, n)):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        if i < (k.optional_count("first_k_dense_replace") or 0):
            s.add_dense(k.count("intermediate_size"))
        else:
            s.add_moe(k.count("num_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                      shared_count=k.optional_count("n_shared_experts") or 0, shared_size=k.optional_count("share_expert_dim"))
        s.add_norms(2)
    s.add_norms()
    s.notes.append("Norms of q and k and gates of this family are not stated in the file and not counted.")
    return s
