"""Checks on `hardware/`: every row loads, ids resolve, peaks are dense, and formats reproduce published file sizes."""

from __future__ import annotations

from datetime import date
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from planner.catalog import load_catalog
from planner.schema.hardware import Gpu, Node, Region
from planner.schema.llm import Component, KvFormat, WeightFormat

HARDWARE = Path(__file__).resolve().parents[2] / "hardware"


def rows(folder: str) -> list[dict[str, Any]]:
    """Return the raw rows of every file of one folder."""
    return [row for path in sorted((HARDWARE / folder).glob("*.yaml")) for row in yaml.safe_load(path.read_text("utf-8"))]


GPU_ROWS = rows("gpus")
NODE_ROWS = rows("nodes")
FORMAT_ROWS: dict[str, list[dict[str, Any]]] = yaml.safe_load((HARDWARE / "formats.yaml").read_text("utf-8"))
GPUS = {row["id"]: Gpu.model_validate(row) for row in GPU_ROWS}
NODES = {row["id"]: Node.model_validate(row) for row in NODE_ROWS}
REGION_ROWS = yaml.safe_load((HARDWARE / "regions.yaml").read_text("utf-8"))
REGIONS = {row["id"]: Region.model_validate(row) for row in REGION_ROWS}
WEIGHTS = {row["id"]: WeightFormat.model_validate(row) for row in FORMAT_ROWS["weights"]}
KV = {row["id"]: KvFormat.model_validate(row) for row in FORMAT_ROWS["kv_cache"]}


def test_ids_are_unique() -> None:
    """A dict keyed by id loses a repeated row, so its size tells."""
    assert len(GPUS) == len(GPU_ROWS) >= 80
    assert len(NODES) == len(NODE_ROWS) >= 100
    assert len(REGIONS) == len(REGION_ROWS)
    assert len(WEIGHTS) == len(FORMAT_ROWS["weights"]) >= 20
    assert len(KV) == len(FORMAT_ROWS["kv_cache"]) >= 6


def test_forty_distinct_accelerators() -> None:
    """Apple chips count once each, whatever memory they are sold with."""
    chips = {gpu.name.rsplit(" ", 2)[0] for gpu in GPUS.values()}
    assert len(chips) >= 80


def numbers(value: object) -> list[float]:
    """Return every number inside a row."""
    if isinstance(value, bool):
        return []
    if isinstance(value, int | float):
        return [float(value)]
    if isinstance(value, dict):
        return [number for part in value.values() for number in numbers(part)]
    if isinstance(value, list):
        return [number for part in value for number in numbers(part)]
    return []


@pytest.mark.parametrize("row", [*GPU_ROWS, *NODE_ROWS], ids=lambda row: row["id"])
def test_no_zero_stands_for_unknown(row: dict[str, Any]) -> None:
    """Unknown is absent: nothing in these files is measured to be zero, but a lead time may be."""
    assert all(number > 0 for number in numbers({key: value for key, value in row.items() if key != "lead_months"}))


def all_sources() -> list[tuple[str, str, date]]:
    """Return (row, field, date) of every source under `hardware/gpus`, `nodes` and `formats.yaml`."""
    typed: list[Gpu | Node | WeightFormat | KvFormat] = [*GPUS.values(), *NODES.values(), *WEIGHTS.values(), *KV.values()]
    return [(row.id, field, source.retrieved_on) for row in typed for field, source in row.sources.items()]


def test_sources_are_dated_and_not_from_the_future() -> None:
    """No source may be later than the day the rows were last read (2026-12-01: capacities and engine profiles)."""
    late = [entry for entry in all_sources() if not date(2024, 1, 1) <= entry[2] <= date(2026, 12, 1)]
    assert not late


@pytest.mark.parametrize("node", NODES.values(), ids=lambda node: node.id)
def test_node_stands_on_a_known_gpu(node: Node) -> None:
    """The GPU resolves, the fast domain does not exceed what its link can join, and the host draws something."""
    gpu = GPUS[node.gpu]
    if node.fast_link_domain_gpu_count > 1:
        assert gpu.fast_link_gb_per_s is not None or gpu.kind == "tpu"
    if gpu.fast_link_max_gpu_count is not None:
        assert node.fast_link_domain_gpu_count <= gpu.fast_link_max_gpu_count
    if gpu.tdp_w is not None and gpu.kind == "gpu" and node.gpu_count < 72:
        assert node.gpu_count * gpu.tdp_w < node.nameplate_w


@pytest.mark.parametrize(
    ("gpu", "device_mib"),
    [
        ("h100_sxm_80gb", 81_559), ("h100_pcie_80gb", 81_559), ("h100_nvl_94gb", 95_830), ("h200_sxm_141gb", 143_771),
        ("b200_sxm_180gb", 183_359), ("a100_sxm_80gb", 81_920), ("a100_pcie_80gb", 81_920), ("l40s_48gb", 46_068),
        ("a10_24gb", 23_028), ("l4_24gb", 23_034), ("t4_16gb", 15_360), ("rtx_4090_24gb", 24_564), ("mi300x_192gb", 196_592),
    ],
)
def test_device_memory_is_what_the_driver_reports(gpu: str, device_mib: int) -> None:
    """An 80 GB H100 shows 81,559 MiB, an L40S with ECC 46,068 (nvidia-smi output in public repositories, 2026-11-30)."""
    assert GPUS[gpu].memory_device_mib == device_mib


def test_unknown_device_memory_is_absent() -> None:
    """Nobody published what these cards report."""
    assert all(GPUS[gpu].memory_device_mib is None for gpu in ("h200_nvl_141gb", "v100_pcie_32gb", "mi325x_256gb", "tpu_v5e_16gb"))


@pytest.mark.parametrize(
    ("gpu", "bf16_tflop_per_s", "fp8_tflop_per_s"),
    [
        ("h100_sxm_80gb", 989.5, 1979), ("h200_sxm_141gb", 989.5, 1979), ("h100_pcie_80gb", 756, 1513), ("h100_nvl_94gb", 835.5, 1670.5),
        ("h20_96gb", 148, 296), ("b200_sxm_180gb", 2250, 4500), ("gb200_186gb", 2500, 5000), ("a100_sxm_80gb", 312, None),
        ("l40s_48gb", 362.05, 733), ("l40_48gb", 181.05, 362), ("l4_24gb", 121, 242), ("a10_24gb", 125, None), ("a10g_24gb", 70, None),
        ("rtx_4090_24gb", 165.2, 330.3), ("rtx_5090_32gb", 209.5, 419), ("rtx_6000_ada_48gb", 364.2, 728.5),
        ("mi300x_192gb", 1307.4, 2614.9), ("mi325x_256gb", 1307.4, 2614.9), ("mi355x_288gb", 2516.6, 5000), ("tpu_v6e_32gb", 918, 918),
    ],
)
def test_peaks_are_dense(gpu: str, bf16_tflop_per_s: float, fp8_tflop_per_s: float | None) -> None:
    """Makers print 2:4 sparse figures twice as high (H100 SXM: 1,979 BF16 and 3,958 FP8); these are the dense ones."""
    assert GPUS[gpu].dense_tflop_per_s["bf16"] == bf16_tflop_per_s
    assert GPUS[gpu].dense_tflop_per_s.get("fp8") == fp8_tflop_per_s


@pytest.mark.parametrize("gpu", GPUS.values(), ids=lambda gpu: gpu.id)
def test_no_peak_is_doubled(gpu: Gpu) -> None:
    """Halving the width at most doubles the rate; a sparse figure beside a dense one breaks the ratio.

    Exceptions: Trainium3 runs MXFP8 at 3.75 times BF16; Blackwell Ultra runs FP4 at six times BF16; GA102 and GA10x run
    INT8 at four times the FP32-accumulate FP16 rate, as GeForce halves the latter.
    """
    peaks = gpu.dense_tflop_per_s
    half = peaks.get("bf16") or peaks.get("fp16")
    if half is None or gpu.kind == "unified":
        return
    eight = 4.01 if gpu.id == "trainium3_144gb" or "fp16_acc16" in peaks else 2.1
    four = 6.3 if gpu.family == "blackwell_ultra" else 8.1 if "fp16_acc16" in peaks else 4.1
    assert peaks.get("fp8", 0) <= (3.8 if gpu.id == "trainium3_144gb" else 2.1) * half
    assert peaks.get("int8", 0) <= eight * half
    assert peaks.get("fp4", 0) <= four * half
    if "tf32" in peaks and gpu.vendor == "nvidia":
        assert peaks["tf32"] <= 0.51 * half
    measured = gpu.matmul_measured_tflop_per_s.get("bf16")
    if measured is not None:
        assert 0.4 * half <= measured <= half


def test_every_family_member_agrees_with_its_bandwidth_class() -> None:
    """A unit slip of 1,000 or a swap of columns moves a bandwidth out of the range of its memory."""
    span = {"hbm": (800, 8000), "gddr": (250, 1800), "unified": (60, 900), "ddr": (400, 900)}
    wrong = [g.id for g in GPUS.values() if not span[g.memory_kind][0] <= g.memory_bandwidth_gb_per_s <= span[g.memory_kind][1]]
    assert not wrong


def test_form_factors_are_separate_rows() -> None:
    """H100 SXM, PCIe and NVL differ in bandwidth, peak and link; so do the two A100 boards and the V100."""
    h100 = ("h100_sxm_80gb", "h100_pcie_80gb", "h100_nvl_94gb")
    for ids in (h100, ("a100_sxm_80gb", "a100_pcie_80gb"), ("v100_sxm_32gb", "v100_pcie_32gb")):
        assert len({GPUS[gpu].form_factor for gpu in ids}) == len(ids)
        assert len({(GPUS[gpu].memory_bandwidth_gb_per_s, GPUS[gpu].tdp_w) for gpu in ids}) == len(ids)


def test_unified_memory_gives_the_gpu_less_than_all() -> None:
    """Logs of llama.cpp on macOS: 66.7 % of 8 GB, 74 % of 16 GB, up to 90.6 % of 512 GB, rising with memory.

    GB10 limits nothing: CUDA shows 121.69 of its 128 GiB, and the margin is what the system gets.
    """
    unified = [gpu for gpu in GPUS.values() if gpu.memory_kind == "unified"]
    assert [gpu.id for gpu in unified if gpu.gpu_memory_share_frac is None] == ["gb10_128gb"]
    assert all(gpu.gpu_memory_share_frac < 1 for gpu in unified if gpu.gpu_memory_share_frac is not None)
    assert GPUS["gb10_128gb"].memory_device_mib == round(121.69 * 1024) < 128 * 1024
    apple = sorted((g.memory_label_gb, g.gpu_memory_share_frac or 0) for g in unified if g.vendor == "apple")
    shares = [share for _, share in apple]
    assert shares == sorted(shares)
    assert (shares[0], shares[1], shares[-1]) == (0.666, 0.74, 0.90625)


@pytest.mark.parametrize(("node", "nameplate_w"), [("h100_sxm_x8", 10_200), ("b200_sxm_x8", 14_300), ("a100_sxm_80gb_x8", 6_500)])
def test_published_server_power(node: str, nameplate_w: float) -> None:
    """DGX H100 10.2 kW, DGX B200 14.3 kW, DGX A100 6.5 kW."""
    assert NODES[node].nameplate_w == nameplate_w


def test_fast_domains() -> None:
    """Eight on a board, two on an NVL pair, one where only PCIe joins."""
    assert NODES["h100_sxm_x8"].fast_link_domain_gpu_count == 8
    assert NODES["h100_nvl_x2"].fast_link_domain_gpu_count == 2
    assert NODES["h100_nvl_x8"].fast_link_domain_gpu_count == 2
    assert NODES["l40s_x4"].fast_link_domain_gpu_count == 1
    assert NODES["rtx_5090_x2"].fast_link_domain_gpu_count == 1


@pytest.mark.parametrize("region", REGIONS.values(), ids=lambda region: region.id)
def test_regions_resolve_and_list_every_container(region: Region) -> None:
    """`within` names known places, never the place itself, and holds whatever its members lie in."""
    assert region.id not in region.within
    assert len(set(region.within)) == len(region.within)
    for outer in region.within:
        assert region.id not in REGIONS[outer].within
        assert set(REGIONS[outer].within) <= set(region.within)


def test_the_union_is_not_europe() -> None:
    """Switzerland and the United Kingdom lie in Europe and outside the EU."""
    azure = ("westeurope", "swedencentral", "francecentral", "germanywestcentral", "italynorth")
    for inside in (*azure, "europe_west4", "eu_north1", "eu_spain"):
        assert {"eu", "europe"} <= set(REGIONS[inside].within)
    for outside in ("switzerlandnorth", "uksouth", "eu_west_2", "eu_central_2", "europe_west2", "europe_west6"):
        assert "europe" in REGIONS[outside].within
        assert "eu" not in REGIONS[outside].within
    assert {"us", "north_america"} <= set(REGIONS["us_east_1"].within)
    assert "global" not in REGIONS


@pytest.mark.parametrize(
    ("weights", "gb"),
    [("fp32", 32), ("bf16", 16), ("fp16", 16), ("fp8", 8), ("int8", 8), ("q5_k_m", 5.7), ("q4_k_m", 4.6), ("q3_k_m", 3.4)],
)
def test_rule_of_thumb_for_eight_billion_parameters(weights: str, gb: float) -> None:
    """Worked by hand: 8 x 4, 2, 1, 0.71, 0.57 and 0.43 bytes, to one decimal."""
    assert round(8 * WEIGHTS[weights].rule_bytes_per_param, 1) == gb


def counts(layers: int, hidden: int, kv_width: int, ffn: int, vocab: int) -> dict[str, int]:
    """Return the parameters of an untied Llama by component (attention q, k, v, o; three feed-forward matrices)."""
    return {
        "attention": layers * (2 * hidden * hidden + 2 * hidden * kv_width),
        "mlp": layers * 3 * hidden * ffn,
        "embedding": vocab * hidden,
        "head": vocab * hidden,
        "norm": (2 * layers + 1) * hidden,
    }


LLAMA_3_8B = counts(32, 4096, 1024, 14336, 128_256)
LLAMA_3_70B = counts(80, 8192, 1024, 28672, 128_256)
LLAMA_2_7B = counts(32, 4096, 4096, 11008, 32_000)
LLAMA_2_70B = counts(80, 8192, 1024, 28672, 32_000)
MISTRAL_7B = counts(32, 4096, 1024, 14336, 32_000)
GIB = 2**30


def weight_bytes(params: dict[str, int], weights: str) -> float:
    """Return the bytes of `params` in the format of that id."""
    bits = WEIGHTS[weights].bits_per_weight
    return sum(params[component] * value for component, value in bits.items() if component in params) / 8


def test_parameter_split_of_llama_3_1_8b() -> None:
    """The split that the sizes below rest on: 8,030,261,248 parameters, embedding and head 525,336,576 each."""
    assert LLAMA_3_8B["embedding"] == LLAMA_3_8B["head"] == 525_336_576
    assert sum(LLAMA_3_8B.values()) == 8_030_261_248
    assert sum(LLAMA_3_70B.values()) == 70_553_706_496


@pytest.mark.parametrize(
    ("weights", "published_bits"),
    [
        ("q2_k", 3.1593), ("q3_k_s", 3.6429), ("q3_k_l", 4.2979), ("iq4_xs", 4.4597), ("q4_k_s", 4.6672), ("q4_k_m", 4.8944),
        ("q5_k_s", 5.5704), ("q5_k_m", 5.7036), ("q6_k", 6.5633), ("q8_0", 8.5008),
    ],
)
def test_bits_of_llama_3_1_8b(weights: str, published_bits: float) -> None:
    """Bits per weight of the whole file as llama.cpp prints them (tools/quantize/README.md@311c2c9f): equal to four digits."""
    assert 8 * weight_bytes(LLAMA_3_8B, weights) / 8_030_261_248 == pytest.approx(published_bits, abs=1.1e-4)


@pytest.mark.parametrize(
    ("params", "weights", "published_bytes"),
    [
        (LLAMA_3_8B, "q4_k_m", 4_920_739_168),
        (LLAMA_3_8B, "q4_0", 4_661_212_096),
        (LLAMA_3_8B, "q5_0", 5.21 * GIB),
        (LLAMA_3_8B, "q5_1", 5.64 * GIB),
        (LLAMA_3_8B, "bf16", 16_060_522_496),
        (MISTRAL_7B, "q4_0", 4_108_916_384),
        (MISTRAL_7B, "q4_k_s", 4_140_373_664),
        (MISTRAL_7B, "q6_k", 5_942_064_800),
        (LLAMA_3_70B, "q2_k", 24.56 * GIB),
        (LLAMA_3_70B, "q3_k_m", 31.91 * GIB),
        (LLAMA_3_70B, "q3_k_l", 34.59 * GIB),
        (LLAMA_3_70B, "q4_k_s", 37.58 * GIB),
        (LLAMA_3_70B, "q4_k_m", 39.59 * GIB),
        (LLAMA_3_70B, "q5_k_m", 46.52 * GIB),
        (LLAMA_3_70B, "q6_k", 53.91 * GIB),
        (LLAMA_3_70B, "q8_0", 69.83 * GIB),
        (LLAMA_3_70B, "bf16", 141_107_412_992),
    ],
)
def test_published_file_sizes(params: dict[str, int], weights: str, published_bytes: float) -> None:
    """Within 0.5 % of published sizes.

    8B: lmstudio-ai/model-catalog (Q4_K_M), nomic-ai/gpt4all models3.json (Q4_0), ggml-org/llama.cpp#7716 (Q5_0, Q5_1), the
    safetensors index (BF16). Mistral 7B: the first two. 70B: ggml-org/llama.cpp#6745 as reprinted by XiongjieDai's
    GPU-Benchmarks-on-LLM-Inference, gpustack/gguf-parser-go (Q4_K_M of Llama 3.1), the safetensors index (BF16).
    """
    assert weight_bytes(params, weights) == pytest.approx(published_bytes, rel=0.005)


@pytest.mark.parametrize(
    ("params", "weights", "published_bits", "off_frac"),
    [
        (LLAMA_2_70B, "q4_k_m", 4.80, 0.003),
        (LLAMA_2_70B, "q3_k_m", 3.85, 0.003),
        (LLAMA_2_7B, "q6_k", 6.56, 0.001),
        (LLAMA_2_7B, "q4_k_m", 4.84, 0.011),
    ],
)
def test_bits_of_llama_2(params: dict[str, int], weights: str, published_bits: float, off_frac: float) -> None:
    """Llama 2 of 70B agrees; the 7B has one KV head per query head, so its value matrices weigh more: 1 % too small, as documented."""
    found = 8 * weight_bytes(params, weights) / sum(params.values())
    assert found == pytest.approx(published_bits, rel=off_frac)


def test_mxfp4_keeps_all_but_the_experts_in_16_bit() -> None:
    """gpt-oss-20b: 24 layers x 32 experts x (2880 x 5760 + 2880 x 2880) of 20,914,757,184 parameters average 5.26 bits."""
    experts = 24 * 32 * (2880 * 5760 + 2880 * 2880)
    bits = WEIGHTS["mxfp4"].bits_per_weight
    assert (bits["experts"], bits["attention"], bits["mlp"], bits["head"]) == (4.25, 16, 16, 16)
    assert (experts * bits["experts"] + (20_914_757_184 - experts) * 16) / 20_914_757_184 == pytest.approx(5.26, abs=0.005)


def test_group_scales_are_counted() -> None:
    """AWQ and GPTQ in groups of 128: 4 + 16/128 + 4/128; NVFP4: 4 + 8/16; embedding and head stay in 16 bit."""
    for weights in ("awq_int4", "gptq_int4"):
        assert WEIGHTS[weights].bits_per_weight["mlp"] == 4 + 16 / 128 + 4 / 128
    assert WEIGHTS["nvfp4"].bits_per_weight["attention"] == 4.5
    for weights in ("fp8", "fp8_block", "int8", "awq_int4", "gptq_int4", "nvfp4", "bnb_nf4"):
        assert WEIGHTS[weights].bits_per_weight["embedding"] == WEIGHTS[weights].bits_per_weight["head"] == 16


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=lambda weights: weights.id)
def test_every_format_names_all_components_and_its_quality(weights: WeightFormat) -> None:
    """A component left out would silently count as 16 bit; a loss without its own source could not be checked."""
    assert set(weights.bits_per_weight) == set(get_args(Component))
    assert weights.quality_note
    assert (weights.quality_loss_frac is None) == ("quality_loss_frac" not in weights.sources)
    if weights.is_gguf:
        assert weights.runs_on == ("llama_cpp",)


@pytest.mark.parametrize(
    ("kv_cache", "bytes_per_value"), [("fp16", 2), ("bf16", 2), ("fp8", 1), ("int8", 1), ("q8_0", 34 / 32), ("q4_0", 18 / 32)]
)
def test_kv_formats(kv_cache: str, bytes_per_value: float) -> None:
    """llama.cpp stores 32 values in 34 bytes (q8_0) or 18 (q4_0)."""
    assert KV[kv_cache].bytes_per_value == bytes_per_value


@pytest.mark.parametrize(("weights", "file_gb"), [("fp8_block_mxfp4", 865), ("fp8_nvfp4", 913.09)])
def test_formats_that_divide_experts_from_the_rest(weights: str, file_gb: float) -> None:
    """DeepSeek-V4-Pro as published and as NVIDIA's copy (vllm-project/recipes#779), with one more layer of experts: the MTP layer."""
    bits, params = WEIGHTS[weights].bits_per_weight, load_catalog().llm("deepseek_v4_pro").params
    counted = sum(value * bits[name] for name, value in params.by_component.items()) / 8
    mtp = params.experts_count / 61 * bits["experts"] / 8
    assert (counted + mtp) / 1e9 == pytest.approx(file_gb, rel=0.0025)
