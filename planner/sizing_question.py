"""One sizing question: a model in its formats, a load, and the rules of the answer, resolved from ids."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, partial
from typing import Any

from planner.catalog import Catalog
from planner.errors import Fault, InputError, did_you_mean, gathered
from planner.physics import memory
from planner.physics.extras import NO_EXTRAS, Extras
from planner.physics.memory import Footprint
from planner.readers.checkpoint import Checkpoint, is_checkpoint_path
from planner.schema.engine import EngineProfile
from planner.schema.llm import KvFormat, Llm, WeightFormat


@dataclass(frozen=True)
class Question:
    """What is asked: a model in its formats, a load, and the rules of the answer."""

    llm: Llm
    weights: WeightFormat
    kv: KvFormat
    engine: EngineProfile
    context_tok: int
    concurrency: int
    memory_frac: float | None = None
    margin_frac: float = 0.15
    weights_bytes: float | None = None
    overhead_bytes: float | None = None
    """Activations and overhead of one GPU together, instead of the engine's profile."""
    extras: Extras = NO_EXTRAS
    """What is kept beside, how attention and experts are split, and what is set on the engine."""
    checkpoint: Checkpoint | None = None
    """The file the model was read from: its own bytes count wherever the weights stay in its format."""

    @cached_property
    def footprint(self) -> Footprint:
        """What model, formats and engine fix before a GPU is named."""
        file, extras = self.checkpoint, replace(self.extras, memory_frac=self.memory_frac)
        if file is None or self.weights.id != file.weights.id:
            return memory.footprint(self.llm, self.weights, self.kv, self.engine, self.weights_bytes, extras=extras)
        own = file.weights_bytes_by_component
        return memory.footprint(self.llm, file.weights, self.kv, self.engine, self.weights_bytes, own, extras)

    @cached_property
    def undivided(self) -> Footprint:
        """The footprint of the whole load as if on one GPU."""
        return replace(self.footprint, extras=replace(self.footprint.extras, dp=1), _weights_of_one={})


def file_name(name: str) -> str:
    """Return a model's name with `hub:` before a plain `org/name` that is no file here; any other name as it is.

    >>> file_name("Qwen/Qwen3-8B"), file_name("qwen3_8b"), file_name("some/config.json")
    ('hub:Qwen/Qwen3-8B', 'qwen3_8b', 'some/config.json')
    """
    if "/" not in name or is_checkpoint_path(name):
        return name
    from planner.readers.hub import PREFIX, hub_id

    repo = hub_id(name)
    return name if repo is None else PREFIX + repo


def ask(
    catalog: Catalog, llm: str, weights: str | None, kv_cache: str, context_tok: int, concurrency: int, engine: str | None = None,
    memory_frac: float | None = None, margin_frac: float = 0.15, weights_bytes: float | None = None, overhead_bytes: float | None = None,
    assume: bool = False, extras: Extras = NO_EXTRAS,
) -> Question:
    """Resolve ids, files and names of the Hub to a `Question`. Every unknown id, and every format that the engine does not run, is
    told at once.

    Without `weights`: the format that the model's file states. Without `engine`: llama.cpp for GGUF weights (the profile that
    keeps the latent where the file is laid out for it), else vLLM. `assume`
    reads an unknown architecture as a plain decoder.
    """
    faults: list[Fault] = []
    found = partial(gathered, faults)
    file: Checkpoint | None = found(lambda name: catalog.checkpoint(file_name(name), assume, weights), llm)
    model: Any = file.llm if file is not None else None if faults else found(catalog.llm, llm)
    weight_format: Any = found(catalog.weight_format, weights) if weights is not None else None
    if weights is None and file is not None and file.weights_are_stated:
        weight_format = file.weights
    elif weights is None and model is not None:
        what = f"{file.path} does not state its format" if file is not None else f"no format named, and '{llm}' is no file that states one"
        faults.append(Fault("", None, "--weights", what, f"add --weights {model.native_weights}, or another format"))
    elif file is not None and weights == file.weights.id:
        weight_format = file.weights
    kv_format = found(catalog.kv_format, kv_cache)
    name = engine or _default_engine(weight_format, file)
    profile = found(catalog.engine, name)
    for form, place, known in (
        (weight_format, "weights", catalog.weight_formats.values()), (kv_format, "kv_cache", catalog.kv_formats.values()),
    ):
        if form is not None and profile is not None and profile.engine not in form.runs_on:
            if form is weight_format and form.is_gguf and profile.loads_gguf:
                continue
            others = [other.id for other in known if profile.engine in other.runs_on]
            cure = f"take {did_you_mean(form.id, others)}" if others else ""
            if form.runs_on:
                cure = f"--engine {' or '.join(form.runs_on)}, or {did_you_mean(form.id, others)}"
            faults.append(Fault("", None, place, f"{profile.engine} does not run '{form.id}'", cure))
    made_there = weight_format is None or not (weight_format.is_gguf or weight_format.id in ("bf16", "fp16", "fp32"))
    if extras.loads_in is not None and not made_there:
        what = f"'{weight_format.id}' is not made on the GPUs while loading"
        faults.append(Fault("", None, "--quantize-at-load", what, "leave it out"))
    if extras.experts_are_whole and model is not None and not any(group.kind == "moe" for group in model.mlp):
        faults.append(Fault("", None, "--ep", f"{model.id} has no experts to divide", "leave it out: --tp divides every layer"))
    if extras.image_count and not extras.image_tok and model is not None:
        if model.image_tok is None:
            faults.append(Fault("", None, "--images", f"how many tokens an image of {model.id} takes is not known", "add --image-tok"))
        else:
            extras = replace(extras, image_tok=model.image_tok)
    if faults:
        raise InputError(faults)
    return Question(
        model, weight_format, kv_format, profile, context_tok, concurrency, memory_frac, margin_frac, weights_bytes, overhead_bytes,
        extras, file,
    )


def _default_engine(weights: WeightFormat | None, file: Checkpoint | None) -> str:
    if weights is None or not weights.is_gguf:
        return "vllm"
    return "llama_cpp_latent" if file is not None and file.keeps_latent else "llama_cpp"
