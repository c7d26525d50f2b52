"""Experts that an engine's kernel pads in memory."""

from __future__ import annotations

import pytest

from planner.catalog import load_catalog
from planner.physics import memory

GIB = 1024**3
C = load_catalog()


def made(llm: str = "gpt_oss_20b", weights: str = "mxfp4", engine: str = "vllm_0.12") -> memory.Footprint:
    return memory.footprint(C.llm(llm), C.weight_format(weights), C.kv_format("fp16"), C.engine(engine))


@pytest.mark.parametrize(
    ("gpu", "logged_gib"), [("h100_sxm_80gb", 13.47), ("a100_sxm_40gb", 13.72), ("rtx_4090_24gb", 13.72)],
)
def test_gpt_oss_takes_more_than_its_file(gpu: str, logged_gib: float) -> None:
    """vLLM 0.11 on an H100: 13.47 GiB (2,880 -> 3,072 inputs); Marlin: 13.7153 to 13.72 in six public logs (3,072 x 2,944). File: 12.81.

    Biases in 32 bit and the rotary table, 0.03 GiB, are not counted.
    """
    fp = made()
    held = fp.weights_bytes_per_gpu(1, 1) + memory.padding_bytes(fp, C.gpu(gpu), 1, 1)
    assert fp.weights_bytes / GIB == pytest.approx(12.81, abs=0.005)
    assert held / GIB == pytest.approx(logged_gib, abs=0.06) and held / GIB < logged_gib


def test_the_width_is_padded_rank_by_rank() -> None:
    """At TP 4 a rank's 720 become 768: 12 x 64 on Hopper; Marlin pads 720 to 768 as well, TensorRT-LLM's kernel on Blackwell to 768."""
    fp = made()
    experts = fp.weights_bytes_by_component["experts"] / 4
    for gpu in ("h100_sxm_80gb", "a100_sxm_40gb", "b200_sxm_180gb"):
        assert memory.padding_bytes(fp, C.gpu(gpu), 4, 1) == pytest.approx(experts * (768 / 720 * 3072 / 2880 - 1))
    whole = memory.padding_bytes(fp, C.gpu("b200_sxm_180gb"), 1, 1)
    assert whole == pytest.approx(4 * experts * ((3072 / 2880) ** 2 - 1))
    one, two = (memory.padding_bytes(fp, C.gpu("h100_sxm_80gb"), 1, pp) for pp in (1, 2))
    assert two == pytest.approx(one / 2)


@pytest.mark.parametrize(
    ("llm", "weights", "engine"),
    [
        ("gpt_oss_20b", "mxfp4", "llama_cpp"), ("gpt_oss_20b", "bf16", "vllm"), ("llama_3.1_8b", "mxfp4", "vllm"),
        ("kimi_k3", "mxfp4", "vllm"),
    ],
)
def test_nothing_is_padded_elsewhere(llm: str, weights: str, engine: str) -> None:
    """Other engines and formats, a dense model, and sides that are whole multiples already (3,584 and 3,072)."""
    assert memory.padding_bytes(made(llm, weights, engine), C.gpu("h100_sxm_80gb"), 1, 1) == 0


def test_overhead_given_by_hand_is_all_there_is() -> None:
    """--overhead-gb replaces activations and overhead together: no padding comes on top."""
    need = memory.terms(made(), C.gpu("h100_sxm_80gb"), 1, 1, 8192, 1, overhead_bytes=6e9)
    assert need.overhead_bytes == 6e9
