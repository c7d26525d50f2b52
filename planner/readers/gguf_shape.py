"""The shape of a model from a GGUF header: layer by layer, from the tensors that are there and the keys that say the rest.

Parameters are those of the tensors. What llama.cpp holds in code and no key states (which layers have a window) stands in
`WINDOWS`, read in github:ggml-org/llama.cpp src/models/*.cpp (`set_swa_pattern`), commit 8a5c4e03.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import Fault, InputError
from planner.formatting import gb
from planner.readers.config_json import slug
from planner.readers.gguf_header import Header, Skipped, Tensor
from planner.readers.gguf_keys import Keys
from planner.readers.gguf_tensors import EXPERT, KDA, TensorBytes, is_recurrent, layers_of, prediction_from
from planner.schema.llm import AttentionGroup, MlpGroup

WINDOWS: dict[str, tuple[int, int]] = {
    "gemma2": (2, 4096), "gemma3": (6, 0), "gemma3n": (5, 0), "gpt-oss": (2, 0), "cohere2": (4, 0), "llama4": (4, 8192),
    "exaone4": (4, 0), "olmo2": (4, 0),
}
"""Architecture → (n, window): in each n layers the last sees everything; 0 where the window is a key of the file."""
KNOWN = frozenset({
    *WINDOWS, "llama", "qwen2", "qwen2moe", "qwen2vl", "qwen3", "qwen3moe", "qwen3vl", "qwen3vlmoe", "qwen3next", "qwen35", "qwen35moe",
    "gemma", "gemma4", "phi2", "phi3", "phimoe", "deepseek", "deepseek2", "glm4", "glm4moe", "mistral3", "granite", "granitemoe",
    "granitehybrid", "command-r", "falcon", "falcon-h1", "starcoder2", "starcoder", "stablelm", "nemotron", "nemotron_h",
    "nemotron_h_moe", "jamba", "mamba", "mamba2", "olmo", "olmoe", "internlm2", "baichuan", "gpt2", "gptneox", "bloom", "mpt",
    "minicpm", "smollm3", "exaone", "bert", "nomic-bert", "jina-bert-v2", "dots1", "bailingmoe", "ernie4_5", "ernie4_5-moe",
    "hunyuan-moe", "minimax-m2", "seed_oss", "arcee", "deci", "orion", "qwen", "xverse", "dbrx", "arctic", "grok",
})
ENCODERS = frozenset({"bert", "nomic-bert", "jina-bert-v2"})
OWN_CACHES = {"gemma3n": 20}
"""Architecture → how many layers, from the first, keep a cache of their own where no key says so; the rest read those."""
STATE_BYTES_PER_VALUE = 4
"""llama.cpp keeps recurrent and convolution states in FP32."""
MOST_LAYERS = 10_000


@dataclass(frozen=True)
class GgufShape:
    """What the `Llm` of a file is built from."""

    arch: str
    fields: Mapping[str, Any]
    notes: tuple[str, ...]
    keeps_latent: bool = False
    """K and V up-projections stand apart, so that llama.cpp caches the latent alone."""


def shape_of(header: Header, sums: TensorBytes, file: str, assume: bool = False) -> GgufShape:
    """Return the fields of an `Llm` (all but id, name and sources) that a header describes.

    Raises `InputError`: no architecture, an unknown one without `assume`, keys or layers missing, a vision projector.
    """
    arch = header.metadata.get("general.architecture")
    if not isinstance(arch, str) or not arch:
        raise InputError([Fault(file, None, "general.architecture", "missing", "give a model's .gguf file")])
    arch = arch[:60]
    if arch == "clip" or header.metadata.get("general.type") == "mmproj":
        raise InputError([Fault(file, None, "general.architecture", "a vision projector, not a model", "give the language model's file")])
    notes = []
    if arch not in KNOWN:
        if not assume:
            cure = "add --assume to read it layer by layer as its tensors stand, or write its shape as a file in workloads/models"
            raise InputError([Fault(file, None, "general.architecture", f"architecture {arch!r} is not known", cure)])
        notes.append(f"Assumed: architecture {arch} is not known; layers are read as their tensors stand, without windows.")
    keys = Keys(file, arch, header.metadata)
    stated = min(keys.number("block_count"), MOST_LAYERS + 1)
    by_layer = layers_of(header.tensors)
    first_prediction = prediction_from(header)
    n = stated if first_prediction is None else min(first_prediction, stated)
    if first_prediction is not None:
        notes.append(f"Layers that guess ahead hold {gb(sums.prediction_bytes)} of the file; they are left out.")
    if n > MOST_LAYERS or any(layer not in by_layer for layer in range(n)):
        gone = next((layer for layer in range(min(n, MOST_LAYERS)) if layer not in by_layer), MOST_LAYERS)
        keys.faults.append(Fault(file, None, f"blk.{gone}", f"no tensor of this layer, {arch}.block_count is {stated}", "give every part"))
    beyond = max(by_layer, default=0)
    if beyond >= stated:
        keys.faults.append(Fault(file, None, f"blk.{beyond}", f"a layer beyond {arch}.block_count, {stated}", "convert the model again"))
    hidden = keys.number("embedding_length")
    context = keys.number("context_length")
    if any(name.startswith(("attn_q", "attn_k")) for layer in range(min(n, MOST_LAYERS)) for name in by_layer.get(layer, ())):
        keys.number("attention.head_count")
    if keys.faults:
        raise InputError(keys.faults)
    is_bidirectional = keys.raw("attention.causal") is False
    if is_bidirectional and arch not in ENCODERS:
        notes.append("Every token sees every other (attention.causal is false): llama.cpp keeps no cache of it.")
    attention = _attention(keys, by_layer, n, hidden, notes)
    mlp = _mlp(keys, by_layer, n)
    if keys.faults:
        raise InputError(keys.faults)
    fields = {
        "family": slug(arch), "max_context_tok": context, "vocab_size": _vocabulary(header, keys), "hidden_size": hidden,
        "layer_count": n, "attention": attention, "mlp": mlp, "params": _parameters(sums, mlp),
        "is_encoder": arch in ENCODERS or is_bidirectional,
    }
    return GgufShape(arch, fields, tuple(notes), _keeps_latent(keys, by_layer, n))


def _vocabulary(header: Header, keys: Keys) -> int:
    embedding = next((t for t in header.tensors if t.name == "token_embd.weight"), None)
    if embedding is not None and len(embedding.dims) > 1:
        return embedding.dims[1]
    words = header.metadata.get("tokenizer.ggml.tokens")
    return words.count if isinstance(words, Skipped) and words.count else keys.number("vocab_size", 1)


def _parameters(sums: TensorBytes, mlp: list[MlpGroup]) -> dict[str, int]:
    p = sums.parameters_by_component
    total = sum(p.values())
    moe = [g for g in mlp if g.kind == "moe"]
    held = sum(g.layer_count * g.expert_count for g in moe)
    used = sum(g.layer_count * g.top_k for g in moe)
    idle = p["experts"] - p["experts"] * used // held if held else 0
    unread = p["embedding"] if p["head"] else 0
    active = max(total - idle - unread - sums.lookup_parameters - p["vision"], 1)
    return {"total_count": total, "active_count": active, **{f"{name}_count": count for name, count in p.items()}}


def _windows(keys: Keys, n: int, notes: list[str]) -> list[int]:
    """Return the window of each layer in tokens, 0 where it sees everything."""
    window = keys.number("attention.sliding_window", 0)
    pattern = keys.raw("attention.sliding_window_pattern")
    if isinstance(pattern, list) and len(pattern) >= n and window:
        return [window if pattern[i] else 0 for i in range(n)]
    every, own = WINDOWS.get(keys.arch, (0, 0))
    if keys.arch == "llama4":
        window = 0 if keys.raw("attention.sliding_window") == 0 else own
    elif not window:
        window = own
    if isinstance(pattern, int) and not isinstance(pattern, bool) and pattern > 0:
        every = pattern
    if every and window:
        return [0 if i % every == every - 1 else window for i in range(n)]
    if window:
        notes.append(f"A window of {window} tokens is stated; every layer keeps every token, as llama.cpp does for this family.")
    return [0] * n


def _attention(
    keys: Keys, by_layer: Mapping[int, Mapping[str, Tensor]], n: int, hidden: int, notes: list[str]
) -> list[AttentionGroup]:
    heads = keys.by_layer("attention.head_count", n, 0)
    kv_heads = keys.by_layer("attention.head_count_kv", n, 0)
    windows = _windows(keys, n, notes)
    rank = keys.number("attention.kv_lora_rank", 0)
    stated = keys.raw("attention.shared_kv_layers")
    shared_from = n - keys.number("attention.shared_kv_layers", 0) if stated is not None else OWN_CACHES.get(keys.arch, n)
    if rank:
        notes.append(
            "The file keeps K and V up-projections apart: llama.cpp caches the latent, as profile llama_cpp_latent counts it."
            if _keeps_latent(keys, by_layer, n)
            else "The file joins the K and V up-projections: llama.cpp caches full keys and values of every head."
        )
    made: list[dict[str, Any]] = []
    states: list[int] = []
    for i in range(n):
        names, head = by_layer[i], heads[i] or 0
        has_state = any(name.startswith(("ssm_", "time_mix_")) for name in names)
        if has_state:
            is_kda = any(name.startswith(KDA) for name in names)
            states.append(_kda_state_bytes(keys, head) if is_kda else _state_bytes(keys, hidden))
        if is_recurrent(names):
            made.append({"kind": "linear", "head_count": head, "state": states[-1]})
            continue
        if not any(name.startswith(("attn_q", "attn_k", "attn_qkv")) for name in names) or not head:
            made.append({"kind": "none"})
            continue
        suffix = "_swa" if windows[i] and keys.raw("attention.key_length_swa") else ""
        width = keys.number(f"attention.key_length{suffix}", max(hidden // head, 1))
        value = keys.number(f"attention.value_length{suffix}", width)
        if rank:
            made.append({
                "kind": "mla", "head_count": head, "head_dim": keys.number("attention.key_length_mla", width),
                "v_head_dim": keys.number("attention.value_length_mla", value), "kv_lora_rank": rank,
                "rope_dim": keys.number("rope.dimension_count"),
            })
            continue
        grouped = kv_heads[i] or head
        group: dict[str, Any] = {
            "kind": "sliding" if windows[i] else "full", "head_count": head, "kv_head_count": grouped, "head_dim": width,
        }
        if keys.arch == "llama4" and windows[i]:
            group["kind"] = "chunked"
        if windows[i]:
            group["window_tok"] = windows[i]
        if value != width:
            group["v_head_dim"] = value
        what = f"{head} heads do not divide by {grouped} KV heads in layer {i}" if head % grouped else _width_fault(names, i, head, group)
        if what:
            keys.faults.append(Fault(keys.file, None, f"{keys.arch}.attention.head_count_kv", what, "convert the model again"))
            raise InputError(keys.faults)
        made.append({**group, **({"cache_is_shared": True} if i >= shared_from else {}), **({"with": states[-1]} if has_state else {})})
    return _grouped(made)


def _width_fault(names: Mapping[str, Tensor], layer: int, head_count: int, group: Mapping[str, Any]) -> str:
    """Return how the matrices of keys and values contradict the keys of the file; nothing where they agree."""
    count, width = group["kv_head_count"], group["head_dim"]
    value = group.get("v_head_dim", width)
    for name, shape, rows in (
        ("attn_k.weight", f"{count} KV heads of {width}", count * width),
        ("attn_v.weight", f"{count} KV heads whose values have {value}", count * value),
        ("attn_qkv.weight", f"{head_count} heads and {count} KV heads of {width}", head_count * width + count * (width + value)),
    ):
        if name in names and names[name].dims[-1] != rows:
            return f"{shape} in layer {layer}, whose {name} has {names[name].dims[-1]} rows"
    return ""


def _keeps_latent(keys: Keys, by_layer: Mapping[int, Mapping[str, Tensor]], n: int) -> bool:
    return keys.raw("attention.kv_lora_rank") is not None and any("attn_k_b.weight" in by_layer[i] for i in range(n))


def _alike(made: list[dict[str, Any]]) -> list[list[dict[str, Any]]]:
    """Return layers that are alike together, in the order in which each kind first stands."""
    found: dict[str, list[dict[str, Any]]] = {}
    for layer in made:
        found.setdefault(repr(layer), []).append(layer)
    return list(found.values())


def _grouped(made: list[dict[str, Any]]) -> list[AttentionGroup]:
    """Return alike layers as groups, in the order in which each kind first stands."""
    groups: list[AttentionGroup] = []
    for layers in _alike(made):
        own = dict(layers[0])
        state, beside = own.pop("state", 0), own.pop("with", 0)
        groups.append(AttentionGroup(layer_count=len(layers), state_bytes_per_sequence=state * len(layers), **own))
        if beside:
            groups.append(AttentionGroup(
                layer_count=len(layers), kind="linear", state_bytes_per_sequence=beside * len(layers), is_second_cache=True
            ))
    return groups


def _state_bytes(keys: Keys, hidden: int) -> int:
    """Return one layer's recurrent and convolution state of one sequence (bytes), as llama.cpp allots them."""
    inner = keys.number("ssm.inner_size", 0)
    if not inner:
        head = keys.number("wkv.head_size", 0)
        return STATE_BYTES_PER_VALUE * (2 * hidden + head * hidden)
    state, convolution = keys.number("ssm.state_size", 0), keys.number("ssm.conv_kernel", 1)
    grouped = 2 * keys.number("ssm.group_count", 0) * state
    return STATE_BYTES_PER_VALUE * ((convolution - 1) * (inner + grouped) + state * inner)


def _kda_state_bytes(keys: Keys, head_count: int) -> int:
    """Return one Kimi delta attention layer's state of one sequence (bytes): a matrix a head, and the convolutions of q, k and v.

    24 layers of 32 heads of 128 with a kernel of 3: 24 x (24,576 + 524,288) x 4 B = 50.25 MiB, as llama.cpp b6.x logs.
    """
    width, convolution = keys.number("kda.head_dim"), keys.number("ssm.conv_kernel", 1)
    return STATE_BYTES_PER_VALUE * head_count * (3 * (convolution - 1) * width + width * width)


def _experts(names: Mapping[str, Tensor]) -> tuple[int, int] | None:
    """Return the width of an expert and how many a layer holds, joined in one tensor or each in its own; None where it has none."""
    joined, first = names.get("ffn_down_exps.weight"), names.get("ffn_down.0.weight")
    if joined is not None and len(joined.dims) == 3:
        return joined.dims[0], joined.dims[2]
    if first is None:
        return None
    return first.dims[0], sum(match is not None and match[1] == "down" for match in map(EXPERT.fullmatch, names))


def _mlp(keys: Keys, by_layer: Mapping[int, Mapping[str, Tensor]], n: int) -> list[MlpGroup]:
    made: list[dict[str, Any]] = []
    mixes = any(_experts(by_layer[i]) is not None for i in range(n))
    used = keys.number("expert_used_count") if mixes else 0
    for i in range(n):
        names = by_layer[i]
        down, experts = names.get("ffn_down.weight"), _experts(names)
        group: dict[str, Any] = {}
        if experts is not None:
            width, expert_count = experts
            gated = any(name in names for name in ("ffn_gate_exps.weight", "ffn_gate_up_exps.weight", "ffn_gate.0.weight"))
            group = {
                "kind": "moe", "expert_count": expert_count, "top_k": min(max(used, 1), expert_count), "expert_intermediate_size": width,
                "is_gated": gated,
            }
            shared = names.get("ffn_down_shexp.weight")
            if shared is not None:
                group |= {"shared_expert_count": 1, "shared_expert_intermediate_size": shared.dims[0]}
            if down is not None:
                group["intermediate_size"] = down.dims[0]
        elif down is not None:
            up = names.get("ffn_up.weight")
            joined = up is not None and len(up.dims) > 1 and up.dims[1] == 2 * down.dims[0]
            group = {"kind": "dense", "intermediate_size": down.dims[0], "is_gated": "ffn_gate.weight" in names or joined}
        if group:
            made.append(group)
    return [MlpGroup(layer_count=len(layers), **layers[0]) for layers in _alike(made)]
