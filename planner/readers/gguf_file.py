"""A model from a GGUF file: shape, format and exact bytes, from the header alone."""

from __future__ import annotations

from datetime import UTC, date, datetime
from functools import cache
from pathlib import Path

from pydantic import ValidationError

from planner.errors import Fault, InputError
from planner.readers.config_json import slug
from planner.readers.gguf_header import PART, Header, read_header
from planner.readers.gguf_shape import GgufShape, shape_of
from planner.readers.gguf_tensors import TensorBytes, tensor_bytes, type_sizes
from planner.schema.llm import Llm, WeightFormat

IDS = {"f16": "fp16", "f32": "fp32", "iq4_nl": "iq4_nl"}
"""Tensor types whose format has another id here; all others are named alike."""


@cache
def file_types() -> dict[int, str]:
    """Return general.file_type → the format's id (15 → q4_k_m)."""
    from gguf import LlamaFileType

    found = {}
    for kind in LlamaFileType:
        name = kind.name.lower().removeprefix("mostly_").removeprefix("all_").removesuffix("_moe")
        if name != "guessed":
            found[int(kind)] = IDS.get(name, name)
    return found


def read_gguf(path: Path, assume: bool = False) -> tuple[Llm, WeightFormat, TensorBytes, GgufShape]:
    """Return a file's model, its weight format, its tensors' bytes, and the shape as read, with notes.

    Raises `InputError` naming the file, the place and the cure; see `read_header`, `tensor_bytes` and `shape_of`.
    """
    file = str(path)
    header = read_header(path)
    sums = tensor_bytes(header, file)
    if not sums.total_bytes:
        raise InputError([Fault(file, None, "", "holds no tensor", "give the model's file, or every part of a split one")])
    shape = shape_of(header, sums, file, assume)
    changed_on = datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date()
    weights = _format(header, sums, path, changed_on)
    match = PART.fullmatch(path.name)
    name = (match[1] if match else path.name.removesuffix(".gguf"))[:200] or "model"
    note = f"read from the header of {path.name} ({shape.arch}), dated by the file; parameters are those of its tensors"
    source = {"kind": "derived", "retrieved_on": changed_on, "note": note}
    try:
        llm = Llm.model_validate({
            "id": slug(name), "name": name, "native_weights": weights.id, "notes": " ".join(shape.notes) or None,
            "sources": {"default": source}, **shape.fields,
        })
    except ValidationError as error:
        faults = [Fault(file, None, ".".join(map(str, e["loc"])), e["msg"], "convert the model again") for e in error.errors()]
        raise InputError(faults) from error
    return llm, weights, sums, shape


def _format(header: Header, sums: TensorBytes, path: Path, changed_on: date) -> WeightFormat:
    """Return the format as this file has it: bits a weight of each component are those of its tensors."""
    stated = header.metadata.get("general.file_type")
    known = file_types().get(stated) if isinstance(stated, int) and not isinstance(stated, bool) else None
    largest = max(sums.bytes_by_type.items(), key=lambda item: (item[1], item[0]))[0]
    name = known or IDS.get(largest, largest)
    bits = {
        component: 8.0 * sums.bytes_by_component[component] / count
        for component, count in sums.parameters_by_component.items() if count
    }
    total = sum(sums.parameters_by_component.values())
    dtype = {"f32": "fp32", "f16": "fp16", "bf16": "bf16"}.get(largest, "fp16")
    said = f"general.file_type {stated}" if known else "no file type stated"
    note = f"bits of each component from the header of {path.name}; {said}, most bytes in {type_name(largest)}"
    return WeightFormat.model_validate({
        "id": name, "name": f"GGUF {name.upper()} as in {path.name[:120]}", "runs_on": ("llama_cpp",), "is_gguf": True,
        "compute_dtype": dtype, "rule_bytes_per_param": sums.total_bytes / total, "bits_per_weight": bits,
        "sources": {"default": {"kind": "derived", "retrieved_on": changed_on, "note": note}},
    })


def type_name(name: str) -> str:
    """Return a tensor type with the weights of its block, e.g. `q4_k (blocks of 256)`."""
    block = next(size for known, size, _ in type_sizes().values() if known == name)
    return f"{name} (blocks of {block})" if block > 1 else name
