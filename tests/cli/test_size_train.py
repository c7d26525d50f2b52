"""`planner size --train` as its users see it: keys, verdicts, levers, exit codes, faults."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from typing import Any

import pytest

from planner.cli.main import main

Run = Callable[..., tuple[int, str, str]]
KEYS = {
    "llm", "train", "weights", "optimizer", "zero_stage", "checkpointing", "sequence_tok", "micro_batch", "lora_rank", "lora_targets",
    "weights_bytes", "gradient_bytes", "optimizer_bytes", "adapter_bytes", "activation_bytes", "logits_bytes", "buffer_bytes",
    "overhead_bytes", "total_bytes", "dominant_term", "margin_frac", "placements", "warnings", "reason_code",
}


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    def call(*args: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(list(args))
        out, err = capsys.readouterr()
        return int(stop.value.code or 0), out, err

    return call


def train(method: str, llm: str = "llama_3.1_8b", weights: str | None = None, context: int = 512, micro_batch: int = 1) -> list[str]:
    base = weights or {"full": "bf16", "lora": "bf16", "qlora": "bnb_nf4_dq"}[method]
    return [
        "size", "--llm", llm, "--weights", base, "--context", str(context), "--concurrency", str(micro_batch),
        "--train", method,
    ]


def as_json(run: Run, *args: str) -> tuple[int, dict[str, Any]]:
    code, out, _ = run(*args, "--json")
    data: dict[str, Any] = json.loads(out)
    return code, data


def test_json_has_its_keys_and_adds_up(run: Run) -> None:
    code, data = as_json(run, *train("lora"))
    assert code == 0 and set(data) >= KEYS and data["reason_code"] is None
    terms = [v for k, v in data.items() if k.endswith("_bytes") and k != "total_bytes"]
    assert sum(terms) == pytest.approx(data["total_bytes"], abs=8)
    for placed in data["placements"]:
        assert placed["fits"] == (placed["bytes_per_gpu"] <= placed["usable_bytes_per_gpu"])
        assert sum(placed["terms_per_gpu"].values()) == pytest.approx(placed["bytes_per_gpu"], abs=8)


def test_full_fine_tuning_of_an_8b_is_not_for_one_h100(run: Run) -> None:
    """B5: 16 bytes a parameter, about 128 GB, not one H100."""
    code, data = as_json(run, *train("full"), "--gpu", "h100_sxm_80gb", "--count", "1")
    assert code == 1 and data["reason_code"] == "does_not_fit" and data["dominant_term"] == "optimizer"
    states = data["weights_bytes"] + data["gradient_bytes"] + data["optimizer_bytes"]
    assert states == 16 * data["total_count"]
    assert any(lever.startswith("QLoRA") and lever.endswith("fits") for lever in data["placements"][0]["levers"])


def test_qlora_of_an_8b_fits_an_rtx_4090(run: Run) -> None:
    """B5: QLoRA about 6 to 8 GB, LoRA 18 to 20."""
    code, data = as_json(run, *train("qlora"), "--gpu", "rtx_4090_24gb", "--count", "1")
    assert code == 0 and data["placements"][0]["fits"] and 6 <= round(data["total_bytes"] / 1e9) <= 8
    code, data = as_json(run, *train("lora"), "--gpu", "rtx_4090_24gb", "--count", "1")
    assert code == 0 and 18e9 <= data["total_bytes"] <= 20e9


def test_a_90b_is_too_much_for_eight(run: Run) -> None:
    """B5: 90B (88.6 by count) over 8 GPUs needs 180 GB each (177 by count) before activations: not on 80 GB."""
    code, data = as_json(run, *train("full", "llama_3.2_90b_vision", context=2048), "--gpu", "h100_sxm_80gb", "--count", "8")
    placed = data["placements"][0]
    states = sum(placed["terms_per_gpu"][name] for name in ("weights", "gradients", "optimizer"))
    assert code == 1 and not placed["fits"] and states == pytest.approx(16 * data["total_count"] / 8, rel=1e-6)
    assert 175e9 < states < 180e9


def test_the_table_reads_like_paper(run: Run) -> None:
    code, out, err = run(*train("full"), "--gpu", "h100_sxm_80gb")
    assert code == 0 and err == ""
    for word in ("full fine-tuning of llama_3.1_8b", "<- largest", "fits (smallest)", "does not fit", "2 GPUs, ZeRO stage 3", "warning ("):
        assert word in out


def test_every_gpu_is_tried(run: Run) -> None:
    code, data = as_json(run, *train("qlora"))
    assert code == 0 and len({p["gpu"] for p in data["placements"]}) > 30
    assert not any(p["gpu"].startswith(("apple_", "tpu_")) for p in data["placements"])


def test_without_a_gpu_the_table_is_grouped_as_that_of_serving(run: Run) -> None:
    """Every GPU is named once, by the fewest that hold a step, the least memory first; the last ones with what would help."""
    _, data = as_json(run, *train("lora", context=4096, micro_batch=4))
    code, out, _ = run(*train("lora", context=4096, micro_batch=4))
    tried = {p["gpu"] for p in data["placements"]}
    words = re.findall(r"[a-z0-9_.]+", out[out.index("one holds it"):])
    assert code == 0 and all(words.count(gpu) == 1 for gpu in tried)
    for title in ("one holds it: ", "8 together hold it: ", "each with its nearest lever"):
        assert title in out
    usable = [float(cells) for cells in re.findall(r"^ +1 +[0-9.]+ GB +([0-9.]+) GB", out.split("2 together")[0], re.MULTILINE)]
    assert len(usable) > 5 and usable == sorted(usable)
    short = next(p for p in data["placements"] if p["gpu"] == "l4_24gb" and p["gpu_count"] == 8)
    assert not short["fits"] and short["levers"][0].startswith("chunked or fused loss → ")
    assert re.search(r"chunked or fused loss: [a-z0-9_, ]*l4_24gb", out)


def test_a_stage_on_one_gpu_changes_nothing_and_is_said(run: Run) -> None:
    zero, three = (
        as_json(run, *train("lora"), "--gpu", "h100_sxm_80gb", "--count", "1", "--zero", stage)[1] for stage in ("0", "3")
    )
    assert zero["placements"][0]["bytes_per_gpu"] == three["placements"][0]["bytes_per_gpu"]
    assert "zero_on_one_gpu" in {w["name"] for w in three["warnings"]} and "zero_on_one_gpu" not in {w["name"] for w in zero["warnings"]}


def test_adapters_on_every_expert_are_named(run: Run) -> None:
    """Mixtral-8x7B, rank 16: 32 layers × 8 experts × 3 matrices × 16 × 18,432 parameters, 16 bytes each: 3.6 GB."""
    _, data = as_json(run, *train("qlora", "mixtral_8x7b"), "--gpu", "h100_sxm_80gb", "--count", "1")
    told = {w["name"]: w["text"] for w in data["warnings"]}
    assert "3.6 GB" in told["adapters_on_every_expert"]
    _, less = as_json(run, *train("qlora", "mixtral_8x7b"), "--gpu", "h100_sxm_80gb", "--count", "1", "--lora-targets", "attention")
    assert less["adapter_bytes"] < data["adapter_bytes"] / 5 and "adapters_on_every_expert" not in {w["name"] for w in less["warnings"]}


def test_an_embedding_model_is_trained_too(run: Run) -> None:
    code, data = as_json(run, *train("full", "bge_m3", micro_batch=16), "--gpu", "h100_sxm_80gb", "--count", "1")
    assert code == 0 and data["logits_bytes"] == 0


@pytest.mark.parametrize(
    ("method", "args", "word"),
    [
        ("lora", ["--lora-rank", "0"], "a rank of 0 trains nothing"),
        ("lora", ["--weights", "q4_k_m"], "GGUF"),
        ("full", ["--lora-rank", "8"], "full fine-tuning has no adapters"),
        ("full", ["--zero", "4"], "there is no stage 4"),
        ("full", ["--optimizer", "adamww"], "did you mean"),
        ("full", ["--tp", "2", "--gpu", "h100_sxm_80gb"], "--tp: belongs to serving"),
        ("full", ["--engine", "vllm"], "--engine: belongs to serving"),
        ("full", ["--count", "2"], "name one with --gpu"),
        ("full", ["--context", "1000000"], "take at most"),
    ],
)
def test_faults_are_one_line_with_a_cure(run: Run, method: str, args: list[str], word: str) -> None:
    code, out, err = run(*train(method), *args)
    assert code == 2 and out == "" and word in err and len(err.strip().splitlines()) == 1 and "Traceback" not in err


def test_an_unknown_method_is_told(run: Run) -> None:
    code, _, err = run(*train("full")[:-1], "dpo")
    assert code == 2 and "--train: no 'dpo'" in err and "full" in err
