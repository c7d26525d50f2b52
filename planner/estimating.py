"""How fast a model runs on given accelerators under a steady load: the answer of `planner estimate`.

A model that does not fit has no speed. What does is timed at the slow, typical and fast end of the measured constants,
and set against the roofline: intensity and ridge, MBU and MFU, and the ceiling that no engine passes.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from typing import Any

from planner.catalog import Catalog
from planner.errors import AnswerIsNo, Fault, InputError, did_you_mean, gathered
from planner.physics import activations, device, memory
from planner.physics.efficiency import ChosenEfficiency, timed_replica
from planner.physics.levers import levers
from planner.physics.links import Link
from planner.physics.parallelism import llm_valid_tp
from planner.physics.roofline import ceiling_tok_per_s, ridge_flop_per_byte
from planner.physics.serving import Latency, RequestMix, latency_at_concurrency
from planner.physics.steps import StepModel, step_model
from planner.physics.weights import weight_bits
from planner.physics.work import Work, work_of
from planner.schema.engine import EngineProfile
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat, Llm, WeightFormat

CHUNK_TOK = 2048.0
"""Tokens of a prefill chunk where the engine's profile names none for the card."""
CEILING_LLMS = ("llama_3.1_8b", "llama_3.3_70b_instruct")


@dataclass(frozen=True)
class Question:
    """What is asked: a model in its formats on some accelerators, under a steady number of sessions of alike length."""

    llm: Llm
    gpu: Gpu
    gpu_count: int
    tp: int
    pp: int
    weights: WeightFormat
    kv: KvFormat
    engine: EngineProfile
    input_tok: int
    output_tok: int
    concurrency: int
    memory_frac: float | None = None
    margin_frac: float = 0.15

    @property
    def replica_count(self) -> int:
        """Copies of the model on these accelerators."""
        return self.gpu_count // (self.tp * self.pp)


@dataclass(frozen=True)
class Warning:
    """A common mistake that this question may be making, by name, with its reason."""

    name: str
    text: str


@dataclass(frozen=True)
class Estimate:
    """The predicted speed; triples are (low, typical, high), slow end first for rates and fast end first for times."""

    question: Question
    compute_dtype: str
    peak_flop_per_s: float
    link: Link
    efficiency: ChosenEfficiency
    slow: Latency
    typical: Latency
    fast: Latency
    step: StepModel
    bound_by: str
    intensity_flop_per_byte: float
    ridge_flop_per_byte: float
    mbu_frac: float
    mfu_frac: float
    ceiling_tok_per_s: float
    max_sequences: int
    warnings: tuple[Warning, ...]

    @property
    def basis(self) -> str:
        """`measured` where exactly this engine, family and format class was, else `assumed`."""
        return self.efficiency.band.basis

    def as_json(self) -> dict[str, Any]:
        """Return the answer as plain values, keys as DESIGN.md section 8 fixes them."""
        q = self.question
        many = q.replica_count

        def times(field: str) -> dict[str, float]:
            return {"low": getattr(self.fast, field), "typical": getattr(self.typical, field), "high": getattr(self.slow, field)}

        def rates(per_request: float) -> dict[str, float]:
            named = (("low", self.slow), ("typical", self.typical), ("high", self.fast))
            return {name: latency.req_per_s * per_request * many for name, latency in named}

        return {
            "llm": q.llm.id, "gpu": q.gpu.id, "gpu_count": q.gpu_count, "tp": q.tp, "pp": q.pp, "replica_count": many,
            "weights": q.weights.id, "kv_cache": q.kv.id, "engine": q.engine.engine, "input_tok": q.input_tok, "output_tok": q.output_tok,
            "concurrency": q.concurrency,
            "ttft_s": times("ttft_p50_s"), "tpot_s": times("tpot_p50_s"), "e2e_s": times("e2e_p50_s"),
            "output_tok_per_s": rates(q.output_tok), "request_per_s": rates(1.0),
            "bound_by": self.bound_by,
            "intensity_flop_per_byte": self.intensity_flop_per_byte, "ridge_flop_per_byte": self.ridge_flop_per_byte,
            "mfu_frac": self.mfu_frac, "mbu_frac": self.mbu_frac, "ceiling_tok_per_s": self.ceiling_tok_per_s,
            "batch": self.typical.batch, "max_sequences": self.max_sequences, "compute_dtype": self.compute_dtype,
            "peak_dense_flop_per_s": self.peak_flop_per_s, "link": self.link.name,
            "basis": self.basis, "efficiency_rows": list(self.efficiency.row_ids),
            "warnings": [{"name": w.name, "text": w.text} for w in self.warnings],
        }


def ask(
    catalog: Catalog, llm: str, gpu: str, gpu_count: int, weights: str, kv_cache: str, input_tok: int, output_tok: int, concurrency: int,
    engine: str | None = None, tp: int | None = None, pp: int | None = None, memory_frac: float | None = None, margin_frac: float = 0.15,
) -> Question:
    """Resolve ids to a `Question`; every unknown id and every impossible shape is told at once.

    Without `engine`: llama.cpp for GGUF weights, else vLLM. Without `tp`: the widest the model allows within the fast-link
    domain, all GPUs over PCIe where there is none; llama.cpp splits by layer (tp 1, pp = count).
    """
    faults: list[Fault] = []
    found = partial(gathered, faults)
    model, card = found(catalog.llm, llm), found(catalog.gpu, gpu)
    weight_format, kv_format = found(catalog.weight_format, weights), found(catalog.kv_format, kv_cache)
    profile = found(catalog.engine, engine or ("llama_cpp" if weight_format is not None and weight_format.is_gguf else "vllm"))
    for form, place in ((weight_format, "weights"), (kv_format, "kv_cache")):
        if form is not None and profile is not None and profile.engine not in form.runs_on and not (form is weight_format and form.is_gguf):
            known = catalog.weight_formats if form is weight_format else catalog.kv_formats
            others = [name for name, other in known.items() if profile.engine in other.runs_on]
            faults.append(Fault("", None, place, f"{profile.engine} does not run '{form.id}'", did_you_mean(form.id, others)))
    if faults:
        raise InputError(faults)
    by_layer = profile.max_tp == 1
    if tp is None:
        if by_layer:
            tp = 1
        else:
            room = gpu_count // (pp or 1)
            domain = min(room, card.fast_link_max_gpu_count or room) if card.fast_link_gb_per_s else room
            fitting = [size for size in llm_valid_tp(model, max(domain, 1)) if room % size == 0]
            tp = fitting[-1] if fitting else 1
    if pp is None:
        pp = max(gpu_count // tp, 1) if by_layer else 1
        if not by_layer and gpu_count % tp == 0 and card.fast_link_gb_per_s and tp == card.fast_link_max_gpu_count:
            pp = gpu_count // tp
    allowed = llm_valid_tp(model, max(tp, 8))
    if tp not in allowed:
        faults.append(Fault("", None, "--tp", f"{model.id} cannot be split over {tp} GPUs", f"take one of {', '.join(map(str, allowed))}"))
    if by_layer and tp > 1:
        faults.append(Fault("", None, "--tp", f"{profile.engine} splits by layer here", "leave --tp out, or set --pp"))
    if pp > model.layer_count:
        faults.append(Fault("", None, "--pp", f"{model.id} has {model.layer_count} layers", "take fewer stages"))
    if tp * pp > gpu_count or gpu_count % (tp * pp):
        faults.append(Fault("", None, "--count", f"tp {tp} x pp {pp} does not divide {gpu_count}", "make --count a multiple of tp x pp"))
    if faults:
        raise InputError(faults)
    return Question(
        model, card, gpu_count, tp, pp, weight_format, kv_format, profile, input_tok, output_tok, concurrency, memory_frac, margin_frac
    )


def estimate(catalog: Catalog, q: Question) -> Estimate:
    """Return the predicted speed of a question; raises `AnswerIsNo` (`does_not_fit`) where the load does not fit in memory."""
    per_replica = max(-(-q.concurrency // q.replica_count), 1)
    context = q.input_tok + q.output_tok
    if context > q.llm.max_context_tok:
        cure = f"{q.llm.id} reads at most {q.llm.max_context_tok:,} tokens"
        raise InputError([Fault("", None, "--input", f"{q.input_tok} + {q.output_tok} tokens are too many", cure)])
    held = memory.fit(q.llm, q.weights, q.kv, q.gpu, q.tp, q.pp, context, per_replica, q.engine, q.memory_frac, q.margin_frac)
    if isinstance(held, memory.DoesNotFit):
        where = f"{q.tp * q.pp} x {q.gpu.id}"
        lines = [f"does not fit, so it has no speed: {q.llm.id} with {per_replica} sessions of {context:,} tokens on {where} {held.reason}"]
        fp = memory.footprint(q.llm, q.weights, q.kv, q.engine)
        tried = levers(fp, q.gpu, q.tp, q.pp, context, per_replica, held.usable_bytes_per_gpu)
        raise AnswerIsNo("does_not_fit", lines + [f"lever: {lever}" for lever in tried])
    work = work_of(q.llm, weight_bits(q.llm, q.weights), q.kv.bytes_per_value)
    bandwidth = q.gpu.memory_bandwidth_gb_per_s * 1e9
    chunk = activations.chunk_tok(q.engine, q.gpu)
    timed = timed_replica(catalog.efficiency, catalog.links, work, q.gpu, q.weights, q.engine.engine, q.tp, q.pp, chunk)
    step, peak, link = timed.step, timed.peak_flop_per_s, timed.link
    mix = RequestMix(q.input_tok, q.input_tok, q.output_tok, q.output_tok)

    def seen(at: StepModel | None) -> Latency:
        return latency_at_concurrency(at or step, mix, per_replica, 1e15, per_replica)

    typical = seen(step)
    batch, context_tok = max(typical.batch, 1.0), typical.context_tok
    mbu, mfu = step.decode_use(batch, context_tok)
    flop = batch * work.decode_flop(context_tok)
    read = work.weights_read_bytes(batch) + batch * work.kv_read_bytes(context_tok)
    ceiling = batch * ceiling_tok_per_s(bandwidth * q.tp, read)
    warnings = _warnings(q, step, link, work, mfu, peak, bandwidth)
    return Estimate(
        question=q, compute_dtype=timed.compute_dtype, peak_flop_per_s=peak, link=link, efficiency=timed.chosen,
        slow=seen(step.low), typical=typical,
        fast=seen(step.high), step=step, bound_by=step.bound_by(batch, context_tok), intensity_flop_per_byte=flop / read,
        ridge_flop_per_byte=ridge_flop_per_byte(peak, bandwidth), mbu_frac=mbu, mfu_frac=mfu,
        ceiling_tok_per_s=min(ceiling, peak * q.tp * batch / flop) * q.replica_count, max_sequences=held.max_sequences, warnings=warnings,
    )


def _warnings(
    q: Question, step: StepModel, link: Link, work: Work, mfu_frac: float, peak: float, bandwidth: float
) -> tuple[Warning, ...]:
    """Return the mistakes about speed that this question may be making, each with its own numbers."""
    found: list[Warning] = []
    context = q.input_tok + q.output_tok / 2.0
    at = step.decode_step_s(1.0, context)
    if q.tp > 1:
        alone = step_model(work, bandwidth, peak, _same(step), 1, 1).decode_step_s(1.0, context)
        gain = alone / at
        if not link.is_fast:
            _, _, sent, _ = step.decode_terms_s(1.0, context)
            verdict = "slower than one card would be" if gain < 1.0 else f"{gain:.2f} times as fast as one card would be"
            found.append(Warning(
                "tensor_parallel_over_pcie",
                f"{q.tp} GPUs exchange {2 * q.llm.layer_count} all-reduces a step over PCIe "
                f"({sent * 1e3:.1f} of {at * 1e3:.1f} ms at batch 1); "
                f"a prompt token adds {step.collective_s_per_tok * 1e6:.0f} us: one stream is {verdict} (memory aside)",
            ))
        if gain < 0.95 * q.tp:
            found.append(Warning(
                "two_gpus_are_not_twice",
                f"{q.tp} GPUs give one stream {gain:.2f} times the speed of one, not {q.tp}: collectives and overhead do not shrink",
            ))
    if q.pp > 1:
        found.append(Warning(
            "pipeline_does_not_speed_one_stream",
            f"a token passes {q.pp} stages one after another: pipelining adds memory and throughput, not speed for one user",
        ))
    memory_s, compute_s, _, _ = step.decode_terms_s(max(q.concurrency / q.replica_count, 1.0), context)
    if memory_s > compute_s:
        found.append(Warning(
            "more_tflops_do_not_help_batch_1",
            f"decode waits for memory {memory_s / compute_s:.1f} times as long as for arithmetic at this batch: bandwidth, fewer "
            "bits or a larger batch make it faster, TFLOP/s do not",
        ))
    if mfu_frac < 0.2:
        found.append(Warning(
            "busy_is_not_used",
            f"a utilisation counter will show a busy GPU; of its arithmetic {mfu_frac:.1%} is used (MFU): judge by MBU and MFU",
        ))
    if q.gpu.memory_kind == "unified":
        found.append(Warning(
            "unified_memory_is_not_hbm",
            f"{q.gpu.name} holds much and reads {q.gpu.memory_bandwidth_gb_per_s:.0f} GB/s: an H100 SXM reads 3,350",
        ))
    return tuple(found)


def _same(step: StepModel) -> Any:
    from planner.physics.steps import EfficiencyBand

    return EfficiencyBand(step.efficiency, step.efficiency, step.efficiency)


@dataclass(frozen=True)
class Ceiling:
    """The most tokens a second one stream can get of a model on one accelerator; None where it does not fit."""

    gpu: str
    llm: str
    weights_bytes: float
    tok_per_s: float | None


def ceilings(catalog: Catalog, weights: str = "q4_k_m", margin_frac: float = 0.0) -> tuple[Ceiling, ...]:
    """Return bandwidth over the bytes a token reads, an 8B and a 70B model, on every accelerator of the catalog.

    Weights alone are weighed against the device's memory less `margin_frac`: no KV cache, no overhead.
    """
    rows = []
    form = catalog.weight_format(weights)
    for llm_id in CEILING_LLMS:
        work = work_of(catalog.llm(llm_id), weight_bits(catalog.llm(llm_id), form), 2.0)
        read = work.weights_read_bytes(1.0)
        for gpu in sorted(catalog.gpus.values(), key=lambda g: (-g.memory_bandwidth_gb_per_s, g.id)):
            room = device.usable_bytes(gpu, 1.0, margin_frac)
            speed = ceiling_tok_per_s(gpu.memory_bandwidth_gb_per_s * 1e9, read) if read <= room else None
            rows.append(Ceiling(gpu.id, llm_id, read, speed))
    return tuple(rows)
