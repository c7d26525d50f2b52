"""Read a Hugging Face `config.json` into a model's shape, or say which architecture it is that cannot be read."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

from pydantic import ValidationError

from planner.errors import Fault, InputError, did_you_mean
from planner.readers.bounded import decoded, read_bounded
from planner.readers.hf_assumed import MOST_NAMED, assumed, spelled, suspects
from planner.readers.hf_common import CONTEXT
from planner.readers.hf_encdec import is_encoder_alone
from planner.readers.hf_families import (
    AUDIO_NOTE,
    ENCODERS,
    FAMILIES,
    FLAT_LLAMA,
    FLAT_QWEN,
    LIBRARY_DEFAULTS,
    SECTION_DEFAULTS,
    TOWER_NOTE,
)
from planner.readers.hf_keys import Keys
from planner.readers.hf_shape import Shape
from planner.readers.hf_vision import image_tok, vision_count
from planner.readers.quantization_config import native_format_id
from planner.schema.llm import Llm

MOST_BYTES = 5_000_000
WANTED = "the model's config.json"
TEXT_SECTIONS = ("text_config", "llm_config", "language_config")
TOWER_SECTIONS = ("vision_config", "audio_config")
PREDICTION_KEYS = ("num_nextn_predict_layers", "num_mtp_modules", "mtp_num_hidden_layers")
PREDICTION_NOTE = "The multi-token-prediction layers of the checkpoint are not counted."


def read_config_json(path: Path, assume: bool = False) -> Llm:
    """Return the shape that a Hugging Face `config.json` describes: attention and feed-forward groups, parameters by component.

    Parameters count the vision tower where the file tells enough (`notes` says where not), and no multi-token-prediction layers.
    With `assume`, an architecture without a reader is read as a plain decoder, and `notes` begins with "Assumed:" and lists the keys
    that may bear on memory and were not understood. Raises `InputError` naming the file, the key and the cure: not readable, not
    JSON, an unknown `model_type`, keys missing or absurd.
    """
    data, changed_on = load_config(path)
    return llm_of_config(path, data, changed_on, assume)


def llm_of_config(path: Path, data: Mapping[str, Any], changed_on: date, assume: bool = False) -> Llm:
    """Return the shape that a config.json which `load_config` has read describes; see `read_config_json`."""
    file = str(path)
    data = _thinker(data)
    section = next((name for name in TEXT_SECTIONS if isinstance(data.get(name), Mapping)), None)
    inner: Mapping[str, Any] = data[section] if section else data
    model_type = _known_type(file, inner, data, assume)
    defaults: dict[str, int] = {**(SECTION_DEFAULTS.get(model_type, {}) if section else {}), **LIBRARY_DEFAULTS.get(model_type, {})}
    if any(inner.get(name) is not None for name in CONTEXT):
        defaults.pop("max_position_embeddings", None)
    merged: dict[str, Any] = {**defaults, **{key: value for key, value in inner.items() if value is not None}}
    if section and isinstance(data.get("tie_word_embeddings"), bool):
        merged.setdefault("tie_word_embeddings", data["tie_word_embeddings"])
    faults: list[Fault] = []
    keys = Keys(merged, file, section or "", faults, model_type)
    try:
        shape = FAMILIES[model_type](keys) if model_type in FAMILIES else assumed(keys, merged)
        context_tok = keys.count(*CONTEXT)
        if faults:
            raise InputError(_once(faults))
        return _llm(path, data, shape, model_type, context_tok, changed_on)
    except ValidationError as error:
        wrong = [Fault(file, None, _place(section, e["loc"]), e["msg"], "compare the file with the published one") for e in error.errors()]
        raise InputError(_once([*faults, *wrong])) from error


def _once(faults: list[Fault]) -> list[Fault]:
    """Return each fault once: a key that every layer reads is told once."""
    return list(dict.fromkeys(faults))


def _thinker(data: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return the part of an omni model that thinks, with its sections; any other file as it is."""
    inner = data.get("thinker_config")
    return {**inner, "model_type": data.get("model_type")} if isinstance(inner, Mapping) else data


class _Twice(Exception):
    """A key that one object holds twice."""


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """Return a JSON object; raises `_Twice` where a key comes twice with different values, for one of them would be lost unseen."""
    data: dict[str, Any] = {}
    for key, value in pairs:
        if key in data and data[key] != value:
            raise _Twice(key)
        data[key] = value
    return data


def _constant(name: str) -> float:
    """Return NaN or Infinity as a number: some published files hold one in a key that no shape reads."""
    return float(name)


def load_config(path: Path) -> tuple[Mapping[str, Any], date]:
    """Return the JSON object and the day the file was last changed (UTC)."""
    file = str(path)
    text = decoded(read_bounded(path, MOST_BYTES, WANTED), file, WANTED)
    try:
        data = json.loads(text, object_pairs_hook=_object, parse_constant=_constant)
    except json.JSONDecodeError as error:
        raise InputError([Fault(file, error.lineno, f"column {error.colno}", error.msg, "copy the file as published")]) from error
    except _Twice as error:
        what = "is written twice with two values"
        raise InputError([Fault(file, None, spelled(str(error)), what, "keep one of the two")]) from error
    except (RecursionError, ValueError) as error:
        raise InputError([Fault(file, None, "", "is nested too deeply or holds an absurd number", "copy the file as published")]) from error
    if not isinstance(data, dict):
        raise InputError([Fault(file, None, "", "is JSON, but not an object", "give a model's config.json")])
    return data, datetime.fromtimestamp(path.stat().st_mtime, tz=UTC).date()


def _known_type(file: str, inner: Mapping[str, Any], outer: Mapping[str, Any], assume: bool) -> str:
    """Return the `model_type` that has a reader: the language part's own, else the whole model's, else with `assume` the name itself."""
    names = [part.get("model_type") for part in (inner, outer)]
    barred = () if inner is outer else (*FLAT_LLAMA, *FLAT_QWEN)
    for candidate in names:
        if isinstance(candidate, str) and candidate in FAMILIES and candidate not in barred:
            return candidate
    named = next((x for x in names if isinstance(x, str)), None)
    if named is not None and assume:
        return named[:100]
    listed = _architectures(outer)
    spoken = f" ({spelled(listed[0])})" if listed and isinstance(listed[0], str) else ""
    if named is None:
        raise InputError([Fault(file, None, "model_type", f"missing{spoken}", "give a model's config.json, which names its architecture")])
    strange = suspects(inner)
    hint = f"; keys that may change its memory: {', '.join(map(spelled, strange[:MOST_NAMED]))}" if strange else ""
    cure = did_you_mean(named[:100], FAMILIES) + "; or write its shape in workloads/models, or read it as a plain decoder with --assume"
    raise InputError([Fault(file, None, "model_type", f"architecture {spelled(named)!r}{spoken} is not known{hint}", cure)])


def _llm(path: Path, data: Mapping[str, Any], shape: Shape, model_type: str, context_tok: int, changed_on: date) -> Llm:
    name = _name(path)
    towers = [part for part in TOWER_SECTIONS if isinstance(data.get(part), Mapping)]
    has_tower = bool(towers) or any(isinstance(data.get(part), Mapping) for part in TEXT_SECTIONS)
    has_prediction = any(isinstance(part.get(key), int) and part[key] for part in _parts(data) for key in PREDICTION_KEYS)
    vision = data.get("vision_config")
    counted = vision_count(data, shape.hidden_size) if vision else None
    shape.counts["vision"] += counted or 0
    left_out = [part for part in towers if part == "audio_config" or counted is None]
    notes = [*shape.notes, *([PREDICTION_NOTE] if has_prediction else [])]
    if counted is not None:
        notes.append("vision_count holds the vision tower and its projector, by formula.")
    if left_out or (has_tower and not towers):
        notes.append(TOWER_NOTE if left_out != ["audio_config"] else AUDIO_NOTE)
    source = {
        "kind": "derived",
        "retrieved_on": changed_on,
        "note": f"read from {path.name} (model_type {model_type}), dated by the file; parameters counted by formula from the shape",
    }
    return Llm.model_validate(
        {
            "id": slug(name), "name": name, "family": slug(model_type), "native_weights": native_format_id(data, str(path)),
            "max_context_tok": context_tok, "vocab_size": shape.vocab_size, "hidden_size": shape.hidden_size,
            "layer_count": shape.layer_count, "attention": shape.attention_groups(), "mlp": shape.mlp_groups(),
            "params": shape.parameter_counts(), "is_encoder": model_type in ENCODERS or is_encoder_alone(_architectures(data)),
            "vision_head_count": _vision_heads(vision) if isinstance(vision, Mapping) else 0,
            "image_tok": None if model_type.startswith("mllama") else image_tok(data),
            "notes": " ".join(notes) or None, "sources": {"default": source},
        }
    )


def _architectures(data: Mapping[str, Any]) -> list[Any]:
    """Return the classes that the file names, none where the key is absent or odd."""
    listed = data.get("architectures")
    return listed if isinstance(listed, list) else []


def slug(text: str) -> str:
    """Return `text` as an id: lower case, everything but letters, digits and dots an underscore.

    >>> slug("Qwen--Qwen3-8B")
    'qwen_qwen3_8b'
    """
    return re.sub(r"[^a-z0-9.]+", "_", text.lower()).strip("_")[:100] or "config"


def _name(path: Path) -> str:
    """Return the file's stem, or its folder's name where the file is just `config.json`."""
    stem = path.stem if path.stem != "config" else path.absolute().parent.name
    return stem[:200] or "config"


def _parts(data: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the whole file and its language sections."""
    return [data, *(data[name] for name in TEXT_SECTIONS if isinstance(data.get(name), Mapping))]


def _vision_heads(vision: Mapping[str, Any]) -> int:
    for name in ("num_heads", "num_attention_heads", "vt_num_attention_heads"):
        value = vision.get(name)
        if isinstance(value, int) and not isinstance(value, bool) and value > 0:
            return value
    return 0


def _place(section: str | None, loc: tuple[int | str, ...]) -> str:
    return ".".join([*([section] if section else []), *map(str, loc)])
