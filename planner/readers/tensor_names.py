"""What the names of a checkpoint's tensors say: the component each belongs to, and how its weights are packed."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import get_args

from planner.readers.safetensors_header import Tensor
from planner.schema.llm import Component

COMPONENTS: tuple[str, ...] = get_args(Component)
LAYER = re.compile(r"(?:^|\.)(?:layers|h|blocks)\.(\d{1,6})\.")
TOWERS = ("visual", "vision", "multi_modal", "mm_projector", "audio", "image_", "img_", "resampler", "speech")
TOWER = re.compile("|".join(TOWERS), re.IGNORECASE)
RECURRENT_MARKS = ("A_log", "dt_bias", "conv1d.weight")
"""Tensors that only a recurrent layer holds: everything beside them is recurrent too, whatever the module is called."""
PREDICTION = frozenset({"mtp", "mtp_layers", "nextn", "mtp_block", "nextn_predict_layers"})
EMBEDDING = frozenset({"embed_tokens", "wte", "wpe", "word_embeddings", "tok_embeddings", "embeddings", "embed_in",
                       "embed_tokens_per_layer", "embed", "shared", "position_embeddings", "embed_positions"})
HEAD = frozenset({"lm_head", "embed_out", "output", "score", "classifier"})
ROUTER = frozenset({"gate", "router", "e_score_correction_bias", "shared_expert_gate", "gate_weight", "expert_bias"})
RECURRENT = frozenset({"linear_attn", "mamba", "ssm", "rg_lru", "temporal_block", "recurrent", "delta_net", "short_conv", "conv", "conv1d"})
ATTENTION = frozenset({"self_attn", "attn", "attention", "self_attention", "cross_attn", "encdecattention", "selfattention", "indexer"})
ATTENTION_PARTS = frozenset({"q_proj", "k_proj", "v_proj", "o_proj", "qkv_proj"})
MLP = frozenset({"mlp", "feed_forward", "ffn", "fc1", "fc2", "shared_expert", "shared_experts", "block_sparse_moe", "moe", "densereludense",
                 "up_proj", "down_proj", "gate_proj", "w1", "w2", "w3", "intermediate"})


def recurrent_modules(names: Iterable[str]) -> frozenset[str]:
    """Return the modules that hold a tensor only recurrent layers have, e.g. `model.layers.0.mixer`."""
    return frozenset(name[: -len(mark) - 1] for name in names for mark in RECURRENT_MARKS if name.endswith("." + mark))


def component_of(name: str, in_recurrent: bool = False, layer_count: int | None = None) -> str:
    """Return the component of a tensor by its name; `mtp` for multi-token-prediction layers, which engines load only to speculate.

    `in_recurrent` says that its module holds a tensor that only recurrent layers have. Layers numbered past `layer_count` predict
    further tokens (DeepSeek V3 keeps its one as layer 61).

    >>> component_of("model.layers.3.mlp.experts.7.up_proj.weight_scale_inv")
    'experts'
    """
    lower = name.lower().split(".")
    held = set(lower)
    layer = LAYER.search(name)
    if TOWER.search(name) or lower[0] == "mlp1":
        return "vision"
    if held & PREDICTION or (layer is not None and layer_count is not None and int(layer[1]) >= layer_count and "encoder" not in held):
        return "mtp"
    if layer is None and held & HEAD:
        return "head"
    if layer is None and held & EMBEDDING:
        return "embedding"
    if "experts" in held:
        return "experts"
    if held & ROUTER:
        return "router"
    if any("norm" in part or part in ("ln_1", "ln_2", "ln_f", "layer_norm") for part in lower[-2:]):
        return "norm"
    if in_recurrent or held & RECURRENT:
        return "recurrent"
    if held & ATTENTION or held & ATTENTION_PARTS:
        return "attention"
    if held & MLP:
        return "mlp"
    return "other"


def bytes_by_component(tensors: Sequence[Tensor], layer_count: int | None) -> dict[str, int]:
    """Return the exact bytes of every component, and of `mtp`; scales, zero points and packed parts lie with their weights."""
    recurrent = recurrent_modules(tensor.name for tensor in tensors)
    found = dict.fromkeys((*COMPONENTS, "mtp"), 0)
    for tensor in tensors:
        found[component_of(tensor.name, bool(recurrent) and _is_inside(tensor.name, recurrent), layer_count)] += tensor.byte_count
    return found


def _is_inside(name: str, modules: frozenset[str]) -> bool:
    """Return whether one of the modules that hold this tensor is among `modules`."""
    parts = name.split(".")[:20]
    return any(".".join(parts[:end]) in modules for end in range(1, len(parts)))


def packed_format(tensors: Sequence[Tensor]) -> str:
    """Return the shipped weight format whose packing the tensors show, where no configuration names one.

    AWQ and GPTQ hold `qweight`, `qzeros` and `scales` (only GPTQ `g_idx`); compressed-tensors `weight_packed`; MXFP4 `*_blocks` and
    `*_scales`; NVFP4 bytes with FP8 scales; bitsandbytes `absmax`; FP8 a `weight_scale_inv` a block or a `weight_scale`. Else the
    dtype that holds the most bytes.
    """
    ends = {tensor.name.rsplit(".", 1)[-1] for tensor in tensors}
    by_dtype: dict[str, int] = {}
    for tensor in tensors:
        by_dtype[tensor.dtype] = by_dtype.get(tensor.dtype, 0) + tensor.byte_count
    most = max(by_dtype, key=lambda dtype: by_dtype[dtype], default="BF16")
    if "qweight" in ends:
        return "gptq_int4" if "g_idx" in ends else "awq_int4"
    if "absmax" in ends:
        return "bnb_nf4_dq" if "nested_absmax" in ends else "bnb_nf4"
    if "SCB" in ends:
        return "int8"
    if any(end.endswith("_blocks") for end in ends) and any(end.endswith("_scales") for end in ends):
        return "mxfp4"
    scales = {tensor.dtype for tensor in tensors if tensor.name.endswith("weight_scale")}
    if "weight_packed" in ends or most in ("U8", "F4"):
        return "nvfp4" if any(dtype.startswith("F8_E4M3") for dtype in scales) else "mxfp4" if scales & {"U8", "F8_E8M0"} else "w4a16_int4"
    if most.startswith("F8"):
        if "weight_scale_inv" in ends:
            return "fp8_block"
        return "fp8_channel" if any(t.name.endswith("weight_scale") and len(t.shape) == 2 and t.shape[0] > 1 for t in tensors) else "fp8"
    return {"F32": "fp32", "F16": "fp16", "I8": "int8"}.get(most, "bf16")
