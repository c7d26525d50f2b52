"""A model's layers added up one at a time: attention and feed-forward groups, and parameters by component."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

from planner.schema.llm import AttentionGroup, AttentionKind, MlpGroup, ParameterCounts

FP32_BYTES, BF16_BYTES = 4, 2


@dataclass
class Shape:
    """What has been added so far. Every `add_` method is one layer's part; equal parts become one group."""

    hidden_size: int
    vocab_size: int
    is_tied: bool
    counts: Counter[str] = field(default_factory=Counter)
    attention: Counter[AttentionGroup] = field(default_factory=Counter)
    mlp: Counter[MlpGroup] = field(default_factory=Counter)
    idle_count: int = 0
    """Parameters of routed experts that one token does not use."""
    lookup_count: int = 0
    """Parameters read by index and never multiplied, beside the input embedding (per-layer embeddings)."""
    encoder_count: int = 0
    """Parameters of a text encoder, included in `counts['other']`: read once a prompt, never for a decoded token."""
    notes: list[str] = field(default_factory=list)

    def add_embedding(self) -> None:
        """Add the input embedding, and the output head unless it is tied to it."""
        self.counts["embedding"] += self.vocab_size * self.hidden_size
        if not self.is_tied:
            self.counts["head"] += self.vocab_size * self.hidden_size

    def add_norms(self, count: int = 1, width: int | None = None, has_bias: bool = False) -> None:
        """Add `count` norms of `width` values (the hidden size by default), twice that where they have a bias."""
        self.counts["norm"] += count * (width or self.hidden_size) * (2 if has_bias else 1)

    def add_gqa(
        self,
        head_count: int,
        kv_head_count: int,
        head_dim: int,
        *,
        kind: AttentionKind = "full",
        v_head_dim: int | None = None,
        window_tok: int | None = None,
        has_qkv_bias: bool = False,
        has_o_bias: bool = False,
        has_output_gate: bool = False,
        v_is_k: bool = False,
        cache_is_shared: bool = False,
        extra_count: int = 0,
        indexer_bytes_per_tok: int = 0,
    ) -> None:
        """Add one layer of grouped-query attention: q, k, v and o projections, their biases and `extra_count` more."""
        q_width, k_width = head_count * head_dim, kv_head_count * head_dim
        v_width = kv_head_count * (v_head_dim or head_dim)
        o_width = head_count * (v_head_dim or head_dim)
        kv_width = 0 if cache_is_shared else k_width + (0 if v_is_k else v_width)
        count = self.hidden_size * (q_width * (2 if has_output_gate else 1) + kv_width + o_width) + extra_count
        count += (q_width + kv_width if has_qkv_bias else 0) + (self.hidden_size if has_o_bias else 0)
        self.counts["attention"] += count
        differs = v_head_dim if v_head_dim not in (None, head_dim) else None
        self.attention[
            AttentionGroup(
                layer_count=1, kind=kind, head_count=head_count, kv_head_count=kv_head_count, head_dim=head_dim,
                v_head_dim=differs, window_tok=window_tok, cache_is_shared=cache_is_shared,
                indexer_bytes_per_tok=indexer_bytes_per_tok,
            )
        ] += 1

    def add_cross(self, head_count: int, head_dim: int, encoder_tok: int, *, has_qkv_bias: int = 0, has_o_bias: bool = False) -> None:
        """Add cross attention to a layer that self-attention counts: K and V of `encoder_tok` tokens; `has_qkv_bias` of q, k, v."""
        width = head_count * head_dim
        self.counts["attention"] += 4 * self.hidden_size * width + has_qkv_bias * width + (self.hidden_size if has_o_bias else 0)
        self.attention[AttentionGroup(layer_count=1, kind="cross", head_count=head_count, kv_head_count=head_count, head_dim=head_dim,
                                      window_tok=encoder_tok, is_second_cache=True)] += 1

    def add_mla(
        self,
        head_count: int,
        q_lora_rank: int | None,
        kv_lora_rank: int,
        nope_dim: int,
        rope_dim: int,
        v_head_dim: int,
        *,
        indexer: tuple[int, int] | None = None,
        indexer_bytes_per_tok: int = 0,
        has_output_gate: bool = False,
    ) -> None:
        """Add one layer of multi-head latent attention; `indexer` is (heads, head width) of a sparse-attention indexer."""
        h, qk_width = self.hidden_size, head_count * (nope_dim + rope_dim)
        count = h * qk_width if q_lora_rank is None else h * q_lora_rank + q_lora_rank * qk_width
        count += h * (kv_lora_rank + rope_dim) + kv_lora_rank * head_count * (nope_dim + v_head_dim)
        count += h * head_count * v_head_dim * (2 if has_output_gate else 1)
        self.counts["norm"] += (q_lora_rank or 0) + kv_lora_rank
        if indexer is not None:
            heads, width = indexer
            count += (q_lora_rank or h) * heads * width + h * width + h * heads
            self.counts["norm"] += 2 * width
        self.counts["attention"] += count
        self.attention[
            AttentionGroup(
                layer_count=1, kind="mla", head_count=head_count, head_dim=nope_dim + rope_dim, v_head_dim=v_head_dim,
                kv_lora_rank=kv_lora_rank, rope_dim=rope_dim, indexer_bytes_per_tok=indexer_bytes_per_tok,
            )
        ] += 1

    def add_delta_net(self, k_heads: int, k_dim: int, v_heads: int, v_dim: int, conv_tok: int) -> None:
        """Add one Gated DeltaNet layer: fp32 state of v_heads x k_dim x v_dim, and a convolution state in 16 bit."""
        k_width, v_width = k_heads * k_dim, v_heads * v_dim
        channels = 2 * k_width + v_width
        self.counts["recurrent"] += self.hidden_size * (2 * k_width + 3 * v_width + 2 * v_heads)
        self.counts["recurrent"] += channels * conv_tok + 2 * v_heads + v_dim
        state = v_heads * k_dim * v_dim * FP32_BYTES + channels * (conv_tok - 1) * BF16_BYTES
        self.add_linear(state)

    def add_mamba2(self, heads: int, head_dim: int, groups: int, state_dim: int, conv_tok: int, *, has_conv_bias: bool = True,
                   has_bias: bool = False, has_norm: bool = True, beside: bool = False) -> None:
        """Add one Mamba-2 layer: fp32 state of heads x head_dim x state_dim, and a convolution state in 16 bit.

        `beside`: it runs in a layer that attention already counts.
        """
        inner = heads * head_dim
        channels = inner + 2 * groups * state_dim
        self.counts["recurrent"] += self.hidden_size * (inner + channels + heads) + inner * self.hidden_size
        self.counts["recurrent"] += channels * (conv_tok + (1 if has_conv_bias else 0)) + 3 * heads + (inner if has_norm else 0)
        self.counts["recurrent"] += inner + channels + heads + self.hidden_size if has_bias else 0
        self.add_linear(inner * state_dim * FP32_BYTES + channels * (conv_tok - 1) * BF16_BYTES, beside=beside)

    def add_mamba1(self, inner: int, state_dim: int, dt_rank: int, conv_tok: int, *, has_inner_norms: bool = True,
                   has_conv_bias: bool = True, has_bias: bool = False, beside: bool = False) -> None:
        """Add one Mamba-1 layer: fp32 state of inner x state_dim, and a convolution state in 16 bit; Jamba norms its inner parts.

        `beside`: it runs in a layer that attention already counts.
        """
        h = self.hidden_size
        self.counts["recurrent"] += 3 * h * inner + inner * (conv_tok + (1 if has_conv_bias else 0)) + inner * (dt_rank + 2 * state_dim)
        self.counts["recurrent"] += dt_rank * inner + inner + inner * state_dim + inner
        self.counts["recurrent"] += dt_rank + 2 * state_dim if has_inner_norms else 0
        self.counts["recurrent"] += 2 * inner + h if has_bias else 0
        self.add_linear(inner * state_dim * FP32_BYTES + inner * (conv_tok - 1) * BF16_BYTES, beside=beside)

    def add_delta_attention(self, heads: int, head_dim: int, conv_tok: int, *, full_rank_gate_count: int = 0) -> None:
        """Add one Kimi Delta Attention layer: fp32 state, and three convolution states in 16 bit.

        Of its two gates (output, forget) `full_rank_gate_count` are full matrices, the others pass through one head's width.
        """
        width, h = heads * head_dim, self.hidden_size
        low_rank = (2 - full_rank_gate_count) * (h * head_dim + head_dim * width)
        self.counts["recurrent"] += h * (4 * width + heads) + low_rank + full_rank_gate_count * h * width
        self.counts["recurrent"] += 3 * width * conv_tok + width + heads + head_dim
        self.add_linear(width * head_dim * FP32_BYTES + 3 * width * (conv_tok - 1) * BF16_BYTES)

    def add_linear(self, state_bytes_per_sequence: int, beside: bool = False) -> None:
        """Add one layer that keeps a constant state; `beside` an attention that already counts the layer."""
        self.attention[AttentionGroup(layer_count=1, kind="linear", state_bytes_per_sequence=state_bytes_per_sequence,
                                      is_second_cache=beside)] += 1

    def add_cache(self, head_count: int, kv_head_count: int, head_dim: int) -> None:
        """Add one layer's cache without parameters, for attention whose weights are shared and counted elsewhere."""
        group = AttentionGroup(layer_count=1, kind="full", head_count=head_count, kv_head_count=kv_head_count, head_dim=head_dim)
        self.attention[group] += 1

    def add_no_attention(self) -> None:
        """Add one layer that keeps no cache and no state (feed-forward only, or attention taken out)."""
        self.attention[AttentionGroup(layer_count=1, kind="none")] += 1

    def add_dense(self, intermediate_size: int, *, is_gated: bool = True, has_bias: bool = False) -> None:
        """Add one dense feed-forward part: gate, up and down, or up and down."""
        ups = 2 if is_gated else 1
        self.counts["mlp"] += (ups + 1) * self.hidden_size * intermediate_size
        self.counts["mlp"] += ups * intermediate_size + self.hidden_size if has_bias else 0
        self.mlp[MlpGroup(layer_count=1, kind="dense", intermediate_size=intermediate_size, is_gated=is_gated)] += 1

    def add_moe(
        self,
        expert_count: int,
        top_k: int,
        expert_size: int,
        *,
        shared_count: int = 0,
        shared_size: int | None = None,
        beside_size: int = 0,
        latent_size: int | None = None,
        is_gated: bool = True,
        has_expert_bias: bool = False,
        router_extra_count: int = 0,
        has_shared_gate: bool = False,
    ) -> None:
        """Add one mixture of experts: routed and shared experts, router, and a dense part beside them if there is one."""
        h, matrices = self.hidden_size, 3 if is_gated else 2
        width = latent_size or h
        one = matrices * width * expert_size
        if has_expert_bias:
            one += (matrices - 1) * expert_size + width
        self.counts["experts"] += expert_count * one
        self.idle_count += (expert_count - top_k) * one
        self.counts["router"] += h * expert_count + router_extra_count + (h if has_shared_gate else 0)
        self.counts["mlp"] += matrices * h * (shared_count * (shared_size or expert_size) + beside_size)
        self.counts["mlp"] += 2 * h * latent_size if latent_size else 0
        differs = shared_size if shared_count and shared_size not in (None, expert_size) else 0
        self.mlp[
            MlpGroup(
                layer_count=1, kind="moe", intermediate_size=beside_size, expert_count=expert_count, top_k=top_k,
                shared_expert_count=shared_count, expert_intermediate_size=expert_size,
                shared_expert_intermediate_size=differs or 0, expert_input_size=latent_size or 0, is_gated=is_gated,
            )
        ] += 1

    def add_idle_experts(self, count: int, size: int) -> None:
        """Add experts that text tokens never reach (those of image tokens in ERNIE 4.5 VL): held, and not multiplied."""
        self.counts["vision"] += count * 3 * self.hidden_size * size + self.hidden_size * count

    @property
    def layer_count(self) -> int:
        """Layers added so far."""
        return sum(n for group, n in self.attention.items() if not group.is_second_cache)

    def attention_groups(self) -> tuple[AttentionGroup, ...]:
        """Return the groups with their layers counted; state and indexer bytes become those of all their layers."""
        return tuple(
            group.model_copy(
                update={
                    "layer_count": n,
                    "state_bytes_per_sequence": n * group.state_bytes_per_sequence,
                    "indexer_bytes_per_tok": n * group.indexer_bytes_per_tok,
                }
            )
            for group, n in self.attention.items()
        )

    def mlp_groups(self) -> tuple[MlpGroup, ...]:
        """Return the feed-forward groups with their layers counted."""
        return tuple(group.model_copy(update={"layer_count": n}) for group, n in self.mlp.items())

    def parameter_counts(self) -> ParameterCounts:
        """Return the parameters by component; a tied embedding is multiplied as the head, an untied one is only looked up."""
        c = self.counts
        total = sum(c.values())
        looked_up = self.lookup_count + (0 if self.is_tied else c["embedding"])
        return ParameterCounts(
            total_count=total, embedding_count=c["embedding"], head_count=c["head"], attention_count=c["attention"],
            mlp_count=c["mlp"], experts_count=c["experts"], router_count=c["router"], norm_count=c["norm"],
            recurrent_count=c["recurrent"], vision_count=c["vision"], other_count=c["other"],
            active_count=total - self.idle_count - looked_up - c["vision"] - self.encoder_count,
        )
