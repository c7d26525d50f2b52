"""Speed end to end: shapes and ids resolved, no speed without fit, ceilings, warnings, and what is measured or assumed."""

from __future__ import annotations

import pytest

from planner.catalog import Catalog, load_catalog
from planner.errors import AnswerIsNo, InputError
from planner.estimating import Estimate, ask, ceilings, estimate
from planner.physics.efficiency import choose_efficiency, family_steps, link_between


@pytest.fixture(scope="module")
def catalog() -> Catalog:
    return load_catalog()


def run(
    catalog: Catalog, llm: str = "llama_3.1_8b", gpu: str = "h100_sxm_80gb", count: int = 1, weights: str = "fp8", kv: str = "fp16",
    tok: tuple[int, int] = (1000, 200), concurrency: int = 1, tp: int | None = None, engine: str | None = None,
) -> Estimate:
    return estimate(catalog, ask(catalog, llm, gpu, count, weights, kv, *tok, concurrency, engine, tp))


def names(found: Estimate) -> set[str]:
    return {w.name for w in found.warnings}


def test_the_answer_adds_up(catalog: Catalog) -> None:
    answer = run(catalog, "llama_3.3_70b_instruct", count=2, concurrency=16).as_json()
    assert answer["tp"] == 2
    for end in ("low", "typical", "high"):
        assert answer["output_tok_per_s"][end] == pytest.approx(answer["request_per_s"][end] * 200)
    assert answer["request_per_s"]["typical"] * answer["e2e_s"]["typical"] == pytest.approx(16, rel=0.02)
    for key in ("ttft_s", "tpot_s", "output_tok_per_s"):
        assert answer[key]["low"] < answer[key]["typical"] < answer[key]["high"]
    assert answer["output_tok_per_s"]["high"] < answer["ceiling_tok_per_s"]
    assert answer["bound_by"] == "memory"
    assert answer["ridge_flop_per_byte"] == pytest.approx(1979e12 / 3.35e12)
    assert answer["basis"] == "measured"


def test_an_8b_in_q4_batch_1_on_an_h100(catalog: Catalog) -> None:
    """The ceiling by exact per-tensor bits is near the 728 tok/s of the 4.6 GB rule; intensity near 3.5 less the KV cache."""
    found = run(catalog, weights="q4_k_m", tok=(16, 16))
    assert found.ceiling_tok_per_s == pytest.approx(728, rel=0.05)
    assert found.intensity_flop_per_byte == pytest.approx(3.5, rel=0.08)
    assert {"more_tflops_do_not_help_batch_1", "busy_is_not_used"} <= names(found)


def test_what_does_not_fit_has_no_speed(catalog: Catalog) -> None:
    with pytest.raises(AnswerIsNo) as refused:
        run(catalog, "llama_3.3_70b_instruct", weights="bf16")
    assert refused.value.reason_code == "does_not_fit"
    assert "has no speed" in refused.value.lines[0]


def test_two_cards_over_pcie_are_warned_about(catalog: Catalog) -> None:
    found = run(catalog, gpu="l40s_48gb", count=2, tp=2)
    assert {"tensor_parallel_over_pcie", "two_gpus_are_not_twice"} <= names(found)
    assert found.link.name.startswith("pcie")
    assert "tensor_parallel_over_pcie" not in names(run(catalog, count=2, tp=2))


def test_over_pcie_two_cards_may_prefill_slower_than_one(catalog: Catalog) -> None:
    one, two = run(catalog, gpu="l40s_48gb", tok=(8000, 50)), run(catalog, gpu="l40s_48gb", count=2, tp=2, tok=(8000, 50))
    assert two.typical.ttft_p50_s > one.typical.ttft_p50_s


def test_unified_memory_is_named(catalog: Catalog) -> None:
    assert "unified_memory_is_not_hbm" in names(run(catalog, gpu="apple_m2_ultra_192gb", weights="q4_k_m"))


def test_ceilings_cover_every_accelerator_and_refuse_what_does_not_fit(catalog: Catalog) -> None:
    rows = {(r.llm, r.gpu): r.tok_per_s for r in ceilings(catalog)}
    assert len(rows) == 2 * len(catalog.gpus)
    assert rows["llama_3.1_8b", "h100_sxm_80gb"] == pytest.approx(728, rel=0.05)
    assert rows["llama_3.3_70b_instruct", "rtx_4090_24gb"] is None
    assert rows["llama_3.3_70b_instruct", "h100_sxm_80gb"] == pytest.approx(3350 / 42.5, rel=0.06)


def test_every_fault_is_told_at_once(catalog: Catalog) -> None:
    with pytest.raises(InputError) as wrong:
        ask(catalog, "llama_9", "h100_sxm_80", 1, "fp9", "fp16", 10, 10, 1)
    assert len(wrong.value.faults) == 3
    for fault in (
        {"tp": 3}, {"gpu_count": 3, "tp": 2}, {"engine": "llama_cpp", "weights": "q4_k_m", "tp": 2}, {"input_tok": 200_000},
    ):
        given = {"llm": "llama_3.1_8b", "gpu": "h100_sxm_80gb", "gpu_count": 1, "weights": "fp8", "kv_cache": "fp16",
                 "input_tok": 10, "output_tok": 10, "concurrency": 1} | fault
        with pytest.raises(InputError):
            estimate(catalog, ask(catalog, **given))  # type: ignore[arg-type]


def test_the_nearest_family_stands_in_wider_and_is_called_assumed(catalog: Catalog) -> None:
    near = choose_efficiency(catalog.efficiency, "vllm", "hopper", "bits8")
    far = choose_efficiency(catalog.efficiency, "vllm", "cdna3", "bits8")
    assert (near.band.basis, near.steps_away) == ("measured", 0)
    assert far.band.basis == "assumed"
    assert far.band.low.mbu_frac < near.band.low.mbu_frac or far.row_ids != near.row_ids
    assert family_steps("tpu_v7", "apple_m1") == 6
    with pytest.raises(InputError):
        choose_efficiency([], "vllm", "hopper", "bits8")


def test_every_accelerator_has_constants_and_a_link(catalog: Catalog) -> None:
    for gpu in catalog.gpus.values():
        for engine in ("vllm", "sglang", "tensorrt_llm", "llama_cpp", "mlx", "transformers"):
            e = choose_efficiency(catalog.efficiency, engine, gpu.family, "bits4").band
            assert 0 < e.low.mbu_frac <= e.typical.mbu_frac <= e.high.mbu_frac < 1
            assert 0 < e.low.prefill_mfu_frac <= e.typical.prefill_mfu_frac <= e.high.prefill_mfu_frac <= 1
        assert link_between(catalog.links, gpu, 2).bus_bytes_per_s > 0
