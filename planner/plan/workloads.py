"""What each workload gets: its supplies with memory, roofline point, latency and band, and its part of the cost."""

from __future__ import annotations

import math
from collections.abc import Mapping

from planner.candidates.asks import context_of, targets_of, tokens_of
from planner.candidates.build import Candidate, Prepared
from planner.feasibility import Assessment, Shape, admitted_count, assess
from planner.physics.device import device_bytes
from planner.physics.memory import terms
from planner.physics.serving import Feasible, RequestMix, latency_at
from planner.plan.pools import PoolBill, call_bill, fixed_npv_usd, rate_of, used_frac_by_workload
from planner.plan.words import plain, week_label
from planner.schema.plan import Band, Latency, MemoryByTerm, RooflinePoint, Supply, WorkloadPlan
from planner.schema.problem import ProblemData, Solution
from planner.units import BYTES_PER_GB, SECONDS_PER_HOUR, TOK_PER_MTOK

MS_PER_S = 1000.0
FLOP_PER_TFLOP = 1e12
LIMITED_BY = {
    "ttft_p99": "the promise on the first token",
    "tpot_p99": "the promise on the time per token",
    "e2e_p99": "the promise on the whole answer",
    "kv_room": "room for the KV cache",
    "max_sequences": "the sequences that the engine admits",
    "sessions": "sessions that hold KV open",
}


def memory_of(shape: Shape, sequences_count: int) -> MemoryByTerm:
    """Return the memory of one replica at so many sequences of the longest context, over all its GPUs."""
    fp, gpus = shape.formats.footprint, shape.gpus_count
    per_gpu = terms(fp, shape.gpu, shape.tp, shape.pp, shape.context_tok, sequences_count)
    return MemoryByTerm(
        weights_bytes=per_gpu.weights_bytes * gpus,
        kv_bytes=per_gpu.kv_bytes * gpus,
        activation_bytes=per_gpu.activation_bytes * gpus,
        overhead_bytes=per_gpu.overhead_bytes * gpus,
        total_bytes=per_gpu.total_bytes * gpus,
        usable_bytes=shape.usable_bytes_per_gpu * gpus,
        device_bytes=device_bytes(shape.gpu) * gpus,
        dominant_term=per_gpu.dominant_term,
        max_sequences_count=shape.max_sequences_count,
        context_tok=shape.context_tok,
        sequences_count=sequences_count,
        kv_bytes_per_tok=fp.kv_bytes_per_tok,
    )


def roofline_of(shape: Shape, assessment: Assessment) -> tuple[RooflinePoint, ...]:
    """Return where prefill and decode stand under the roofline of one GPU, at the rate promised."""
    step, mix, result = shape.step, assessment.ask.mix, assessment.result
    assert isinstance(result, Feasible)
    bandwidth, peak = step.bandwidth_bytes_per_s, step.peak_flop_per_s
    ridge = peak / bandwidth
    context = mix.prompt_mean_tok + mix.output_mean_tok / 2.0
    memory_s, compute_s, _, _ = step.decode_terms_s(result.batch, context)
    decode_bytes = memory_s * bandwidth * step.efficiency.mbu_frac
    decode_flop = compute_s * peak * step.efficiency.mfu_frac
    fresh = mix.prompt_mean_tok * (1.0 - mix.cached_prefix_frac)
    prefill_flop = step.prefill_work.prefill_flop(fresh, mix.prompt_mean_tok - fresh) / (step.tp * step.pp)
    prefill_bytes = step.every_step_bytes + step.experts_bytes * (1.0 - step.expert_miss_frac**fresh)

    def point(phase: str, flop: float, moved_bytes: float, seconds: float, bound_by: str) -> RooflinePoint:
        intensity = flop / moved_bytes
        return RooflinePoint.model_validate(
            {
                "phase": phase,
                "intensity_flop_per_byte": intensity,
                "ridge_flop_per_byte": ridge,
                "attainable_tflop_per_s": min(peak, intensity * bandwidth) / FLOP_PER_TFLOP,
                "achieved_tflop_per_s": flop / seconds / FLOP_PER_TFLOP,
                "peak_tflop_per_s": peak / FLOP_PER_TFLOP,
                "bandwidth_gb_per_s": bandwidth / BYTES_PER_GB,
                "bound_by": bound_by,
                "dtype": shape.compute_dtype,
            }
        )

    return (
        point(
            "prefill",
            prefill_flop,
            prefill_bytes / step.pp,
            step.prefill_s(fresh, mix.prompt_mean_tok - fresh),
            "compute" if prefill_flop / (prefill_bytes / step.pp) > ridge else "memory",
        ),
        point("decode", decode_flop, decode_bytes, step.decode_step_s(result.batch, context), step.bound_by(result.batch, context)),
    )


def worst_load(problem: ProblemData, solution: Solution, workload: str, candidate: Candidate) -> float:
    """Return the highest rate that one replica of a candidate gets of a workload, over all months and timeslices."""
    w = next(w for w in problem.workloads if w.id == workload)
    worst = 0.0
    for (name, k, m, t), share in solution.share.items():
        if name == workload and k == candidate.data.id:
            peak = w.peak_req_per_s[m][t] if w.kind == "serving" else rate_of(problem, workload, m, t)
            worst = max(worst, share * peak / max(solution.replicas.get((k, m, t), 0), 1))
    return min(worst, candidate.data.req_per_s_by_workload[workload])


def latency_of(prepared: Prepared, workload: str, shape: Shape, mix: RequestMix, rate: float) -> Latency | None:
    """Return the predicted p99 latencies of a replica at a rate, beside the promise; None for batch work."""
    targets = targets_of(prepared.workloads[workload])
    if targets.ttft_p99_s is None and targets.tpot_p99_s is None and targets.e2e_p99_s is None:
        return None
    at = latency_at(shape.step, mix, rate, shape.kv_room_tok, admitted_count(shape))

    def ms(seconds: float | None) -> float | None:
        return None if seconds is None or not math.isfinite(seconds) else seconds * MS_PER_S

    return Latency(
        ttft_p99_ms=ms(at.ttft_p99_s),
        tpot_p99_ms=ms(at.tpot_p99_s),
        e2e_p99_ms=ms(at.e2e_p99_s),
        ttft_p99_target_ms=ms(targets.ttft_p99_s),
        tpot_p99_target_ms=ms(targets.tpot_p99_s),
        e2e_p99_target_ms=ms(targets.e2e_p99_s),
    )


def requests(problem: ProblemData, workload: str, month: int) -> float:
    """Return a workload's requests in a month."""
    return sum(rate_of(problem, workload, month, t) * SECONDS_PER_HOUR * h for t, h in enumerate(problem.hours_by_slice))


def supplies_of(prepared: Prepared, problem: ProblemData, solution: Solution, workload: str) -> tuple[Supply, ...]:
    """Return how a workload is served, the largest part first."""
    served: dict[str, float] = {}
    for table in (solution.share, solution.call):
        for (w, supply, m, t), x in table.items():
            if w == workload:
                served[supply] = served.get(supply, 0.0) + x * rate_of(problem, w, m, t) * problem.hours_by_slice[t]
    total = sum(served.values()) or 1.0
    found = []
    for supply, part in sorted(served.items(), key=lambda item: (-item[1], item[0])):
        if supply in prepared.offers:
            offer = prepared.offers[supply]
            found.append(
                Supply(
                    kind="api",
                    pool=supply,
                    name=offer.name,
                    request_share_frac=part / total,
                    variant=None,
                    weights=None,
                    kv_cache=None,
                    gpu=None,
                    gpu_name=None,
                    gpus_per_replica_count=None,
                    tp=None,
                    pp=None,
                    replicas_max_count=None,
                    req_per_s_per_replica=None,
                    batch_count=None,
                    band=None,
                    memory=None,
                )
            )
            continue
        found.append(_on_replicas(prepared, problem, solution, workload, prepared.candidates[supply], part / total))
    return tuple(found)


def _on_replicas(prepared: Prepared, problem: ProblemData, solution: Solution, workload: str, candidate: Candidate, part: float) -> Supply:
    shape = candidate.shape
    assessment = assess(shape, candidate.assessments[workload].ask, with_band=True)
    result = assessment.result
    assert isinstance(result, Feasible)
    sequences = max(1, min(shape.max_sequences_count, math.ceil(result.batch)))
    most = max((n for (k, _, _), n in solution.replicas.items() if k == candidate.data.id), default=0)
    low, typical, high = result.band
    return Supply(
        kind=candidate.pool.data.kind,
        pool=candidate.pool.data.id,
        name=candidate.pool.name,
        request_share_frac=part,
        variant=candidate.variant.id,
        weights=shape.formats.weights.id,
        kv_cache=shape.formats.kv.id,
        gpu=shape.gpu.id,
        gpu_name=shape.gpu.name,
        gpus_per_replica_count=shape.gpus_count,
        tp=shape.tp,
        pp=shape.pp,
        replicas_max_count=most,
        req_per_s_per_replica=result.req_per_s,
        batch_count=result.batch,
        band=Band.model_validate({"low": low, "typical": typical, "high": high, "unit": "req_per_s", "basis": shape.efficiency.band.basis}),
        memory=memory_of(shape, sequences),
        roofline=roofline_of(shape, assessment),
        latency=latency_of(prepared, workload, shape, assessment.ask.mix, worst_load(problem, solution, workload, candidate)),
        limits={
            "max_context_tok": float(shape.context_tok),
            "max_sequences_count": float(admitted_count(shape)),
            "memory_fraction_frac": min(shape.formats.engine.memory_fraction, 0.85),
            "tp": float(shape.tp),
            "pp": float(shape.pp),
        },
    )


def costs_by_workload(problem: ProblemData, solution: Solution, billed: Mapping[str, PoolBill]) -> dict[str, tuple[float, float]]:
    """Return (discounted, undiscounted) USD of each workload: its calls whole, each pool by the node-hours it keeps busy.

    Sites and staff follow the pools' split. The discounted parts sum to the plan's cost.
    """
    npv = {w.id: 0.0 for w in problem.workloads}
    total = dict(npv)
    for p in problem.pools:
        if p.id not in billed:
            continue
        busy: dict[str, float] = {}
        for m in range(problem.months_count):
            for t, hours in enumerate(problem.hours_by_slice):
                for w, x in used_frac_by_workload(problem, solution, p, m, t, of_peak=False).items():
                    busy[w] = busy.get(w, 0.0) + x * hours
        whole = sum(busy.values())
        parts = {w: x / whole for w, x in busy.items()} if whole else {w: 1.0 / len(npv) for w in npv}
        for w, x in parts.items():
            npv[w] += x * billed[p.id].npv_usd
            total[w] += x * billed[p.id].total_usd
    hosted_npv = sum(npv.values())
    fixed = fixed_npv_usd(problem, solution)
    fixed_total = sum(sum(solution.cost_usd_by_month[line]) for line in ("staff", "site_ops"))
    for w, mine in dict(npv).items():
        part = mine / hosted_npv if hosted_npv > 0 else 0.0
        npv[w] += part * fixed
        total[w] += part * fixed_total
    for w, a in sorted({(w, a) for w, a, _, _ in solution.call}):
        called = call_bill(problem, solution, a, w)
        npv[w] += called[0]
        total[w] += called[1]
    return {w: (npv[w], total[w]) for w in npv}


def workload_plans(
    prepared: Prepared, problem: ProblemData, solution: Solution, billed: Mapping[str, PoolBill]
) -> tuple[WorkloadPlan, ...]:
    """Return what every workload asks for and gets."""
    costs = costs_by_workload(problem, solution, billed)
    found = []
    for w in problem.workloads:
        workload = prepared.workloads[w.id]
        tokens = tokens_of(workload)
        all_requests = sum(requests(problem, w.id, m) for m in range(problem.months_count))
        mtok = all_requests * (tokens.prompt.mean + tokens.output.mean) / TOK_PER_MTOK
        npv, total = costs[w.id]
        supplies = supplies_of(prepared, problem, solution, w.id)
        found.append(
            WorkloadPlan(
                id=w.id,
                kind=w.kind,
                llm=workload.llm,
                llm_name=prepared.catalog.llm(workload.llm).name,
                variant=solution.use.get(w.id),
                supplies=supplies,
                requests_per_month_first=requests(problem, w.id, 0),
                requests_per_month_last=requests(problem, w.id, problem.months_count - 1),
                peak_req_per_s_first=max(w.peak_req_per_s[0]),
                peak_req_per_s_last=max(w.peak_req_per_s[-1]),
                npv_usd=npv,
                usd_per_mtok=total / mtok if mtok else None,
                usd_per_request=total / all_requests if all_requests else None,
                privacy_allow=workload.privacy.allow,
                privacy_regions=workload.privacy.regions or (),
                binding=binding(prepared, problem, w.id, supplies),
                warnings=warnings(prepared, w.id, supplies),
            )
        )
    return tuple(found)


def binding(prepared: Prepared, problem: ProblemData, workload: str, supplies: tuple[Supply, ...]) -> str | None:
    """Return the hour that binds and what stops a replica there, in words."""
    w = next(w for w in problem.workloads if w.id == workload)
    own = next((s for s in supplies if s.kind != "api"), None)
    if own is None:
        return None
    candidate = next(
        c
        for c in prepared.candidates.values()
        if c.pool.data.id == own.pool and c.variant.id == own.variant and c.data.gpus_count == own.gpus_per_replica_count
    )
    result = candidate.assessments[workload].result
    assert isinstance(result, Feasible)
    t = max(range(len(problem.hours_by_slice)), key=lambda i: w.peak_req_per_s[0][i])
    hours = prepared.demand.timeslices.hours_in(t)
    when = "any hour" if w.kind == "batch" else f"the busiest hours are {week_label(hours)}"
    return f"{when}; a replica is limited by {LIMITED_BY[result.limited_by]}"


def warnings(prepared: Prepared, workload: str, supplies: tuple[Supply, ...]) -> tuple[str, ...]:
    """Return what a buyer must know of a workload's supplies: low-bit formats without an evaluation, speed that was never measured."""
    asked = prepared.workloads[workload]
    evaluated = {e.weights for e in asked.evaluations}
    found = []
    llm, context_tok = prepared.catalog.llm(asked.llm), context_of(asked)
    if context_tok > llm.max_context_tok and any(s.kind != "api" for s in supplies):
        found.append(
            f"{context_tok:,} tokens of context are asked for and {llm.name} is made for {llm.max_context_tok:,}: an engine refuses more "
            "unless positions are scaled, which costs quality"
        )
    for s in supplies:
        if s.kind == "api":
            continue
        assert s.weights is not None
        wf = prepared.catalog.weight_format(s.weights)
        if wf.rule_bytes_per_param * 8 < 4 and s.weights not in evaluated:
            found.append(f"{wf.name} keeps fewer than 4 bits a weight: measure its quality on your own task before relying on it")
        if s.band is not None and s.band.basis == "assumed":
            found.append(f"speed on {s.gpu_name} was not measured for this engine and format: it is taken from the nearest measured family")
    if asked.kind == "batch" and asked.tokens is None:
        found.append(f"request lengths of {plain(workload)} are assumed: write tokens to make them yours")
    return tuple(dict.fromkeys(found))
