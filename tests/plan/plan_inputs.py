"""Small real workload files as text: one chat on an 8B model, a few months, a handful of supplies; each test changes what it is about."""

from __future__ import annotations

from copy import deepcopy
from pathlib import Path
from typing import Any

import yaml

from planner.readers.workload_file import parse_workload
from planner.schema.workload import WorkloadFile

CHAT: dict[str, Any] = {
    "llm": "llama_3.1_8b",
    "weights": ["fp8"],
    "kv_cache": ["fp16"],
    "tokens": {"prompt": {"mean": 1000, "p99": 4000}, "output": {"mean": 200, "p99": 700}},
    "max_context_tok": 8192,
    "load": {"requests_per_day": 60_000, "profile": "office_hours"},
    "latency": {"ttft_p99_ms": 3000, "tpot_p99_ms": 80},
    "privacy": {"allow": ["own", "rent"]},
}
BATCH: dict[str, Any] = {
    "kind": "batch",
    "llm": "llama_3.1_8b",
    "weights": ["fp8"],
    "kv_cache": ["fp16"],
    "tokens_per_day": {"input": 300e6, "output": 30e6},
    "deadline_hours": 24,
    "privacy": {"allow": ["rent"]},
}
OFFERS = ["deepinfra.llama_3.1_8b", "together.llama_3.1_8b", "bedrock.llama_3.1_8b"]


def document(**chat: Any) -> dict[str, Any]:
    """Return a file with one chat; keyword arguments replace keys of the chat."""
    return {
        "plan": {
            "start": "2026-12", "horizon_months": 3, "prices": "2026-11-30", "as_of": "2026-11-30",
            "supply": {"buy": ["l40s_x4"], "providers": ["crusoe", "scaleway"], "deals": ["on_demand"]},
        },
        "sites": {"rack": {"region": "eu_spain", "usd_per_kwh": 0.2, "pue": 1.4, "ops": {"usd_per_month_fixed": 500}}},
        "workloads": {"chat": deepcopy(CHAT) | chat},
    }  # fmt: skip


def text_of(content: dict[str, Any]) -> str:
    """Return a document as YAML text."""
    return yaml.safe_dump(content, sort_keys=False)


def file_of(content: dict[str, Any], path: str = "small.yaml") -> WorkloadFile:
    """Return a document as a checked workload file that stands in no folder."""
    return parse_workload(text_of(content).encode(), path)


def written(folder: Path, content: dict[str, Any], name: str = "small.yaml") -> Path:
    """Write a document into a folder."""
    path = folder / name
    path.write_text(text_of(content), encoding="utf-8")
    return path


def own_now(**chat: Any) -> dict[str, Any]:
    """Return a file that may only own, with nodes that stand at once, and nothing to rent beside."""
    content = document(**{"privacy": {"allow": ["own"]}} | chat)
    content["nodes"] = {"l40s_x4": {"lead_months": 0}}
    content["plan"]["supply"] = {"buy": ["l40s_x4"], "providers": ["crusoe"], "deals": ["spot"]}
    return content


def with_api(allow: list[str], **chat: Any) -> dict[str, Any]:
    """Return a file whose chat may go where `allow` says and nothing else differs; an API without a sourced p99 is accepted."""
    keys: dict[str, Any] = {"privacy": {"allow": allow}, "api_equivalents": OFFERS, "api_unproven": "accept"}
    content = document(**keys | chat)
    content["nodes"] = {"l40s_x4": {"lead_months": 0}}
    return content


def bridged() -> dict[str, Any]:
    """Return a steady load that owned nodes serve for less, but only from month 1 on."""
    content = document(load={"requests_per_day": 800_000}, privacy={"allow": ["own", "rent"], "regions": ["eu"]})
    content["nodes"] = {"l40s_x4": {"lead_months": 0.6}}
    content["plan"] |= {"horizon_months": 6, "supply": {"buy": ["l40s_x4"], "providers": ["azure"], "deals": ["on_demand"]}}
    return content


def rented(**chat: Any) -> dict[str, Any]:
    """Return a file that may only rent on demand, from providers with places in and outside the EU."""
    content = document(**{"privacy": {"allow": ["rent"]}} | chat)
    content["plan"]["supply"] = {"providers": ["azure", "aws"], "deals": ["on_demand"]}
    return content


def two_classes() -> dict[str, Any]:
    """Return two workloads on one model: a strict one and a loose one, each far below one replica's rate."""
    load = {"requests_per_day": 6_000, "profile": "flat"}
    content = document(load=load, privacy={"allow": ["rent"]})
    strict = content["workloads"].pop("chat") | {"latency": {"ttft_p99_ms": 1500, "tpot_p99_ms": 60}}
    loose = deepcopy(strict) | {"latency": {"ttft_p99_ms": 6000, "tpot_p99_ms": 120}}
    content["workloads"] = {"loose": loose, "strict": strict}
    return content


def weekdays(deadline_hours: float) -> dict[str, Any]:
    """Return batch work that arrives on weekdays only, on nodes reserved for a year."""
    content = document()
    profile = [1] * 120 + [0] * 48
    content["workloads"] = {"nightly": deepcopy(BATCH) | {"profile": profile, "deadline_hours": deadline_hours}}
    content["plan"]["supply"] = {"providers": ["aws"], "deals": ["reserved_1y"]}
    return content


def existing() -> dict[str, Any]:
    """Return a file whose node is already there."""
    content = own_now()
    content["owned"] = [{"node": "l40s_x4", "count": 1, "site": "rack", "in_service": "2025-06"}]
    return content


def later() -> dict[str, Any]:
    """Return a file whose load begins in its second month."""
    return document(start_month=1, privacy={"allow": ["rent"]})


FILES: dict[str, dict[str, Any]] = {
    "small": document(), "own_now": own_now(), "everything_allowed": with_api(["own", "rent", "api"]), "only_own": with_api(["own"]),
    "only_api": with_api(["api"]), "bridged": bridged(), "rented": rented(),
    "rented_eu": rented(privacy={"allow": ["rent"], "regions": ["eu"]}),
    "two_classes": two_classes(), "due_in_a_day": weekdays(24), "due_in_a_week": weekdays(168), "existing": existing(), "later": later(),
    "survive_replica": own_now(availability={"survive": "replica"}), "survive_node": own_now(availability={"survive": "node"}),
}  # fmt: skip
"""Name → file: every plan of these is held to the rules that hold for all plans."""
