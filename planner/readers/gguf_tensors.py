"""Bytes of a GGUF file's tensors by component: exact, from each tensor's shape and type."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from typing import get_args

from planner.errors import Fault, InputError
from planner.readers.gguf_header import Header, Tensor
from planner.schema.llm import Component

LAYER = re.compile(r"(?:blk|enc\.blk|dec\.blk)\.([0-9]{1,6})\.(.+)")
EXPERT = re.compile(r"ffn_(gate|up|down)\.([0-9]{1,5})\.weight")
"""A matrix of one expert, as files made before March 2024 hold them; later ones join all experts in one tensor (`ffn_up_exps`)."""
KDA = "ssm_conv1d_q"
"""Only layers of Kimi delta attention hold it: their queries, keys and values feed a state, and no cache."""
VISION = ("v.", "mm.", "a.", "resampler.")


@cache
def type_sizes() -> Mapping[int, tuple[str, int, int]]:
    """Return type number → (name, weights of a block, bytes of a block), from `pypi:gguf`."""
    from gguf import GGML_QUANT_SIZES, GGMLQuantizationType

    return {int(kind): (GGMLQuantizationType(kind).name.lower(), *sizes) for kind, sizes in GGML_QUANT_SIZES.items()}


@dataclass(frozen=True)
class TensorBytes:
    """What a file's tensors add up to."""

    bytes_by_component: Mapping[str, float]
    parameters_by_component: Mapping[str, int]
    bytes_by_type: Mapping[str, float]
    lookup_parameters: int = 0
    """Embeddings of each layer's own, in `other`: rows are read by index, none is multiplied."""
    prediction_bytes: float = 0.0
    """Layers that guess ahead, in the file and not in the sums: engines leave them out unless told."""

    @property
    def total_bytes(self) -> float:
        """All tensors."""
        return sum(self.bytes_by_component.values())


def layers_of(tensors: Iterable[Tensor]) -> dict[int, dict[str, Tensor]]:
    """Return layer → its tensors by their name within the layer (`attn_q.weight`)."""
    found: dict[int, dict[str, Tensor]] = {}
    for tensor in tensors:
        match = LAYER.fullmatch(tensor.name)
        if match:
            found.setdefault(int(match[1]), {})[match[2]] = tensor
    return found


def is_recurrent(names: Iterable[str]) -> bool:
    """Say whether a layer mixes tokens by a recurrent state alone: it has a state's tensors and no keys that a cache holds."""
    names = set(names)
    has_state = any(name.startswith(("ssm_", "time_mix_")) for name in names)
    if any(name.startswith(KDA) for name in names):
        return True
    return has_state and not any(name.startswith(("attn_k", "attn_kv")) for name in names)


def component_of(name: str, recurrent: bool) -> Component:
    """Return the component of a tensor; `recurrent` says that its layer has no attention."""
    if name.startswith(VISION):
        return "vision"
    match = LAYER.fullmatch(name)
    short = match[2] if match else name
    if not match:
        if short.startswith(("token_embd.", "position_embd", "token_types")):
            return "embedding"
        if short.startswith(("output.", "cls")):
            return "head"
        return "norm" if "norm" in short else "other"
    if short.startswith("nextn."):
        return "other"
    if short.startswith(("ssm_", "time_mix_", "channel_mix_", "shortconv")):
        return "recurrent"
    if "norm" in short:
        return "norm"
    if short.startswith("attn_"):
        return "recurrent" if recurrent else "attention"
    if "_exps" in short or EXPERT.fullmatch(short):
        return "experts"
    if short.startswith(("ffn_gate_inp", "exp_probs_b")):
        return "router"
    return "mlp" if short.startswith("ffn_") else "attention" if short.startswith("indexer") else "other"


def prediction_from(header: Header) -> int | None:
    """Return the first layer that only guesses ahead (multi-token prediction), None where the file has none."""
    arch = header.metadata.get("general.architecture")
    layers, guessing = (header.metadata.get(f"{arch}.{key}") for key in ("block_count", "nextn_predict_layers"))
    if not (isinstance(layers, int) and isinstance(guessing, int)) or isinstance(guessing, bool):
        return None
    return layers - guessing if 0 < guessing < layers else None


def tensor_bytes(header: Header, file: str) -> TensorBytes:
    """Return the bytes and parameters of all tensors by component, every component named.

    Every tensor of a type that is not known, or whose row its blocks do not divide, is told at once (`InputError`).
    """
    by_layer = layers_of(header.tensors)
    recurrent = {layer for layer, tensors in by_layer.items() if is_recurrent(tensors)}
    size: Counter[str] = Counter(dict.fromkeys(get_args(Component), 0))
    count: Counter[str] = Counter(dict.fromkeys(get_args(Component), 0))
    by_type: Counter[str] = Counter()
    faults: list[Fault] = []
    sizes = type_sizes()
    first_prediction, prediction, looked_up = prediction_from(header), 0.0, 0
    for tensor in header.tensors:
        kind = sizes.get(tensor.type_number)
        if kind is None:
            what = f"tensor type {tensor.type_number} is not known to this version"
            faults.append(Fault(file, None, tensor.name[:80], what, "update pypi:gguf, or give the file's size with --weights-gb"))
            continue
        name, block, block_bytes = kind
        if tensor.dims[0] % block:
            what = f"a row of {tensor.dims[0]} weights is no multiple of {name}'s block of {block}"
            faults.append(Fault(file, None, tensor.name[:80], what, "download the file again"))
            continue
        match = LAYER.fullmatch(tensor.name)
        own = tensor.element_count // block * block_bytes
        if match is not None and first_prediction is not None and int(match[1]) >= first_prediction:
            prediction += own
            continue
        component = component_of(tensor.name, match is not None and int(match[1]) in recurrent)
        size[component] += own
        count[component] += tensor.element_count
        looked_up += tensor.element_count if tensor.name.startswith("per_layer_token_embd.") else 0
        by_type[name] += own
    if faults:
        raise InputError(faults[:20])
    own_types = {name: float(total) for name, total in by_type.items()}
    return TensorBytes({name: float(total) for name, total in size.items()}, dict(count), own_types, looked_up, prediction)
