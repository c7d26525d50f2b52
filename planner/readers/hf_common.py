"""What the families of config.json share: sizes, heads, and which layers are windowed."""

from __future__ import annotations

from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import Shape
from planner.schema.llm import AttentionKind

WINDOW_KIND: dict[str, AttentionKind] = {"sliding_attention": "sliding", "chunked_attention": "chunked", "full_attention": "full"}


def start(k: Keys, tied: bool = False) -> Shape:
    """Begin a shape: vocabulary, hidden size, whether the head is tied (`tied` where the file does not say)."""
    s = Shape(k.count("hidden_size", "d_model"), k.count("vocab_size"), k.flag("tie_word_embeddings", default=tied))
    s.add_embedding()
    return s


def layers(k: Keys) -> int:
    """Return the number of layers."""
    return k.count("num_hidden_layers", "n_layer")


def heads(k: Keys, default_head_dim: int | None = None) -> tuple[int, int, int]:
    """Return (heads, KV heads, head width); the width falls back to hidden / heads as the library does."""
    head_count = k.count("num_attention_heads", "n_head")
    kv = k.count("num_key_value_heads", "num_kv_heads", default=head_count)
    width = k.count("head_dim", "attention_head_dim", default=default_head_dim or max(k.count("hidden_size") // head_count, 1))
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


def per_layer(k: Keys, name: str, n: int) -> list[int]:
    """Return the first `n` entries of a list with one number a layer; notes a fault where it is too short."""
    listed = k.numbers(name)
    if len(listed) < n:
        k.fault(name, f"{len(listed)} entries for {n} layers", "list one number for each layer")
        return [1] * n
    return listed[:n]


def qwen_windows(k: Keys, n: int) -> list[AttentionKind]:
    """Return each layer's kind in Qwen: windows from `max_window_layers` on, and only where `use_sliding_window` is true."""
    if k.names("layer_types"):
        return windows(k, n)
    first = k.index("max_window_layers", default=n) if k.flag("use_sliding_window") and k.has("sliding_window") else n
    return ["sliding" if i >= first else "full" for i in range(n)]


def window_of(k: Keys, kind: AttentionKind) -> int | None:
    """Return the window of a windowed layer, None for a full one."""
    return k.count("sliding_window") if kind == "sliding" else None
