"""How the cases ask: `planner size … --json`, and models that only a thread's own config.json describes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

GIB = 1024**3
NO_MARGIN = ("--margin-frac", "0")
Size = Callable[..., dict[str, Any]]


def qwen2_class(layers: int, hidden: int, mlp: int, heads: int, kv_heads: int, context: int, **more: Any) -> dict[str, Any]:
    """Return a config.json of the qwen2 kind with its own head."""
    return {
        "model_type": "qwen2", "num_hidden_layers": layers, "hidden_size": hidden, "intermediate_size": mlp, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": 152064, "max_position_embeddings": context, "tie_word_embeddings": False, **more,
    }


QWEN_72B = qwen2_class(80, 8192, 24576, 64, 64, 32768)
QWEN15_32B = qwen2_class(64, 5120, 27392, 40, 8, 32768)
AWQ = {"quant_method": "awq", "bits": 4, "group_size": 128, "zero_point": True}
QWEN25_72B_AWQ = qwen2_class(80, 8192, 29568, 64, 8, 128000, quantization_config=AWQ)
QWEN2_72B_AWQ = qwen2_class(80, 8192, 29696, 64, 8, 32768, quantization_config=AWQ)
TOWER_25 = {"depth": 32, "hidden_size": 1280, "intermediate_size": 3456, "num_heads": 16, "out_hidden_size": 8192, "patch_size": 14}
TOWER_2 = {"depth": 32, "embed_dim": 1280, "hidden_size": 8192, "mlp_ratio": 4, "num_heads": 16, "patch_size": 14}
AWQ_VL = {**AWQ, "modules_to_not_convert": ["visual"]}
QWEN25_VL_72B_AWQ = {**QWEN25_72B_AWQ, "model_type": "qwen2_5_vl", "vision_config": TOWER_25, "quantization_config": AWQ_VL}
QWEN2_VL_72B_AWQ = {**QWEN2_72B_AWQ, "model_type": "qwen2_vl", "vision_config": TOWER_2, "quantization_config": AWQ_VL}
QWEN25_VL_72B = {key: value for key, value in QWEN25_VL_72B_AWQ.items() if key != "quantization_config"} | {"torch_dtype": "bfloat16"}
LLAMA_33B = {
    "model_type": "llama", "num_hidden_layers": 60, "hidden_size": 6656, "intermediate_size": 17920, "num_attention_heads": 52,
    "num_key_value_heads": 52, "vocab_size": 32000, "max_position_embeddings": 2048, "tie_word_embeddings": False,
}


def llama_405b_of_july_2024() -> dict[str, Any]:
    """Return the FP8 file of Llama-3.1-405B as published on 2024-07-23: 16 KV heads, 8 only since August (ollama/ollama#6303).

    Attention of every layer and the MLP of the first and last stay in 16 bit (arxiv:2407.21783, section 6.2).
    """
    kept = [f"model.layers.{i}.self_attn.{name}_proj" for i in range(126) for name in "qkvo"]
    kept += [f"model.layers.{i}.mlp.{name}_proj" for i in (0, 125) for name in ("gate", "up", "down")]
    return {
        "model_type": "llama", "num_hidden_layers": 126, "hidden_size": 16384, "intermediate_size": 53248, "num_attention_heads": 128,
        "num_key_value_heads": 16, "vocab_size": 128256, "max_position_embeddings": 131072, "tie_word_embeddings": False,
        "quantization_config": {"quant_method": "fbgemm_fp8", "modules_to_not_convert": [*kept, "lm_head"]},
    }


def written(folder: Path, name: str, config: dict[str, Any]) -> str:
    """Write a config.json and return its path."""
    path = folder / f"{name}.json"
    path.write_text(json.dumps(config))
    return str(path)


def load(llm: str, weights: str | None, context: int, sessions: int = 1, kv: str = "fp16") -> list[str]:
    """Return the options of a model under a load."""
    form = ["--weights", weights] if weights is not None else []
    return ["--llm", llm, *form, "--kv-cache", kv, "--context", str(context), "--concurrency", str(sessions)]


def on(gpu: str, count: int, *more: str) -> list[str]:
    """Return the options that name an accelerator."""
    return ["--gpu", gpu, "--count", str(count), *more]


def told(found: dict[str, Any]) -> set[str]:
    """Return the names of the warnings."""
    return {warning["name"] for warning in found["warnings"]}


def said(found: dict[str, Any], name: str) -> str:
    """Return the text of one warning."""
    return next(str(warning["text"]) for warning in found["warnings"] if warning["name"] == name)
