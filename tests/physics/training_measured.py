"""Published peaks of fine-tuning runs, each with what its page says of the run. Bytes are GB (10⁹) unless the page says GiB."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from planner.schema.llm import Llm


@dataclass(frozen=True)
class Run:
    """One published run and the recipe that its page describes."""

    group: str
    llm: str
    method: str
    base: str
    optimizer: str
    sequence_tok: int
    peak_gb: float
    micro_batch: int = 1
    rank: int = 8
    targets: str = "all_linear"
    checkpointing: str = "full"
    fused_loss: bool = False
    rest_is_fp32: bool = False
    is_allocated: bool = False
    """The page reports what the allocator handed out: context and unused blocks are not in it."""

    @property
    def id(self) -> str:
        return f"{self.group} {self.llm} {self.method} {self.base} {self.micro_batch} x {self.sequence_tok}"


def dense(name: str, layer_count: int, hidden: int, heads: int, width: int, vocab: int) -> Llm:
    """Return a plain decoder with multi-head attention and an untied head, counted by its shape (no biases)."""
    table = vocab * hidden
    attention, mlp, norm = 4 * hidden * hidden * layer_count, 3 * width * hidden * layer_count, (2 * layer_count + 1) * hidden
    data: dict[str, Any] = {
        "id": name, "name": name, "family": "qwen_1", "native_weights": "bf16", "max_context_tok": 8192, "vocab_size": vocab,
        "hidden_size": hidden, "layer_count": layer_count,
        "attention": [{
            "layer_count": layer_count, "kind": "full", "head_count": heads, "kv_head_count": heads, "head_dim": hidden // heads,
        }],
        "mlp": [{"layer_count": layer_count, "kind": "dense", "intermediate_size": width}],
        "params": {
            "total_count": attention + mlp + norm + 2 * table, "embedding_count": table, "head_count": table,
            "attention_count": attention, "mlp_count": mlp, "norm_count": norm, "active_count": attention + mlp + norm + table,
        },
        "sources": {"default": {"kind": "derived", "retrieved_on": "2026-12-01", "note": "counted from the shape of config.json"}},
    }
    return Llm.model_validate(data)


QWEN = {
    "qwen_1.8b": dense("qwen_1.8b", 24, 2048, 16, 5504, 151_936),
    "qwen_7b": dense("qwen_7b", 32, 4096, 32, 11_008, 151_936),
    "qwen_14b": dense("qwen_14b", 40, 5120, 40, 13_696, 152_064),
    "qwen_72b": dense("qwen_72b", 80, 8192, 64, 24_576, 152_064),
}
"""Shapes of the first Qwen generation: Qwen/Qwen-{1_8B,7B,14B,72B} config.json (`intermediate_size` there is twice the width)."""

LENGTHS = (256, 512, 1024, 2048, 4096, 8192)

# github:QwenLM/Qwen README.md@03cd81f5, "Profiling of Memory and Speed": one A100 80 GB, micro-batch 1, padded to the length, flash
# attention 2, gradient checkpointing, rank 64 on all linear layers (finetune.py). PEFT of that time keeps adapters in FP32.
QWEN_LORA = {
    "qwen_1.8b": (6.7, 7.4, 8.4, 11.0, 16.2, 21.8), "qwen_7b": (20.1, 20.4, 21.5, 23.8, 29.7, 36.6),
    "qwen_14b": (34.6, 35.1, 35.3, 37.4, 42.5, 55.2),
}
# The same page; base in GPTQ INT4, the rest in FP32 (prepare_model_for_kbit_training), FP16 under DeepSpeed.
QWEN_QLORA = {
    "qwen_1.8b": (5.8, 6.0, 6.6, 7.8, 10.2, 15.8), "qwen_7b": (11.5, 11.5, 12.3, 13.9, 16.9, 23.5),
    "qwen_14b": (18.7, 18.4, 18.9, 19.9, 23.0, 27.9), "qwen_72b": (61.4, 61.4, 62.9, 64.1, 68.0, 75.6),
}
# https://github.com/hiyouga/LLaMA-Factory/wiki/Performance-comparison (15 April 2024): Llama-2-7B, 4 bit, rank 8 on all modules,
# micro-batch 1, FlashAttention-2, one A100 40 GB; printed to whole GB.
FACTORY = {1024: 6, 2048: 7, 4096: 9, 8192: 12, 16_384: 19, 32_768: 32}

RUNS = (
    *(
        Run("qwen lora", llm, "lora", "bf16", "adamw", tok, peak, rank=64)
        for llm, peaks in QWEN_LORA.items() for tok, peak in zip(LENGTHS, peaks, strict=True)
    ),
    *(
        Run("qwen qlora", llm, "qlora", "gptq_int4", "adamw", tok, peak, rank=64, rest_is_fp32=True)
        for llm, peaks in QWEN_QLORA.items() for tok, peak in zip(LENGTHS, peaks, strict=True)
    ),
    *(Run("llama-factory", "llama_2_7b", "qlora", "bnb_nf4_dq", "adamw", tok, peak) for tok, peak in FACTORY.items()),
    # github:Lightning-AI/litgpt tutorials/resource-tables.md@4839345a: bf16-true, Alpaca (longest 1,304 tokens), rank 8 on q and v
    # (4,194,304 and 6,553,600 trainable), no checkpointing; max_memory_allocated.
    *(
        Run(
            "litgpt", llm, "lora" if base == "bf16" else "qlora", base, "adamw_bf16", 1304, peak, micro, targets="q_v",
            checkpointing="none", is_allocated=True,
        )
        for llm, base, micro, peak in (
            ("llama_2_7b", "bf16", 1, 21.30), ("llama_2_7b", "bnb_nf4", 1, 14.14), ("llama_2_7b", "bnb_nf4_dq", 1, 13.84),
            ("llama_2_7b", "bf16", 2, 29.07), ("llama_2_13b", "bf16", 1, 38.12), ("llama_2_13b", "bnb_nf4", 1, 23.14),
            ("llama_2_13b", "bnb_nf4_dq", 1, 22.55),
        )
    ),
    # github:pytorch/torchtune README.md@0031bfb0: 7.4 GiB, batch 2 x 2,048 packed, compiled, chunked loss, rank 8.
    Run("torchtune", "llama_3.1_8b", "qlora", "bnb_nf4_dq", "adamw_bf16", 2048, 7.95, 2, fused_loss=True, is_allocated=True),
)
