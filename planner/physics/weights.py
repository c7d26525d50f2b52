"""Bytes of a model's weights by component: bits a weight of a format, or those that a GGUF recipe gives the model's own shape."""

from __future__ import annotations

from planner.physics.gguf import gguf_bits
from planner.physics.work import DEFAULT_BITS_PER_WEIGHT, bits_by_component
from planner.schema.llm import Llm, WeightFormat

KEPT_ANSWERS = 4096
_answers: dict[tuple[int, int], tuple[Llm, WeightFormat, dict[str, float]]] = {}


def weight_bits(llm: Llm, weights: WeightFormat) -> dict[str, float]:
    """Return the bits a weight by component (16 where the format names none); a GGUF recipe is evaluated once a model and format.

    Answers are kept by the identity of both objects, which the store holds alive.
    """
    if weights.gguf is None:
        return bits_by_component(llm, weights.bits_per_weight)
    key = (id(llm), id(weights))
    kept = _answers.get(key)
    if kept is None:
        if len(_answers) >= KEPT_ANSWERS:
            _answers.clear()
        kept = _answers[key] = (llm, weights, gguf_bits(llm, weights.gguf))
    return kept[2]


def weights_bytes_by_component(llm: Llm, weights: WeightFormat) -> dict[str, float]:
    """Return the bytes of each component: parameters x bits / 8, scales and zero points inside the bits.

    A component that the format does not name stays in 16 bit; routed experts are stored as the MLP where they have no
    entry of their own; an embedding that is the output head too (tied) takes the wider of both.
    """
    bits = weight_bits(llm, weights)
    return {name: count * bits.get(name, DEFAULT_BITS_PER_WEIGHT) / 8 for name, count in llm.params.by_component.items()}
