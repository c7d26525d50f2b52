"""An architecture without a reader, read as a plain decoder on request: the keys used, and those that may matter."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from planner.readers.hf_common import (
    CONTEXT,
    HEADS,
    HIDDEN,
    INNER,
    KV_HEADS,
    LAYERS,
    biting_window,
    heads,
    layers,
    start,
    window_of,
    windows,
)
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import Shape
from planner.readers.hf_sparse import EXPERT_SIZE, EXPERTS, SHARED, SHARED_SIZE, TOP_K, expert_keys, routed
from planner.schema.llm import AttentionKind

USED = frozenset({
    *HIDDEN, *LAYERS, *HEADS, *KV_HEADS, *INNER, *CONTEXT, *EXPERTS, *TOP_K, *EXPERT_SIZE, *SHARED, *SHARED_SIZE, "vocab_size", "head_dim",
    "tie_word_embeddings", "layer_types", "sliding_window", "attention_bias", "mlp_bias", "first_k_dense_replace", "use_sliding_window",
})
"""Keys that the plain reading looks at."""
SMELL = re.compile(
    r"window|lora_rank|ssm|mamba|linear|compress|index|state|conv|recurr|latent|chunk|share|cross|rwkv|lru|delta|hybrid|kv_", re.IGNORECASE
)
"""Words in a key that hint at memory: windows, latents, states, compression, shared caches."""
MOST_NAMED = 12


def assumed(k: Keys, data: Mapping[str, Any]) -> Shape:
    """Lay out a plain decoder: grouped-query attention, a gated feed-forward part or experts, two norms a layer."""
    s = start(k)
    head_count, kv, width = heads(k)
    n = layers(k)
    if k.names("layer_types") and set(k.names("layer_types")) <= {"full_attention", "sliding_attention"}:
        kinds = windows(k, n)
    else:
        one: AttentionKind = "sliding" if biting_window(k) and k.flag("use_sliding_window", default=True) else "full"
        kinds = [one] * n
    bias = k.flag("attention_bias")
    has_experts = any(k.has(name) for name in EXPERTS)
    experts, top_k, size = expert_keys(k) if has_experts else (0, 0, 0)
    shared = k.count_or_first(*SHARED, default=0) if has_experts else 0
    dense = k.count(*INNER, default=4 * s.hidden_size)
    for kind, is_routed in zip(kinds, routed(k, n) if has_experts else [False] * n, strict=True):
        s.add_gqa(head_count, kv, width, kind=kind, window_tok=window_of(k, kind), has_qkv_bias=bias, has_o_bias=bias)
        if is_routed:
            s.add_moe(experts, top_k, size, shared_count=shared, shared_size=k.optional_first(*SHARED_SIZE))
        else:
            s.add_dense(dense)
        s.add_norms(2)
    s.add_norms()
    s.notes.append(note(k, data))
    return s


def suspects(data: Mapping[str, Any]) -> list[str]:
    """Return the keys that may bear on memory and that the plain reading does not use, sorted.

    >>> suspects({"hidden_size": 8, "kv_lora_rank": 512, "ssm_state_size": 16, "rope_theta": 1e4, "index_topk": None})
    ['kv_lora_rank', 'ssm_state_size']
    """
    return sorted(key for key, value in data.items() if key not in USED and value not in (None, False, [], {}) and SMELL.search(key)
                  and not key.endswith("token_id"))


def spelled(name: str) -> str:
    r"""Return a name from the file fit to be printed: plain characters, at most 60.

    >>> spelled("kv\ud800")
    'kv\\ud800'
    """
    return name[:60].encode("ascii", "backslashreplace").decode("ascii")


def note(k: Keys, data: Mapping[str, Any]) -> str:
    """Return the label of an assumed shape: the keys it rests on, and those that were not understood."""
    used = [key for key in sorted(data) if key in USED and data[key] is not None]
    strange = [spelled(key) for key in suspects(data)]
    more = f" and {len(strange) - MOST_NAMED} more" if len(strange) > MOST_NAMED else ""
    missed = f" Not understood, and may change the memory: {', '.join(strange[:MOST_NAMED])}{more}." if strange else ""
    return f"Assumed: {spelled(k.model_type)!r} read as a plain decoder from {', '.join(used)}.{missed}"
