"""Families whose layers are all attention and one dense feed-forward part. One small function a family."""

from __future__ import annotations

from planner.readers.hf_common import WINDOW_KIND, biting_window, heads, layers, qwen_windows, start, window_of, windows
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import BF16_BYTES, Shape

MLLAMA_IMAGE_ROWS = 8
"""Rows of the input embedding beyond `vocab_size`, for image tokens (`pypi:transformers==5.24.0`, MllamaTextModel)."""


def llama(k: Keys) -> Shape:
    """Llama, Mistral, Yi, Code Llama, Phi-3: RMSNorm, gated feed-forward, one window over all layers where it bites."""
    s = start(k)
    head_count, kv, width = heads(k)
    n, bias = layers(k), k.flag("attention_bias")
    one = WINDOW_KIND["sliding_attention" if biting_window(k) else "full_attention"]
    kinds = windows(k, n) if k.names("layer_types") else [one] * n
    for kind in kinds:
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind), has_qkv_bias=bias, has_o_bias=bias)
        s.add_dense(k.count("intermediate_size"), has_bias=k.flag("mlp_bias"))
        s.add_norms(2)
    s.add_norms()
    return s


def qwen2(k: Keys) -> Shape:
    """Qwen2, Qwen2.5, MiMo-7B: bias on q, k and v; the window counts only where `use_sliding_window` is true."""
    s = start(k)
    head_count, kv, width = heads(k)
    for kind in qwen_windows(k, layers(k)):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind),
                  has_qkv_bias=k.flag("attention_bias", default=True))
        s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def mllama(k: Keys) -> Shape:
    """Llama 3.2 Vision: cross-attention layers keep K and V of the image alone, so text tokens grow no cache there."""
    s = start(k)
    s.counts["embedding"] += MLLAMA_IMAGE_ROWS * s.hidden_size
    head_count, kv, width = heads(k)
    cross, crossed = set(k.numbers("cross_attention_layers")), 0
    for i in range(layers(k)):
        if i in cross:
            s.add_no_attention()
            crossed += 1
            s.counts["attention"] += s.hidden_size * width * 2 * (head_count + kv) + 2
            s.add_norms(2, width)
        else:
            s.add_gqa(head_count, kv, width)
        s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    image_bytes = crossed * 2 * kv * width * BF16_BYTES
    s.notes.append(
        f"{crossed} cross-attention layers keep nothing for text; an image adds {image_bytes} bytes a vision token at 16 bit."
    )
    return s


def gemma(k: Keys) -> Shape:
    """Gemma 2 and 3: four norms a layer, tied embedding, windowed layers between full ones; Gemma 3 norms q and k."""
    s = start(k, tied=True)
    three = k.model_type.startswith("gemma3")
    head_count, kv, width = heads(k, 256)
    for kind in windows(k, layers(k), period=k.count("sliding_window_pattern", default=6) if three else 2):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        s.add_dense(k.count("intermediate_size"))
        s.add_norms(4)
        s.add_norms(2 if three else 0, width)
    s.add_norms()
    return s


def cohere(k: Keys) -> Shape:
    """Command R and A: one norm a layer, tied embedding; Cohere 2 windows three layers of four."""
    s = start(k, tied=True)
    head_count, kv, width = heads(k)
    period = k.count("sliding_window_pattern", default=4) if k.model_type == "cohere2" else None
    for kind in windows(k, layers(k), period):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        if k.flag("use_qk_norm"):
            s.add_norms(head_count + kv, width)
        s.add_dense(k.count("intermediate_size"))
        s.add_norms()
    s.add_norms()
    return s


def falcon(k: Keys) -> Shape:
    """Falcon: one KV head, or several in the newer decoder; two-matrix feed-forward four times as wide; tied."""
    s = start(k, tied=True)
    newer = k.flag("new_decoder_architecture")
    head_count = k.count("num_attention_heads", "n_head")
    kv = k.count("num_kv_heads", default=head_count) if newer or not k.flag("multi_query", default=True) else 1
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, s.hidden_size // head_count)
        s.add_dense(k.count("ffn_hidden_size", default=4 * s.hidden_size), is_gated=False)
        s.add_norms(2 if newer else 1, has_bias=True)
    s.add_norms(has_bias=True)
    return s


def nemotron_nas(k: Keys) -> Shape:
    """Llama-Nemotron from architecture search: each layer has its own attention, or none, and its own feed-forward width."""
    s = start(k)
    head_count = k.count("num_attention_heads")
    width = s.hidden_size // head_count
    for block in k.sections("block_configs"):
        attention, ffn = block.section("attention"), block.section("ffn")
        for part in (attention, ffn):
            if part.flag("replace_with_linear"):
                part.fault("replace_with_linear", "layers replaced by a matrix are not known",
                           "write the shape as a file in workloads/models")
        if attention.flag("no_op"):
            s.add_no_attention()
        else:
            s.add_gqa(head_count, head_count // attention.count("n_heads_in_group"), width)
            s.add_norms()
        if not ffn.flag("no_op"):
            size = int(2 * ffn.number("ffn_mult") * s.hidden_size / 3)
            s.add_dense(-(-size // 256) * 256)
            s.add_norms()
    s.add_norms()
    return s


def olmo(k: Keys) -> Shape:
    """OLMo 2 and 3: norms after each part and over the whole q and k; OLMo 3 windows three layers of four."""
    s = start(k)
    head_count, kv, width = heads(k)
    for kind in windows(k, layers(k), 4 if k.model_type == "olmo3" else None):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind))
        s.add_norms(head_count + kv, width)
        s.add_dense(k.count("intermediate_size"))
        s.add_norms(2)
    s.add_norms()
    return s


def starcoder2(k: Keys) -> Shape:
    """StarCoder2: biases everywhere, two-matrix feed-forward, norms with a bias, one window over all layers."""
    s = start(k, tied=True)
    head_count, kv, width = heads(k)
    window, bias = k.optional_count("sliding_window"), k.flag("use_bias", default=True)
    for _ in range(layers(k)):
        s.add_gqa(head_count, kv, width, kind="sliding" if window else "full", window_tok=window, has_qkv_bias=bias, has_o_bias=bias)
        s.add_dense(k.count("intermediate_size"), is_gated=False, has_bias=bias)
        s.add_norms(2, has_bias=True)
    s.add_norms(has_bias=True)
    return s
