"""The shape of a language model, as written in `workloads/models/*.yaml` (one file a model, named by its id)."""

from __future__ import annotations

from datetime import date
from typing import Annotated, Literal

from pydantic import Field, model_validator

from planner.schema.base import Frozen, Id, NonNegativeCount, Positive, PositiveCount, Sourced, Text

ParameterCount = Annotated[int, Field(ge=0, le=10**14)]
"""A count of parameters: larger than the other counts may be (the largest open model has 2.8e12)."""

AttentionKind = Literal["full", "sliding", "chunked", "mla", "linear", "cross", "none"]


class AttentionGroup(Frozen):
    """Layers whose attention is alike. `linear` covers SSM, DeltaNet and every other constant recurrent state.

    `cross` reads an encoder's output: its K and V are those of the encoder's tokens, constant for the life of a sequence.
    """

    layer_count: PositiveCount
    kind: AttentionKind
    head_count: NonNegativeCount = 0
    kv_head_count: NonNegativeCount = 0
    head_dim: NonNegativeCount = 0
    """Width of a query or key head; in mla both parts together, without and with rotary position (DeepSeek V3: 128 + 64)."""
    v_head_dim: NonNegativeCount | None = None
    """Width of a value head where it differs from the key head."""
    window_tok: PositiveCount | None = None
    """The most tokens the layers keep: of the window or chunk, or of the encoder in cross attention."""
    kv_lora_rank: PositiveCount | None = None
    rope_dim: NonNegativeCount | None = None
    state_bytes_per_sequence: Annotated[int, Field(ge=0)] = 0
    """Whole recurrent state of these layers for one sequence, at the dtypes the engine keeps it in."""
    cache_is_shared: bool = False
    """These layers read the cache of an earlier layer and keep none of their own."""
    kv_is_one_tensor: bool = False
    """K and V are the same stored tensor, so the cache counts it once."""
    indexer_bytes_per_tok: NonNegativeCount = 0
    """Keys of a sparse-attention indexer, all these layers, in their own dtype; compression is already in the figure."""
    kv_compression: PositiveCount = 1
    """Tokens that share one cache entry (compressed attention); 1 where every token keeps its own."""
    is_second_cache: bool = False
    """A further cache of layers that another group already counts (DeepSeek V4 keeps a window and a compressed cache)."""

    @model_validator(mode="after")
    def _coherent(self) -> AttentionGroup:
        if self.kind in ("full", "sliding", "chunked", "cross"):
            if not (self.head_count and self.kv_head_count and self.head_dim):
                raise ValueError(f"{self.kind} attention needs head_count, kv_head_count and head_dim")
            if self.head_count % self.kv_head_count:
                raise ValueError("kv_head_count must divide head_count")
        if (self.kind in ("sliding", "chunked", "cross")) != (self.window_tok is not None):
            raise ValueError("window_tok belongs to sliding, chunked and cross attention, and to no other")
        if (self.kind == "mla") != (self.kv_lora_rank is not None):
            raise ValueError("kv_lora_rank belongs to mla attention, and to no other")
        return self


class MlpGroup(Frozen):
    """Layers whose feed-forward part is alike: dense, or a mixture of experts."""

    layer_count: PositiveCount
    kind: Literal["dense", "moe"]
    intermediate_size: NonNegativeCount = 0
    expert_count: NonNegativeCount = 0
    top_k: NonNegativeCount = 0
    shared_expert_count: NonNegativeCount = 0
    expert_intermediate_size: NonNegativeCount = 0
    shared_expert_intermediate_size: NonNegativeCount = 0
    """Width of one shared expert where it differs from a routed one; 0 where alike."""
    expert_input_size: NonNegativeCount = 0
    """Width of the latent the routed experts read and write; 0 where they work at the hidden size."""
    is_gated: bool = True
    """Three matrices (gate, up, down); false: two (up, down). `intermediate_size` beside experts is a dense part of every layer."""

    @model_validator(mode="after")
    def _coherent(self) -> MlpGroup:
        if self.kind == "moe" and not (0 < self.top_k <= self.expert_count):
            raise ValueError("a mixture of experts needs 0 < top_k <= expert_count")
        return self


class ParameterCounts(Frozen):
    """Unique parameters by component; they sum to `total_count`. Formats quantise some and leave others in 16 bit."""

    total_count: Annotated[int, Field(ge=1, le=10**14)]
    embedding_count: ParameterCount
    """Input embedding (and the output head too where they are tied)."""
    head_count: ParameterCount
    """Output head where it is a matrix of its own; 0 where tied."""
    attention_count: ParameterCount
    mlp_count: ParameterCount
    """Dense feed-forward matrices, shared experts included."""
    experts_count: ParameterCount = 0
    """Routed experts, all of them."""
    router_count: ParameterCount = 0
    norm_count: ParameterCount = 0
    recurrent_count: ParameterCount = 0
    """Matrices of recurrent layers (SSM, gated DeltaNet, KDA, RG-LRU): quantised as attention is, sharded over ranks."""
    vision_count: ParameterCount = 0
    """Vision and audio towers with their projectors: in memory, never read in decode, mostly left in 16 bit."""
    other_count: ParameterCount = 0
    """The rest."""
    active_count: Annotated[int, Field(ge=1, le=10**14)]
    """Multiplied for one decoded token: everything but unused experts, the input embedding's other rows and the vision tower."""

    @property
    def by_component(self) -> dict[Component, int]:
        """The counts by `Component`; they sum to `total_count`."""
        return {
            "embedding": self.embedding_count, "head": self.head_count, "attention": self.attention_count, "mlp": self.mlp_count,
            "experts": self.experts_count, "router": self.router_count, "norm": self.norm_count, "recurrent": self.recurrent_count,
            "vision": self.vision_count, "other": self.other_count,
        }

    @model_validator(mode="after")
    def _sums(self) -> ParameterCounts:
        parts = sum(self.by_component.values())
        if parts != self.total_count:
            raise ValueError(f"components sum to {parts}, total_count says {self.total_count}")
        if self.active_count > self.total_count:
            raise ValueError("active_count exceeds total_count")
        return self


class Llm(Sourced):
    """A language model's shape: enough to count its bytes and its operations."""

    id: Id
    name: Text
    family: Id
    hf_repo: Text | None = None
    release_date: date | None = None
    license: Text | None = None
    native_weights: Id
    """Format the maker ships (`bf16`, `fp8`, `mxfp4`), an id of `hardware/formats.yaml`."""
    max_context_tok: PositiveCount
    vocab_size: PositiveCount
    hidden_size: PositiveCount
    layer_count: PositiveCount
    attention: tuple[AttentionGroup, ...]
    mlp: tuple[MlpGroup, ...]
    params: ParameterCounts
    vision_head_count: NonNegativeCount = 0
    image_tok: PositiveCount | None = None
    """Tokens of context that one image takes, where the vision tower has one size; None where it depends on the image."""
    is_encoder: bool = False
    """An embedding or encoder model: it keeps no KV cache."""
    notes: Text | None = None

    @model_validator(mode="after")
    def _layers(self) -> Llm:
        if not self.attention:
            raise ValueError("attention needs at least one group")
        total = sum(group.layer_count for group in self.attention if not group.is_second_cache)
        if total != self.layer_count:
            raise ValueError(f"attention groups cover {total} layers, layer_count says {self.layer_count}")
        return self


    @property
    def active_experts_count(self) -> int:
        """Parameters of routed experts that one token uses."""
        moe = [g for g in self.mlp if g.kind == "moe"]
        held = sum(g.layer_count * g.expert_count * g.expert_intermediate_size for g in moe)
        used = sum(g.layer_count * g.top_k * g.expert_intermediate_size for g in moe)
        return self.params.experts_count * used // held if held else 0

    @property
    def active_other_count(self) -> int:
        """The part of `other_count` that every decoded token multiplies: all of it but look-up tables and prediction layers."""
        p = self.params
        known = p.attention_count + p.mlp_count + p.router_count + p.norm_count + p.head_count + p.recurrent_count
        rest = p.active_count - known - self.active_experts_count
        if p.head_count == 0 and rest >= p.embedding_count:
            rest -= p.embedding_count
        return max(0, min(rest, p.other_count))


Component = Literal["attention", "mlp", "experts", "embedding", "head", "router", "norm", "recurrent", "vision", "other"]
"""Parts of a model that a format stores alike."""


GgufType = Literal[
    "f32", "f16", "q8_0", "q6_k", "q5_1", "q5_k", "q5_0", "q4_1", "q4_k", "q4_0", "iq4_nl", "iq4_xs", "q3_k", "iq3_s", "iq3_xxs",
    "q2_k", "iq2_s", "iq2_xs", "iq2_xxs", "iq1_m", "iq1_s",
]
GgufTensor = Literal["attn_q", "attn_k", "attn_v", "attn_qkv", "attn_output", "ffn_gate", "ffn_up", "ffn_down"]
GgufLayers = Literal["all", "more_bits", "first_eighth", "first_sixteenth", "first_2", "first_4", "middle"]


class GgufRule(Frozen):
    """An exception from a file type's base type: one matrix, in some layers, of some models."""

    tensor: GgufTensor
    type: GgufType
    layers: GgufLayers = "all"
    when: Literal["always", "gqa_4", "gqa_below_4"] = "always"
    """`gqa_4`: four or more query heads a KV head."""


class GgufRecipe(Frozen):
    """The tensor types of a GGUF file type. Of its `rules` the first that fits a matrix holds."""

    base: GgufType
    head: GgufType = "q6_k"
    """Of the output head, and of the embedding where it is the head too."""
    embedding: GgufType | None = None
    """Of the input embedding where it is not `base`."""
    rules: tuple[GgufRule, ...] = ()
    is_large: bool = False
    """Keeps the attention output at `base` in models of eight experts (Q3_K_L)."""


class WeightFormat(Sourced):
    """How weights are stored, as bits per parameter and component, scales and zero points included."""

    id: Id
    name: Text
    runs_on: tuple[Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx", "transformers"], ...]
    rule_bytes_per_param: Positive
    """The rule of thumb printed beside the finer figure."""
    bits_per_weight: dict[Component, Positive]
    compute_dtype: Literal["fp32", "bf16", "fp16", "fp8", "int8", "fp4"]
    """Matrix products run in this dtype where the accelerator has it, else in `bf16` after dequantisation."""
    is_gguf: bool = False
    gguf: GgufRecipe | None = None
    """How llama.cpp chooses tensor types: with it the bits follow the model's shape, and `bits_per_weight` is Llama-3.1-8B's."""
    group_size: PositiveCount | None = None
    """Weights along a row, or rows of a block, that share a scale: engines that keep groups whole refuse shards that cut one."""
    is_proposed: bool = True
    """False: computed where it is named, never suggested as a lever, because no loss is published for it."""
    quality_note: Text | None = None
    quality_loss_frac: float | None = None
    """Relative loss of the cited metric against 16 bit; its source is `sources.quality_loss_frac`."""


class KvFormat(Sourced):
    """How the KV cache is stored."""

    id: Id
    name: Text
    bytes_per_value: Positive
    """Scales included."""
    runs_on: tuple[Literal["vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx", "transformers"], ...]
    quality_note: Text | None = None
    """What is published of the loss against a 16-bit cache; its source is `sources.quality_note`."""
