"""One question about fine-tuning answered: memory by term, every placement, the levers, the warnings."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from planner.catalog import MAX_DATA_FILE_BYTES, Catalog, pick, shown_path
from planner.errors import Fault, InputError, did_you_mean, gathered
from planner.formatting import count as shown_count
from planner.formatting import gb, gib
from planner.physics.device import usable_bytes
from planner.physics.training import TrainingTerms, base_bytes_by_component, host_bytes, trained_count, training_terms
from planner.physics.training_linears import adapter_count, linears
from planner.physics.training_recipe import CHECKPOINTINGS, METHODS, TARGETS, Checkpointing, Method, Recipe
from planner.physics.weights import weights_bytes_by_component
from planner.readers.yaml_file import read_yaml, validate
from planner.schema.hardware import Gpu
from planner.schema.llm import Llm, WeightFormat
from planner.schema.training import TrainingData
from planner.sizing_rows import PlaceGroup, PlaceRow, TermRow, grouped, term_rows

COUNTS = (1, 2, 4, 8)
MORE_COUNTS = (2, 4, 8, 16, 32, 64)
"""GPUs that the lever tries, up to eight nodes of eight."""
TRAINS = frozenset({"gpu", "apu"})
"""Kinds of accelerator that are tried unasked: the frameworks whose memory is counted here run on them."""
SIXTEEN_BITS = 16.0
TOK_STEP = 128
"""Shorter sequences are offered in whole steps of so many tokens."""
ARROW, ENOUGH = " → ", "fits"
DEFAULT_BASE: dict[Method, str] = {"full": "bf16", "lora": "bf16", "qlora": "bnb_nf4_dq"}


@dataclass(frozen=True)
class TrainingQuestion:
    """What is asked: a model, a way to train it, the data it is counted with, and the part of each GPU kept free."""

    llm: Llm
    recipe: Recipe
    data: TrainingData
    bases: dict[Method, WeightFormat]
    margin_frac: float = 0.15
    stage_is_named: bool = False

    def terms(self, gpu_count: int = 1, recipe: Recipe | None = None) -> TrainingTerms:
        """Return the memory of one of `gpu_count` GPUs by term."""
        return training_terms(self.llm, recipe or self.recipe, self.data, gpu_count)


@dataclass(frozen=True)
class TrainingWarning:
    """A mistake that the answer keeps its reader from."""

    name: str
    text: str


@dataclass(frozen=True)
class TrainingPlacement:
    """The work on `gpu_count` GPUs, data parallel; bytes are those of one GPU."""

    gpu: Gpu
    gpu_count: int
    terms: TrainingTerms
    usable_bytes_per_gpu: float
    max_micro_batch: int
    levers: tuple[str, ...] = ()
    is_smallest: bool = False

    @property
    def fits(self) -> bool:
        """Whether a step fits."""
        return self.terms.total_bytes <= self.usable_bytes_per_gpu

    @property
    def reason(self) -> str:
        """Need against room in one line."""
        term = self.terms.dominant_term
        most = f"most is {term} with {gb(self.terms.by_term[term])}"
        need, room = gb(self.terms.total_bytes), gb(self.usable_bytes_per_gpu)
        if self.fits:
            return f"{need} of {room} usable per GPU; {most}; micro-batches up to {shown_count(self.max_micro_batch)} fit"
        return f"needs {need} per GPU, {room} usable; {most}"

    @property
    def used_frac(self) -> float:
        """Bytes needed over usable bytes, one GPU; above 1 it does not fit."""
        return self.terms.total_bytes / self.usable_bytes_per_gpu

    @property
    def nearest_lever(self) -> str | None:
        """The first change tried that is enough, without its figures."""
        return next((lever.split(ARROW)[0] for lever in self.levers if lever.endswith(ENOUGH)), None)

    @property
    def cells(self) -> tuple[str, ...]:
        """Its row of the table: GPUs, need, room, largest micro-batch."""
        most = shown_count(self.max_micro_batch) if self.max_micro_batch else "none"
        return str(self.gpu_count), gb(self.terms.total_bytes), gb(self.usable_bytes_per_gpu), most

    def as_json(self) -> dict[str, Any]:
        """Return the keys of a placement of `size --json`, and the terms of one GPU."""
        return {
            "gpu": self.gpu.id, "gpu_count": self.gpu_count, "fits": self.fits, "bytes_per_gpu": round(self.terms.total_bytes),
            "usable_bytes_per_gpu": round(self.usable_bytes_per_gpu), "used_frac": self.used_frac,
            "max_micro_batch": self.max_micro_batch, "reason": self.reason, "levers": list(self.levers), "is_smallest": self.is_smallest,
            "terms_per_gpu": {name: round(value) for name, value in self.terms.by_term.items()}, "dominant_term": self.terms.dominant_term,
        }


@dataclass(frozen=True)
class TrainingAnswer:
    """Terms as if on one GPU, placements and warnings."""

    question: TrainingQuestion
    placements: tuple[TrainingPlacement, ...]
    warnings: tuple[TrainingWarning, ...]
    gpu_is_named: bool

    @cached_property
    def terms(self) -> TrainingTerms:
        """The whole work on one GPU: nothing sharded."""
        return self.question.terms(1)

    @property
    def reason_code(self) -> str | None:
        """`does_not_fit` where no placement holds a step."""
        return None if any(p.fits for p in self.placements) else "does_not_fit"

    @property
    def headline(self) -> str:
        """The answer in one line."""
        q, r = self.question, self.question.recipe
        first = next((p for p in self.placements if p.fits), None)
        how = f"{r.method} fine-tuning of {q.llm.id} ({r.micro_batch} x {r.sequence_tok:,} tokens, {r.optimizer.id})"
        need = f"needs {gb(self.terms.total_bytes)} on one GPU"
        if first is None:
            return f"{how} {need} and fits nowhere it was tried; most is {self.terms.dominant_term}"
        if self.gpu_is_named:
            return f"{how} {need}; {first.gpu_count} x {first.gpu.id} hold it with {gb(first.terms.total_bytes)} each"
        few = min((p for p in self.placements if p.fits), key=lambda p: (p.gpu_count, p.usable_bytes_per_gpu))
        alone = min((p for p in self.placements if p.fits and p.gpu_count == 1), key=lambda p: p.usable_bytes_per_gpu, default=None)
        if alone is None:
            return f"{how} {need}: no single GPU holds it; {few.gpu_count} x {few.gpu.id} do"
        return f"{how} {need}; the smallest card that holds it is {alone.gpu.id}"

    @property
    def sum_line(self) -> str:
        """The sum as one would write it down, nothing sharded."""
        parts = " + ".join(f"{gb(value)} {name}" for name, value in self.terms.by_term.items() if value)
        return f"{parts} = {gb(self.terms.total_bytes)} ({gib(self.terms.total_bytes)})"

    @property
    def term_rows(self) -> list[TermRow]:
        """The terms one after the other, nothing sharded, and their sum."""
        terms = {name: value for name, value in self.terms.by_term.items() if value}
        return term_rows(terms, terms, str)

    @property
    def place_groups(self) -> list[PlaceGroup]:
        """Placements by the fewest GPUs that hold a step, the least memory first; then those that do not with what would help."""
        if self.gpu_is_named:
            marks = [("fits (smallest)" if p.is_smallest else "fits") if p.fits else "does not fit" for p in self.placements]
            return [PlaceGroup("", tuple(((*p.cells, mark), p.used_frac) for p, mark in zip(self.placements, marks, strict=True)))]
        return grouped(
            PlaceRow(
                p.gpu.id, p.gpu_count, p.usable_bytes_per_gpu, p.used_frac, p.cells, p.nearest_lever or "", fits=p.fits,
                is_helped=p.nearest_lever is not None,
            )
            for p in {p.gpu.id: p for p in self.placements}.values()
        )

    def as_json(self) -> dict[str, Any]:
        """Return the keys that checks rely on; bytes at the top are those of one GPU, nothing sharded."""
        q, r, need = self.question, self.question.recipe, self.terms
        return {
            "llm": q.llm.id, "train": r.method, "weights": r.base.id, "optimizer": r.optimizer.id, "zero_stage": r.zero_stage,
            "checkpointing": r.checkpointing, "sequence_tok": r.sequence_tok, "micro_batch": r.micro_batch,
            "lora_rank": None if r.method == "full" else r.rank, "lora_targets": None if r.method == "full" else r.targets,
            "fused_loss": r.fused_loss, "offload": r.offload, "host_bytes": round(host_bytes(q.llm, r)),
            "trained_count": trained_count(q.llm, r), "total_count": q.llm.params.total_count,
            **{f"{name}_bytes": round(value) for name, value in json_names(need).items()},
            "total_bytes": round(need.total_bytes), "dominant_term": need.dominant_term, "margin_frac": q.margin_frac,
            "placements": [p.as_json() for p in self.placements],
            "warnings": [{"name": w.name, "text": w.text} for w in self.warnings], "reason_code": self.reason_code,
        }


def json_names(need: TrainingTerms) -> dict[str, float]:
    """Return the terms under the names of their JSON keys, without `_bytes`."""
    other = {"adapters": "adapter", "gradients": "gradient", "activations": "activation", "buffers": "buffer"}
    return {other.get(name, name): value for name, value in need.by_term.items()}


def load_training(catalog: Catalog) -> TrainingData:
    """Return `hardware/training.yaml`, the user's where the overlay has one. Every fault of it is an `InputError` with its line."""
    paths = [path for root in catalog.roots if (path := Path(root) / "hardware" / "training.yaml").is_file()]
    if not paths:
        raise InputError([Fault("", None, "hardware/training.yaml", "missing", "reinstall the package")])
    return validate(TrainingData, read_yaml(paths[-1], max_bytes=MAX_DATA_FILE_BYTES, file=shown_path(paths[-1])))


def one_of(value: str, known: tuple[str, ...], place: str, faults: list[Fault]) -> None:
    """Add a fault where `value` is not one of `known`."""
    if value not in known:
        faults.append(Fault("", None, place, f"no '{value}'", did_you_mean(value, known)))


def ask_training(
    catalog: Catalog, llm: str, method: str, sequence_tok: int, micro_batch: int = 1, *, weights: str | None = None,
    optimizer: str = "adamw", zero_stage: int | None = None, checkpointing: str = "full", rank: int = 16,
    targets: str = "all_linear", fused_loss: bool = False, offload: bool = False, margin_frac: float = 0.15,
) -> TrainingQuestion:
    """Resolve ids to a question; everything wrong is told at once.

    Without `zero_stage`: 3, as FSDP shards; it changes nothing on one GPU. A base that cannot be trained that way is refused:
    GGUF always, a quantised one outside qlora, a 16-bit one inside it.
    """
    faults: list[Fault] = []
    data = load_training(catalog)
    form: WeightFormat | None = None
    optimizers = {o.id: o for o in data.optimizers}
    one_of(method, METHODS, "--train", faults)
    one_of(checkpointing, CHECKPOINTINGS, "--checkpointing", faults)
    one_of(targets, TARGETS, "--lora-targets", faults)
    model: Llm | None = gathered(faults, catalog.llm, llm)
    chosen = gathered(faults, pick, optimizers, optimizer, "--optimizer", "hardware/training.yaml")
    if method in METHODS:
        form = gathered(faults, catalog.weight_format, weights or DEFAULT_BASE[method])
        if form is not None:
            faults.extend(base_faults(form, method))
    if rank < 1:
        faults.append(Fault("", None, "--lora-rank", f"a rank of {rank} trains nothing", "take 1 or more, usually 8 to 64"))
    if zero_stage is not None and not 0 <= zero_stage <= 3:
        faults.append(Fault("", None, "--zero", f"there is no stage {zero_stage}", "take 0, 1, 2 or 3"))
    if model is not None and rank >= 1 and sequence_tok > model.max_context_tok:
        cure = f"take at most {model.max_context_tok:,} tokens"
        faults.append(Fault("", None, "--context", f"{model.id} reads {model.max_context_tok:,} tokens, not {sequence_tok:,}", cure))
    if model is not None and method in ("lora", "qlora") and targets in TARGETS and rank >= 1 and not adapter_count(model, rank, targets):
        faults.append(Fault("", None, "--lora-targets", f"{model.id} has no matrix that '{targets}' names", "take all_linear"))
    if faults or model is None or form is None or chosen is None:
        raise InputError(faults)
    recipe = Recipe(
        method=method, base=form, optimizer=chosen, sequence_tok=sequence_tok, micro_batch=micro_batch,  # type: ignore[arg-type]
        zero_stage=3 if zero_stage is None else zero_stage, checkpointing=checkpointing, rank=rank, targets=targets,  # type: ignore[arg-type]
        fused_loss=fused_loss, offload=offload,
    )
    bases = {name: catalog.weight_format(DEFAULT_BASE[name]) for name in METHODS}
    return TrainingQuestion(model, recipe, data, bases, margin_frac, stage_is_named=zero_stage is not None)


def base_faults(form: WeightFormat, method: str) -> Iterator[Fault]:
    """Yield why a format cannot be the base of a method."""
    bits = form.bits_per_weight.get("mlp", SIXTEEN_BITS)
    if form.is_gguf:
        cure = "train from the 16-bit model (--weights bf16), or with --train qlora on bnb_nf4_dq, and convert the result to GGUF"
        yield Fault("", None, "--weights", f"'{form.id}' is a GGUF format: no trainer reads gradients through it", cure)
    elif "transformers" not in form.runs_on:
        yield Fault("", None, "--weights", f"trainers do not load '{form.id}'", f"take {DEFAULT_BASE.get(method, 'bf16')}")  # type: ignore[call-overload]
    elif method == "qlora" and bits >= SIXTEEN_BITS:
        yield Fault("", None, "--weights", f"qlora needs a quantised base, '{form.id}' is not", "take bnb_nf4_dq, or --train lora")
    elif method != "qlora" and bits != SIXTEEN_BITS:
        cure = "take bf16, or --train qlora" if bits < SIXTEEN_BITS else "take bf16; the FP32 copy is the optimizer's"
        yield Fault("", None, "--weights", f"{method} trains on 16-bit weights, not '{form.id}'", cure)


def place(question: TrainingQuestion, gpu: Gpu, gpu_count: int) -> TrainingPlacement:
    """Return the work on `gpu_count` GPUs of one kind. Usable = device bytes × (1 − margin)."""
    room = usable_bytes(gpu, 1.0, question.margin_frac)
    need = question.terms(gpu_count)
    one = (need.activation_bytes + need.logits_bytes) / question.recipe.micro_batch
    free = room - (need.total_bytes - need.activation_bytes - need.logits_bytes)
    most = max(0, int(free // one)) if one > 0 else 0
    placed = TrainingPlacement(gpu, gpu_count, need, room, most)
    return placed if placed.fits else replace(placed, levers=tuple(levers(question, gpu_count, room)))


def levers(question: TrainingQuestion, gpu_count: int, room: float) -> Iterator[str]:
    """Yield the smallest change of each kind that fits, or how far its largest one comes, tried through `training_terms`."""
    q, r = question, question.recipe

    def tried(label: str, recipe: Recipe, count: int = gpu_count) -> tuple[bool, str]:
        total = q.terms(count, recipe).total_bytes
        return total <= room, f"{label}{ARROW}{gb(total)} per GPU: {ENOUGH if total <= room else 'still short'}"

    def first(options: list[tuple[str, Recipe, int]]) -> Iterator[str]:
        found = [tried(*option) for option in options]
        if found:
            yield next((text for fits, text in found if fits), found[-1][1])

    yield from first([(f"{c} checkpointing", replace(r, checkpointing=c), gpu_count) for c in after(CHECKPOINTINGS, r.checkpointing)])
    if not r.fused_loss and not q.llm.is_encoder:
        yield from first([("chunked or fused loss", replace(r, fused_loss=True), gpu_count)])
    if gpu_count > 1:
        yield from first([(f"ZeRO stage {s}", replace(r, zero_stage=s), gpu_count) for s in range(r.zero_stage + 1, 4)])
    stage = max(r.zero_stage, 3)
    more = [n for n in MORE_COUNTS if n > gpu_count]
    yield from first([(f"{n} GPUs, ZeRO stage {stage}", replace(r, zero_stage=stage), n) for n in more])
    now = r.optimizer.bytes_per_trained
    lighter = [o for o in q.data.optimizers if o.id.startswith("adamw") and o.bytes_per_trained < now]
    lighter.sort(key=lambda o: -o.bytes_per_trained)
    yield from first([(o.name, replace(r, optimizer=o), gpu_count) for o in lighter])
    if r.method == "full":
        if not r.offload:
            moved = replace(r, offload=True)
            yield from first([(f"gradients and optimizer on the host ({gb(host_bytes(q.llm, moved))} there)", moved, gpu_count)])
        yield from first([(f"LoRA, rank {r.rank}", replace(r, method="lora", base=q.bases["lora"], offload=False), gpu_count)])
    if r.method != "qlora":
        yield from first([(f"QLoRA, rank {r.rank}", replace(r, method="qlora", base=q.bases["qlora"], offload=False), gpu_count)])
    need = q.terms(gpu_count)
    per_tok = (need.activation_bytes + need.logits_bytes) / (r.micro_batch * r.sequence_tok)
    free = room - (need.total_bytes - need.activation_bytes - need.logits_bytes)
    fewer = min(r.micro_batch, int(max(free, 0.0) // (per_tok * r.sequence_tok)))
    if r.micro_batch > 1:
        yield tried(f"micro-batch {max(1, fewer)}", replace(r, micro_batch=max(1, fewer)))[1]
    shorter = int(max(free, 0.0) // (per_tok * r.micro_batch)) // TOK_STEP * TOK_STEP
    if TOK_STEP <= shorter < r.sequence_tok:
        yield tried(f"sequences of {shorter:,} tokens", replace(r, sequence_tok=shorter))[1]


def after(known: tuple[Checkpointing, ...], now: Checkpointing) -> tuple[Checkpointing, ...]:
    """Return what stands behind `now`."""
    return known[known.index(now) + 1:]


def placements(question: TrainingQuestion, gpu: Gpu, count: int | None) -> list[TrainingPlacement]:
    """Return the placements on one accelerator: the count that is named, else 1, 2, 4, 8, the smallest that fits marked."""
    found = [place(question, gpu, n) for n in ((count,) if count is not None else COUNTS)]
    first = next((i for i, p in enumerate(found) if p.fits), None)
    if first is not None and count is None:
        found[first] = replace(found[first], is_smallest=True)
    return found


def everywhere(catalog: Catalog, question: TrainingQuestion) -> list[TrainingPlacement]:
    """Return every GPU of the catalog, each up to the smallest count that fits."""
    found: list[TrainingPlacement] = []
    for gpu in catalog.gpus.values():
        if gpu.kind not in TRAINS:
            continue
        for placed in placements(question, gpu, None):
            found.append(placed)
            if placed.fits:
                break
    return found


def answer_training(
    catalog: Catalog, question: TrainingQuestion, gpu_id: str | None = None, count: int | None = None
) -> TrainingAnswer:
    """Answer on a named accelerator, or on every GPU of the catalog. An unknown id is an `InputError`."""
    named = catalog.gpu(gpu_id) if gpu_id is not None else None
    found = everywhere(catalog, question) if named is None else placements(question, named, count)
    return TrainingAnswer(question, tuple(found), tuple(warnings(question, named, count)), named is not None)


def warnings(question: TrainingQuestion, named: Gpu | None, count: int | None) -> Iterator[TrainingWarning]:
    """Yield the warnings that the question earns."""
    q, r, need = question, question.recipe, question.terms(1)
    if q.stage_is_named and r.zero_stage and count == 1:
        yield TrainingWarning("zero_on_one_gpu", f"ZeRO stage {r.zero_stage} shards over GPUs: on one it changes nothing")
    weights = sum(weights_bytes_by_component(q.llm, r.base).values())
    if r.method == "full" and need.state_bytes > 2 * weights:
        yield TrainingWarning(
            "training_is_not_inference",
            f"weights are {gb(weights)}, weights with gradients and optimizer {gb(need.state_bytes)} before a token is read",
        )
    if need.logits_bytes > need.activation_bytes:
        yield TrainingWarning(
            "logits_exceed_activations",
            f"the logits of {q.llm.vocab_size:,} words take {gb(need.logits_bytes)}, the layers' activations {gb(need.activation_bytes)}: "
            "a chunked or fused loss (--fused-loss) divides them",
        )
    if r.method == "qlora":
        rest = sum(base_bytes_by_component(q.llm, replace(r, rest_is_fp32=True)).values())
        more = rest - sum(base_bytes_by_component(q.llm, r).values())
        yield TrainingWarning(
            "rest_in_16_bit",
            f"embedding, head and norms are counted in 16 bit; PEFT's preparation for k-bit training puts them in FP32: {gb(more)} more",
        )
    if r.offload:
        yield TrainingWarning(
            "offload_needs_host_memory",
            f"gradients and optimizer take {gb(host_bytes(q.llm, r))} of the host's memory, which is not checked here; "
            "each step crosses PCIe",
        )
    if r.optimizer.pages_to_host:
        yield TrainingWarning(
            "paging_is_not_counted_on",
            "paged moments leave the GPU only when it is short: they are counted whole, and a step that pages is slow",
        )
    if r.optimizer.master_bytes == 0:
        yield TrainingWarning(
            "no_master_copy", f"{r.optimizer.name} keeps no FP32 copy: small updates are lost to rounding; evaluate the result"
        )
    if r.checkpointing != "none":
        yield TrainingWarning(
            "recomputation", f"{r.checkpointing} checkpointing computes parts of the forward pass again: slower for the memory it saves"
        )
    routed = sum(r.rank * (m.input_size + m.output_size) * m.count for m in linears(q.llm, r.targets) if m.module == "experts")
    if r.method != "full" and routed > trained_count(q.llm, r) / 2:
        yield TrainingWarning(
            "adapters_on_every_expert",
            f"{gb(routed * r.optimizer.bytes_per_trained)} of adapters and their states sit on routed experts: "
            "--lora-targets attention leaves them out",
        )
    if r.method != "full" and any(g.kind == "linear" for g in q.llm.attention) and r.targets != "q_v":
        yield TrainingWarning(
            "recurrent_layers_not_adapted", "the matrices of recurrent layers get no adapters here: their shapes are not told"
        )
    if q.llm.params.vision_count:
        yield TrainingWarning("text_only", "the vision tower's weights are counted, its activations are not: text is trained")
    if named is not None and named.kind not in TRAINS:
        yield TrainingWarning(
            "other_framework", f"{named.name} needs another framework than the ones counted here: only the states' memory is sure"
        )
