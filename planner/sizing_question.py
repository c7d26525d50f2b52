"""One sizing question: a model in its formats, a load, and the rules of the answer, resolved from ids."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from planner.catalog import Catalog
from planner.errors import Fault, InputError, did_you_mean
from planner.physics import memory
from planner.physics.memory import Footprint
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

    @cached_property
    def footprint(self) -> Footprint:
        """What model, formats and engine fix before a GPU is named."""
        return memory.footprint(self.llm, self.weights, self.kv, self.engine, self.weights_bytes)

    @property
    def fraction(self) -> float:
        """The engine's memory fraction in force."""
        return self.engine.memory_fraction if self.memory_frac is None else self.memory_frac


def ask(
    catalog: Catalog, llm: str, weights: str, kv_cache: str, context_tok: int, concurrency: int, engine: str | None = None,
    memory_frac: float | None = None, margin_frac: float = 0.15, weights_bytes: float | None = None, overhead_bytes: float | None = None,
) -> Question:
    """Resolve ids to a `Question`. Every unknown id, and every format that the engine does not run, is told at once.

    Without `engine`: llama.cpp for GGUF weights, else vLLM.
    """
    faults: list[Fault] = []

    def found(pick: Any, name: str) -> Any:
        try:
            return pick(name)
        except InputError as error:
            faults.extend(error.faults)
            return None

    model = found(catalog.llm, llm)
    weight_format = found(catalog.weight_format, weights)
    kv_format = found(catalog.kv_format, kv_cache)
    name = engine or ("llama_cpp" if weight_format is not None and weight_format.is_gguf else "vllm")
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
    if faults:
        raise InputError(faults)
    return Question(
        model, weight_format, kv_format, profile, context_tok, concurrency, memory_frac, margin_frac, weights_bytes, overhead_bytes
    )
