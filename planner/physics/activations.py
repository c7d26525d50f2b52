"""What an engine spends on itself on one GPU: temporary tensors of its largest step, context, graphs, collectives (bytes)."""

from __future__ import annotations

from planner.physics.device import device_bytes
from planner.schema.engine import BatchDefault, EngineProfile
from planner.schema.hardware import Gpu
from planner.schema.llm import Llm, MlpGroup
from planner.units import BYTES_PER_GIB


def batch_default(engine: EngineProfile, gpu: Gpu) -> BatchDefault:
    """Return the engine's own limits on this card: the class with the most memory that the card reaches."""
    gib = device_bytes(gpu) / BYTES_PER_GIB
    open_to_it = [d for d in engine.batch_defaults if d.device_gib_from <= gib and gpu.family not in d.not_families]
    return max(open_to_it, key=lambda d: d.device_gib_from)


def chunk_tok(engine: EngineProfile, gpu: Gpu) -> float:
    """Return the tokens of one step that the engine batches on a card by default: prompts are prefilled in chunks of them."""
    return float(batch_default(engine, gpu).max_batched_tok)


def mlp_width(group: MlpGroup) -> int:
    """Return the MLP values of one token in one layer: the dense width, or that of the chosen and shared experts."""
    if group.kind == "dense":
        return group.intermediate_size
    shared = group.shared_expert_count * (group.shared_expert_intermediate_size or group.expert_intermediate_size)
    return group.top_k * group.expert_intermediate_size + shared


def activation_bytes(llm: Llm, engine: EngineProfile, gpu: Gpu, tp: int, context_tok: int) -> float:
    """Return the peak of the temporary tensors of one step on one GPU, by the engine's model (`ActivationModel`).

    The sampler's part is whole on every rank: 1,024 sequences × 128,256 words × 39 bytes are 4.77 GiB with vLLM on an
    H100 (4.76 logged for Llama-3.1-8B).
    """
    model, batch = engine.activation, batch_default(engine, gpu)
    width = max((mlp_width(group) for group in llm.mlp), default=0)
    forward = batch.max_batched_tok * (model.bytes_per_mlp_value * width / tp + model.bytes_per_hidden_value * llm.hidden_size)
    sampler = 0.0 if llm.is_encoder else batch.max_sequence_count * llm.vocab_size * model.bytes_per_logit
    compute = batch.max_batched_tok * (llm.vocab_size + llm.hidden_size) * model.bytes_per_compute_value
    mask = batch.max_batched_tok * context_tok * model.bytes_per_mask_value
    return max(forward, sampler) + compute + mask


def overhead_bytes_per_gpu(engine: EngineProfile, tp: int) -> float:
    """Return what the engine, the driver and the collectives keep on one GPU whatever the load."""
    collective = engine.collective_bytes if tp > 1 else 0.0
    return engine.driver_bytes + engine.context_bytes + engine.cuda_graph_bytes + collective
