"""Which tensor type llama.cpp's quantiser gives to each matrix of a model, and the bits a component that follow.

A file type (`Q4_K_M`) is a base type, exceptions by matrix and layer (`GgufRecipe`, data of `hardware/formats.yaml`), and rules
that hold for every file type: what is written here. The rules are those of `llama_tensor_get_type` in src/llama-quant.cpp of
github:ggml-org/llama.cpp (2025); block sizes and bits are those of pypi:gguf==0.19 constants.GGML_QUANT_SIZES.
"""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.llm import AttentionGroup, GgufLayers, GgufRecipe, GgufTensor, GgufType, Llm, MlpGroup

BITS: dict[GgufType, float] = {
    "f32": 32, "f16": 16, "q8_0": 8.5, "q6_k": 6.5625, "q5_1": 6, "q5_k": 5.5, "q5_0": 5.5, "q4_1": 5, "q4_k": 4.5, "q4_0": 4.5,
    "iq4_nl": 4.5, "iq4_xs": 4.25, "q3_k": 3.4375, "iq3_s": 3.4375, "iq3_xxs": 3.0625, "q2_k": 2.625, "iq2_s": 2.5625,
    "iq2_xs": 2.3125, "iq2_xxs": 2.0625, "iq1_m": 1.75, "iq1_s": 1.5625,
}
"""Bits a weight, scales included: bytes of a block x 8 / weights of a block."""
SMALL_BLOCKS: frozenset[GgufType] = frozenset({"q8_0", "q5_1", "q5_0", "q4_1", "q4_0", "iq4_nl"})
"""Blocks of 32 weights; every other quantised type has blocks of 256."""
FALLBACKS: dict[GgufType, GgufType] = {"q4_k": "q5_0", "q5_k": "q5_1", "q6_k": "q8_0"}
"""What a type becomes where its block does not divide the row; those below 4.5 bit become IQ4_NL."""
LARGEST_GQA_LAYERS = 80
"""llama.cpp calls a model of 80 layers with grouped heads "70B" and never lets its value matrix below Q5_K."""
EIGHT_EXPERTS = 8
"""The count of experts at which key and value matrices are kept in Q8_0 (Mixtral)."""
FUSED_FAMILIES = ("falcon", "phi_3", "phi_4")
"""Families whose dense models keep query, key and value as one matrix (`attn_qkv`), as their published tensors do."""
DELTA_NET_FAMILIES = ("qwen3.5", "qwen3.6", "qwen3.8")
"""Families whose recurrent layers have such a matrix too; Mamba's and Qwen3-Next's input matrix has no rule."""
DELTA_NET_QKV_FRAC = 0.47
"""Part of a gated DeltaNet layer in it: (2 K + V) of 2 K + 3 V, K and V the widths of keys and values: 0.43 to 0.50 in these families."""
BIAS_FRAC = 0.005
"""Attention parameters beside the four matrices are biases (1-D, F32) below this part of them, and further matrices above."""


def stored_type(wanted: GgufType, row: int) -> GgufType:
    """Return the type that a matrix with rows of `row` weights gets: the wanted one, or its fallback where blocks do not divide rows."""
    if wanted in ("f32", "f16"):
        return wanted
    if row % (32 if wanted in SMALL_BLOCKS else 256) == 0:
        return wanted
    narrower = wanted if wanted in SMALL_BLOCKS else FALLBACKS.get(wanted, "iq4_nl")
    return narrower if row % 32 == 0 else "f16"


def has_more_bits(layer: int, layer_count: int) -> bool:
    """Say whether a layer is one that the M types give more bits: the first and last eighth, and every third between."""
    eighth = layer_count // 8
    return layer < eighth or layer >= 7 * layer_count // 8 or (layer - eighth) % 3 == 2


def _holds(layers: GgufLayers, layer: int, layer_count: int) -> bool:
    match layers:
        case "all":
            return True
        case "more_bits":
            return has_more_bits(layer, layer_count)
        case "first_eighth":
            return layer < layer_count // 8
        case "first_sixteenth":
            return layer < layer_count // 16
        case "first_2":
            return layer < 2
        case "first_4":
            return layer < 4
        case "middle":
            return layer_count // 8 <= layer < 7 * layer_count // 8


def _gqa(llm: Llm) -> int:
    """Query heads a KV head, of the first layer that has some."""
    return next((g.head_count // g.kv_head_count for g in llm.attention if g.kv_head_count), 1)


def _expert_count(llm: Llm) -> int:
    return max((g.expert_count for g in llm.mlp), default=0)


def wanted_type(llm: Llm, recipe: GgufRecipe, tensor: GgufTensor, layer: int, layer_count: int) -> GgufType:
    """Return the type that the recipe gives to a matrix of a layer, before the fallback for its rows."""
    experts, gqa = _expert_count(llm), _gqa(llm)
    is_low = recipe.base.startswith(("iq1", "iq2"))
    if experts == EIGHT_EXPERTS:
        if tensor == "attn_k" or (tensor == "attn_v" and not is_low):
            return "q4_k" if is_low else "q8_0"
        if tensor == "attn_output" and recipe.base in ("q2_k", "q3_k", "q4_k", "iq3_xxs", "iq3_s", "iq4_nl", "iq4_xs"):
            return "q5_k" if not recipe.is_large else recipe.base
        if tensor == "attn_output" and is_low:
            return "q5_k"
    many = gqa >= 4 or (is_low and experts >= 4)
    found: GgufType = recipe.base
    for rule in recipe.rules:
        applies = rule.when == "always" or (rule.when == "gqa_4") == many
        if rule.tensor == tensor and applies and _holds(rule.layers, layer, layer_count):
            found = rule.type
            break
    if tensor == "attn_v" and not is_low and llm.layer_count == LARGEST_GQA_LAYERS and gqa > 1 and found in ("q3_k", "q4_k"):
        return "q5_k"
    return found


def _mean_bits(llm: Llm, recipe: GgufRecipe, tensor: GgufTensor, row: int, layers: range, layer_count: int) -> float:
    """Bits a weight of a matrix over some layers; one evaluation where no rule tells the layers apart."""
    if all(rule.tensor != tensor or rule.layers == "all" for rule in recipe.rules):
        layers = layers[:1]
    return sum(BITS[stored_type(wanted_type(llm, recipe, tensor, i, layer_count), row)] for i in layers) / len(layers)


def _attention_matrices(llm: Llm, g: AttentionGroup) -> Iterator[tuple[GgufTensor, int, int]]:
    """Matrix, weights of a layer, row."""
    h, v_dim = llm.hidden_size, g.v_head_dim or g.head_dim
    if llm.family in FUSED_FAMILIES and not _expert_count(llm):
        yield "attn_qkv", h * (g.head_count * g.head_dim + g.kv_head_count * (g.head_dim + v_dim)), h
    else:
        yield "attn_q", h * g.head_count * g.head_dim, h
        if not g.cache_is_shared:
            yield "attn_k", h * g.kv_head_count * g.head_dim, h
            yield "attn_v", h * g.kv_head_count * v_dim, h
    yield "attn_output", g.head_count * v_dim * h, g.head_count * v_dim


def _attention_bits(llm: Llm, recipe: GgufRecipe) -> float:
    groups = [g for g in llm.attention if g.kind in ("full", "sliding", "chunked") and not g.is_second_cache]
    layer_count = sum(g.layer_count for g in groups)
    counted = bits = 0.0
    for g in groups:
        for tensor, size, row in _attention_matrices(llm, g):
            counted += size * g.layer_count
            bits += size * g.layer_count * _mean_bits(llm, recipe, tensor, row, range(layer_count), layer_count)
    base = BITS[stored_type(recipe.base, llm.hidden_size)]
    for g in (g for g in llm.attention if g.kind == "mla"):
        row = g.head_count * (g.v_head_dim or g.head_dim)
        size = row * llm.hidden_size * g.layer_count
        counted += size
        bits += size * BITS[stored_type(wanted_type(llm, recipe, "attn_output", 0, llm.layer_count), row)]
    total = llm.params.attention_count
    if not counted or not total:
        return base
    if counted > total:
        return bits / counted
    rest = total - counted
    return (bits + rest * (BITS["f32"] if rest < BIAS_FRAC * total else base)) / total


def _recurrent_bits(llm: Llm, recipe: GgufRecipe) -> float:
    base = BITS[stored_type(recipe.base, llm.hidden_size)]
    if llm.family not in DELTA_NET_FAMILIES:
        return base
    fused = BITS[stored_type(wanted_type(llm, recipe, "attn_qkv", 0, llm.layer_count), llm.hidden_size)]
    return DELTA_NET_QKV_FRAC * fused + (1 - DELTA_NET_QKV_FRAC) * base


def _feed_forward(g: MlpGroup, hidden_size: int) -> Iterator[tuple[bool, int, int]]:
    """Of each part of a layer: whether it is routed experts, its width in and its size."""
    if g.intermediate_size:
        yield False, hidden_size, g.intermediate_size
    if g.kind == "moe":
        yield True, g.expert_input_size or hidden_size, g.expert_intermediate_size
        if g.shared_expert_count:
            yield False, hidden_size, g.shared_expert_intermediate_size or g.expert_intermediate_size


def _mlp_bits(llm: Llm, recipe: GgufRecipe, *, is_routed: bool) -> float:
    counted = bits = 0.0
    layer = 0
    layer_count = max(llm.layer_count, sum(g.layer_count for g in llm.mlp))
    for g in llm.mlp:
        for routed, width, size in _feed_forward(g, llm.hidden_size):
            if routed != is_routed or not size:
                continue
            copies = g.shared_expert_count if g.kind == "moe" and not routed and size != g.intermediate_size else 1
            matrices: tuple[GgufTensor, ...] = ("ffn_gate", "ffn_up", "ffn_down") if g.is_gated else ("ffn_up", "ffn_down")
            for tensor in matrices:
                row = size if tensor == "ffn_down" else width
                weights = copies * width * size * g.layer_count
                counted += weights
                bits += weights * _mean_bits(llm, recipe, tensor, row, range(layer, layer + g.layer_count), layer_count)
        layer += g.layer_count
    return bits / counted if counted else BITS[stored_type(recipe.base, llm.hidden_size)]


def gguf_bits(llm: Llm, recipe: GgufRecipe) -> dict[str, float]:
    """Return the mean bits a weight of each component in a GGUF file of that recipe, from the model's shape.

    Norms, biases and the router are F32; the tower is a file of its own in F16; what is only looked up beside the input
    embedding (per-layer embeddings) and further matrices take the base type.
    """
    p, h = llm.params, llm.hidden_size
    base = BITS[stored_type(recipe.base, h)]
    is_divided = stored_type(recipe.base, h) == recipe.base
    head = BITS[recipe.head] if is_divided and not llm.family.startswith("falcon") else BITS["q8_0"]
    embedding = BITS[stored_type(recipe.embedding or recipe.base, h)] if p.head_count else head
    return {
        "attention": _attention_bits(llm, recipe), "mlp": _mlp_bits(llm, recipe, is_routed=False),
        "experts": _mlp_bits(llm, recipe, is_routed=True), "embedding": embedding, "head": head,
        "router": BITS["f32"], "norm": BITS["f32"], "recurrent": _recurrent_bits(llm, recipe), "vision": BITS["f16"],
        "other": base if p.other_count > llm.active_other_count else BITS["f16"],
    }
