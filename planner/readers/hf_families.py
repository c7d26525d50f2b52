"""The `model_type`s of config.json that can be read, each with the function that lays out its layers."""

from __future__ import annotations

from collections.abc import Callable

from planner.readers.hf_dense import cohere, falcon, gemma, llama, mllama, nemotron_nas, olmo, qwen2, starcoder2
from planner.readers.hf_encdec import LEARNT, bart, t5, whisper
from planner.readers.hf_encoder import ENCODER_ROWS, albert, electra, encoder, modernbert
from planner.readers.hf_experts import gemma3n, gemma4, glm4_moe, gpt_oss, llama4, mimo_v2, minimax, mixtral, phimoe, qwen3, step3
from planner.readers.hf_hybrid import bailing_linear, granite_hybrid, jamba, nemotron_h, qwen3_next
from planner.readers.hf_keys import Keys
from planner.readers.hf_latent import deepseek, deepseek_v4, kimi_linear, longcat_flash
from planner.readers.hf_older import (
    bitnet,
    chatglm,
    deci,
    exaone4,
    gpt_bigcode,
    gpt_neo,
    mpt,
    openelm,
    opt,
    persimmon,
    phi,
    phi3small,
    qwen1,
    smollm3,
    stablelm,
)
from planner.readers.hf_plain import PLAIN, plain
from planner.readers.hf_recurrent import (
    bamba,
    falcon_h1,
    lfm2,
    mamba1,
    mamba2,
    minimax_01,
    olmo_hybrid,
    recurrent_gemma,
    zamba,
    zamba2,
)
from planner.readers.hf_rwkv import rwkv, rwkv6, rwkv7
from planner.readers.hf_shape import Shape
from planner.readers.hf_sparse import SPARSE, dbrx, sparse

TOWER_NOTE = "The vision tower is not counted: its parameters cannot be derived from this file alone."
AUDIO_NOTE = "The audio tower is not counted: its parameters cannot be derived from this file alone."

FLAT_LLAMA, FLAT_QWEN = ("llava", "llava_llama", "llava_mistral"), ("llava_qwen", "llava_qwen2")
"""Types that name a model around a language model: readable where the file is flat, never in place of a language part they hold."""

FAMILIES: dict[str, Callable[[Keys], Shape]] = {
    **dict.fromkeys(PLAIN, plain),
    **dict.fromkeys(SPARSE, sparse),
    "bitnet": bitnet, "deci": deci, "openelm": openelm, "chatglm": chatglm, "dbrx": dbrx, "exaone4": exaone4, "gpt_bigcode": gpt_bigcode,
    "gpt_neo": gpt_neo,
    "mpt": mpt,
    "opt": opt, "persimmon": persimmon, "phi": phi, "phi3small": phi3small, "qwen": qwen1, "smollm3": smollm3, "stablelm": stablelm,
    "stablelm_epoch": stablelm, "bailing_moe_linear": bailing_linear,
    **dict.fromkeys(("llama", "mistral", "mistral3", "phi3", "granite", "phi3_v", "phi4mm", "phi4_multimodal", "yi", *FLAT_LLAMA), llama),
    **dict.fromkeys(("qwen2", "qwen2_vl", "qwen2_vl_text", "qwen2_5_vl", "qwen2_5_vl_text", "qwen2_5_omni", "qwen2_5_omni_text",
                     "qwen2_audio", "mimo", "minicpmv", "minicpmo", *FLAT_QWEN), qwen2),
    **dict.fromkeys(("qwen3", "qwen3_moe", "qwen3_vl", "qwen3_vl_moe", "qwen3_vl_text", "qwen3_vl_moe_text",
                     "qwen3_omni_moe", "qwen3_omni_moe_text"), qwen3),
    **dict.fromkeys(("qwen3_next", "qwen3_5", "qwen3_5_moe", "qwen3_5_text", "qwen3_5_moe_text"), qwen3_next),
    **dict.fromkeys(("llama4", "llama4_text"), llama4),
    **dict.fromkeys(("mllama", "mllama_text_model"), mllama),
    "mixtral": mixtral,
    "phimoe": phimoe,
    "gpt_oss": gpt_oss,
    **dict.fromkeys(("gemma2", "gemma3", "gemma3_text"), gemma),
    **dict.fromkeys(("gemma3n", "gemma3n_text"), gemma3n),
    **dict.fromkeys(("gemma4", "gemma4_text", "gemma4_unified", "gemma4_unified_text"), gemma4),
    **dict.fromkeys(("cohere", "cohere2"), cohere),
    "falcon": falcon,
    **dict.fromkeys(("deepseek_v2", "deepseek_v3", "deepseek_v32", "kimi_k2", "kimi_k25", "glm_moe_dsa", "glm4_moe_lite", "minicpm3",
                     "mistral4", "axk1", "sarvam_mla", "youtu"), deepseek),
    "longcat_flash": longcat_flash,
    "deepseek_v4": deepseek_v4,
    **dict.fromkeys(("kimi_linear", "kimi_k3", "bailing_hybrid"), kimi_linear),
    **dict.fromkeys(("glm4_moe", "glm4v_moe", "glm4v_moe_text"), glm4_moe),
    **dict.fromkeys(("minimax_m2", "minimax_m3", "minimax_m3_vl", "minimax_m3_vl_text"), minimax),
    "nemotron_h": nemotron_h,
    "nemotron-nas": nemotron_nas,
    "mimo_v2_flash": mimo_v2,
    **dict.fromkeys(("step3p7", "step3p7_text"), step3),
    "jamba": jamba, "bamba": bamba, "falcon_h1": falcon_h1, "zamba": zamba, "zamba2": zamba2,
    "recurrent_gemma": recurrent_gemma, "rwkv": rwkv, "rwkv6": rwkv6, "rwkv7": rwkv7,
    "mamba2": mamba2, "olmo_hybrid": olmo_hybrid,
    **dict.fromkeys(("mamba", "falcon_mamba"), mamba1),
    **dict.fromkeys(("minimax", "minimax_text_01", "minimax_m1"), minimax_01),
    **dict.fromkeys(("lfm2", "lfm2_moe"), lfm2),
    "granitemoehybrid": granite_hybrid,
    **dict.fromkeys(("olmo2", "olmo3"), olmo),
    "starcoder2": starcoder2,
    **dict.fromkeys(ENCODER_ROWS, encoder),
    "modernbert": modernbert, "albert": albert, "electra": electra,
    **dict.fromkeys(LEARNT, bart),
    **dict.fromkeys(("t5", "mt5", "umt5"), t5),
    "whisper": whisper,
}
"""Every `model_type` that can be read, and the function that lays out its layers."""

LLAMA_DEFAULTS = {
    "vocab_size": 32000, "hidden_size": 4096, "intermediate_size": 11008, "num_hidden_layers": 32, "num_attention_heads": 32,
    "max_position_embeddings": 2048,
}
SECTION_DEFAULTS: dict[str, dict[str, int]] = {
    "llama": {**LLAMA_DEFAULTS},
    "mistral": {**LLAMA_DEFAULTS, "intermediate_size": 14336, "num_key_value_heads": 8, "max_position_embeddings": 131072},
    "gemma": {"max_position_embeddings": 8192, "head_dim": 256},
    "gemma2": {"max_position_embeddings": 8192, "head_dim": 256},
    "qwen2": {
        "max_position_embeddings": 32768, "vocab_size": 151936, "hidden_size": 4096, "intermediate_size": 22016, "num_hidden_layers": 32,
        "num_attention_heads": 32, "num_key_value_heads": 32,
    },
    "phi": {"max_position_embeddings": 2048, "vocab_size": 51200},
}
"""What a language section inside a larger file leaves out, for it is written as a difference from its class (same source)."""
GEMMA3_DEFAULTS = {
    "vocab_size": 262208, "num_attention_heads": 8, "num_key_value_heads": 4, "head_dim": 256, "max_position_embeddings": 131072,
}
UNSTATED_CONTEXT_TOK = 1_048_576
"""Taken as the context of families whose file states none, for their state or their ALiBi positions set no limit."""
LIBRARY_DEFAULTS: dict[str, dict[str, int]] = {
    "gemma3": GEMMA3_DEFAULTS,
    "gemma3_text": GEMMA3_DEFAULTS,
    "falcon": {"max_position_embeddings": 2048},
    "t5": {"n_positions": 512}, "mt5": {"n_positions": 512}, "umt5": {"n_positions": 512},
    "recurrent_gemma": {"max_position_embeddings": 8192},
    "nomic_bert": {"max_position_embeddings": 2048},
    **{name: {"max_position_embeddings": UNSTATED_CONTEXT_TOK} for name in ("mamba", "falcon_mamba", "mamba2", "rwkv7")},
    "bloom": {"max_position_embeddings": 2048},
}
"""What published files of a family leave out, from the configuration classes of `pypi:transformers==5.24.0`.

The contexts of T5, BLOOM and RecurrentGemma are those they were trained at: 512 (arXiv:1910.10683), 2,048 (arXiv:2211.05100) and
8,192 tokens (arXiv:2404.07839); their positions set no limit. A file that names its context under any key is believed.
"""

ENCODERS = frozenset({*ENCODER_ROWS, "modernbert", "albert", "electra"})
