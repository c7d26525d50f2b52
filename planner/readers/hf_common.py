"""What the families of config.json share: sizes, heads, and which layers are windowed."""

from __future__ import annotations

from collections.abc import Mapping

from planner.readers.hf_keys import LARGEST_COUNT, Keys
from planner.readers.hf_shape import Shape
from planner.schema.llm import AttentionKind

WINDOW_KIND: dict[str, AttentionKind] = {"sliding_attention": "sliding", "chunked_attention": "chunked", "full_attention": "full"}


HIDDEN = ("hidden_size", "n_embd", "n_embed", "d_model", "model_dim")
LAYERS = ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "num_decoder_layers")
HEADS = ("num_attention_heads", "n_head", "num_heads", "n_heads", "attention_heads")
KV_HEADS = ("num_key_value_heads", "num_kv_heads", "n_head_kv", "n_kv_heads")
INNER = ("intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff")
CONTEXT = ("max_position_embeddings", "n_positions", "max_seq_len", "max_sequence_length", "seq_length", "model_max_length",
           "context_length", "max_context_length", "max_target_positions", "n_ctx")
"""Names that families give to the same number, the commonest first."""


def start(k: Keys, tied: bool = False) -> Shape:
    """Begin a shape: vocabulary, hidden size, whether the head is tied (`tied` where the file does not say)."""
    s = Shape(k.count(*HIDDEN), k.count("vocab_size", "padded_vocab_size"), k.flag("tie_word_embeddings", default=tied))
    s.add_embedding()
    return s


def layers(k: Keys) -> int:
    """Return the number of layers."""
    return k.count(*LAYERS)


def heads(k: Keys, default_head_dim: int | None = None) -> tuple[int, int, int]:
    """Return (heads, KV heads, head width); the width falls back to hidden / heads as the library does."""
    head_count = k.count(*HEADS)
    kv = k.count(*KV_HEADS, default=head_count)
    width = k.count("head_dim", "attention_head_dim", "kv_channels", default=default_head_dim or max(k.count(*HIDDEN) // head_count, 1))
    return head_count, kv, width


def windows(k: Keys, n: int, period: int | None = None) -> list[AttentionKind]:
    """Return each layer's kind: from `layer_types`, or every `period`-th full and the others windowed, or all full."""
    listed = k.names("layer_types")
    if listed:
        if len(listed) < n:
            k.fault("layer_types", f"{len(listed)} entries for {n} layers", "list one kind for each layer")
            return ["full"] * n
        unknown = sorted({x for x in listed if x not in WINDOW_KIND})
        if unknown:
            k.fault("layer_types", f"unknown kind {unknown[0]!r}", "known: " + ", ".join(sorted(WINDOW_KIND)))
            return ["full"] * n
        return [WINDOW_KIND[x] for x in listed[:n]]
    if not period:
        return ["full"] * n
    return ["full" if (i + 1) % period == 0 else "sliding" for i in range(n)]


def layer_kinds(k: Keys, n: int, known: Mapping[str, str], period: int | None = None) -> list[str]:
    """Return each layer's kind from `layer_types` or `layers_block_type`, spelled by `known`; with no list, each `period`-th `full`."""
    key = next((name for name in ("layer_types", "layers_block_type") if k.names(name)), "layer_types")
    listed = k.names(key)
    if not listed and period:
        return ["full" if (i + 1) % period == 0 else "linear" for i in range(n)]
    other = next(iter(known.values()))
    unknown = sorted({x for x in listed if x not in known})
    if len(listed) < n or unknown:
        what = f"unknown kind {unknown[0][:40]!r}" if unknown else f"{len(listed)} entries for {n} layers"
        k.fault(key, what, "list one kind for each layer: " + ", ".join(sorted(known)))
        return [other] * n
    return [known[x] for x in listed[:n]]


def per_layer(k: Keys, name: str, n: int) -> list[int]:
    """Return the first `n` entries of a list with one number a layer; notes a fault where it is too short."""
    listed = k.numbers(name)
    if len(listed) < n:
        k.fault(name, f"{len(listed)} entries for {n} layers", "list one number for each layer")
        return [1] * n
    return listed[:n]


def per_layer_or_one(k: Keys, name: str, n: int) -> list[int]:
    """Return one number a layer, from a list of `n` or from one number for all; each at least 1."""
    if not k.is_list(name):
        return [k.count(name)] * n
    listed = per_layer(k, name, n)
    if any(isinstance(x, bool) or not 1 <= x <= LARGEST_COUNT for x in listed):
        k.fault(name, f"holds a number outside 1 to {LARGEST_COUNT}", "write plain integers")
        return [1] * n
    return listed


def qwen_windows(k: Keys, n: int) -> list[AttentionKind]:
    """Return each layer's kind in Qwen: windows from `max_window_layers` on, and only where `use_sliding_window` is true."""
    if k.names("layer_types"):
        return windows(k, n)
    first = k.index("max_window_layers", default=n) if k.flag("use_sliding_window") and k.has("sliding_window") else n
    return ["sliding" if i >= first else "full" for i in range(n)]


def biting_window(k: Keys) -> int | None:
    """Return the window that all layers share, or None where there is none or it is no shorter than the context."""
    window = k.optional_count("sliding_window")
    bites = window is not None and window < k.count("max_position_embeddings", default=window + 1)
    return window if bites else None


def window_of(k: Keys, kind: AttentionKind) -> int | None:
    """Return the window of a windowed layer, None for a full one."""
    return k.count("sliding_window") if kind == "sliding" else None
