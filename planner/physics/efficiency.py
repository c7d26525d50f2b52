"""Which measured constants stand for an engine on a GPU: the row itself, or the nearest one, wider and called assumed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from planner.errors import Fault, InputError
from planner.physics.links import NO_LINK, Link
from planner.physics.steps import Efficiency, EfficiencyBand, StepModel, step_model
from planner.physics.work import Work
from planner.schema.efficiency import EfficiencyRow, FormatClass, LinkRow
from planner.schema.hardware import Gpu
from planner.schema.llm import WeightFormat
from planner.units import BYTES_PER_GB

KIN: tuple[tuple[str, ...], ...] = (
    ("volta", "turing", "ampere", "ada", "hopper", "blackwell", "blackwell_ultra"),
    ("ada", "blackwell_rtx"),
    ("hopper", "cdna3", "cdna4"),
    ("cdna2", "cdna3"),
    ("apple_m1", "apple_m2", "apple_m3", "apple_m4", "apple_m5"),
    ("rdna3", "rdna3_5", "rdna4"),
    ("ada", "rdna3", "battlemage"),
    ("hopper", "gaudi"),
    ("hopper", "tpu_v5p", "tpu_v6e", "tpu_v7"),
    ("ampere", "tpu_v4", "tpu_v5e"),
    ("ampere", "neuron_v2", "neuron_v3", "neuron_v4"),
    ("rdna3_5", "zen4", "zen5", "granite_rapids"),
    ("apple_m2", "rdna3_5"),
)
"""Chains of kin architectures: neighbours in a chain are one step apart."""
ENGINE_STEPS = {
    frozenset(pair): steps
    for pair, steps in {
        ("vllm", "sglang"): 1, ("vllm", "tensorrt_llm"): 1, ("sglang", "tensorrt_llm"): 1, ("mlx", "llama_cpp"): 1,
        ("llama_cpp", "vllm"): 3, ("vllm", "transformers"): 4, ("llama_cpp", "sglang"): 3, ("llama_cpp", "tensorrt_llm"): 3,
        ("mlx", "vllm"): 4,
    }.items()
}
FAR_STEPS = 6
WIDEN_PER_STEP_FRAC = 0.10
"""Each step away from what was measured moves both ends of the band out by a tenth (assumed)."""
MAX_MBU_FRAC = 0.97


def format_class(weights: WeightFormat) -> FormatClass:
    """Return the class of a weight format by the bits of its largest matrices."""
    bits = min(weights.bits_per_weight.get("mlp", 16.0), weights.bits_per_weight.get("experts", 16.0))
    return "bits16" if bits > 12 else "bits8" if bits > 7 else "bits4"


def family_steps(a: str, b: str) -> int:
    """Return how many steps two GPU families are apart along the chains of `KIN` (`FAR_STEPS` where no chain joins them).

    >>> family_steps("hopper", "hopper"), family_steps("hopper", "ada"), family_steps("hopper", "cdna3")
    (0, 1, 1)
    """
    seen, edge, steps = {a}, {a}, 0
    while b not in seen and edge and steps < FAR_STEPS:
        near = {f for chain in KIN for x in edge if x in chain for i in (chain.index(x),) for f in chain[max(i - 1, 0) : i + 2]}
        edge = near - seen
        seen |= near
        steps += 1
    return steps if b in seen else FAR_STEPS


def _steps_away(row: EfficiencyRow, engine: str, family: str, cls: FormatClass) -> int:
    engine_steps = 0 if row.engine == engine else ENGINE_STEPS.get(frozenset((row.engine, engine)), FAR_STEPS)
    class_steps = 0 if cls == row.format_class or row.format_class == "any" else 1
    return 2 * engine_steps + 2 * family_steps(row.gpu_family, family) + class_steps


@dataclass(frozen=True)
class ChosenEfficiency:
    """The band that stands for an engine on a GPU, and the rows that it comes from."""

    band: EfficiencyBand
    row_ids: tuple[str, ...]
    steps_away: int
    """0 where exactly this was measured."""


def choose_efficiency(rows: Iterable[EfficiencyRow], engine: str, family: str, cls: FormatClass) -> ChosenEfficiency:
    """Return the constants of the nearest measured (engine, family, format class); wider by each step away.

    Raises `InputError` where no row exists at all.
    """
    rows = list(rows)
    found: dict[str, tuple[int, EfficiencyRow]] = {}
    for phase in ("decode", "prefill"):
        ranked = sorted(((_steps_away(r, engine, family, cls), r.id, r) for r in rows if r.phase == phase), key=lambda x: x[:2])
        if not ranked:
            raise InputError([Fault("", None, "hardware/efficiency", f"no {phase} row at all", "run benchmarks/fit_efficiency.py")])
        found[phase] = (ranked[0][0], ranked[0][2])
    (decode_steps, decode), (prefill_steps, prefill) = found["decode"], found["prefill"]
    steps = max(decode_steps, prefill_steps)
    basis = "measured" if steps == 0 and decode.kind == "measured" and prefill.kind == "measured" else "assumed"

    def end(which: str) -> Efficiency:
        assert decode.mbu_frac is not None
        mbu, mfu, prefill_mfu = (getattr(b, which) for b in (decode.mbu_frac, decode.mfu_frac, prefill.mfu_frac))
        wide_by = (1.0 + WIDEN_PER_STEP_FRAC) ** steps
        stretch = 1.0 / wide_by if which == "low" else wide_by if which == "high" else 1.0
        slower = decode.mbu_frac.typical / (mbu * stretch)
        return Efficiency(
            mbu_frac=min(mbu * stretch, MAX_MBU_FRAC),
            mfu_frac=min(mfu * stretch, 1.0),
            prefill_mfu_frac=min(prefill_mfu * stretch, 1.0),
            step_overhead_s=decode.step_overhead_ms / 1e3 * slower,
            layer_overhead_s=decode.layer_overhead_us / 1e6 * slower,
            request_overhead_s=prefill.request_overhead_ms / 1e3 * prefill.mfu_frac.typical / (prefill_mfu * stretch),
        )

    band = EfficiencyBand(end("low"), end("typical"), end("high"), basis)
    return ChosenEfficiency(band, tuple(dict.fromkeys((decode.id, prefill.id))), steps)


def peak_flop_per_s(gpu: Gpu, compute_dtype: str) -> tuple[str, float]:
    """Return (dtype, dense peak in FLOP/s) that matrix products of a format run at: its own dtype, else bf16, fp16, fp32.

    Raises `InputError` where the accelerator's row names no peak.
    """
    for dtype in (compute_dtype, "bf16", "fp16", "fp32"):
        peak = gpu.dense_tflop_per_s.get(dtype)  # type: ignore[call-overload]
        if peak is not None:
            return dtype, float(peak) * 1e12
    raise InputError([Fault("", None, f"{gpu.id}.dense_tflop_per_s", "no dense peak is known", "add one with its source")])


def link_between(rows: Sequence[LinkRow], gpu: Gpu, gpu_count: int, domain_gpu_count: int | None = None) -> Link:
    """Return the link of `gpu_count` GPUs that talk: the fast link within its domain, PCIe beyond it.

    `domain_gpu_count` is the node's fast-link domain; left out, the accelerator's own limit counts.
    Raises `InputError` where no row describes the link that is needed.
    """
    if gpu_count <= 1:
        return NO_LINK
    domain = domain_gpu_count if domain_gpu_count is not None else (gpu.fast_link_max_gpu_count or 1)
    if gpu.fast_link_gb_per_s and gpu_count <= domain:
        fast = [r for r in rows if r.is_fast]
        if fast:
            row = min(fast, key=lambda r: (min((family_steps(f, gpu.family) for f in r.gpu_families), default=FAR_STEPS), r.id))
            return _link(row, gpu.fast_link_gb_per_s)
    pcie_gb_per_s = gpu.pcie_gb_per_s or 32.0
    slow = [r for r in rows if not r.is_fast and r.id.startswith("pcie")]
    if not slow:
        raise InputError([Fault("", None, "hardware/efficiency/links.yaml", "no row for PCIe", "add one with its source")])
    return _link(min(slow, key=lambda r: (abs(r.nominal_gb_per_s - pcie_gb_per_s), r.id)), pcie_gb_per_s)


@dataclass(frozen=True)
class TimedReplica:
    """A replica's step timer, and what it was built from."""

    step: StepModel
    chosen: ChosenEfficiency
    compute_dtype: str
    peak_flop_per_s: float
    link: Link


def timed_replica(
    efficiency: Iterable[EfficiencyRow], links: Sequence[LinkRow], work: Work, gpu: Gpu, weights: WeightFormat, engine: str,
    tp: int, pp: int, chunk_tok: float,
) -> TimedReplica:
    """Return the timer of tp × pp such GPUs under an engine, joined by the accelerator's own links.

    Raises `InputError` where no peak, no constants or no link are known.
    """
    dtype, peak = peak_flop_per_s(gpu, weights.compute_dtype)
    link = link_between(links, gpu, tp)
    stage = link_between(links, gpu, tp * pp) if pp > 1 else None
    chosen = choose_efficiency(efficiency, engine, gpu.family, format_class(weights))
    bandwidth = gpu.memory_bandwidth_gb_per_s * BYTES_PER_GB
    return TimedReplica(step_model(work, bandwidth, peak, chosen.band, tp, pp, link, stage, chunk_tok), chosen, dtype, peak, link)


def network_link(rows: Sequence[LinkRow], network_gb_per_s: float | None) -> Link:
    """Return the link between nodes at the node's own rate (400 Gb/s where it names none)."""
    for row in rows:
        if row.id.startswith("network"):
            return _link(row, network_gb_per_s or row.nominal_gb_per_s)
    raise InputError([Fault("", None, "hardware/efficiency/links.yaml", "no row for networks", "add one with its source")])


def _link(row: LinkRow, nominal_gb_per_s: float) -> Link:
    rate = row.bus_gb_per_s * 1e9 * nominal_gb_per_s / row.nominal_gb_per_s
    return Link(row.id, row.base_latency_us / 1e6, row.peer_latency_us / 1e6, rate, row.is_fast)
