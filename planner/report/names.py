"""Names instead of ids: what pools, workloads and sites are called, and prose with its ids spelled out."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cached_property

from planner import formatting as f
from planner.schema.plan import Plan

ACTIONS = {"buy": "Buy", "reserve": "Reserve", "rent": "Rent", "call": "Call", "keep": "Keep"}
POOL_KINDS = {
    "own": "bought",
    "existing": "already there",
    "reserved": "reserved",
    "on_demand": "on demand",
    "spot": "spot",
    "api": "API",
}
TERMS = {
    "weights": "weights",
    "kv_cache": "KV cache",
    "kv": "KV cache",
    "activation": "activations",
    "activations": "activations",
    "overhead": "overhead",
}
LIMITS = {
    "max_context_tok": "Longest context",
    "max_sequences_count": "Sequences at once, at most",
    "memory_fraction_frac": "Memory fraction of the engine",
    "tp": "Tensor parallel",
    "pp": "Pipeline parallel",
    "ep": "Expert parallel",
}
EXCLUSIONS = {
    "privacy": "Privacy: the data may not go there",
    "region": "Region: it stands elsewhere",
    "attribute": "Required attribute not stated",
    "memory": "Does not fit in memory",
    "latency": "Does not keep the promised latency",
    "price": "No price",
    "stale": "Price too old",
    "engine": "The engine does not run it",
    "dominated": "Another option is never worse (proof recorded)",
    "quality": "Quality not shown to be equal",
    "limit": "Beyond a limit of the provider",
}
KINDS = {
    "assumed": "assumed",
    "derived": "derived",
    "measured": "measured",
    "datasheet": "datasheet",
    "list_price": "list price",
    "quote": "quote",
    "published": "published",
    "input": "your input",
}
_BY = re.compile(r"\bby ([^,]+?)(?= at |,|$)")
_TICKED = re.compile(r"(`[^`]*`)")
_IDS = re.compile(r"(?<![\w/.@:=-])[a-z][a-z0-9]*(?:[_][a-z0-9]+)+(?![\w/=@-])(?!\.[a-z0-9])")


@dataclass(frozen=True)
class Names:
    """The names that a plan gives its ids."""

    plan: Plan

    @cached_property
    def pools(self) -> dict[str, str]:
        """Pool or offer id → what a reader calls it."""
        found: dict[str, str] = {}
        for decision in self.plan.decisions:
            if decision.node_name:
                by = f" by {self.provider(decision.provider)}" if decision.provider else ""
                at = f" at {f.name_of(decision.site)}" if decision.site else ""
                found[decision.pool] = f"{decision.node_name}{by}{at}"
        for usage in self.plan.usage:
            found[usage.pool] = self.prose(usage.name)
        for workload in self.plan.workloads:
            for supply in workload.supplies:
                found[supply.pool] = self.prose(supply.name)
        return found

    def pool(self, identifier: str) -> str:
        """Return the name of a pool or API offer; a name stays as it is."""
        if identifier in self.pools:
            return self.pools[identifier]
        return self.prose(identifier) if " " in identifier else f.name_of(identifier)

    def provider(self, identifier: str) -> str:
        """Return a provider as the supplies' names spell it (`… by OpenAI`), else its id as words."""
        plain = re.sub(r"[^a-z0-9]", "", identifier.lower())
        for workload in self.plan.workloads:
            for supply in workload.supplies:
                found = _BY.search(supply.name)
                if plain and found and re.sub(r"[^a-z0-9]", "", found.group(1).lower()) == plain:
                    return found.group(1)
        return f.name_of(identifier)

    def prose(self, text: str) -> str:
        """Return a sentence with `snake_case` ids as words; what stands between backticks is a key to type and stays.

        >>> Names.prose(None, "8x H100 at office_rack, set `api_unproven: accept`")
        '8x H100 at office rack, set `api_unproven: accept`'
        """
        parts = _TICKED.split(text)
        return "".join(part if part.startswith("`") else _IDS.sub(lambda found: f.name_of(found.group()), part) for part in parts)
