"""What fine-tuning keeps for each parameter, token and GPU, as written in `hardware/training.yaml`."""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from planner.schema.base import Frozen, Id, NonNegative, Positive, PositiveCount, Sourced, Text


class Optimizer(Sourced):
    """One optimizer in one precision: the bytes that each trained parameter costs."""

    id: Id
    name: Text
    weight_bytes: Positive
    """The copy that forward and backward read."""
    gradient_bytes: Positive
    master_bytes: NonNegative
    """The FP32 copy that the update is applied to; 0 where weights are updated in their own precision."""
    state_bytes: NonNegative
    """Moments; of a factored optimizer, the bytes of each row and column of a matrix instead."""
    is_factored: bool = False
    """The second moment is kept as a row and a column of each matrix (Adafactor)."""
    pages_to_host: bool = False
    """The states live in unified memory and leave the GPU when it is short of room."""

    @property
    def bytes_per_trained(self) -> float:
        """Bytes a trained parameter costs in all, 16 with AdamW in mixed precision; a factored state is left out."""
        return self.weight_bytes + self.gradient_bytes + self.master_bytes + (0.0 if self.is_factored else self.state_bytes)


class ActivationCoefficients(Sourced):
    """Bytes that the backward pass needs of one value of the forward pass (a value of one token)."""

    bytes_per_value: Positive
    """An activation in the compute precision."""
    norm_bytes_per_value: Positive
    """The copy of its input that a norm keeps."""
    adapter_input_bytes_per_value: NonNegative
    """The copy of its input that an adapter keeps after its dropout, with the mask."""
    attention_statistic_bytes: NonNegative
    """What a fused attention kernel keeps for each head and token instead of the scores."""
    logit_bytes: Positive
    """All copies of one logit that live at once around the loss."""
    loss_chunk_count: PositiveCount
    """Parts in which a chunked or fused loss reads the vocabulary's logits: one part lives at a time."""


class TrainingRuntime(Sourced):
    """What framework and collectives keep on each GPU beside the tensors of the model."""

    context_bytes: NonNegative
    """CUDA context, kernels, library workspaces and the allocator's unused blocks."""
    bucket_count: PositiveCount
    """Gradients of one communication bucket in ZeRO stages 1 and 2."""
    gathered_unit_count: PositiveCount
    """Layers whose whole weights live at once in ZeRO stage 3: the one in use and the one prefetched."""


class TrainingData(Frozen):
    """`hardware/training.yaml`."""

    optimizers: Annotated[tuple[Optimizer, ...], Field(min_length=1)]
    activation: ActivationCoefficients
    runtime: TrainingRuntime
