"""Workloads → what they ask of one replica, and the variants (model × formats × service class) that may serve them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from planner.catalog import Catalog
from planner.errors import Fault, InputError
from planner.feasibility import Ask, Formats
from planner.physics.serving import RequestMix, Targets
from planner.schema.workload import Batch, RequestTokens, Serving, WorkloadFile

GGUF_ENGINE = "llama_cpp"
DEFAULT_ENGINE = "vllm"
P99_OVER_MEAN = 3.0
"""Lengths of batch requests without `tokens`: p99 over mean (assumed; public traces show 2 to 6)."""
BATCH_PROMPT_TOK = 2000.0
"""Prompt of a batch request where neither `tokens` nor a ratio says otherwise (assumed; the mean of public traces)."""

Planned = Serving | Batch


@dataclass(frozen=True)
class Variant:
    """A model in given formats at one service class; `None` targets are those of batch work."""

    id: str
    formats: Formats
    targets: Targets
    context_tok: int
    """Largest `max_context_tok` of the workloads that may use it: KV room is counted at it."""
    workloads: tuple[str, ...]


def tokens_of(workload: Planned) -> RequestTokens:
    """Return the request lengths; batch work without `tokens` gets requests of `BATCH_PROMPT_TOK` in its own input/output ratio."""
    if workload.tokens is not None:
        return workload.tokens
    assert isinstance(workload, Batch)
    volume = workload.tokens_per_day
    prompt = BATCH_PROMPT_TOK
    output = max(1.0, prompt * volume.output / volume.input) if volume.input > 0 else 300.0
    return RequestTokens.model_validate(
        {"prompt": {"mean": prompt, "p99": prompt * P99_OVER_MEAN}, "output": {"mean": output, "p99": output * P99_OVER_MEAN}}
    )


def context_of(workload: Planned) -> int:
    """Return the longest context; batch work without one gets its p99 prompt and output together."""
    if workload.max_context_tok is not None:
        return workload.max_context_tok
    tokens = tokens_of(workload)
    return int(tokens.prompt.p99 + tokens.output.p99)


def targets_of(workload: Planned) -> Targets:
    """Return the p99 promises in seconds."""
    if isinstance(workload, Batch):
        return Targets()
    promise = workload.latency

    def seconds(value_ms: float | None) -> float | None:
        return None if value_ms is None else value_ms / 1000.0

    return Targets(seconds(promise.ttft_p99_ms), seconds(promise.tpot_p99_ms), seconds(promise.e2e_p99_ms))


def session_req_per_s(workload: Planned) -> float | None:
    """Return the requests a second of one open session, N / (ttft + output × tpot + think) with N = 1; None for an open loop."""
    if isinstance(workload, Batch) or (workload.load.concurrency is None and workload.load.users is None):
        return None
    targets, load = targets_of(workload), workload.load
    assert targets.ttft_p99_s is not None and targets.tpot_p99_s is not None
    return 1.0 / (targets.ttft_p99_s + tokens_of(workload).output.mean * targets.tpot_p99_s + load.think_time_s)


def mix_of(workload: Planned) -> RequestMix:
    """Return lengths and arrivals as the serving model takes them."""
    tokens = tokens_of(workload)
    return RequestMix(
        prompt_mean_tok=tokens.prompt.mean, prompt_p99_tok=tokens.prompt.p99, output_mean_tok=max(tokens.output.mean, 1.0),
        output_p99_tok=max(tokens.output.p99, 1.0), cached_prefix_frac=tokens.cached_prefix_frac,
        arrival_cv=workload.load.arrival_cv if isinstance(workload, Serving) else 1.0,
    )


def is_as_strict(a: Targets, b: Targets) -> bool:
    """Say whether keeping `a` keeps `b`: every promise of `b` is in `a`, no larger."""
    pairs = ((a.ttft_p99_s, b.ttft_p99_s), (a.tpot_p99_s, b.tpot_p99_s), (a.e2e_p99_s, b.e2e_p99_s))
    return all(theirs is None or (ours is not None and ours <= theirs) for ours, theirs in pairs)


def variants(file: WorkloadFile, catalog: Catalog) -> tuple[Variant, ...]:
    """Return every variant some workload may use, in a fixed order. Unknown models and formats are told all at once."""
    faults: list[Fault] = []
    served: Mapping[str, Planned] = {name: w for name, w in file.workloads.items() if isinstance(w, (Serving, Batch))}
    for name, workload in served.items():
        for place, find, value in (
            ("llm", catalog.llm, workload.llm),
            *(("weights", catalog.weight_format, wf) for wf in workload.weights),
            *(("kv_cache", catalog.kv_format, kv) for kv in workload.kv_cache),
        ):
            try:
                find(value)
            except InputError as error:
                faults.extend(
                    Fault(file.path, None, f"workloads.{name}.{place}", f.what, f.cure) if not f.file else f for f in error.faults
                )
    if faults:
        raise InputError(faults)
    found: dict[str, Variant] = {}
    for workload in served.values():
        if workload.privacy.allow == ("api",):
            continue
        targets = targets_of(workload)
        for weights in workload.weights:
            for kv in workload.kv_cache:
                users = tuple(
                    sorted(
                        n for n, w in served.items()
                        if w.llm == workload.llm and weights in w.weights and kv in w.kv_cache and is_as_strict(targets, targets_of(w))
                        and w.privacy.allow != ("api",)
                    )
                )
                wf = catalog.weight_format(weights)
                engine = catalog.engine(GGUF_ENGINE if wf.is_gguf else DEFAULT_ENGINE)
                formats = Formats(catalog.llm(workload.llm), wf, catalog.kv_format(kv), engine)
                name = f"{catalog.llm(workload.llm).id}.{weights}.{kv}.{class_name(targets)}"
                context = max(context_of(served[n]) for n in users)
                found[name] = Variant(name, formats, targets, context, users)
    return tuple(found[name] for name in sorted(found))


def class_name(targets: Targets) -> str:
    """Return an id part for a service class: `t1500_p60` is TTFT 1.5 s and TPOT 60 ms at p99, `batch` no promise.

    >>> class_name(Targets(1.5, 0.06)), class_name(Targets())
    ('t1500_p60', 'batch')
    """
    parts = [
        f"{letter}{value * 1000:g}".replace(".", "_").replace("+", "")
        for letter, value in (("t", targets.ttft_p99_s), ("p", targets.tpot_p99_s), ("e", targets.e2e_p99_s))
        if value is not None
    ]
    return "_".join(parts) or "batch"


def ask_of(workload: Planned, variant: Variant) -> Ask:
    """Return what a workload asks of a variant's replica: its own request mix at the CLASS targets."""
    is_batch = variant.targets == Targets()
    return Ask(mix_of(workload), variant.targets, variant.context_tok, is_batch, session_req_per_s(workload))

