"""Rules of the workload file that span its sections, checked on what was written so that they are told with all the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from planner.errors import did_you_mean

if TYPE_CHECKING:
    from planner.schema.workload import Rules

INFERENCE_KEYS = ("weights", "kv_cache")


def _mapping(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _number(value: Any) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def with_defaults(data: dict[str, Any]) -> dict[str, Any]:
    """Return the file with `plan.defaults` laid under every workload and start months written as numbers.

    Privacy is merged key by key; every other key of a workload replaces the default whole.
    """
    plan = _mapping(data.get("plan"))
    defaults = _mapping(plan.get("defaults"))
    workloads = data.get("workloads")
    if not isinstance(workloads, dict):
        return data
    result: dict[Any, Any] = {}
    for name, workload in workloads.items():
        if not isinstance(workload, dict):
            result[name] = workload
            continue
        filled = dict(workload)
        for key, value in defaults.items():
            if value is None or (key in INFERENCE_KEYS and filled.get("kind") == "finetune"):
                continue
            if key == "privacy" and isinstance(value, dict) and isinstance(filled.get(key, {}), dict):
                filled[key] = {**{k: v for k, v in value.items() if v is not None}, **filled.get(key, {})}
            else:
                filled.setdefault(key, value)
        if isinstance(filled.get("start_month"), str):
            filled["start_month"] = _month_index(filled["start_month"], plan.get("start"))
        result[name] = filled
    return {**data, "workloads": result}


def _month_index(month: str, start: Any) -> Any:
    """Return months from `start` to `month`, or the text itself where either is not a month."""
    from planner.schema.workload import _month

    try:
        first, then = _month(start), _month(month)
    except ValueError:
        return month
    return (then.year - first.year) * 12 + then.month - first.month


def check_whole(rules: Rules, data: dict[str, Any]) -> None:
    """Note every fault between sections. Parts of the wrong form are left to the field checks."""
    plan, sites = _mapping(data.get("plan")), _mapping(data.get("sites"))
    owned = data.get("owned")
    owned = list(owned) if isinstance(owned, (list, tuple)) else []
    for index, nodes in enumerate(owned):
        site = _mapping(nodes).get("site")
        if isinstance(site, str) and site not in sites:
            cure = did_you_mean(site, sites) if sites else "describe it under `sites:`"
            rules.add(("owned", index, "site"), f"no '{site}' in sites", cure)
    horizon = _number(plan.get("horizon_months")) or 36.0
    for name, workload in _mapping(with_defaults(data).get("workloads")).items():
        written = _mapping(workload)
        allow = _mapping(written.get("privacy")).get("allow")
        if allow in (["own"], ("own",), "own") and not sites:
            what = "only own is allowed and there is no site to stand a node, which leaves nothing"
            rules.add(("workloads", name, "privacy", "allow"), what, "describe a place under `sites:`, or allow rent or api")
        start = _number(written.get("start_month"))
        if start is not None and start >= horizon:
            what = f"starts in month {start:g}, after the plan's last month {horizon - 1:g}"
            rules.add(("workloads", name, "start_month"), what, "start earlier, or plan more months")
        _check_growth(rules, name, written, horizon)


def _check_growth(rules: Rules, name: str, workload: dict[str, Any], horizon: float) -> None:
    from planner.schema.workload import MAX_GROWTH_FACTOR

    place: tuple[str | int, ...] = ("workloads", name, "growth_frac_per_month")
    growth = _number(workload.get("growth_frac_per_month"))
    if growth is None:
        place = ("workloads", name, "load", "growth_frac_per_month")
        growth = _number(_mapping(workload.get("load")).get("growth_frac_per_month"))
    if growth is None or not 0 < growth <= 1 or not 1 <= horizon <= 120:
        return
    factor = (1 + growth) ** (horizon - 1)
    if factor > MAX_GROWTH_FACTOR:
        what = f"{growth:g} a month makes {factor:.3g} times the load by the last month"
        rules.add(place, what, f"accepted: at most {MAX_GROWTH_FACTOR:,.0f} times over the horizon")
