"""Read `quantization_config` and `hf_quant_config.json`: the bits of every component, layers left in 16 bit weighed in.

Methods and keys as `pypi:transformers==5.24.0 transformers/utils/quantization_config.py`, compressed-tensors and NVIDIA's modelopt
write them. Scales and zero points lie inside the bits: AWQ and GPTQ keep one 16-bit scale and one zero point a group, FP8 blocks one
32-bit scale a block, MXFP4 and NVFP4 one 8-bit scale in 32 and 16 weights, NF4 one 32-bit scale in 64 (4.127 bit when quantised twice).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.module_patterns import Patterns
from planner.schema.base import Source
from planner.schema.llm import Llm, WeightFormat

SECTIONS = ("text_config", "llm_config", "language_config")
DTYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32"}
SKIP_KEYS = ("modules_to_not_convert", "ignored_layers", "ignore", "exclude_modules", "llm_int8_skip_modules", "modules_to_save",
             "exclude_layers", "ignored_modules")
GROUPED = ("awq", "gptq", "auto-round", "autoround", "gptqmodel", "intel/auto-round")
METHODS = (*GROUPED, "fp8", "fbgemm-fp8", "finegrained-fp8", "mxfp4", "bitsandbytes", "bnb", "compressed-tensors", "modelopt")
LEFT_BITS = 16.0
CURE = "name a shipped format with --weights"


@dataclass(frozen=True)
class Scheme:
    """How one kind of layer is stored: bits a weight, and the shipped format nearest to it."""

    bits: float
    format_id: str


@dataclass(frozen=True)
class Quantization:
    """What a file says: the scheme of all linear layers, of layers it names, and the layers it leaves in 16 bit."""

    method: str
    default: Scheme | None
    named: tuple[tuple[Patterns, Scheme], ...]
    left: Patterns
    only_experts: bool = False
    covers_tower: bool = False
    only: Patterns | None = None
    expert_scheme: Scheme | None = None
    covers_head: bool = False

    @property
    def schemes(self) -> list[Scheme]:
        """Every scheme in use."""
        return [scheme for scheme in (self.default, self.expert_scheme, *(s for _, s in self.named)) if scheme is not None]

    def bits_of(self, module: str, component: str) -> float:
        """Return the bits a weight of one module."""
        if self.left.match(module):
            return LEFT_BITS
        for patterns, scheme in self.named:
            if patterns.match(module):
                return scheme.bits
        if component == "experts" and self.expert_scheme is not None:
            return self.expert_scheme.bits
        is_left = (self.only_experts and component != "experts") or (self.only is not None and not self.only.match(module))
        return LEFT_BITS if self.default is None or is_left else self.default.bits

    @property
    def why_not(self) -> str | None:
        """Why its patterns cannot be run, in words; None where all can."""
        lists = (self.left, *(patterns for patterns, _ in self.named), *((self.only,) if self.only is not None else ()))
        return next((patterns.why_not for patterns in lists if patterns.why_not is not None), None)


def quantization_of(data: Mapping[str, Any], hf_quant: Mapping[str, Any] | None = None) -> Mapping[str, Any] | None:
    """Return the part of a config.json (or of `hf_quant_config.json` beside it) that states the quantisation; None where none does."""
    for part in (data, *(data[name] for name in SECTIONS if isinstance(data.get(name), Mapping))):
        for key in ("quantization_config", "compression_config"):
            found = part.get(key)
            if isinstance(found, Mapping) and found:
                return found
    inner = (hf_quant or {}).get("quantization")
    if isinstance(inner, Mapping) and inner.get("quant_algo"):
        return {**inner, "quant_method": "modelopt"}
    return None


def dtype_of(data: Mapping[str, Any]) -> str:
    """Return `bf16`, `fp16` or `fp32`: what the file says its weights are where they are not quantised, bf16 where it says nothing."""
    for part in (data, *(data[name] for name in SECTIONS if isinstance(data.get(name), Mapping))):
        dtype = part.get("dtype") or part.get("torch_dtype")
        if isinstance(dtype, str) and dtype in DTYPES:
            return DTYPES[dtype]
    return "bf16"


def states_weights(data: Mapping[str, Any], hf_quant: Mapping[str, Any] | None = None) -> bool:
    """Return whether the file says what its weights are: a quantisation, or a dtype that is known."""
    parts = (data, *(data[name] for name in SECTIONS if isinstance(data.get(name), Mapping)))
    return quantization_of(data, hf_quant) is not None or any(
        isinstance(part.get(key), str) and part[key] in DTYPES for part in parts for key in ("dtype", "torch_dtype")
    )


def native_format_id(data: Mapping[str, Any], file: str = "") -> str:
    """Return the id of the format a config.json says its checkpoint is in; a method without one there is named by itself.

    Raises `InputError` where the figures of a known method are absurd.
    """
    quantization = quantization_of(data)
    if quantization is None:
        return dtype_of(data)
    method = _method(quantization)
    if method not in METHODS and not method.startswith("modelopt"):
        return re.sub(r"[^a-z0-9.]+", "_", method).strip("_") or dtype_of(data)
    schemes = read_quantization(quantization, file, data).schemes
    return min(schemes, key=lambda s: s.bits).format_id if schemes else dtype_of(data)


def _method(q: Mapping[str, Any]) -> str:
    return str(q.get("quant_method") or ("modelopt" if q.get("quant_algo") else "")).lower().replace("_", "-")[:60]


def weights_of_config(
    data: Mapping[str, Any], llm: Llm, formats: Mapping[str, WeightFormat], hf_quant: Mapping[str, Any] | None = None, file: str = ""
) -> WeightFormat:
    """Return the weight format that a config.json states for this model, as bits by component.

    The id, the engines and the quality note are those of the nearest shipped format; where a component is quantised in part, its
    bits are the mean over its layers by size. Raises `InputError`: an unknown method, absurd numbers, patterns that are not run.
    """
    quantization = quantization_of(data, hf_quant)
    if quantization is None:
        return formats[dtype_of(data)]
    found = read_quantization(quantization, file, data)
    schemes = found.schemes
    if not schemes:
        return formats[dtype_of(data)]
    if found.why_not is not None:
        raise _refuse(file, "", found.why_not, CURE)
    share = _by_component(found, llm, data)
    main = min(schemes, key=lambda s: s.bits) if len(schemes) > 1 else schemes[0]
    if main.format_id not in formats:
        raise _refuse(file, "quant_method", f"no format '{main.format_id}' is shipped", CURE)
    base = formats[main.format_id]
    bits = {**dict.fromkeys(("embedding", "router", "norm", "other", "head", "vision"), LEFT_BITS), **share}
    note = f"{found.method} as the file's quantisation states it; layers that it leaves in 16 bit are weighed in by their size"
    source = Source(kind="derived", retrieved_on=llm.source_of("default").retrieved_on, note=note)
    return WeightFormat.model_validate(
        {**base.model_dump(), "bits_per_weight": bits, "sources": {**base.sources, "bits_per_weight": source}}
    )


def _refuse(file: str, key: str, what: str, cure: str) -> InputError:
    return InputError([Fault(file, None, f"quantization_config.{key}", what, cure)])


def _whole(q: Mapping[str, Any], key: str, default: int, file: str, least: int = 1, most: int = 65536) -> int:
    value = q.get(key, default)
    value = default if value is None else value
    if type(value) is not int or not least <= value <= most:
        raise _refuse(file, key, f"{str(value)[:40]!r} is not a whole number from {least} to {most}", "copy the file as published")
    return value


def _patterns(q: Mapping[str, Any], file: str) -> Patterns:
    """Return the layers that a file leaves in 16 bit, whichever of the keys in use names them."""
    listed: list[Any] = []
    for key in SKIP_KEYS:
        value = q.get(key)
        if value is None:
            continue
        if isinstance(value, str):
            value = [value]
        if not isinstance(value, list):
            raise _refuse(file, key, "is not a list of modules", "copy the file as published")
        listed += value
    return Patterns(listed)


def _integer(bits: int, group: int, has_zero: bool, awq: bool = False, packed: bool = False) -> Scheme:
    """Return a scheme of whole numbers: one 16-bit scale, and a zero point where there is one, a group (none a channel: group 0)."""
    more = (16 + bits * has_zero) / group if group else 0.0
    if bits == 8:
        return Scheme(8 + (more or 0.00781), "int8")
    if packed:
        return Scheme(bits + more, "w4a16_int4_g32" if group == 32 else "w4a16_int4")
    return Scheme(bits + more, "awq_int4" if awq else "gptq_int4")


def read_quantization(q: Mapping[str, Any], file: str = "", data: Mapping[str, Any] | None = None) -> Quantization:
    """Return what one `quantization_config` says. Raises `InputError` naming the key: an unknown method, absurd numbers."""
    method = _method(q)
    left = _patterns(q, file)
    if method in GROUPED:
        return _groups(q, method, left, file)
    if method in ("fp8", "fbgemm-fp8", "finegrained-fp8"):
        block = q.get("weight_block_size")
        if method == "fbgemm-fp8":
            scheme = Scheme(8.00781, "fp8_channel")
        elif block is not None:
            if not (isinstance(block, list) and len(block) == 2 and all(type(x) is int and 1 <= x <= 65536 for x in block)):
                raise _refuse(file, "weight_block_size", "is not two whole numbers", "copy the file as published")
            scheme = Scheme(8 + 32 / (block[0] * block[1]), "fp8_block")
        else:
            scheme = Scheme(8.0, "fp8")
        experts = Scheme(4.25, "mxfp4") if str((data or {}).get("expert_dtype", "")).lower() in ("fp4", "mxfp4") else None
        return Quantization(method, scheme, (), left, expert_scheme=experts)
    if method in ("mxfp4",):
        return Quantization(method, Scheme(4.25, "mxfp4"), (), left, only_experts=True)
    if method in ("bitsandbytes", "bnb"):
        if q.get("load_in_8bit") is True or q.get("_load_in_8bit") is True:
            return Quantization(method, Scheme(8.00781, "int8"), (), left, covers_tower=True)
        twice = q.get("bnb_4bit_use_double_quant") is True
        return Quantization(method, Scheme(4.12695, "bnb_nf4_dq") if twice else Scheme(4.5, "bnb_nf4"), (), left, covers_tower=True)
    if method == "compressed-tensors" or (method == "modelopt" and isinstance(q.get("config_groups"), Mapping)):
        return _compressed(q, method, left, file)
    if method.startswith("modelopt"):
        return _modelopt(q, left, file)
    raise _refuse(file, "quant_method", f"'{method or 'none'}' is not known", f"{did_you_mean(method, METHODS)}; or {CURE}")


def _groups(q: Mapping[str, Any], method: str, left: Patterns, file: str) -> Quantization:
    """AWQ and GPTQ, and what writes like them: bits, group size, layers by name or expression."""
    bits = _whole(q, "bits", _whole(q, "w_bit", 4, file, 2, 8), file, 2, 8)
    group = _whole(q, "group_size", _whole(q, "q_group_size", 128, file, -1), file, -1)
    scheme = _integer(bits, max(0, group), True, awq=method == "awq" or "awq" in str(q.get("packing_format", "")))
    out: list[Any] = []
    dynamic = q.get("dynamic")
    if isinstance(dynamic, Mapping):
        out += ["re:" + key[2:] for key in dynamic if isinstance(key, str) and key.startswith("-:")]
    extra = q.get("extra_config")
    if isinstance(extra, Mapping):
        out += [key for key, value in extra.items() if isinstance(value, Mapping) and value.get("bits", 0) == 16]
    skipped = [x for key in SKIP_KEYS for x in (q.get(key) if isinstance(q.get(key), list) else [])]  # type: ignore[union-attr]
    left = Patterns([*skipped, *out]) if out else left
    inside = q.get("modules_in_block_to_quantize")
    only = None
    if isinstance(inside, list) and inside:
        flat = [x for row in inside for x in (row if isinstance(row, list) else [row])]
        only = Patterns(flat)
    return Quantization(method, scheme, (), left, only=only, covers_head=q.get("lm_head") is True)


def _compressed(q: Mapping[str, Any], method: str, left: Patterns, file: str) -> Quantization:
    """compressed-tensors: groups of targets, each a class of layers (`Linear`) or names, with the scheme of its weights."""
    groups = q.get("config_groups")
    if not isinstance(groups, Mapping) or not groups or len(groups) > 1000:
        raise _refuse(file, "config_groups", "missing, empty or too many", "copy the file as published")
    default: Scheme | None = None
    named: list[tuple[Patterns, Scheme]] = []
    for key, group in groups.items():
        place = f"config_groups.{str(key)[:40]}"
        weights = group.get("weights") if isinstance(group, Mapping) else None
        targets = group.get("targets") if isinstance(group, Mapping) else None
        if weights is None:
            continue
        if not isinstance(weights, Mapping) or not isinstance(targets, list | None):
            raise _refuse(file, place, "is not an object with weights and targets", "copy the file as published")
        scheme = _compressed_scheme(weights, f"{q.get('format')} {group.get('format')}".lower(), place, file)
        names = [x for x in targets or ["Linear"] if not (isinstance(x, str) and x.isidentifier() and x[:1].isupper())]
        if len(names) < len(targets or ["Linear"]):
            default = scheme
        if names:
            named.append((Patterns(names), scheme))
    return Quantization(method, default, tuple(named), left)


def _compressed_scheme(weights: Mapping[str, Any], form: str, place: str, file: str) -> Scheme:
    bits = weights.get("num_bits")
    strategy = str(weights.get("strategy") or "").lower()
    group = weights.get("group_size")
    if type(bits) is not int or not 2 <= bits <= 16 or not (group is None or (type(group) is int and -1 <= group <= 65536)):
        raise _refuse(file, f"{place}.weights", "num_bits or group_size is absurd", "copy the file as published")
    group = max(0, group or 0)
    if str(weights.get("type") or "int").lower() == "float":
        if bits == 4:
            return Scheme(4.25, "mxfp4") if group == 32 or "mxfp4" in form else Scheme(4.5, "nvfp4")
        if group == 32:
            return Scheme(8.25, "fp8_block")
        block = weights.get("block_structure")
        if strategy == "block" or block:
            sides = block if isinstance(block, list) and len(block) == 2 and all(type(x) is int and x > 0 for x in block) else [128, 128]
            return Scheme(8 + 32 / (sides[0] * sides[1]), "fp8_block")
        return Scheme(8.00781, "fp8_channel") if strategy == "channel" else Scheme(8.0, "fp8")
    return _integer(bits, group, weights.get("symmetric") is False, packed=True)


ALGORITHMS = {
    "FP8": Scheme(8.0, "fp8"), "FP8_PER_CHANNEL_PER_TOKEN": Scheme(8.00781, "fp8_channel"), "FP8_PB_WO": Scheme(8.00195, "fp8_block"),
    "FP8_PB_REAL": Scheme(8.00195, "fp8_block"), "FP8_BLOCK_SCALES": Scheme(8.00195, "fp8_block"),
    "NVFP4": Scheme(4.5, "nvfp4"), "W4A16_NVFP4": Scheme(4.5, "nvfp4"), "NVFP4_AWQ": Scheme(4.5, "nvfp4"),
    "W4A8_NVFP4_FP8": Scheme(4.5, "nvfp4"), "MXFP4": Scheme(4.25, "mxfp4"), "W4A8_MXFP4_FP8": Scheme(4.25, "mxfp4"),
    "MXFP8": Scheme(8.25, "fp8_block"), "INT8": Scheme(8.00781, "int8"), "INT8_SQ": Scheme(8.00781, "int8"),
    "W8A8_SQ_PER_CHANNEL": Scheme(8.00781, "int8"), "W8A16": Scheme(8.00781, "int8"),
    "W4A16_AWQ": Scheme(4.125, "awq_int4"), "W4A8_AWQ": Scheme(4.125, "awq_int4"), "W4A16": Scheme(4.125, "awq_int4"),
}
"""Algorithms of modelopt (`github:NVIDIA/TensorRT-Model-Optimizer modelopt/torch/export`), 4-bit AWQ in groups of 128."""


def _modelopt(q: Mapping[str, Any], left: Patterns, file: str) -> Quantization:
    """NVIDIA's modelopt: one algorithm, or layers each with its own (`MIXED_PRECISION`)."""
    name = str(q.get("quant_algo") or "").upper()[:60]
    if name == "MIXED_PRECISION":
        layers = q.get("quantized_layers")
        if not isinstance(layers, Mapping) or not layers:
            raise _refuse(file, "quantized_layers", "missing: MIXED_PRECISION names each layer there", "copy the file as published")
        by_algorithm: dict[str, list[str]] = {}
        for layer, how in layers.items():
            by_algorithm.setdefault(str(how.get("quant_algo") if isinstance(how, Mapping) else how).upper()[:60], []).append(layer)
        named = [(Patterns(names), _algorithm(key, q, file)) for key, names in by_algorithm.items()]
        return Quantization("modelopt", None, tuple(named), left)
    return Quantization("modelopt", _algorithm(name, q, file), (), left)


def _algorithm(name: str, q: Mapping[str, Any], file: str) -> Scheme:
    if name not in ALGORITHMS:
        raise _refuse(file, "quant_algo", f"'{name or 'none'}' is not known", f"{did_you_mean(name, ALGORITHMS)}; or {CURE}")
    scheme = ALGORITHMS[name]
    if scheme.format_id == "awq_int4":
        return Scheme(4 + 16 / _whole(q, "group_size", 128, file), scheme.format_id)
    return scheme


def _by_component(found: Quantization, llm: Llm, data: Mapping[str, Any]) -> dict[str, float]:
    """Return the mean bits of each component over its modules, by their size."""
    total: dict[str, float] = {}
    stored: dict[str, float] = {}
    for module, component, size in _modules(llm, data):
        total[component] = total.get(component, 0.0) + size
        stored[component] = stored.get(component, 0.0) + size * found.bits_of(module, component)
    bits = {name: stored[name] / total[name] for name in total if total[name]}
    if found.covers_tower and found.default is not None:
        bits["vision"] = found.default.bits
    named_head = next((scheme for patterns, scheme in found.named if patterns.match("lm_head")), None)
    head = named_head or (found.default if found.covers_head else None)
    if head is not None and not found.left.match("lm_head"):
        bits["head"] = head.bits
    return bits


def _modules(llm: Llm, data: Mapping[str, Any]) -> list[tuple[str, str, float]]:
    """Return the linear layers of a model by name, component and relative size within it.

    Dense layers come first where a model has both kinds (DeepSeek, GLM, Kimi); experts are one module a layer, for no file singles
    out one expert. Layers are recurrent where `layer_types` or `full_attention_interval` says so.
    """
    inner = next((data[name] for name in SECTIONS if isinstance(data.get(name), Mapping)), data)
    recurrent = _recurrent_layers(inner, llm)
    mixer = "self_attn" if "kimi" in llm.family else "linear_attn"
    group = next((g for g in llm.attention if g.kind not in ("linear", "none")), None)
    parts: dict[str, float]
    if group is None or group.kind == "mla":
        parts = dict.fromkeys(("q_a_proj", "q_b_proj", "kv_a_proj_with_mqa", "kv_b_proj", "o_proj"), 1.0)
    else:
        value = group.v_head_dim or group.head_dim
        parts = {
            "q_proj": group.head_count * group.head_dim, "k_proj": group.kv_head_count * group.head_dim,
            "v_proj": group.kv_head_count * value, "o_proj": group.head_count * value,
        }
    kinds = [g for g in sorted(llm.mlp, key=lambda g: g.kind) for _ in range(g.layer_count)]
    found: list[tuple[str, str, float]] = []
    for i in range(llm.layer_count):
        if i in recurrent:
            found += [(f"layers.{i}.{mixer}.{name}", "recurrent", size) for name, size in
                      (("in_proj_qkv", 3.0), ("in_proj_z", 1.0), ("out_proj", 1.0))]
        else:
            found += [(f"layers.{i}.self_attn.{name}", "attention", float(size)) for name, size in parts.items()]
        mlp = kinds[i] if i < len(kinds) else None
        if mlp is None:
            continue
        if mlp.kind == "moe":
            size = float(mlp.expert_count * mlp.expert_intermediate_size)
            found += [(f"layers.{i}.mlp.experts.0.{name}", "experts", size) for name in _matrices(mlp.is_gated)]
            shared = mlp.shared_expert_count * (mlp.shared_expert_intermediate_size or mlp.expert_intermediate_size)
            found += [(f"layers.{i}.mlp.shared_expert.{name}", "mlp", float(shared)) for name in _matrices(mlp.is_gated) if shared]
        if mlp.intermediate_size:
            found += [(f"layers.{i}.mlp.{name}", "mlp", float(mlp.intermediate_size)) for name in _matrices(mlp.is_gated)]
    return found


def _matrices(is_gated: bool) -> tuple[str, ...]:
    return ("gate_proj", "up_proj", "down_proj") if is_gated else ("up_proj", "down_proj")


def _recurrent_layers(inner: Mapping[str, Any], llm: Llm) -> frozenset[int]:
    count = sum(g.layer_count for g in llm.attention if g.kind == "linear")
    types = inner.get("layer_types") or inner.get("layers_block_type")
    if not count:
        return frozenset()
    if isinstance(types, list) and len(types) == llm.layer_count:
        return frozenset(i for i, kind in enumerate(types) if str(kind) in ("linear_attention", "mamba", "recurrent", "conv"))
    interval = inner.get("full_attention_interval") or inner.get("full_attn_interval")
    if type(interval) is int and interval > 0:
        return frozenset(i for i in range(llm.layer_count) if (i + 1) % interval)
    return frozenset(range(count))
