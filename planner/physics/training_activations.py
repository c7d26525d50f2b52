"""What the backward pass needs of the forward pass, tensor by tensor, and the logits around the loss (bytes on one GPU).

The method is that of Korthikanti et al. (arXiv 2205.05198, section 4.1), recounted for RMSNorm, gated MLPs, grouped heads and a
fused attention kernel, and for what a frozen matrix need not keep: its input is only kept where the matrix is trained, adapted,
or quantised (bitsandbytes keeps it).
"""

from __future__ import annotations

from planner.physics.training_linears import Linear, attention_linears, linears, mlp_linears
from planner.physics.training_recipe import Recipe
from planner.schema.llm import AttentionGroup, Llm, MlpGroup
from planner.schema.training import ActivationCoefficients


def keeps_input(recipe: Recipe, modules: frozenset[str], names: tuple[str, ...]) -> bool:
    """Say whether the input of these matrices is kept: all trained, all quantised, or one of them adapted."""
    return recipe.method != "lora" or any(name in modules for name in names)


def adapter_inputs(recipe: Recipe, modules: frozenset[str], matrices: list[Linear], each: float) -> float:
    """Return the copies of their input that adapted matrices keep, one token and layer."""
    return 0.0 if recipe.method == "full" else sum(each * m.input_size for m in matrices if m.module in modules)


def attention_kept_bytes(
    llm: Llm, group: AttentionGroup, recipe: Recipe, c: ActivationCoefficients, modules: frozenset[str], recompute: bool
) -> float:
    """Return what one token keeps in one attention layer of the group, its norm included.

    norm + input of the projections + queries, keys, values + output + statistics, as bytes a value; with `recompute` the norm's
    copies give way to its 16-bit input. A recurrent layer counts the inputs and outputs of its matrices by their total size.
    """
    h, v = llm.hidden_size, c.bytes_per_value
    norm = v * h if recompute else c.norm_bytes_per_value * h
    if not recompute and recipe.method == "full":
        norm += v * h
    if group.kind in ("linear", "none"):
        layers = sum(g.layer_count for g in llm.attention if g.kind == "linear") or 1
        width = llm.params.recurrent_count / layers / h if group.kind == "linear" else 0.0
        return norm + v * (h + 2 * width)
    matrices = list(attention_linears(group, h))
    inner = 0 if recompute or not keeps_input(recipe, modules, ("q", "k", "v", "kv_down")) else h
    out = next(m for m in matrices if m.module == "o").input_size
    values = sum(m.output_size for m in matrices if m.module != "o")
    kept = norm + v * (inner + values + out) + c.attention_statistic_bytes * group.head_count
    return kept + adapter_inputs(recipe, modules, matrices, c.adapter_input_bytes_per_value)


def mlp_kept_bytes(
    llm: Llm, group: MlpGroup, recipe: Recipe, c: ActivationCoefficients, modules: frozenset[str], recompute: bool
) -> float:
    """Return what one token keeps in one feed-forward layer of the group, its norm included.

    Gated: gate, up, the activated gate, and the product where `down` needs its input: 6 or 8 bytes a value of the width. Each
    chosen expert keeps its own copy of the token and its output, which the router's weights multiply.
    """
    h, v = llm.hidden_size, c.bytes_per_value
    norm = v * h if recompute else c.norm_bytes_per_value * h
    if not recompute and recipe.method == "full":
        norm += v * h
    width = group.intermediate_size
    copies = 0.0
    if group.kind == "moe":
        shared = group.shared_expert_count * (group.shared_expert_intermediate_size or group.expert_intermediate_size)
        width += group.top_k * group.expert_intermediate_size + shared
        copies = 2.0 * group.top_k * (group.expert_input_size or h)
    ways = 2 if group.is_gated else 1
    kept_widths = float(ways)
    if not recompute:
        kept_widths += ways - 1
        kept_widths += 1 if keeps_input(recipe, modules, ("down", "experts")) else 0
    inner = 0 if recompute or not keeps_input(recipe, modules, ("gate", "up", "experts")) else h
    adapted = 0.0
    if recipe.method != "full":
        matrices = list(mlp_linears(group, h))
        adapted = sum(
            c.adapter_input_bytes_per_value * m.input_size * (
                m.count / group.layer_count if m.module != "experts" else m.count / group.layer_count * group.top_k / group.expert_count
            )
            for m in matrices if m.module in modules
        )
    return norm + v * (inner + kept_widths * width + copies) + adapted


def layer_kept_bytes(llm: Llm, recipe: Recipe, c: ActivationCoefficients, recompute: bool = False) -> tuple[float, float]:
    """Return what one token keeps: over all layers, and in the largest layer (bytes)."""
    modules = frozenset(m.module for m in linears(llm, recipe.targets)) if recipe.method != "full" else frozenset[str]()
    attention = [
        (attention_kept_bytes(llm, g, recipe, c, modules, recompute), g.layer_count) for g in llm.attention if not g.is_second_cache
    ]
    mlp = [(mlp_kept_bytes(llm, g, recipe, c, modules, recompute), g.layer_count) for g in llm.mlp]
    total = sum(kept * count for kept, count in attention + mlp)
    largest = max((kept for kept, _ in attention), default=0.0) + max((kept for kept, _ in mlp), default=0.0)
    return total, largest


def activation_bytes(llm: Llm, recipe: Recipe, c: ActivationCoefficients) -> float:
    """Return the activations of one step on one GPU.

    Full checkpointing: the 16-bit input of each layer, and one layer whole while it is computed again. Llama-3.1-8B keeps
    32 × 4,096 × 2 = 262,144 bytes a token that way.
    """
    tokens = recipe.sequence_tok * recipe.micro_batch
    if recipe.checkpointing == "full":
        _, largest = layer_kept_bytes(llm, recipe, c)
        return tokens * (llm.layer_count * llm.hidden_size * c.bytes_per_value + largest)
    total, _ = layer_kept_bytes(llm, recipe, c, recompute=recipe.checkpointing == "selective")
    return tokens * total


def logits_bytes(llm: Llm, recipe: Recipe, c: ActivationCoefficients) -> float:
    """Return the logits around the loss on one GPU: micro-batch × sequence × vocabulary × bytes of all copies; an encoder has none.

    8,192 tokens of a vocabulary of 128,256 are 10.5 × 10⁹ bytes, more than the weights of many a 4-bit model.
    """
    if llm.is_encoder:
        return 0.0
    whole = float(recipe.sequence_tok) * recipe.micro_batch * llm.vocab_size * c.logit_bytes
    return whole / c.loss_chunk_count if recipe.fused_loss else whole
