"""Vision towers of config.json: parameters by formula where the file holds enough keys, and tokens an image becomes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from planner.readers.hf_keys import Keys

CHANNELS = 3
MLLAMA_TILE_CLASS_TOK = 1
LEAST_RATIO = 1e-3
"""Below this a downsampling is absurd; published files shrink by a half."""


def _vit(
    h: int, n: int, size: int, *, attention_bias: bool = True, mlp_bias: bool = True, norm_bias: bool = True, gated: bool = False
) -> int:
    """Return the parameters of `n` transformer blocks: four square matrices, a feed-forward part, two norms."""
    ups = 2 if gated else 1
    block = 4 * h * h + (4 * h if attention_bias else 0) + (ups + 1) * h * size + (ups * size + h if mlp_bias else 0)
    return n * (block + 2 * h * (2 if norm_bias else 1))


def _sizes(v: Keys) -> tuple[int, int, int]:
    return v.count("hidden_size"), v.count("num_hidden_layers"), v.count("intermediate_size")


def _side_patches(v: Keys, default_image: int | None = None) -> int:
    """Return the patches of one full image: (side / patch) squared."""
    image, patch = v.count_or_first("image_size", default=default_image), v.count_or_first("patch_size")
    return max(image // patch, 1) ** 2


def _two_layer(width_in: int, text: int, bias: bool = True) -> int:
    """Return a projector of two matrices: in to text, text to text."""
    return width_in * text + text * text + (2 * text if bias else 0)


def _clip(v: Keys, outer: Keys, text: int) -> int:
    h, n, size = _sizes(v)
    patch = v.count_or_first("patch_size")
    return h + CHANNELS * patch * patch * h + (_side_patches(v) + 1) * h + 4 * h + _vit(h, n, size) + _projector(outer, h, text)


def _siglip(v: Keys, outer: Keys, text: int) -> int:
    h, n, size = _sizes(v)
    patch = v.count_or_first("patch_size")
    positions = v.count("num_patches") if v.has("num_patches") else _side_patches(v)
    head = 0
    if v.flag("vision_use_head"):
        head = h + 4 * h * h + 4 * h + 2 * h * size + size + h + 2 * h
    return CHANNELS * patch * patch * h + h + positions * h + 2 * h + _vit(h, n, size) + head + _projector(outer, h, text)


def _projector(outer: Keys, h: int, text: int) -> int:
    """Return the projector of the model around a CLIP or SigLIP tower, by the whole model's type."""
    kind = outer.model_type
    if kind == "gemma3":
        return h * text + h
    if kind == "paligemma":
        return h * text + text
    if kind in ("idefics3", "smolvlm"):
        return h * outer.count("scale_factor", default=2) ** 2 * text
    if kind == "lfm2_vl":
        inner, wide = outer.count("projector_hidden_size", default=2560), h * outer.count("downsample_factor", default=2) ** 2
        norm = 2 * wide if outer.flag("projector_use_layernorm", default=True) else 0
        bias = inner + text if outer.flag("projector_bias", default=True) else 0
        return norm + wide * inner + inner * text + bias
    newline = text if kind in ("llava_next", "llava_onevision", "llava_next_video") else 0
    return _two_layer(h, text, outer.flag("multimodal_projector_bias", default=True)) + newline


def _qwen2_vl(v: Keys, _: Keys, text: int) -> int:
    h, n, patch = v.count("embed_dim"), v.count("depth"), v.count("patch_size")
    wide = h * v.count("spatial_merge_size", default=2) ** 2
    patches = CHANNELS * v.count("temporal_patch_size", default=2) * patch * patch * h
    out = v.count("hidden_size", default=text)
    merger = 2 * h + wide * wide + wide + wide * out + out
    return patches + _vit(h, n, v.count("mlp_ratio", default=4) * h) + merger


def _qwen2_5_vl(v: Keys, _: Keys, text: int) -> int:
    h, n, patch = v.count("hidden_size"), v.count("depth"), v.count("patch_size")
    wide = h * v.count("spatial_merge_size", default=2) ** 2
    patches = CHANNELS * v.count("temporal_patch_size", default=2) * patch * patch * h
    out = v.count("out_hidden_size", default=text)
    merger = h + wide * wide + wide + wide * out + out
    return patches + _vit(h, n, v.count("intermediate_size"), norm_bias=False, gated=True) + merger


def _qwen3_vl(v: Keys, _: Keys, text: int) -> int:
    h, n, patch = v.count("hidden_size"), v.count("depth"), v.count("patch_size")
    wide, out = h * v.count("spatial_merge_size", default=2) ** 2, v.count("out_hidden_size", default=text)
    patches = CHANNELS * v.count("temporal_patch_size", default=2) * patch * patch * h + h
    merger = wide * wide + wide + wide * out + out
    deep = len(v.numbers("deepstack_visual_indexes"))
    tables = v.count("num_position_embeddings", default=2304) * h
    return patches + tables + _vit(h, n, v.count("intermediate_size")) + 2 * h + merger + deep * (2 * wide + merger)


def _pixtral(v: Keys, outer: Keys, text: int) -> int:
    h, n, size = _sizes(v)
    patch = v.count("patch_size")
    tower = CHANNELS * patch * patch * h + h + _vit(h, n, size, attention_bias=False, mlp_bias=False, norm_bias=False, gated=True)
    if outer.model_type != "mistral3":
        return tower + _two_layer(h, text, outer.flag("multimodal_projector_bias", default=True))
    merge = outer.count("spatial_merge_size", default=2) ** 2
    return tower + h + h * h * merge + _two_layer(h, text, outer.flag("multimodal_projector_bias"))


def _internvl(v: Keys, outer: Keys, text: int) -> int:
    h, n, size = _sizes(v)
    patch = v.count_or_first("patch_size")
    chat = outer.model_type == "internvl_chat"
    qkv_bias = v.flag("qkv_bias" if chat else "attention_bias")
    norms = v.flag("qk_normalization" if chat else "use_qk_norm")
    rms = v.text("norm_type", default="layer_norm") == "rms_norm"
    scales = h + 2 * h + (3 * h if qkv_bias else 0) + (2 * h if norms else 0)
    blocks = _vit(h, n, size, attention_bias=False, norm_bias=not rms) + n * scales
    ratio = max(outer.number("downsample_ratio"), LEAST_RATIO) if outer.has("downsample_ratio") else 0.5
    wide = h * max(round(1 / ratio**2), 1)
    return h + (_side_patches(v) + 1) * h + CHANNELS * patch * patch * h + h + blocks + 2 * wide + _two_layer(wide, text)


def _llama4(v: Keys, _: Keys, text: int) -> int:
    h, n, size = _sizes(v)
    patch, wide = v.count("patch_size"), v.count("projector_input_dim", default=4096)
    out = v.count("projector_output_dim", default=4096)
    adapter = size * wide + wide * out + text * v.count("vision_output_dim", default=out)
    return h + (_side_patches(v) + 1) * h + CHANNELS * patch * patch * h + 4 * h + _vit(h, n, size) + adapter


def _moonvit(v: Keys, _: Keys, text: int) -> int:
    h, n = v.count("vt_hidden_size", "hidden_size"), v.count("vt_num_hidden_layers", "num_hidden_layers")
    size = v.count("vt_intermediate_size", "intermediate_size")
    patch, merge = v.count("patch_size"), v.numbers("merge_kernel_size") or [2, 2]
    wide = v.count("mm_hidden_size", default=h) * merge[0] * merge[-1]
    table = v.count("init_pos_emb_height", "pos_emb_height") * v.count("init_pos_emb_width", "pos_emb_width") * h
    return CHANNELS * patch * patch * h + h + table + _vit(h, n, size) + 2 * h + 2 * h + wide * wide + wide + wide * text + text


def _glm4v(v: Keys, _: Keys, _text: int) -> int:
    h, n, patch, out = v.count("hidden_size"), v.count("depth"), v.count("patch_size"), v.count("out_hidden_size")
    merge, inner = v.count("spatial_merge_size", default=2) ** 2, v.count("intermediate_size")
    patches = CHANNELS * v.count("temporal_patch_size", default=2) * patch * patch * h + h + _side_patches(v, 336) * h
    blocks = _vit(h, n, out, attention_bias=v.flag("attention_bias"), mlp_bias=False, norm_bias=False, gated=True)
    return patches + blocks + 2 * h + h * out * merge + out + out * out + 2 * out + 3 * out * inner


def _gemma4(v: Keys, _: Keys, text: int) -> int:
    h, n, size = _sizes(v)
    patch = v.count("patch_size", default=16)
    width = v.count("head_dim", default=max(h // v.count("num_attention_heads"), 1))
    blocks = _vit(h, n, size, attention_bias=False, mlp_bias=False, norm_bias=True, gated=True) + n * 2 * width
    tables = 2 * v.count("position_embedding_size", default=10240) * h + CHANNELS * patch * patch * h
    return tables + blocks + h * text


TOWERS: dict[str, Callable[[Keys, Keys, int], int]] = {
    "clip_vision_model": _clip,
    **dict.fromkeys(("siglip_vision_model", "siglip2_vision_model", "idefics3", "idefics3_vision", "smolvlm_vision"), _siglip),
    **dict.fromkeys(("qwen2_vl", "qwen2_vl_vision"), _qwen2_vl),
    **dict.fromkeys(("qwen2_5_vl", "qwen2_5_vl_vision"), _qwen2_5_vl),
    **dict.fromkeys(("qwen3_vl", "qwen3_vl_vision", "qwen3_vl_moe", "qwen3_vl_moe_vision", "qwen3_5", "qwen3_5_vision", "qwen3_5_moe",
                     "qwen3_5_moe_vision"), _qwen3_vl),
    "pixtral": _pixtral,
    **dict.fromkeys(("internvl_vision", "intern_vit_6b"), _internvl),
    "llama4_vision_model": _llama4,
    **dict.fromkeys(("kimi_k25", "kimi_k25_vision", "moonvit"), _moonvit),
    **dict.fromkeys(("glm4v", "glm4v_vision", "glm4v_moe", "glm4v_moe_vision"), _glm4v),
    "gemma4_vision": _gemma4,
}
"""Towers by the `model_type` of `vision_config`, else of the whole file; counted against `pypi:transformers==5.24.0` on meta tensors."""


def _tower(vision: Mapping[str, Any], outer_type: str) -> Callable[[Keys, Keys, int], int] | None:
    own = vision.get("model_type")
    return TOWERS.get(own if isinstance(own, str) and own in TOWERS else outer_type)


def vision_count(data: Mapping[str, Any], text_hidden_size: int) -> int | None:
    """Return the parameters of the vision tower and its projector, or None where the file lacks a key or the tower is not known.

    >>> vision_count({"model_type": "llama"}, 4096) is None
    True
    """
    vision = data.get("vision_config")
    outer_type = data.get("model_type")
    if not isinstance(vision, Mapping) or not isinstance(outer_type, str):
        return None
    outer = Keys(data, "", "", [], outer_type)
    count = _tower(vision, outer_type)
    if count is None:
        return None
    v = Keys(vision, "", "vision_config", outer.faults, outer_type)
    found = count(v, outer, text_hidden_size)
    return found if not outer.faults and 0 < found <= 10**14 else None


def image_tok(data: Mapping[str, Any]) -> int | None:
    """Return the tokens that one image of the tower's own size becomes in the language model, or None where the file does not tell.

    Towers that take any size (Qwen, Pixtral without `image_size`, MoonViT) have no such number and answer None, as models that cut
    an image into tiles answer for one tile.

    >>> image_tok({"model_type": "llava", "vision_config": {"model_type": "clip_vision_model", "image_size": 336, "patch_size": 14}})
    576
    """
    vision = data.get("vision_config")
    outer_type = data.get("model_type")
    if not isinstance(vision, Mapping) or not isinstance(outer_type, str):
        return None
    outer = Keys(data, "", "", [], outer_type)
    v = Keys(vision, "", "vision_config", outer.faults, outer_type)
    for name in ("mm_tokens_per_image", "image_seq_length", "vision_soft_tokens_per_image"):
        if outer.has(name):
            found = outer.count(name)
            return found if not outer.faults else None
    if outer_type.startswith(("qwen", "kimi")) or not v.has("image_size") or not v.has("patch_size"):
        soft = v.plain_int("default_output_length")
        return soft if soft and soft > 0 else None
    patches = _side_patches(v)
    if outer_type == "mllama":
        found = (patches + MLLAMA_TILE_CLASS_TOK) * v.count("max_num_tiles", default=4)
    elif v.has("pixel_shuffle_ratio") or outer.has("downsample_ratio"):
        ratio = v.number("pixel_shuffle_ratio") if v.has("pixel_shuffle_ratio") else outer.number("downsample_ratio")
        found = max(int(patches * ratio * ratio), 1)
    else:
        merge = outer.count("spatial_merge_size", "scale_factor", "downsample_factor", default=v.count("spatial_merge_size", default=1))
        found = max(patches // merge**2, 1)
    return found if not outer.faults else None
