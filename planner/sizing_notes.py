"""What stands beside a sizing answer: named warnings, and the smallest rung that keeps the promise."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from planner.catalog import Catalog
from planner.formatting import count, gb, number, percent, plural
from planner.physics import device, memory
from planner.physics.kv_cache import kv_part
from planner.physics.memory import Fits, MemoryTerms
from planner.physics.parallelism import stage_frac
from planner.physics.work import DEFAULT_BITS_PER_WEIGHT
from planner.schema.hardware import Gpu, Node
from planner.sizing import Placement, place, term_name
from planner.sizing_levers import body_bits, kv_needs_fp4, quality_locator
from planner.sizing_question import Question
from planner.sizing_replicas import replicas
from planner.units import BYTES_PER_GB

RUNGS = ("laptop", "workstation", "node", "cluster")
MAX_CLUSTER_NODES = 8
HIGH_FILL_FRAC = 0.95
DRAFT_WORDS_APART = 128
SLOWER_THAN_HBM_GB_PER_S = 1500.0
"""The slowest HBM card of the shipped data is faster than this: unified memory below it is named as slower."""


RECIPE_FACTOR = 1.2
"""Memory over weights that the recipes of vLLM declare (`vram_minimum_gb`, github:vllm-project/recipes pulls 688 and 744)."""


@dataclass(frozen=True)
class SizeWarning:
    """A mistake that the answer keeps its reader from: a name for machines and a sentence for people."""

    name: str
    text: str


def warnings(question: Question, need: MemoryTerms, places: Sequence[Placement], named: bool) -> list[SizeWarning]:
    """Return the warnings that this question and its placements earn; `named` says that the user chose the accelerator."""
    q = question
    found = [*_of_file(q), *_of_weights(q, need), *_of_kept_16_bit(q, places), *_of_draft(q), *_of_load(q, places)]
    shown = [p for p in places if named or p.fits]
    unified = [p for p in shown if p.gpu.memory_kind == "unified"]
    if unified:
        slow = min(unified, key=lambda p: p.gpu.memory_bandwidth_gb_per_s).gpu
        share = f"; its GPU may use {gb(device.usable_bytes(slow, 1.0, 0.0))} of it" if slow.gpu_memory_share_frac is not None else ""
        found.append(SizeWarning(
            "unified_is_not_hbm",
            f"{slow.name}: {gb(device.device_bytes(slow))} of unified memory at {number(slow.memory_bandwidth_gb_per_s)} GB/s{share}; "
            "HBM cards read at 1,500 to 8,000 GB/s: capacity is not speed",
        ))
    pcie = [p for p in shown if p.crosses_pcie]
    if pcie:
        p = pcie[0]
        rate = f" at {number(p.gpu.pcie_gb_per_s)} GB/s" if p.gpu.pcie_gb_per_s else ""
        joined = p.gpu.fast_link_max_gpu_count or 1
        what = f"{p.gpu_count} x {p.gpu.name} have no fast link: tensor parallelism crosses PCIe{rate}"
        if joined > 1:
            what = f"the fast link joins {joined} x {p.gpu.name}: tensor parallelism over {p.tp} leaves it"
        found.append(SizeWarning("tensor_parallel_over_pcie", f"{what} twice a layer and may be slower than fewer GPUs"))
    full = [p for p in shown if p.fits and p.answer.per_gpu_bytes > HIGH_FILL_FRAC * _gpu_bytes(p.gpu)]
    if full:
        p = full[0]
        found.append(SizeWarning(
            "high_fill",
            f"{p.gpu.name} would hold {gb(p.answer.per_gpu_bytes)} of {gb(_gpu_bytes(p.gpu))}: "
            "the first long prompt ends it; keep a margin",
        ))
    barely = [p for p in shown if named and p.verdict == "barely"]
    if barely:
        p = min(barely, key=lambda item: item.gpu_count)
        found.append(SizeWarning(
            "barely_fits",
            f"{p.gpu_count} x {p.gpu.name}: {gb(p.answer.per_gpu_bytes)} are "
            f"{percent(p.answer.per_gpu_bytes / p.advised_bytes_per_gpu)} of the {gb(p.advised_bytes_per_gpu)} that a safe margin "
            f"leaves of one, and {plural(p.answer.max_sequences, 'session')} of {count(q.context_tok)} tokens are the most it holds: "
            "take more GPUs or fewer bits before you deploy it",
        ))
    label = [p.gpu for p in shown if device.label_is_used(p.gpu)]
    if named and label:
        found.append(SizeWarning(
            "label_capacity",
            f"nobody published what {label[0].name} shows as memory: "
            f"{number(label[0].memory_label_gb)} GB of the label are taken as 10^9 bytes each",
        ))
    if named:
        found += [*_of_margin(q, places), *_of_one_gpu(q, places[0])]
    if named and kv_needs_fp4(q.kv) and "fp4" not in places[0].gpu.dense_tflop_per_s:
        found.append(SizeWarning(
            "kv_format_needs_fp4", f"{places[0].gpu.name} has no 4-bit floating point: no engine is known to keep {q.kv.id} there"
        ))
    if named and q.weights.compute_dtype in ("fp8", "fp4", "int8"):
        gpu = places[0].gpu
        if gpu.dense_tflop_per_s and q.weights.compute_dtype not in gpu.dense_tflop_per_s:
            found.append(SizeWarning(
                "no_native_arithmetic",
                f"{gpu.name} has no {q.weights.compute_dtype} arithmetic: {q.weights.id} weights save memory there, not time, "
                "and an engine without a dequantising kernel needs them in 16 bit",
            ))
    return found


def _of_margin(q: Question, places: Sequence[Placement]) -> list[SizeWarning]:
    """The first placement that the engine would start by itself and that only the margin refuses, split as it was split here."""
    for p in places if q.margin_frac else ():
        bare = None if p.fits else place(replace(q, margin_frac=0.0), p.gpu, p.gpu_count, p.tp, p.pp)
        if bare is None or not bare.fits:
            continue
        need, room = bare.answer.per_gpu_bytes, bare.answer.usable_bytes_per_gpu
        return [SizeWarning(
            "margin_refuses",
            f"{p.gpu_count} x {p.gpu.name}: {q.engine.name} would start, {gb(need)} in the {gb(room)} of one that it takes by itself; "
            f"only the margin of {percent(q.margin_frac)} (--margin-frac) refuses it, which is kept for what no count knows: it would "
            f"hold {plural(bare.answer.max_sequences, 'session')} of {count(q.context_tok)} tokens at most",
        )]
    return []


def _of_one_gpu(q: Question, p: Placement) -> list[SizeWarning]:
    """What the accelerator that is named earns: padding by its kernel, replicas instead, a rule of thumb that says otherwise."""
    found = []
    padding = memory.padding_bytes(q.footprint, p.gpu, p.tp, p.pp)
    if q.overhead_bytes is None and padding > 0.01 * p.answer.terms.weights_bytes:
        held = p.answer.terms.weights_bytes + padding
        found.append(SizeWarning(
            "experts_are_padded",
            f"{q.engine.name} pads the {q.weights.id} experts of {q.llm.name} to whole tiles of its kernel: {gb(padding)} more on each "
            f"{p.gpu.name}, {gb(held)} with the weights; counted under overhead",
        ))
    many = replicas(q, p.gpu, p.gpu_count)
    if many is not None:
        found.append(SizeWarning(
            "replicas_instead", f"{p.gpu_count} GPUs cannot share {q.llm.name} by tensor under {q.engine.name}: they make {many}"
        ))
    least, label = recipe_min_gb(q), p.label_gb
    if (label >= least) != (p.verdict == "fits") and q.weights_bytes is not None:
        enough = "just " if label == least else ""
        says = f"{enough}enough" if label >= least else "not enough"
        found.append(SizeWarning(
            "rule_of_thumb_differs",
            f"recipes ask for 1.2 x the weights: {gb(least * BYTES_PER_GB)}; {p.gpu_count} x {number(p.gpu.memory_label_gb)} GB on the "
            f"label are {gb(label * BYTES_PER_GB)}, {says} by that rule, and here it is '{p.verdict}': the label is not what the "
            "device shows, and the rule knows no margin, temporary tensors or split",
        ))
    return found


def format_line(q: Question) -> str | None:
    """Return what the rule of thumb makes of the weights beside the bytes counted, and what is published of the format's loss.

    None for formats of 16 bit and more.
    """
    form = q.weights
    if body_bits(q.footprint) >= DEFAULT_BITS_PER_WEIGHT:
        return None
    by_rule = q.llm.params.total_count * form.rule_bytes_per_param
    what = "as given" if q.weights_bytes is not None else "by the file" if q.checkpoint is not None else "counted layer by layer"
    text = f"{form.id}: {form.rule_bytes_per_param:g} B a parameter is {gb(by_rule)} by rule, {gb(q.footprint.weights_bytes)} {what}"
    if form.quality_note is None:
        return text
    source = quality_locator(form)
    return f"{text}. {form.quality_note}" + (f" [{source}]" if source and source not in form.quality_note else "")


def recipe_min_gb(q: Question) -> float:
    """Return what published recipes of vLLM declare as the least memory in GB: 1.2 × the weights.

    2,820 GB ask for 3,384 GB, which are 24 x 141 (vllm-project/recipes#688).
    """
    return round(RECIPE_FACTOR * q.footprint.weights_bytes / BYTES_PER_GB, 6)


def _gpu_bytes(gpu: Gpu) -> float:
    return device.usable_bytes(gpu, 1.0, 0.0)


def _of_file(q: Question) -> list[SizeWarning]:
    """What the model's own file earns: a shape read on assumption, and what its tensors say against its configuration."""
    if q.checkpoint is None:
        return []
    notes = q.llm.notes or ""
    found = [SizeWarning("assumed_shape", notes)] if notes.startswith("Assumed:") else []
    return found + [SizeWarning("file", note) for note in q.checkpoint.notes]


def _of_weights(q: Question, need: MemoryTerms) -> list[SizeWarning]:
    found = []
    rest = need.total_bytes - need.weights_bytes
    if rest > need.weights_bytes / 4:
        names = [term_name(term) for term, value in need.by_term.items() if value and term != "weights"]
        others = f"{', '.join(names[:-1])} and {names[-1]} add" if len(names) > 1 else f"{names[0]} adds"
        found.append(SizeWarning(
            "weights_only", f"weights are {gb(need.weights_bytes)} of {gb(need.total_bytes)}: {others} {gb(rest)}"
        ))
    recurrent = q.llm.params.recurrent_count
    kept = recurrent * DEFAULT_BITS_PER_WEIGHT / 8 - q.footprint.weights_bytes_by_component["recurrent"]
    if q.checkpoint is None and not q.weights.is_gguf and kept > 0.02 * need.weights_bytes:
        found.append(SizeWarning(
            "recurrent_layers_may_stay_in_16_bit",
            f"{q.weights.id} is counted for recurrent layers too: a file that leaves them in 16 bit takes {gb(kept)} more; "
            "give its config.json",
        ))
    if q.engine.engine not in q.weights.runs_on:
        found.append(SizeWarning(
            "gguf_is_experimental_here",
            f"{q.engine.name} loads GGUF files experimentally: take awq_int4 or fp8 there, or llama_cpp for this file",
        ))
    params = q.llm.params.total_count
    if 6e9 <= params <= 9e9 and not q.llm.is_encoder:
        in_gb = [gb(params * size) for size in (4, 2, 0.57)]
        found.append(SizeWarning(
            "seven_b_is_not_seven_gb",
            f"{number(params / 1e9, 2)}B parameters are {in_gb[0]} in FP32, "
            f"{in_gb[1]} in FP16 and about {in_gb[2]} in Q4: the format decides",
        ))
    bits = dict(q.weights.bits_per_weight)
    body_bits = bits.get("mlp", bits.get("experts", DEFAULT_BITS_PER_WEIGHT))
    if body_bits < 4:
        note = f" ({q.weights.quality_note})" if q.weights.quality_note else ""
        found.append(SizeWarning(
            "below_4_bits_without_evaluation",
            f"{q.weights.id} keeps {number(body_bits)} bits a weight{note}: evaluate it on your own task before it replaces a larger card",
        ))
    return found


def _of_kept_16_bit(q: Question, places: Sequence[Placement]) -> list[SizeWarning]:
    """A format that leaves more than half of the weights in 16 bit, with formats of as many bits that do not."""
    fp, params = q.footprint, q.llm.params
    sizes = {name: 8 * fp.weights_bytes_by_component[name] / n for name, n in params.by_component.items() if n}
    few = min((bits for bits in q.weights.bits_per_weight.values()), default=DEFAULT_BITS_PER_WEIGHT)
    kept = sum(params.by_component[name] for name, bits in sizes.items() if bits >= DEFAULT_BITS_PER_WEIGHT)
    if few >= DEFAULT_BITS_PER_WEIGHT or q.weights.is_gguf or kept <= params.total_count / 2:
        return []
    only = [name for name, bits in q.weights.bits_per_weight.items() if bits < DEFAULT_BITS_PER_WEIGHT]
    has_none = not any(params.by_component.get(name) for name in only)
    why = f"it stores {', '.join(only)} in {number(few)} bits" + (" and the model has none" if has_none else "")
    others = [] if places[0].choices is None else [
        form.id for form in places[0].choices.catalog.weight_formats.values()
        if form.is_proposed and q.engine.engine in form.runs_on and form.id != q.weights.id
        and max(form.bits_per_weight.get(name, DEFAULT_BITS_PER_WEIGHT) for name in ("attention", "mlp")) <= few + 0.5
        and form.bits_per_weight.get("mlp", 0.0) >= 4
    ]
    others.sort(key=lambda name: not ("fp4" in name and "fp4" in places[0].gpu.dense_tflop_per_s))
    here = f"; {q.engine.name} runs {', '.join(others[:4])}" if others else ""
    elsewhere = "" if q.engine.engine == "llama_cpp" or few > 5 else "; llama.cpp q4_k_m"
    return [SizeWarning(
        "most_weights_stay_in_16_bit",
        f"{q.weights.id} leaves {percent(kept / params.total_count, 0)} of the weights of {q.llm.name} in 16 bit, "
        f"{gb(fp.weights_bytes)} in all: {why}. Of about as few bits in every layer{here}{elsewhere}",
    )]


def _of_draft(q: Question) -> list[SizeWarning]:
    """What a draft model earns that cannot help its target.

    vLLM refuses one with another vocabulary size (config/speculative.py); llama.cpp allows a difference of 128 words
    (`SPEC_VOCAB_MAX_SIZE_DIFFERENCE`, common/speculative.cpp).
    """
    if q.extras.draft is None:
        return []
    draft, found = q.extras.draft[0], []
    own, guessing = q.llm.params.active_count, draft.params.active_count
    if guessing >= own:
        found.append(SizeWarning(
            "draft_is_no_smaller",
            f"{draft.name} passes {number(guessing / 1e9, 2)}B parameters for each token it guesses, {q.llm.name} itself "
            f"{number(own / 1e9, 2)}B: take a smaller draft model",
        ))
    if abs(draft.vocab_size - q.llm.vocab_size) > (DRAFT_WORDS_APART if q.engine.engine == "llama_cpp" else 0):
        found.append(SizeWarning(
            "draft_has_another_vocabulary",
            f"{draft.name} knows {count(draft.vocab_size)} words, {q.llm.name} {count(q.llm.vocab_size)}: engines take a draft's words "
            "by their number and refuse another vocabulary; take a draft model of the same family",
        ))
    return found


def _of_load(q: Question, places: Sequence[Placement]) -> list[SizeWarning]:
    found = []
    if q.context_tok > q.llm.max_context_tok:
        found.append(SizeWarning(
            "context_beyond_model",
            f"{q.llm.name} is made for {count(q.llm.max_context_tok)} tokens; {count(q.context_tok)} are asked for",
        ))
    if q.engine.mla_expands_kv and any(group.kind == "mla" for group in q.llm.attention):
        kept = [kv_part(group, q.kv.bytes_per_value) for group in q.llm.attention]
        latent = sum(part.bytes_per_tok() for part in kept if part is not None)
        found.append(SizeWarning(
            "latent_is_expanded",
            f"{q.engine.name} caches the full keys and values of every head: {count(q.footprint.kv_bytes_per_tok)} B a token, where an "
            f"engine that keeps the latent takes {count(latent)}",
        ))
    limits = [p.answer.engine_max_sequences for p in places if isinstance(p.answer, Fits)]
    if limits and q.concurrency > min(limits):
        found.append(SizeWarning(
            "engine_sequence_limit",
            f"{q.engine.name} admits {count(min(limits))} sequences by default: raise its limit to {count(q.concurrency)}",
        ))
    if q.margin_frac == 0 and any(p.memory_frac >= 1 for p in places):
        found.append(SizeWarning("no_reserve", "no memory is kept free: fragmentation or a longer prompt ends the process"))
    return found


def ceiling_tok_per_s(question: Question, placement: Placement) -> float:
    """Return the most one stream can reach: bandwidth ÷ bytes of the weights read for a token, as if nothing else cost time."""
    q, p = question, placement
    params = q.llm.params
    read = q.footprint.weights_bytes * params.active_count / params.total_count * stage_frac(q.llm.layer_count, p.pp) / p.tp
    return p.gpu.memory_bandwidth_gb_per_s * BYTES_PER_GB / read / p.pp


def smallest_rung(catalog: Catalog, question: Question) -> dict[str, Any]:
    """Return the smallest rung whose machine holds the load: `name`, `node`, `reason`, `runs_well`, `cannot`.

    Within a rung the machine with the least memory wins. Nothing fits: `name` and `node` are None and `reason` says so.
    """
    q = question
    for rung in RUNGS:
        found = [(node, p) for node in catalog.nodes.values() if node.rung == rung and (p := _on_node(catalog, q, node, 1)) is not None]
        if found:
            node, p = min(found, key=lambda item: (_gpu_bytes(item[1].gpu) * item[1].gpu_count, item[0].id))
            return _rung(q, rung, node, p, 1)
    big = [node for node in catalog.nodes.values() if node.rung in ("node", "cluster")]
    for node_count in range(2, MAX_CLUSTER_NODES + 1):
        found = [(node, p) for node in big if (p := _on_node(catalog, q, node, node_count)) is not None]
        if found:
            node, p = min(found, key=lambda item: (_gpu_bytes(item[1].gpu) * item[1].gpu_count, item[0].id))
            return _rung(q, "cluster", node, p, node_count)
    reason = f"no machine of the catalog, and no {MAX_CLUSTER_NODES} of them together, hold this load under {q.engine.name}"
    return {"name": None, "node": None, "node_count": None, "reason": reason, "runs_well": [], "cannot": []}


def _on_node(catalog: Catalog, q: Question, node: Node, node_count: int) -> Placement | None:
    """Place the load on whole machines; None where it does not fit or the engine does not run there."""
    gpu = catalog.gpus[node.gpu]
    if q.engine.vendors and gpu.vendor not in q.engine.vendors:
        return None
    fast = node.fast_link_domain_gpu_count
    tp_domain = fast if fast > 1 else node.gpu_count
    p = place(q, gpu, node.gpu_count * node_count, tp_domain=tp_domain)
    return p if p is not None and p.fits else None


def _rung(q: Question, rung: str, node: Node, p: Placement, node_count: int) -> dict[str, Any]:
    spare = p.answer.usable_bytes_per_gpu - p.answer.per_gpu_bytes
    machines = node.name if node_count == 1 else f"{node_count} x {node.name}"
    reason = (
        f"{machines}: {gb(p.answer.per_gpu_bytes)} needed of {gb(p.answer.usable_bytes_per_gpu)} usable per GPU "
        f"(TP {p.tp} x PP {p.pp}), {gb(spare)} to spare"
    )
    runs_well = [
        f"{plural(q.concurrency, 'session')} of {count(q.context_tok)} tokens held at once",
        f"one stream at no more than {number(ceiling_tok_per_s(q, p), 2)} tok/s (bandwidth over the weights read)",
    ]
    if q.llm.is_encoder:
        read = min(q.context_tok, q.llm.max_context_tok)
        runs_well = [f"texts of up to {count(read)} tokens, {count(p.answer.max_sequences)} in a batch; nothing is held between them"]
    longest = p.max_context_tok
    at_most = f"hold more than {plural(p.answer.max_sequences, 'session')} of {count(q.context_tok)} tokens"
    longer = f", or {plural(q.concurrency, 'session')} longer than {count(longest)} tokens" if longest < q.llm.max_context_tok else ""
    cannot = [] if q.llm.is_encoder else [at_most + longer]
    if p.gpu.memory_bandwidth_gb_per_s < SLOWER_THAN_HBM_GB_PER_S:
        cannot.append(f"read memory as an HBM card does: {number(p.gpu.memory_bandwidth_gb_per_s)} GB/s, so many streams at once are slow")
    if p.crosses_pcie or (p.tp > 1 and node.fast_link_domain_gpu_count == 1):
        cannot.append("join its GPUs by a fast link: tensor parallelism crosses PCIe")
    if node_count > 1:
        cannot.append("answer without the network between machines: each stage waits for the one before")
    elif rung in ("laptop", "workstation"):
        cannot.append("keep serving while this one machine is down, nor be relied on as a server around the clock")
    else:
        cannot.append("keep serving while this one machine is down: take a second replica for that")
    return {"name": rung, "node": node.id, "node_count": node_count, "reason": reason, "runs_well": runs_well, "cannot": cannot}
