"""A model as a file states it: its shape, its weight format and, where the file holds tensors, their exact bytes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from planner.errors import Fault, InputError
from planner.schema.llm import Llm, WeightFormat

CONFIG, QUANT_CONFIG, INDEX = "config.json", "hf_quant_config.json", "model.safetensors.index.json"
INDEX_END = ".safetensors.index.json"
MOST_QUANT_BYTES = 20_000_000
MOST_NAMED = 3
FAR_OFF_FRAC = 0.1
"""Tensors whose bytes differ by more from what shape and format imply are noted: two models may be mixed."""


@dataclass(frozen=True)
class Checkpoint:
    """A model read from a file or folder.

    `weights_bytes_by_component` holds every `Component` with the bytes of the file's own tensors; None where the file states
    the shape and the format only. `notes` say what was assumed, left out or counted apart, one sentence each.
    """

    llm: Llm
    weights: WeightFormat
    weights_bytes_by_component: Mapping[str, float] | None
    path: Path
    notes: tuple[str, ...] = ()
    split_follows_shape: bool = False
    """Only the sum of the bytes is the file's own; its split by component follows the shape."""
    weights_are_stated: bool = True
    """The file says what format its weights are in; false where that was taken to be 16 bit for want of a word."""
    keeps_latent: bool = False
    """A GGUF file whose K and V up-projections stand apart: llama.cpp caches its latent alone."""

    @property
    def tensor_bytes_are_exact(self) -> bool:
        """Whether the bytes of every component are those of the file's tensors."""
        return self.weights_bytes_by_component is not None and not self.split_follows_shape


def is_checkpoint_path(name: str) -> bool:
    """Return whether a name is meant as a file: it ends as one, or a folder or file of that name is there.

    >>> is_checkpoint_path("Qwen3-8B-Q4_K_M.gguf"), is_checkpoint_path("qwen3_8b")
    (True, False)
    """
    if name.endswith((".json", ".gguf", ".safetensors")):
        return True
    try:
        return ("/" in name or "\\" in name or name in (".", "..")) and Path(name).is_dir()
    except (OSError, ValueError):
        return False


def read_checkpoint(
    path: Path, formats: Mapping[str, WeightFormat], assume: bool = False, weights: str | None = None
) -> Checkpoint:
    """Return the model of a `config.json`, a `.gguf`, a `.safetensors`, an index of shards, or a folder that holds them.

    Tensor data is never read. `weights` names the format to take where the file's own quantisation cannot be read. Raises
    `InputError` naming file, place and cure.
    """
    if path.is_dir():
        return _folder(path, formats, assume, weights)
    if path.name.endswith((".gguf", ".safetensors")) and not path.is_file():
        what = "is not a regular file" if path.exists() else "there is no such file"
        raise InputError([Fault(str(path), None, "", what, "check the path")])
    if path.name.endswith(".gguf"):
        from planner.readers.gguf_file import read_gguf

        llm, own, sums, shape = read_gguf(path, assume)
        return Checkpoint(llm, own, sums.bytes_by_component, path, shape.notes, keeps_latent=shape.keeps_latent)
    if path.name.endswith((INDEX_END, ".safetensors")):
        return _tensors(path, _beside(path), formats, assume, weights)
    return _config(path, formats, assume, weights)


def _folder(folder: Path, formats: Mapping[str, WeightFormat], assume: bool, weights: str | None) -> Checkpoint:
    config = folder / CONFIG
    if not config.is_file():
        ggufs = sorted(folder.glob("*.gguf"))
        if len(ggufs) == 1:
            return read_checkpoint(ggufs[0], formats, assume, weights)
        named = ", ".join(path.name for path in ggufs[:MOST_NAMED])
        cure = f"give one of them: {named}" if ggufs else f"add the model's {CONFIG}, or give the path of one"
        raise InputError([Fault(str(folder), None, "", f"a folder without {CONFIG}", cure)])
    indexes = [folder / INDEX, *sorted(path for path in folder.glob("*" + INDEX_END) if path.name != INDEX)]
    index = next((path for path in indexes if path.is_file()), None)
    if index is not None:
        return _tensors(index, config, formats, assume, weights)
    files = sorted(path for path in folder.glob("*.safetensors") if path.name != "consolidated.safetensors")
    if files:
        whole = folder / "model.safetensors"
        return _tensors(whole if whole in files else files[0], config, formats, assume, weights)
    return _config(config, formats, assume, weights)


def _beside(path: Path) -> Path:
    config = path.parent / CONFIG
    if not config.is_file():
        what = f"tensors do not tell a model's shape, and there is no {CONFIG} beside them"
        raise InputError([Fault(str(path), None, "", what, f"put the model's {CONFIG} into {path.parent}")])
    return config


def _loaded(config: Path, assume: bool) -> tuple[Mapping[str, Any], Mapping[str, Any] | None, Llm]:
    """Return a config.json, the modelopt file beside it (None where there is none), and the shape."""
    from planner.readers.bounded import read_bounded
    from planner.readers.config_json import llm_of_config, load_config
    from planner.readers.safetensors_header import load_json

    data, changed_on = load_config(config)
    llm = llm_of_config(config, data, changed_on, assume)
    beside = config.parent / QUANT_CONFIG
    more = load_json(beside, read_bounded(beside, MOST_QUANT_BYTES, f"the published {QUANT_CONFIG}"), "") if beside.is_file() else None
    return data, more, llm


def _format(
    data: Mapping[str, Any], llm: Llm, formats: Mapping[str, WeightFormat], more: Mapping[str, Any] | None, config: Path, named: str | None
) -> WeightFormat:
    """Return the format the file states; the one the user names where what it states cannot be read."""
    from planner.readers.quantization_config import weights_of_config

    try:
        return weights_of_config(data, llm, formats, more, str(config))
    except InputError:
        if named is None or named not in formats:
            raise
        return formats[named]


def _config(config: Path, formats: Mapping[str, WeightFormat], assume: bool, weights: str | None) -> Checkpoint:
    from planner.readers.quantization_config import states_weights

    data, more, llm = _loaded(config, assume)
    form = _format(data, llm, formats, more, config, weights)
    return Checkpoint(llm, form, None, config, weights_are_stated=states_weights(data, more))


def _tensors(path: Path, config: Path, formats: Mapping[str, WeightFormat], assume: bool, weights: str | None) -> Checkpoint:
    """Return the model of an index or of shards, with their bytes: exact by component where the headers are there."""
    from planner.readers.quantization_config import quantization_of
    from planner.readers.safetensors_header import read_index, read_shards, shards_of
    from planner.readers.tensor_names import bytes_by_component, packed_format

    data, more, llm = _loaded(config, assume)
    notes: list[str] = []
    total: int | None = None
    if path.name.endswith(INDEX_END):
        index = read_index(path)
        shards, total = list(index.shards), index.total_bytes
    else:
        shards = shards_of(path)
    missing = [name for name in shards if not (path.parent / name).is_file()]
    if missing:
        named = ", ".join(missing[:MOST_NAMED]) + (f" and {len(missing) - MOST_NAMED} more" if len(missing) > MOST_NAMED else "")
        if total is None:
            what = f"{len(missing)} of {len(shards)} shards are not there ({named}), and no index states the sum of their bytes"
            raise InputError([Fault(str(path), None, "", what, "put the missing shards, or the index.json with its total_size, beside it")])
        notes.append(f"{len(missing)} of {len(shards)} shards are not there: the bytes are the index's, their split follows the shape.")
        form = _format(data, llm, formats, more, config, weights)
        parts = _by_shape(llm, form)
        scale = total / sum(parts.values())
        found = Checkpoint(llm, form, {k: v * scale for k, v in parts.items()}, path, split_follows_shape=True)
        return replace(found, notes=(*notes, *_far_off(total, sum(parts.values()))))
    tensors, is_whole = read_shards(path.parent, shards)
    if not tensors:
        raise InputError([Fault(str(path), None, "", "holds no tensor", "give the file of the weights")])
    stated = quantization_of(data, more) is not None
    form = _format(data, llm, formats, more, config, weights) if stated else formats[packed_format(tensors)]
    if total is not None and total != sum(tensor.byte_count for tensor in tensors):
        notes.append(f"The index states {total} bytes, its shards hold {sum(tensor.byte_count for tensor in tensors)}: theirs count.")
    if not is_whole:
        notes.append("Only the first part of a file is there: its header states the bytes.")
    exact = bytes_by_component(tensors, llm.layer_count)
    ahead = exact.pop("mtp")
    if ahead:
        notes.append(f"{ahead} bytes of multi-token-prediction layers are not counted: engines load them only to speculate.")
    if llm.params.head_count == 0 and exact["head"] and not llm.is_encoder:
        notes.append(f"The output head of {exact['head']} bytes repeats the tied embedding: it is counted once.")
        exact["head"] = 0
    notes += _far_off(sum(exact.values()), sum(_by_shape(llm, form).values()))
    return Checkpoint(llm, form, {name: float(value) for name, value in exact.items()}, path, tuple(notes))


def _by_shape(llm: Llm, weights: WeightFormat) -> dict[str, float]:
    """Return the bytes of each component as shape and format imply them."""
    bits: dict[str, float] = dict(weights.bits_per_weight.items())
    bits.setdefault("experts", bits.get("mlp", 16.0))
    bits.setdefault("recurrent", bits.get("attention", 16.0))
    return {name: count * bits.get(name, 16.0) / 8 for name, count in llm.params.by_component.items()}


def _far_off(held: float, implied: float) -> list[str]:
    """Return a note where the bytes held differ much from those the shape implies."""
    if abs(held - implied) <= FAR_OFF_FRAC * implied:
        return []
    return [f"The tensors are {held / 1e9:.2f} GB where shape and format imply {implied / 1e9:.2f} GB: see that both are of one model."]
