"""Families with latent attention: DeepSeek, Kimi, GLM-5. One small function a family."""

from __future__ import annotations

from planner.readers.hf_common import layer_kinds, layers, per_layer, start
from planner.readers.hf_keys import LARGEST_COUNT, Keys
from planner.readers.hf_shape import FP32_BYTES, Shape
from planner.readers.hf_sparse import expert_keys, routed, sparse
from planner.schema.llm import AttentionGroup


def deepseek(k: Keys) -> Shape:
    """DeepSeek V2 to V3.2, Kimi K2, GLM-4.7-Flash, GLM-5, MiniCPM3: latent attention, first layers dense, an indexer in some.

    DeepSeek-VL2's smallest files say `use_mla: false`: plain heads.
    """
    if not k.has("kv_lora_rank") and not k.flag("use_mla", default=True):
        return sparse(k)
    s = start(k, tied=k.model_type in ("minicpm3", "youtu"))
    n = layers(k)
    index_width = k.optional_count("index_head_dim")
    kinds = k.names("indexer_types") or ["full"] * n
    experts = k.optional_first("n_routed_experts", "num_experts")
    for i, has_experts in enumerate(routed(k, n) if experts else [False] * n):
        indexed = index_width is not None and i < len(kinds) and kinds[i] == "full"
        s.add_mla(
            k.count("num_attention_heads"), k.optional_count("q_lora_rank"), k.count("kv_lora_rank"), k.count("qk_nope_head_dim"),
            k.count("qk_rope_head_dim"), k.count("v_head_dim"),
            indexer=(k.count("index_n_heads"), index_width) if indexed and index_width else None,
            indexer_bytes_per_tok=index_width + FP32_BYTES if indexed and index_width else 0,
        )
        if not has_experts or experts is None:
            s.add_dense(k.count("intermediate_size"))
        else:
            s.add_moe(experts, k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                      shared_count=k.optional_count("n_shared_experts") or 0)
        s.add_norms(2)
    s.add_norms()
    return s


def deepseek_v4(k: Keys) -> Shape:
    """DeepSeek V4: every layer keeps a window of one latent; most keep a compressed cache besides, 4 or 128 tokens an entry."""
    s = start(k)
    n, h, width, head_count = layers(k), s.hidden_size, k.count("head_dim"), k.count("num_attention_heads")
    index_width, index_heads = k.count("index_head_dim"), k.count("index_n_heads")
    q_rank, o_rank = k.count("q_lora_rank"), k.count("o_lora_rank")
    for ratio in _compressions(k, n):
        s.counts["attention"] += h * q_rank + q_rank * head_count * width + h * width + head_count
        s.counts["attention"] += head_count * width * o_rank + k.count("o_groups") * o_rank * h
        s.add_norms(1, q_rank + width)
        s.attention[AttentionGroup(layer_count=1, kind="sliding", head_count=head_count, kv_head_count=1, head_dim=width,
                                   window_tok=k.count("sliding_window"), kv_is_one_tensor=True)] += 1
        if ratio:
            overlap = 2 if ratio == 4 else 1
            has_index = ratio == 4
            state = 2 * ratio * overlap * (width + (index_width if has_index else 0)) * FP32_BYTES
            s.attention[AttentionGroup(
                layer_count=1, kind="full", head_count=head_count, kv_head_count=1, head_dim=width, kv_is_one_tensor=True,
                kv_compression=ratio, is_second_cache=True, state_bytes_per_sequence=state,
                indexer_bytes_per_tok=index_width // 2 // ratio if has_index else 0)] += 1
            s.counts["attention"] += 2 * overlap * h * width + ratio * overlap * width
            s.add_norms(1, width)
            if has_index:
                s.counts["attention"] += q_rank * index_heads * index_width + h * index_heads
                s.counts["attention"] += 2 * overlap * h * index_width + ratio * overlap * index_width
                s.add_norms(1, index_width)
        s.add_moe(k.count("n_routed_experts"), k.count("num_experts_per_tok"), k.count("moe_intermediate_size"),
                  shared_count=k.count("n_shared_experts"))
        s.add_norms(2)
    s.add_norms()
    streams = k.count("hc_mult")
    mixes = (2 + streams) * streams
    s.counts["other"] += n * 2 * (mixes * streams * h + mixes + 3) + streams * streams * h + streams + 1
    s.notes.append("other_count holds the hyper-connection weights.")
    return s


def _compressions(k: Keys, n: int) -> list[int]:
    """Return the tokens an entry of each layer's compressed cache stands for, 0 where it has none."""
    if k.has("compress_ratios") or not k.names("layer_types"):
        found = per_layer(k, "compress_ratios", n)
    else:
        rates = k.section("compress_rates") if k.has("compress_rates") else k.empty("compress_rates")
        ratio_of = {
            "sliding_attention": 0, "compressed_sparse_attention": rates.count("compressed_sparse_attention", default=4),
            "heavily_compressed_attention": rates.count("heavily_compressed_attention", default=128),
        }
        found = [ratio_of[x] for x in layer_kinds(k, n, {x: x for x in ratio_of})]
    if any(isinstance(x, bool) or not 0 <= x <= LARGEST_COUNT for x in found):
        k.fault("compress_ratios", "holds a number below 0 or absurdly large", "write 0, 4 or 128")
        return [0] * n
    return found


def kimi_linear(k: Keys) -> Shape:
    """Kimi Linear, K3 and Ling 2.5: Kimi Delta Attention with a latent-attention layer now and then, experts in a latent in K3."""
    s = start(k)
    n = layers(k)
    if k.has("linear_attn_config") or not (k.names("layer_types") or k.has("layer_group_size")):
        linear = k.section("linear_attn_config")
        delta = {i - 1 for i in linear.numbers("kda_layers")}
        kda = (linear.count("num_heads"), linear.count("head_dim"), linear.count("short_conv_kernel_size", default=4))
        full_rank = int(linear.flag("use_full_rank_gate"))
    else:
        kinds = layer_kinds(k, n, {"full_attention": "full", "linear_attention": "linear"}, k.optional_count("layer_group_size"))
        delta = {i for i, kind in enumerate(kinds) if kind == "linear"}
        kda = (k.count("linear_num_heads"), k.count("linear_head_dim"), k.count("linear_conv_kernel_dim", default=4))
        full_rank = 2 if k.model_type == "bailing_hybrid" else 0
    latent = k.optional_count("routed_expert_hidden_size")
    for i, has_experts in enumerate(routed(k, n)):
        if i in delta:
            s.add_delta_attention(*kda, full_rank_gate_count=full_rank)
        else:
            s.add_mla(k.count("num_attention_heads"), k.optional_count("q_lora_rank"), k.count("kv_lora_rank"),
                      k.count("qk_nope_head_dim"), k.count("qk_rope_head_dim"), k.count("v_head_dim"),
                      has_output_gate=k.flag("mla_use_output_gate"))
            s.counts["attention"] += s.hidden_size * k.count("num_attention_heads") if k.model_type == "bailing_hybrid" else 0
        if not has_experts:
            s.add_dense(k.count("intermediate_size"))
        else:
            s.add_moe(*expert_keys(k), shared_count=k.optional_count("num_shared_experts") or 0, latent_size=latent)
        s.add_norms(2)
    s.add_norms()
    if latent:
        s.notes.append("Norms of the expert latent and router corrections are not counted.")
    return s


def longcat_flash(k: Keys) -> Shape:
    """LongCat-Flash: every layer holds two latent attentions, two dense parts and one mixture with experts that do nothing."""
    s = start(k)
    experts, top_k, size = expert_keys(k)
    for _ in range(layers(k)):
        for half in range(2):
            s.add_mla(k.count("num_attention_heads"), k.optional_count("q_lora_rank"), k.count("kv_lora_rank"), k.count("qk_nope_head_dim"),
                      k.count("qk_rope_head_dim"), k.count("v_head_dim"))
            if half == 0:
                zero = (k.optional_count("zero_expert_num") or 0) * s.hidden_size
                s.add_moe(experts, top_k, size, beside_size=k.count("ffn_hidden_size", "intermediate_size"), router_extra_count=zero)
            else:
                s.add_dense(k.count("ffn_hidden_size", "intermediate_size"))
            s.add_norms(2)
    s.add_norms()
    s.notes.append("Each layer of the file is two here, for each holds two caches.")
    return s
