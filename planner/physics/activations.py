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


def step_tok(engine: EngineProfile, gpu: Gpu, context_tok: int, concurrency: int = 1, max_batched_tok: int | None = None) -> int:
    """Return the tokens of the largest step: the engine's limit, or whole prompts where it does not cut them.

    vLLM 0.7 reads a prompt of 20,000 tokens in one step, one of 131,072 in steps of 2,048. A limit that is given is taken.
    """
    if max_batched_tok is not None:
        return max_batched_tok
    return _step_tok(engine, batch_default(engine, gpu).max_batched_tok, context_tok, concurrency)


def _step_tok(engine: EngineProfile, limit_tok: int, context_tok: int, concurrency: int) -> int:
    if context_tok > engine.whole_prompt_up_to_tok:
        return limit_tok
    return max(limit_tok, context_tok * (concurrency if engine.is_static_batch else 1))


def default_fraction(engine: EngineProfile, gpu: Gpu, tp: int = 1, pp: int = 1) -> float:
    """Return the engine's default memory fraction on a card: the profile's, or what its `ReserveRule` leaves.

    SGLang on an H100: 512 + 1.5 × 8,192 + 128 + 2 × 256 = 13,440 MiB of 81,559 stay free, so 0.835.
    """
    rule = engine.reserve
    if rule is None:
        return engine.memory_fraction
    batch, device = batch_default(engine, gpu), device_bytes(gpu)
    reserved = rule.base_bytes + rule.step_bytes_per_tok * batch.max_batched_tok + rule.gpu_bytes * tp * pp
    reserved += rule.graph_bytes_per_sequence * batch.graph_sequence_count
    if device >= rule.least_device_gib * BYTES_PER_GIB:
        reserved = max(reserved, rule.least_bytes)
    return max(0.0, 1.0 - reserved / device)


def default_context_tok(engine: EngineProfile, gpu: Gpu) -> int | None:
    """Return the context that the engine opens on a card unless told another; None where it takes the model's."""
    gib = device_bytes(gpu) / BYTES_PER_GIB
    reached = [d for d in engine.default_contexts if round(gib, 1) >= d.device_gib_from]
    return max(reached, key=lambda d: d.device_gib_from).context_tok if reached else None


def mlp_width(group: MlpGroup) -> int:
    """Return the MLP values of one token in one layer: the dense width, or that of the chosen and shared experts."""
    if group.kind == "dense":
        return group.intermediate_size
    shared = group.shared_expert_count * (group.shared_expert_intermediate_size or group.expert_intermediate_size)
    return group.top_k * group.expert_intermediate_size + shared


def peak_bytes(llm: Llm, engine: EngineProfile, tp: int, context_tok: int, step_tok: int, sequence_count: int) -> float:
    """Return the peak of the temporary tensors of a step of `step_tok` tokens on one GPU, by the engine's `ActivationModel`."""
    model = engine.activation
    forward = 0.0
    if model.bytes_per_mlp_value or model.bytes_per_hidden_value:
        width = max((mlp_width(group) for group in llm.mlp), default=0)
        forward = step_tok * (model.bytes_per_mlp_value * width / tp + model.bytes_per_hidden_value * llm.hidden_size)
    sampler = 0.0 if llm.is_encoder else sequence_count * llm.vocab_size * model.bytes_per_logit
    compute = step_tok * (llm.vocab_size + llm.hidden_size) * model.bytes_per_compute_value
    scores = 0.0
    if model.bytes_per_score:
        heads = max((group.head_count for group in llm.attention), default=0)
        scores = step_tok * (context_tok * (heads + 1) + 4 * llm.hidden_size) * model.bytes_per_score
    mask = step_tok * context_tok * model.bytes_per_mask_value
    return max(forward, sampler) + max(compute, scores) + mask


def activation_bytes(
    llm: Llm, engine: EngineProfile, gpu: Gpu, tp: int, context_tok: int, *, concurrency: int = 1,
    max_batched_tok: int | None = None, max_sequence_count: int | None = None, memory_frac: float | None = None,
) -> float:
    """Return the temporary tensors that the memory fraction has to hold on one GPU.

    The sampler's part is whole on every rank: 1,024 sequences × 128,256 words × 39 bytes are 4.77 GiB with vLLM on an
    H100 (4.76 logged for Llama-3.1-8B). `max_batched_tok` and `max_sequence_count` are the engine's own limits where they are
    set by hand. Where the tensors live outside the fraction (SGLang) only what its free part does not hold is counted.
    """
    batch = batch_default(engine, gpu)
    tokens = _step_tok(engine, batch.max_batched_tok, context_tok, concurrency) if max_batched_tok is None else max_batched_tok
    sequences = batch.max_sequence_count if max_sequence_count is None else max_sequence_count
    peak = peak_bytes(llm, engine, tp, context_tok, tokens, sequences)
    if engine.fraction_covers_activations:
        return peak
    fraction = default_fraction(engine, gpu, tp) if memory_frac is None else memory_frac
    return max(0.0, peak - (1.0 - fraction) * device_bytes(gpu))


def overhead_bytes_per_gpu(engine: EngineProfile, tp: int, gpu: Gpu | None = None) -> float:
    """Return what the engine, the driver and the collectives keep on one GPU whatever the load.

    With `gpu`, the bytes outside the allocator are those of its class where the profile tells classes apart.
    """
    collective = engine.collective_bytes if tp > 1 else 0.0
    own = None if gpu is None else batch_default(engine, gpu).context_bytes
    context = engine.context_bytes if own is None else own
    return engine.driver_bytes + context + engine.cuda_graph_bytes + collective
