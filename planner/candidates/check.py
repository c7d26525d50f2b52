"""Names in the workload file that only the catalog can judge: nodes, regions, offers, models; every fault at once, with its line."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from planner.candidates.refuse import Place, not_planned_yet
from planner.catalog import Catalog, Snapshot, data_root
from planner.errors import Fault, InputError, did_you_mean
from planner.readers.yaml_file import Document, read_yaml
from planner.schema.workload import Batch, Finetune, Serving, WorkloadFile

LEAST_DEADLINE_HOURS = 1.0
MOST_OUTPUT_OVER_INPUT = 1000
"""Output over input of batch work without `tokens`, up to which requests of an assumed prompt are believable (assumed)."""


def check_file(file: WorkloadFile, catalog: Catalog, snapshot: Snapshot) -> None:
    """Raise `InputError` with every name the catalog does not know and every key that is not planned yet."""
    strange = [
        Fault(f"pricing/{snapshot.day}/{table}.csv", None, f"{row.id}.node", f"no '{row.node}' in hardware/nodes",
              did_you_mean(row.node, catalog.nodes))
        for table, rows in (("own", snapshot.own), ("rent", snapshot.rent)) for row in rows.values() if row.node not in catalog.nodes
    ]  # fmt: skip
    if strange:
        raise InputError(strange)
    found = [*_unknown(file, catalog, snapshot), *not_planned_yet(file)]
    if found:
        document = _document(file)
        raise InputError(
            Fault(file.path, None if document is None else document.line_of(place), ".".join(map(str, place)), what, cure)
            for place, what, cure in found
        )


def _document(file: WorkloadFile) -> Document | None:
    """Read the file again for its line numbers; None where it was given as text only."""
    path = Path(file.path)
    if file.path.startswith("package:"):
        path = data_root() / file.path.removeprefix("package:")
    return read_yaml(path, max_bytes=1_000_000) if path.is_file() else None


def _unknown(file: WorkloadFile, catalog: Catalog, snapshot: Snapshot) -> Iterator[tuple[Place, str, str]]:
    for name, site in file.sites.items():
        yield from _one(
            ("sites", name, "region"), site.region, catalog.regions, "regions", "add it to hardware/regions.yaml of your own folder"
        )
    for index, entry in enumerate(file.owned):
        yield from _one(("owned", index, "node"), entry.node, catalog.nodes, "hardware/nodes")
    for node, override in file.nodes.items():
        yield from _one(("nodes", node), node, catalog.nodes, "hardware/nodes")
        ages = [point.age_months for point in override.residual or ()]
        if len(set(ages)) < len(ages):
            yield ("nodes", node, "residual"), "two points have the same age", "write one point for each age_months"
    supply = file.plan.supply
    priced = {row.node for row in snapshot.own.values()}
    for index, node in enumerate(supply.buy or ()):
        yield from _one(
            ("plan", "supply", "buy", index), node, priced, f"the purchase prices of {snapshot.day}", "add its price to your own folder"
        )
    providers = {row.provider for row in snapshot.rent.values()}
    for index, provider in enumerate(supply.providers or ()):
        yield from _one(("plan", "supply", "providers", index), provider, providers, f"the rents of {snapshot.day}")
    for name, workload in file.workloads.items():
        here: Place = ("workloads", name)
        for index, region in enumerate(workload.privacy.regions or ()):
            yield from _one((*here, "privacy", "regions", index), region, catalog.regions, "regions")
        if "." not in workload.llm or workload.llm in catalog.model_files or Path(workload.llm).suffix != ".json":
            yield from _one((*here, "llm"), workload.llm, catalog.model_files, "workloads/models", "or give the path of a config.json")
        if isinstance(workload, Finetune):
            continue
        yield from _served(here, workload, catalog, snapshot)


def _served(here: Place, workload: Serving | Batch, catalog: Catalog, snapshot: Snapshot) -> Iterator[tuple[Place, str, str]]:
    for key, known in (("weights", catalog.weight_formats), ("kv_cache", catalog.kv_formats)):
        for index, value in enumerate(getattr(workload, key)):
            yield from _one((*here, key, index), value, known, "hardware/formats.yaml")
    for index, offer in enumerate(workload.api_equivalents):
        if offer not in snapshot.api:
            cure = did_you_mean(offer, snapshot.api, "name an offer of this snapshot, or add its price to your own folder")
            yield (*here, "api_equivalents", index), f"no price for '{offer}' in the snapshot of {snapshot.day}", cure
    if isinstance(workload, Batch) and workload.deadline_hours < LEAST_DEADLINE_HOURS:
        what = f"{workload.deadline_hours:g} hours is less than the hour that batch work is planned by"
        yield (*here, "deadline_hours"), what, "give at least 1 hour, or describe it as serving with a latency"
    if (
        isinstance(workload, Batch)
        and workload.tokens is None
        and 0 < workload.tokens_per_day.input < workload.tokens_per_day.output / MOST_OUTPUT_OVER_INPUT
    ):
        what = f"more than {MOST_OUTPUT_OVER_INPUT} tokens are written for each one read: no request lengths can be assumed"
        yield (*here, "tokens_per_day"), what, "write `tokens:` with the mean and p99 of prompt and output, or correct the volumes"
    if isinstance(workload, Batch) and workload.tokens is not None:
        volume, tokens = workload.tokens_per_day, workload.tokens
        by_input, by_output = volume.input / tokens.prompt.mean, volume.output / tokens.output.mean
        if abs(by_input - by_output) > 0.01 * max(by_input, by_output):
            what = f"tokens and tokens_per_day disagree: {by_input:,.0f} requests a day by input, {by_output:,.0f} by output"
            yield (*here, "tokens"), what, "correct the means, or leave tokens out"


def _one(place: Place, value: str, known: object, where: str, also: str = "") -> Iterator[tuple[Place, str, str]]:
    names = set(known)  # type: ignore[call-overload]
    if value not in names:
        yield place, f"no '{value}' in {where}", did_you_mean(value, names, also)
