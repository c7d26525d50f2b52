"""The same GPUs otherwise: as several replicas behind a proxy, where one instance over all of them cannot be split by tensor."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

from planner.errors import Fault, InputError
from planner.formatting import gb, plural
from planner.physics import memory
from planner.schema.hardware import Gpu
from planner.sizing import Placement, place
from planner.sizing_question import Question


@dataclass(frozen=True)
class Replicas:
    """`count` instances that share the sessions; `one` is the placement of each."""

    count: int
    one: Placement

    def __str__(self) -> str:
        p = self.one
        split = f"TP {p.tp}" + (f" x PP {p.pp}" if p.pp > 1 else "") if p.gpu_count > 1 else "one GPU"
        held = plural(p.answer.max_sequences * self.count, "session")
        return f"{self.count} replicas of {split} behind a proxy: {gb(p.answer.per_gpu_bytes)} per GPU, {held} in all"

    def as_json(self) -> dict[str, Any]:
        """Return the suggestion with the figures of one replica."""
        p = self.one
        return {
            "count": self.count, "gpu_count_each": p.gpu_count, "tp": p.tp, "pp": p.pp, "bytes_per_gpu": p.answer.per_gpu_bytes,
            "usable_bytes_per_gpu": p.answer.usable_bytes_per_gpu, "max_sequences": p.answer.max_sequences * self.count,
        }


def replicas(question: Question, gpu: Gpu, gpu_count: int) -> Replicas | None:
    """Return the most replicas that `gpu_count` GPUs make, each holding its share of the sessions, best without pipeline stages.

    None where tensor parallelism over all of them is allowed, where ranks of data-parallel attention are asked for, or where
    no replica fits. Forty heads do not divide by six: Qwen1.5-32B in 4 bit on six T4 is three replicas of TP 2.
    """
    q = question
    if gpu_count == 1 or q.extras.dp > 1 or gpu_count in q.footprint.tp_sizes:
        return None
    found: list[Replicas] = []
    for count in range(gpu_count, 1, -1):
        if gpu_count % count:
            continue
        share = replace(q, concurrency=math.ceil(q.concurrency / count))
        one = place(share, gpu, gpu_count // count)
        if one is not None and one.fits:
            found.append(Replicas(count, one))
    return next((r for r in found if r.one.pp == 1), found[0] if found else None)


def refuse_with_replicas(question: Question, gpu: Gpu, gpu_count: int, tp: int) -> None:
    """Refuse a tensor-parallel size that is all of the GPUs and does not divide the model, naming the replicas they make instead."""
    if tp != gpu_count or tp in question.footprint.tp_sizes:
        return
    fault = memory.split_fault(question.footprint, tp)
    many = replicas(question, gpu, gpu_count)
    cure = fault.cure if many is None else f"{fault.cure}; {gpu_count} GPUs make {many}"
    raise InputError([Fault(fault.file, fault.line, fault.place, fault.what, cure)])
