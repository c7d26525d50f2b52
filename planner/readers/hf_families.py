"""The `model_type`s of config.json that can be read, each with the function that lays out its layers."""

from __future__ import annotations

from collections.abc import Callable

from planner.readers.hf_dense import bert, cohere, falcon, gemma, llama, mllama, nemotron_nas, olmo, qwen2, starcoder2
from planner.readers.hf_experts import gemma4, glm4_moe, gpt_oss, llama4, mimo_v2, minimax, mixtral, phimoe, qwen3, step3
from planner.readers.hf_hybrid import granite_hybrid, jamba, nemotron_h, qwen3_next
from planner.readers.hf_keys import Keys
from planner.readers.hf_latent import deepseek, deepseek_v4, kimi_linear
from planner.readers.hf_shape import Shape

TOWER_NOTE = "The vision tower is not counted: its parameters cannot be derived from this file alone."

FAMILIES: dict[str, Callable[[Keys], Shape]] = {
    **dict.fromkeys(("llama", "mistral", "mistral3", "phi3", "granite"), llama),
    **dict.fromkeys(("qwen2", "qwen2_5_vl", "mimo"), qwen2),
    **dict.fromkeys(("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_text", "qwen3_vl_moe_text"), qwen3),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), qwen3_next),
    **dict.fromkeys(("llama4", "llama4_text"), llama4),
    **dict.fromkeys(("mllama", "mllama_text_model"), mllama),
    "mixtral": mixtral,
    "phimoe": phimoe,
    "gpt_oss": gpt_oss,
    **dict.fromkeys(("gemma2", "gemma3", "gemma3_text"), gemma),
    **dict.fromkeys(("gemma4", "gemma4_text"), gemma4),
    **dict.fromkeys(("cohere", "cohere2"), cohere),
    "falcon": falcon,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe_lite"), deepseek),
    "deepseek_v4": deepseek_v4,
    **dict.fromkeys(("kimi_linear", "kimi_k3"), kimi_linear),
    **dict.fromkeys(("glm4_moe", "glm4v_moe", "glm4v_moe_text"), glm4_moe),
    **dict.fromkeys(("minimax_m2", "minimax_m3"), minimax),
    "nemotron_h": nemotron_h,
    "nemotron-nas": nemotron_nas,
    "mimo_v2_flash": mimo_v2,
    "step3p7": step3,
    "jamba": jamba,
    "granitemoehybrid": granite_hybrid,
    **dict.fromkeys(("olmo2", "olmo3"), olmo),
    "starcoder2": starcoder2,
    **dict.fromkeys(("bert", "xlm-roberta"), bert),
}
"""Every `model_type` that can be read, and the function that lays out its layers."""

GEMMA3_DEFAULTS = {
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
}
LIBRARY_DEFAULTS: dict[str, dict[str, int]] = {
    "gemma3": GEMMA3_DEFAULTS,
    "gemma3_text": GEMMA3_DEFAULTS,
    "falcon": {"max_position_embeddings": 2048},
}
"""What published files of a family leave out, from the classes of `pypi:transformers==5.24.0` (Gemma3TextConfig, FalconConfig)."""

ENCODERS = frozenset({"bert", "xlm-roberta"})
