"""What the file may say and the planner does not plan yet: refused by name, never ignored."""

from __future__ import annotations

from collections.abc import Iterator

from planner.schema.workload import Batch, Finetune, Serving, WorkloadFile

Place = tuple[str | int, ...]


def not_planned_yet(file: WorkloadFile) -> Iterator[tuple[Place, str, str]]:
    """Yield (place, what, cure) for every key that is valid and that this version would otherwise have to ignore."""
    if file.plan.carbon.cap_t_per_year is not None:
        cure = "set a price, carbon.usd_per_t, or remove the cap"
        yield ("plan", "carbon", "cap_t_per_year"), "a cap on emissions is not planned yet", cure
    if file.plan.report_currency is not None:
        yield ("plan", "report_currency"), "a second currency is not shown yet", "remove it: every figure is in US dollars"
    if file.plan.tax is not None:
        yield ("plan", "tax"), "tax is not shown yet", "remove it: every figure is before tax"
    for index, entry in enumerate(file.owned):
        if entry.in_service > file.plan.start:
            what = f"nodes that come after the first month of the plan ({file.plan.start:%Y-%m}) are not planned yet"
            yield ("owned", index, "in_service"), what, "leave them out, or start the plan when they serve"
    for name in file.providers:
        cure = "remove them; limits of an API offer belong in its price row"
        yield ("providers", name, "quotas"), "provider quotas are not planned yet", cure
    for name, workload in file.workloads.items():
        here: Place = ("workloads", name)
        if isinstance(workload, Finetune):
            yield (*here, "kind"), "fine-tuning runs are checked but not planned yet", "plan it apart, or remove the workload"
            continue
        if workload.tenants:
            cure = "write each as a workload of its own: equal models share replicas"
            yield (*here, "tenants"), "tenants of one workload are not planned yet", cure
        if workload.max_provider_share_frac < 1:
            yield (*here, "max_provider_share_frac"), "a largest share for one provider is not planned yet", "remove it"
        if isinstance(workload, Serving) and not workload.load.kv_during_think:
            cure = "remove it: KV then stays reserved"
            yield (*here, "load", "kv_during_think"), "dropping KV while users think is not planned yet", cure
        if isinstance(workload, Serving) and workload.availability.survive != "none" and workload.availability.interruptible:
            cure = "set survive: none, or interruptible: false"
            yield (*here, "availability"), "interruptible work cannot also promise to survive a loss", cure
        if isinstance(workload, Batch) and workload.availability.survive != "none":
            yield (*here, "availability", "survive"), "batch work waits where a replica is lost", "remove it: the deadline is the promise"
