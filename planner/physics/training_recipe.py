"""How a model is fine-tuned: the choices that fix its memory beside the model and the number of GPUs."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.schema.llm import WeightFormat
from planner.schema.training import Optimizer

Method = Literal["full", "lora", "qlora"]
Checkpointing = Literal["none", "selective", "full"]
Targets = Literal["q_v", "attention", "all_linear"]
METHODS: tuple[Method, ...] = ("full", "lora", "qlora")
CHECKPOINTINGS: tuple[Checkpointing, ...] = ("none", "selective", "full")
TARGETS: tuple[Targets, ...] = ("q_v", "attention", "all_linear")


@dataclass(frozen=True)
class Recipe:
    """One way to fine-tune.

    Checkpointing `full` keeps the input of each layer and computes one layer again at a time; `selective` computes norms and the
    element-wise part of the MLP again; `none` keeps all. Attention scores are never kept: a fused kernel computes them again.
    """

    method: Method
    base: WeightFormat
    """Format of the model's own weights; 16 bit unless the method is qlora."""
    optimizer: Optimizer
    sequence_tok: int
    micro_batch: int = 1
    """Sequences that one GPU works on at once."""
    zero_stage: int = 0
    checkpointing: Checkpointing = "full"
    rank: int = 16
    targets: Targets = "all_linear"
    fused_loss: bool = False
    """The loss reads the logits in chunks."""
    rest_is_fp32: bool = False
    """QLoRA only: embedding, head and norms in FP32."""
    offload: bool = False
    """Gradients and optimizer live in the host's memory (ZeRO-Offload); the host updates the weights."""
