"""What a serving engine takes of each GPU beside the model, as written in `hardware/engines.yaml`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.schema.base import Frac, Frozen, Id, NonNegative, NonNegativeCount, PositiveCount, Sourced, Text

EngineName = Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx", "transformers"]


class BatchDefault(Frozen):
    """The engine's own limits on cards of at least `device_gib_from`: they size its buffers before the first request."""

    device_gib_from: NonNegative
    not_families: tuple[Id, ...] = ()
    """GPU families that the engine leaves out of this class whatever their memory."""
    max_batched_tok: PositiveCount
    """Tokens of one step (the micro-batch, in engines that have one)."""
    max_sequence_count: PositiveCount


class ActivationModel(Frozen):
    """Peak of the temporary tensors of one step on one GPU.

    forward = `max_batched_tok` × (`bytes_per_mlp_value` × MLP width / tp + `bytes_per_hidden_value` × hidden size)
    sampler = `max_sequence_count` × vocabulary × `bytes_per_logit`, whole on every GPU
    compute = `max_batched_tok` × (vocabulary + hidden size) × `bytes_per_compute_value`
    mask    = `max_batched_tok` × context held × `bytes_per_mask_value`
    peak    = max(forward, sampler) + compute + mask
    """

    bytes_per_mlp_value: NonNegative = 0.0
    bytes_per_hidden_value: NonNegative = 0.0
    bytes_per_logit: NonNegative = 0.0
    bytes_per_compute_value: NonNegative = 0.0
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
    fraction_of: Literal["device_memory"]
    """What `memory_fraction` is a fraction of."""
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
    activation: ActivationModel
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
        if self.memory_fraction <= 0:
            raise ValueError("memory_fraction must be above 0")
        return self


EngineFile = Annotated[list[EngineProfile], Field(min_length=1)]
"""`hardware/engines.yaml` is a list of these."""
