"""What a serving engine takes of each GPU beside the model, as written in `hardware/engines.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.schema.base import Frac, Frozen, Id, NonNegative, NonNegativeCount, PositiveCount, Sourced, Text

EngineName = Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx", "transformers"]
FractionOf = Literal["device_memory", "free_memory", "free_after_weights"]
"""device_memory: what the device shows; free_memory: that less context and driver; free_after_weights: also less weights and
temporary tensors, so that the fraction bounds the KV pool alone."""


class BatchDefault(Frozen):
    """The engine's own limits on cards of at least `device_gib_from`: they size its buffers before the first request."""

    device_gib_from: NonNegative
    not_families: tuple[Id, ...] = ()
    """GPU families that the engine leaves out of this class whatever their memory."""
    max_batched_tok: PositiveCount
    """Tokens of one step (the micro-batch, in engines that have one)."""
    max_sequence_count: PositiveCount
    context_bytes: NonNegative | None = None
    """Bytes outside the allocator on these cards, where they differ from the profile's."""
    graph_sequence_count: NonNegativeCount = 0
    """Largest batch of the captured graphs, where a `ReserveRule` counts it."""


class ContextDefault(Frozen):
    """The context that the engine opens on cards of at least `device_gib_from` unless it is told another."""

    device_gib_from: NonNegative
    context_tok: PositiveCount


class ExpertPadding(Frozen):
    """How an engine's kernel lengthens the matrices of routed experts: both sides to whole multiples, the width by rank."""

    weights: tuple[Id, ...]
    """Weight formats whose kernel does so."""
    families: tuple[Id, ...] = ()
    """GPU families it is the rule on; empty: all that no other rule names."""
    hidden_multiple_count: PositiveCount
    width_multiple_count: PositiveCount


class ReserveRule(Frozen):
    """What an engine keeps free beside weights and KV pool; its default memory fraction is 1 − reserved ÷ device memory.

    reserved = base + tokens of one step × a + tp × pp × b + largest graph batch × c, at least `least` from `least_device_gib`
    """

    base_bytes: NonNegative
    step_bytes_per_tok: NonNegative
    gpu_bytes: NonNegative
    graph_bytes_per_sequence: NonNegative
    least_bytes: NonNegative = 0.0
    least_device_gib: NonNegative = 0.0


class ActivationModel(Frozen):
    """Peak of the temporary tensors of one step on one GPU.

    forward = tokens × (`bytes_per_mlp_value` × MLP width / tp + `bytes_per_hidden_value` × hidden size)
    sampler = sequences × vocabulary × `bytes_per_logit`, whole on every GPU
    compute = tokens × (vocabulary + hidden size) × `bytes_per_compute_value`
    scores  = tokens × (context held × (heads + 1) + 4 × hidden size) × `bytes_per_score`: attention without a fused kernel
    mask    = tokens × context held × `bytes_per_mask_value`
    peak    = max(forward, sampler) + max(compute, scores) + mask
    """

    bytes_per_mlp_value: NonNegative = 0.0
    bytes_per_hidden_value: NonNegative = 0.0
    bytes_per_logit: NonNegative = 0.0
    bytes_per_compute_value: NonNegative = 0.0
    bytes_per_score: NonNegative = 0.0
    bytes_per_mask_value: NonNegative = 0.0


class EngineProfile(Sourced):
    """One engine over a range of versions: the memory it may use and the memory it spends on itself."""

    id: Id
    name: Text
    engine: EngineName
    vendors: tuple[Id, ...] = ()
    """Makers of accelerators it runs on; empty where nobody said."""
    version_from: Text | None = None
    version_to: Text | None = None
    memory_fraction: Frac
    """Part of the device that the engine uses by default; 1 where it takes what is there."""
    fraction_of: FractionOf
    """What `memory_fraction` is a fraction of."""
    fraction_covers_activations: bool = True
    """False where temporary tensors live in the part that the fraction leaves free: only what overflows it is counted."""
    reserve: ReserveRule | None = None
    """The engine's rule for its default fraction, where that depends on card and split; `memory_fraction` is then the least of it."""
    kv_block_tok: PositiveCount
    """Tokens of one page of the KV cache: a sequence is rounded up to whole pages."""
    window_extra_tok: NonNegativeCount = 0
    """Tokens a windowed layer holds beyond its window while a step runs; counted with the activations."""
    driver_bytes: NonNegative = 0.0
    """Part of what the driver shows that a process never gets (79.65 GiB shown, 79.18 GiB usable on an H100)."""
    context_bytes: NonNegative = 0.0
    """CUDA context and other bytes outside the tensor allocator, one GPU."""
    collective_bytes: NonNegative = 0.0
    """Buffers of the collectives on each GPU once tp > 1."""
    cuda_graph_bytes: NonNegative = 0.0
    """Captured graphs, where this version charges them to its memory fraction."""
    batch_defaults: tuple[BatchDefault, ...]
    whole_prompt_up_to_tok: NonNegativeCount = 0
    """Contexts of at most so many tokens are read in one step, which then holds them whole; 0 where prompts are always cut."""
    is_static_batch: bool = False
    """Every prompt of a batch is read in the same step: the step holds sessions × context tokens."""
    default_contexts: tuple[ContextDefault, ...] = ()
    default_slot_count: PositiveCount | None = None
    """Slots (sessions at once) that the engine opens by default, where it reserves the whole context of each."""
    activation: ActivationModel
    expert_padding: tuple[ExpertPadding, ...] = ()
    """Padding of routed experts in memory, beyond the bytes of the file."""
    mla_expands_kv: bool = False
    """The engine caches full keys and values of every head where the model has a latent."""
    chunked_keeps_all: bool = False
    """Layers of chunked attention are cached in full instead of one chunk."""
    loads_gguf: bool = False
    """The engine loads GGUF files although formats.yaml does not list it: experimental, with a warning."""
    max_tp: PositiveCount = 64
    """1 where the engine splits by layer only."""
    notes: Text | None = None

    @model_validator(mode="after")
    def _coherent(self) -> EngineProfile:
        if not self.batch_defaults or min(d.device_gib_from for d in self.batch_defaults) > 0:
            raise ValueError("batch_defaults needs a class with device_gib_from 0")
        if any(d.not_families for d in self.batch_defaults if d.device_gib_from == 0):
            raise ValueError("the class with device_gib_from 0 takes every family")
        if self.default_contexts and min(d.device_gib_from for d in self.default_contexts) > 0:
            raise ValueError("default_contexts needs a class with device_gib_from 0")
        if self.memory_fraction <= 0:
            raise ValueError("memory_fraction must be above 0")
        return self


EngineFile = Annotated[list[EngineProfile], Field(min_length=1)]
"""`hardware/engines.yaml` is a list of these."""
