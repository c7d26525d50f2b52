"""What a sizing question may change to: the smaller formats that engine, accelerator and file allow, and other splits."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from itertools import chain

from planner.catalog import Catalog
from planner.physics.levers import FormatOption
from planner.physics.memory import Footprint
from planner.physics.parallelism import layouts
from planner.physics.work import DEFAULT_BITS_PER_WEIGHT
from planner.schema.hardware import Gpu
from planner.schema.llm import KvFormat, WeightFormat
from planner.sizing_question import Question

ALONE = frozenset({"unified", "apu", "cpu"})
"""Kinds that serve alone unless the user names a count."""
MAX_PCIE_TP = 8
NODE_GPUS = 8
MAX_GPUS = 64
"""More GPUs than eight nodes of eight are not offered."""
BODY = ("attention", "mlp", "experts")
SIXTEEN_BIT = ("bf16", "fp16", "fp32")


def kv_needs_fp4(kv: KvFormat) -> bool:
    """Say whether a KV format needs an accelerator with 4-bit floating point (`nvfp4`, `mxfp4`)."""
    return "fp4" in kv.id


def domain(gpu: Gpu, gpu_count: int) -> int:
    """Return the GPUs that tensor parallelism may join: the fast link's, or over PCIe (which is then warned of)."""
    fast = gpu.fast_link_max_gpu_count or 1
    return fast if fast > 1 else min(gpu_count, MAX_PCIE_TP)


def bigger_splits(question: Question, gpu: Gpu, gpu_count: int, usable_bytes: float) -> Iterator[tuple[int, int]]:
    """Yield the splits of more GPUs than `gpu_count`, fewest first: one by one to eight, then whole nodes of eight.

    Counts whose share of weights and cache alone is above `usable_bytes` are left out; machines that serve alone have none.
    """
    if gpu.kind in ALONE:
        return
    q = question
    shared = q.footprint.weights_bytes + q.concurrency * q.footprint.kv_bytes_per_sequence(q.context_tok)
    nodes = range(NODE_GPUS * (max(gpu_count, NODE_GPUS) // NODE_GPUS + 1), MAX_GPUS + 1, NODE_GPUS)
    for count in chain(range(gpu_count + 1, NODE_GPUS + 1), nodes):
        if shared / count <= usable_bytes and count % q.extras.dp == 0:
            yield from layouts(q.llm, count // q.extras.dp, domain(gpu, count), sizes=q.footprint.tp_sizes)


def body_bits(footprint: Footprint) -> float:
    """Return the bits a weight of the layers (attention, MLP, experts) keeps on average."""
    p = footprint.llm.params
    count = p.attention_count + p.mlp_count + p.experts_count
    size = sum(footprint.weights_bytes_by_component[name] for name in BODY)
    return 8 * size / count if count else DEFAULT_BITS_PER_WEIGHT


@dataclass(frozen=True)
class Choices:
    """The smaller formats of one question, their footprints made once for all accelerators."""

    catalog: Catalog
    question: Question
    _made: dict[tuple[str, str], Footprint] = field(default_factory=dict, repr=False, compare=False)
    _lists: dict[tuple[str, frozenset[str]], tuple[FormatOption, ...]] = field(default_factory=dict, repr=False, compare=False)

    def footprint(self, weights: WeightFormat, kv: KvFormat) -> Footprint:
        """Return the footprint of the question in other formats; given bytes of the weights are scaled as the count is."""
        key = (weights.id, kv.id)
        if key not in self._made:
            q = self.question
            changed = replace(q, weights=weights, kv=kv)
            if q.weights_bytes is not None and weights.id != q.weights.id:
                counted = replace(q, weights_bytes=None).footprint.weights_bytes
                wanted = replace(changed, weights_bytes=None).footprint.weights_bytes
                changed = replace(changed, weights_bytes=q.weights_bytes * wanted / counted)
            self._made[key] = changed.footprint
        return self._made[key]

    def kv(self, gpu: Gpu) -> tuple[FormatOption, ...]:
        """Return the smaller KV formats that the engine runs on `gpu`, most bits first.

        Of those with the same whole number of bits, one whose width was read stands before one whose width is assumed.
        """
        key = ("kv", frozenset(gpu.dense_tflop_per_s))
        if key not in self._lists:
            q = self.question
            forms = [
                k for k in self.catalog.kv_formats.values()
                if q.engine.engine in k.runs_on and k.bytes_per_value < q.kv.bytes_per_value
                and ("fp4" in gpu.dense_tflop_per_s or not kv_needs_fp4(k))
            ]
            forms.sort(key=lambda k: (-int(8 * k.bytes_per_value), k.sources["default"].kind == "assumed", -k.bytes_per_value, k.id))
            self._lists[key] = tuple(
                FormatOption(
                    k.id, 8 * k.bytes_per_value, self.footprint(q.weights, k), k.quality_note,
                    k.source_of("quality_note").locator if k.quality_note else None,
                )
                for k in forms if self.footprint(q.weights, k).kv_bytes_per_tok < q.footprint.kv_bytes_per_tok
            )
        return self._lists[key]

    def weights(self, gpu: Gpu) -> tuple[FormatOption, ...]:
        """Return the smaller weight formats that the engine runs on `gpu` and that this kind of file has, most bits first.

        Formats of the same whole number of bits (FP8 by tensor, channel or block) stand in the order of formats.yaml, which
        puts the one with the better evidence first; one that is no smaller and loses more by the same test is left out.
        """
        key = ("weights", frozenset(gpu.dense_tflop_per_s))
        if key not in self._lists:
            q = self.question
            forms = {
                form.id: form for form in self.catalog.weight_formats.values()
                if form.is_proposed and self._engine_loads(form) and _computes(gpu, form)
                and self.footprint(form, q.kv).weights_bytes < 0.98 * q.footprint.weights_bytes
            }
            options = [
                FormatOption(
                    form.id, body_bits(self.footprint(form, q.kv)), self.footprint(form, q.kv), form.quality_note, quality_locator(form)
                )
                for form in forms.values() if not any(_beats(other, form) for other in forms.values())
            ]
            self._lists[key] = tuple(sorted(options, key=lambda option: -int(option.bits + 0.05)))
        return self._lists[key]

    def both(self, weights: FormatOption, kv: FormatOption) -> Footprint:
        """Return the footprint in a weight and a KV format together."""
        return self.footprint(self.catalog.weight_formats[weights.id], self.catalog.kv_formats[kv.id])

    def _engine_loads(self, form: WeightFormat) -> bool:
        engine, now = self.question.engine, self.question.weights
        if engine.engine in form.runs_on:
            return engine.engine == "llama_cpp" or form.is_gguf == now.is_gguf
        return form.is_gguf and now.is_gguf and engine.loads_gguf


def _computes(gpu: Gpu, form: WeightFormat) -> bool:
    """Say whether `gpu` multiplies in the format's dtype; 16 bit of either kind where it has one of them, or nobody said."""
    known = gpu.dense_tflop_per_s
    if form.compute_dtype not in SIXTEEN_BIT:
        return form.compute_dtype in known
    return not known or form.compute_dtype in known or (form.id != "bf16" and any(dtype in known for dtype in SIXTEEN_BIT))


def quality_locator(form: WeightFormat) -> str | None:
    """Return where the loss of a weight format was published; None where nothing was."""
    return form.source_of("quality_loss_frac").locator or form.source_of("quality_note").locator


def _beats(other: WeightFormat, form: WeightFormat) -> bool:
    """Say whether `other` loses less by the same test and keeps no more bits."""
    if other.quality_loss_frac is None or form.quality_loss_frac is None:
        return False
    if other.source_of("quality_loss_frac").locator != form.source_of("quality_loss_frac").locator:
        return False
    more = other.bits_per_weight.get("mlp", DEFAULT_BITS_PER_WEIGHT) <= form.bits_per_weight.get("mlp", DEFAULT_BITS_PER_WEIGHT)
    return other.quality_loss_frac < form.quality_loss_frac and more
