"""What fine-tuning needs of each GPU's memory: weights, adapters, gradients, optimizer, activations, logits, buffers, overhead.

Data parallel over `gpu_count` GPUs with ZeRO stages 0 to 3 (FSDP shards as stage 3); every GPU works on `micro_batch` sequences
of `sequence_tok` tokens. Tensor and pipeline parallelism are not modelled. A fused attention kernel is assumed: scores are
never stored. All bytes are plain bytes.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from planner.physics.training_activations import activation_bytes, logits_bytes
from planner.physics.training_linears import adapter_count, linears
from planner.physics.training_recipe import Recipe
from planner.physics.weights import weights_bytes_by_component
from planner.schema.llm import Llm
from planner.schema.training import Optimizer, TrainingData

Term = Literal["weights", "adapters", "gradients", "optimizer", "activations", "logits", "buffers", "overhead"]


@dataclass(frozen=True)
class TrainingTerms:
    """Bytes of one GPU by term; they sum to `total_bytes`."""

    weights_bytes: float
    adapter_bytes: float
    gradient_bytes: float
    optimizer_bytes: float
    activation_bytes: float
    logits_bytes: float
    buffer_bytes: float
    """Communication buckets, layers gathered by ZeRO 3, the matrix dequantised by QLoRA."""
    overhead_bytes: float

    @property
    def by_term(self) -> dict[Term, float]:
        """The terms by name."""
        return {
            "weights": self.weights_bytes, "adapters": self.adapter_bytes, "gradients": self.gradient_bytes,
            "optimizer": self.optimizer_bytes, "activations": self.activation_bytes, "logits": self.logits_bytes,
            "buffers": self.buffer_bytes, "overhead": self.overhead_bytes,
        }

    @property
    def total_bytes(self) -> float:
        """Sum of the terms."""
        return sum(self.by_term.values())

    @property
    def state_bytes(self) -> float:
        """Weights, adapters, gradients and optimizer: what stands in memory whatever the batch."""
        return self.weights_bytes + self.adapter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def dominant_term(self) -> Term:
        """Name of the largest term."""
        return max(self.by_term.items(), key=lambda item: item[1])[0]


def state_bytes(trained_count: float, optimizer: Optimizer, zero_stage: int = 0, gpu_count: int = 1, offload: bool = False) -> float:
    """Return the bytes on each GPU of weights, gradients and optimizer of parameters that are trained.

    ZeRO (arXiv 1910.02054, figure 1): stage 1 shards the optimizer, 2 gradients too, 3 weights too. Its 7.5B model over 64
    GPUs needs 120, 31.4, 16.6 and 1.9 GB with AdamW; an 8B on one GPU needs 128.
    """
    weights, gradients, rest = sharded(optimizer, zero_stage, gpu_count, offload)
    return trained_count * (weights + gradients + rest)


def sharded(optimizer: Optimizer, zero_stage: int, gpu_count: int, offload: bool = False) -> tuple[float, float, float]:
    """Return bytes a trained parameter of weights, gradients and optimizer (master copy and moments) on each GPU.

    With `offload` the GPU keeps the weights alone (ZeRO-Offload, arXiv 2101.06840).
    """
    if offload:
        return optimizer.weight_bytes / (gpu_count if zero_stage >= 3 else 1), 0.0, 0.0
    rest = optimizer.bytes_per_trained - optimizer.weight_bytes - optimizer.gradient_bytes
    return (
        optimizer.weight_bytes / (gpu_count if zero_stage >= 3 else 1),
        optimizer.gradient_bytes / (gpu_count if zero_stage >= 2 else 1),
        rest / (gpu_count if zero_stage >= 1 else 1),
    )


def trained_count(llm: Llm, recipe: Recipe) -> int:
    """Return the parameters that are trained: all of them, experts included, or the adapters'."""
    return llm.params.total_count if recipe.method == "full" else adapter_count(llm, recipe.rank, recipe.targets)


def base_bytes_by_component(llm: Llm, recipe: Recipe) -> dict[str, float]:
    """Return the bytes of the whole base model by component, as stored on the GPU.

    A quantised base keeps embedding, head, norms and vision in 16 bit, or in FP32 where the recipe says so (PEFT's preparation for
    k-bit training upcasts them). Recurrent layers are matrices like the others and are quantised as attention is.
    """
    stored = weights_bytes_by_component(llm, recipe.base)
    if recipe.method != "qlora":
        return stored
    bits = recipe.base.bits_per_weight
    if "recurrent" not in bits and "attention" in bits:
        stored["recurrent"] = llm.params.recurrent_count * bits["attention"] / 8
    if recipe.rest_is_fp32:
        for name in ("embedding", "head", "norm"):
            stored[name] *= 2.0
    return stored


def unit_bytes(llm: Llm, recipe: Recipe, trained_frac: float) -> float:
    """Return the largest part that ZeRO 3 gathers whole, in stored bytes; `trained_frac` counts its gradients (16 bit) too."""
    stored = base_bytes_by_component(llm, recipe)
    ends = ("embedding", "head")
    layer = sum(value for name, value in stored.items() if name not in ends) / llm.layer_count
    return max(layer, *(stored[name] for name in ends)) * (1.0 + trained_frac)


def adafactor_state_bytes(llm: Llm, recipe: Recipe) -> float:
    """Return the factored second moment: a row and a column sum of each trained matrix (arXiv 1804.04235), FP32."""
    each = recipe.optimizer.state_bytes
    if recipe.method != "full":
        ranks = sum(m.count * (m.input_size + m.output_size + 2 * recipe.rank) for m in linears(llm, recipe.targets))
        return each * ranks
    matrices = sum(m.count * (m.input_size + m.output_size) for m in linears(llm, "all_linear"))
    tables = (1 if llm.params.head_count == 0 else 2) * (llm.vocab_size + llm.hidden_size)
    return each * (matrices + tables + llm.params.norm_count)


def buffer_bytes(llm: Llm, recipe: Recipe, data: TrainingData, gpu_count: int) -> float:
    """Return what communication and dequantisation keep beside the states on one GPU.

    Stage 0: PyTorch's buckets, one more copy of the gradients (`gradient_as_bucket_view` left off). Stages 1 and 2: a bucket to
    reduce and one to gather. Stage 3: the gathered layers and the gradient of one. QLoRA: its largest matrix in 16 bit. Offload: the
    gradient of one layer on its way to the host.
    """
    total = 0.0
    trained = trained_count(llm, recipe)
    each = recipe.optimizer.gradient_bytes
    unit_gradient = unit_bytes(llm, recipe, 1.0) - unit_bytes(llm, recipe, 0.0) if recipe.method == "full" else 0.0
    if recipe.offload:
        total += unit_gradient
    if recipe.method == "qlora":
        total += max((m.input_size * m.output_size for m in linears(llm, "all_linear")), default=0) * data.activation.bytes_per_value
    if gpu_count == 1:
        return total
    if recipe.zero_stage == 0:
        return total + trained * each
    if recipe.zero_stage < 3:
        return total + 2 * min(data.runtime.bucket_count, trained) * each
    gradient = 0.0 if recipe.offload else unit_gradient
    return total + data.runtime.gathered_unit_count * unit_bytes(llm, recipe, 0.0) + gradient


def host_bytes(llm: Llm, recipe: Recipe) -> float:
    """Return what offloading keeps in the memory of the host or hosts, all GPUs together; 0 without it.

    An 8B with AdamW: 2 + 12 bytes a parameter, 112 GB.
    """
    if not recipe.offload:
        return 0.0
    o = recipe.optimizer
    moved = trained_count(llm, recipe) * (o.bytes_per_trained - o.weight_bytes)
    return moved + (adafactor_state_bytes(llm, recipe) if o.is_factored else 0.0)


def training_terms(llm: Llm, recipe: Recipe, data: TrainingData, gpu_count: int = 1) -> TrainingTerms:
    """Return the memory of one GPU by term at the peak of a step.

    Activations and logits are added although they peak at different moments: the allocator keeps the blocks of the one while it
    serves the other, and measured slopes are those of the sum (docs/training_memory.md).
    """
    trained = trained_count(llm, recipe)
    weight, gradient, rest = sharded(recipe.optimizer, recipe.zero_stage, gpu_count, recipe.offload)
    over = gpu_count if recipe.zero_stage >= 3 else 1
    base = sum(base_bytes_by_component(llm, recipe).values()) / over
    optimizer_bytes = trained * rest
    if recipe.optimizer.is_factored and not recipe.offload:
        optimizer_bytes += adafactor_state_bytes(llm, recipe) / (gpu_count if recipe.zero_stage >= 1 else 1)
    return TrainingTerms(
        weights_bytes=base,
        adapter_bytes=0.0 if recipe.method == "full" else trained * weight,
        gradient_bytes=trained * gradient,
        optimizer_bytes=optimizer_bytes,
        activation_bytes=activation_bytes(llm, recipe, data.activation),
        logits_bytes=logits_bytes(llm, recipe, data.activation),
        buffer_bytes=buffer_bytes(llm, recipe, data, gpu_count),
        overhead_bytes=data.runtime.context_bytes,
    )

